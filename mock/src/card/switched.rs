//! The network of switches that cards stand in, if these compute.

use cmdseq::Topology;
use cmdseq::communicator::ContextId;

use crate::card::Card;
use crate::engine::Time;
use crate::profile::Profile;
use crate::proto::mpi_fpga::Network;

/// A network, and which cards wait for it.
pub(crate) struct Switches {
    pub(crate) network: Network,
    /// When the fabric looks at the network next.
    pub(crate) due: Option<Time>,
    /// Cards whose call has begun.
    pub(crate) waiting: Vec<usize>,
    /// Cards whose call waits until others have begun theirs, and those of them for which this may now be so.
    pub(crate) held: Vec<usize>,
    pub(crate) released: Vec<usize>,
}

impl Switches {
    /// Returns the network of `profile` with the tables of all cards; `None` if its switches do not compute.
    pub(crate) fn of(profile: &Profile, cards: &[Card]) -> Option<Self> {
        let Topology::Switched(shape) = profile.topology else { return None };
        let network = match Network::new(profile.switch.as_ref()?, shape) {
            Ok(network) => network,
            Err(error) => unreachable!("a profile that passed its check: {error}"),
        };
        let mut switches = Switches { network, due: None, waiting: Vec::new(), held: Vec::new(), released: Vec::new() };
        cards.iter().for_each(|card| switches.join(card));
        Some(switches)
    }

    /// Enters the communicators of a card.
    pub(crate) fn join(&mut self, card: &Card) {
        self.network.set_table(card.node, card.communicators.table());
        for (id, members) in card.communicators.all() {
            self.network.define(id, &members, card.node);
        }
    }

    /// Forgets a communicator of a card.
    pub(crate) fn forget(&mut self, card: &Card, id: ContextId) {
        self.network.set_table(card.node, card.communicators.table());
        self.network.forget(id, card.node);
    }
}

//! CIRCUS cards on a bus: endpoints whose host opens ends of channels, over one [`Network`].
//!
//! The cards do DMA, raise interrupts and have a register block of their own ([`fpga_regs::channel`]). Routers start without
//! tables. Time passes inside the accesses of the hosts, so that one sequence of accesses always does the same.

mod core;
mod end;
mod endpoint;
mod registers;

use std::sync::Arc;

use fpga_hal::Endpoint;

use crate::channels::core::{Core, ENDS};
use crate::channels::endpoint::{CardEndpoint, Shared, lock};
use crate::proto::circus::{BuildError, Design, Loss, Network, Profile};

/// CIRCUS cards on a torus, whose hosts open ends of channels. Clones are handles to the same cards.
///
/// An end of a channel of the [`Design`] that no kernel uses is the host's: its host opens it by the channel's
/// [id](Design::id). Hosts can also open channels that the design does not have.
#[derive(Clone)]
pub struct ChannelCards {
    shared: Arc<Shared>,
    /// By node. One for each card, so that a bus notices a card that is already attached.
    endpoints: Arc<[Arc<CardEndpoint>]>,
}

impl ChannelCards {
    /// Creates cards after power-up, with the kernels of `design`.
    ///
    /// # Errors
    /// [`BuildError::Nodes`] or [`BuildError::Profile`].
    pub fn new(profile: &Profile, design: Design) -> Result<Self, BuildError> {
        let torus = design.torus;
        let network = Network::for_hosts(profile, design, ENDS)?;
        let shared = Arc::new(Shared::new(Core::new(network, torus)));
        let nodes = 0..torus.nodes() as usize;
        let endpoints = nodes.map(|node| Arc::new(CardEndpoint::new(&shared, node))).collect();
        Ok(ChannelCards { shared, endpoints })
    }

    /// Returns the number of cards.
    pub fn nodes(&self) -> u32 {
        self.endpoints.len() as u32
    }

    /// Returns the card at `node`, to attach it to a bus.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn endpoint(&self, node: u32) -> Arc<dyn Endpoint> {
        let Some(endpoint) = self.endpoints.get(node as usize) else { panic!("the network has no node {node}") };
        Arc::<CardEndpoint>::clone(endpoint)
    }

    /// Returns where packets were lost, and how many.
    pub fn losses(&self) -> Vec<Loss> {
        lock(&self.shared).network.losses()
    }

    /// Removes a card: reads return all-ones, writes are dropped. A card that does not exist is ignored, here and below.
    pub fn remove(&self, node: u32) {
        self.at(node, |core, node| core.cards[node].is_gone = true);
    }

    /// Stops a card's channel block: it makes no DMA and ignores writes, until its function is reset.
    pub fn freeze(&self, node: u32) {
        self.at(node, |core, node| core.cards[node].is_frozen = true);
    }

    /// Resets a card's function without its host's knowledge.
    pub fn reset(&self, node: u32) {
        self.at(node, |core, node| core.reset(node));
    }

    fn at(&self, node: u32, act: impl FnOnce(&mut Core, usize)) {
        let mut core = lock(&self.shared);
        if (node as usize) < core.cards.len() {
            act(&mut core, node as usize);
        }
    }
}

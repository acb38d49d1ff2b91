//! A fabric as its users see it: cards to attach to a bus, faults to plant, counters.

mod clock;
mod endpoint;
mod late;
mod recorder;

pub use clock::Clock;
pub use late::LateDma;
pub use recorder::{Accesses, Recorder};

use std::sync::Arc;

use fpga_hal::Endpoint;

use crate::card::memory::{CardMemory, MemoryError};
use crate::card::user_logic::UserLogic;
use crate::environment::Statistics;
use crate::fabric::clock::Shared;
use crate::fabric::endpoint::CardEndpoint;
use crate::fault::Fault;
use crate::model::logged::picoseconds;
use crate::net::transfers::{LinkTransfer, TransferLog};
use crate::profile::{Profile, ProfileError};
use crate::world::Core;

/// Cards on a network, all on one clock of virtual time. Clones are handles to the same fabric.
#[derive(Clone)]
pub struct Fabric {
    shared: Arc<Shared>,
    /// By node. One for each card, so that a bus notices a card that is already attached.
    endpoints: Arc<[Arc<CardEndpoint>]>,
}

impl Fabric {
    /// Creates a fabric of `profile`, with cards after power-up.
    ///
    /// # Errors
    /// [`ProfileError`] if the fabric cannot be built.
    pub fn new(profile: Profile) -> Result<Self, ProfileError> {
        profile.check()?;
        let function = profile.shell.function();
        let shared = Arc::new(Shared::new(Core::new(profile)));
        let nodes = shared.access(|core| core.cards.len());
        let endpoints =
            (0..nodes).map(|node| Arc::new(CardEndpoint::new(Arc::clone(&shared), node, function))).collect();
        Ok(Fabric { shared, endpoints })
    }

    /// Returns the profile.
    pub fn profile(&self) -> Profile {
        self.shared.access(|core| core.env.profile.clone())
    }

    /// Returns the card at `node`, to attach it to a bus.
    ///
    /// # Panics
    /// If the fabric has no such node.
    pub fn endpoint(&self, node: u32) -> Arc<dyn Endpoint> {
        let Some(endpoint) = self.endpoints.get(node as usize) else { panic!("the fabric has no node {node}") };
        Arc::<CardEndpoint>::clone(endpoint)
    }

    /// Limits the machine's memory that all cards of the fabric use, in bytes: half of it is divided among the cards, half goes
    /// to the first card that asks. An instruction that needs more ends with [`Status::OutOfRange`](cmdseq::Status) and detail
    /// [`OUT_OF_MEMORY`](cmdseq::completion::OUT_OF_MEMORY). The default is half of the process's memory
    /// limit.
    pub fn limit_memory(&self, bytes: u64) {
        self.shared.access(|core| core.budget.set_total(bytes));
    }

    /// Runs `access` on the memory of the card at `node`, of which it uses `bytes` bytes.
    pub(crate) fn memory<R>(&self, node: u32, bytes: u64, access: impl FnOnce(&mut CardMemory) -> R) -> R {
        self.shared.access(|core| {
            core.env.hold_bytes += bytes;
            access(&mut core.cards[node as usize].memory)
        })
    }

    /// Reads the memory of the card at `node`, past all that a host has.
    ///
    /// # Errors
    /// [`MemoryError`] if the fabric has no such node, or if the range is outside of its memory or has an error.
    pub fn read_memory(&self, node: u32, address: u64, bytes: u64) -> Result<Vec<u8>, MemoryError> {
        self.check_node(node)?;
        self.memory(node, bytes, |memory| memory.read(address, bytes))
    }

    /// Writes the memory of the card at `node`, past all that a host has.
    ///
    /// # Errors
    /// [`MemoryError`] if the fabric has no such node, or if the range is outside of its memory or no memory is left for it.
    pub fn write_memory(&self, node: u32, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.check_node(node)?;
        self.memory(node, data.len() as u64, |memory| memory.write(address, data))
    }

    fn check_node(&self, node: u32) -> Result<(), MemoryError> {
        self.endpoints.get(node as usize).map(drop).ok_or(MemoryError::NoCard { node })
    }

    /// Sends an interrupt of the card at `node`, whose shell it comes from.
    pub(crate) fn interrupt(&self, node: u32, vector: u32) {
        self.shared.try_access(|core| {
            let card = &mut core.cards[node as usize];
            card.msix.raise(vector);
            card.deliver_interrupts();
        });
    }

    /// Resets the logic of the card at `node`, but not its function: its region is configured anew, or its port reset.
    pub(crate) fn reset_logic(&self, node: u32) {
        self.shared.try_access(|core| {
            let index = node as usize;
            if !core.cards[index].is_gone {
                core.push_posted(index);
                core.reset_logic(index);
            }
        });
    }

    /// Returns whether the card at `node` was removed.
    pub(crate) fn is_gone(&self, node: u32) -> bool {
        self.shared.access(|core| core.cards[node as usize].is_gone)
    }

    /// Returns whether the card at `node` answers and decodes memory accesses. Unlike a read of its configuration space, this takes no
    /// posted write along.
    pub(crate) fn decodes(&self, node: u32) -> bool {
        self.shared.access(|core| {
            let card = &core.cards[node as usize];
            card.answers() && card.config.decodes_memory()
        })
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns the reason if the fabric has failed: a part of the model panicked, and all cards read as all-ones since.
    pub fn failure(&self) -> Option<String> {
        self.shared.failure()
    }

    /// Returns the counters.
    pub fn statistics(&self) -> Statistics {
        self.shared.access(|core| Statistics { now_ps: core.env.now, ..core.env.statistics })
    }

    /// Plants a fault. A fault of an unknown card or link is ignored. A transfer is
    /// interrupted once: of several faults that wait for it, the first one planted strikes. A fault that strikes a card at once,
    /// before the card's first doorbell, strikes again after each reset until then: a host that opens the card resets it.
    pub fn plant(&self, fault: Fault) {
        self.shared.access(|core| core.plant(fault));
    }

    /// Discards the data that cards move from now on; only times stay correct. For more data than this machine has memory
    /// for.
    pub fn hollow_out(&self) {
        self.shared.access(|core| core.cards.iter_mut().for_each(|card| card.memory.hollow_out()));
    }

    /// Sets the rate of the links on the way from node `a` to node `b`, in this direction.
    pub fn set_link_rate(&self, a: u32, b: u32, mbps: u32) {
        self.shared.access(|core| {
            if let Some(port) = core.env.ports.toward(a, b) {
                core.set_link_rate(a as usize, port, mbps.into());
            }
        });
    }

    /// Connects `logic` to the changeover switch of the card at `node`.
    pub fn set_user_logic(&self, node: u32, logic: Box<dyn UserLogic>) {
        self.shared.access(|core| {
            if let Some(card) = core.cards.get_mut(node as usize) {
                card.user_logic = Some(logic);
            }
        });
    }

    /// Logs from now on what cards send to others, up to `limit` transfers, until [`take_transfers`](Self::take_transfers).
    pub fn log_transfers(&self, limit: usize) {
        self.shared.access(|core| core.env.transfers = Some(TransferLog::new(limit)));
    }

    /// Ends the log. Returns the transfers in the order of their ends, and how many had no room; none if nothing was logged.
    pub fn take_transfers(&self) -> (Vec<LinkTransfer>, u64) {
        self.shared.access(|core| core.env.transfers.take()).map(TransferLog::into_transfers).unwrap_or_default()
    }

    /// Returns when the cycle counter of the card at `node` has the value `count`, of which the low 48 bits are known: the beginning
    /// of that cycle nearest to now, in picoseconds of the fabric's time. `None` if the fabric has no such node.
    pub fn time_of(&self, node: u32, count: u64) -> Option<u64> {
        self.shared.access(|core| {
            let card = core.cards.get(node as usize)?;
            Some(picoseconds(card.clock.time(count, core.env.now)))
        })
    }

    /// Advances virtual time on a thread instead of inside accesses. For fabrics that are served to other processes. Returns
    /// `None` if the fabric has a thread already, or if starting the thread fails.
    pub fn start_clock(&self) -> Option<Clock> {
        Clock::start(&self.shared)
    }
}

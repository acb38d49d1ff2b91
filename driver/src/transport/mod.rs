//! How instructions reach a sequencer, and how its completions come back.
//!
//! A queue is above a [`Transport`] and knows none by name. There are two:
//!
//! | transport | instruction | doorbell | completion |
//! |---|---|---|---|
//! | [`HostRing`](host_ring::HostRing) | stored in host memory; the card fetches it by DMA | one register write | the card writes it to host memory by DMA |
//! | [`CardRing`](card_ring::CardRing) | stored in card memory through a BAR, 16 writes | one read of card memory, one register write | read from card memory through a BAR |
//!
//! Both have the same registers ([`QueueRegisters`](queue_registers::QueueRegisters)) and the same rings ([`ring`]): a
//! completion is complete when its phase bit has turned.

pub(crate) mod any;
pub(crate) mod card_ring;
pub(crate) mod host_ring;
pub(crate) mod queue_registers;
pub(crate) mod ring;

use cmdseq::{completion, instruction};

use crate::error::Result;
use crate::transport::queue_registers::QueueRegisters;

/// The way between one queue and its sequencer. Entries are named by their count, modulo 2^32.
///
/// The queue keeps the counts: it stores no entry that the card has not read, and announces what it has taken before the
/// card may write over it.
pub(crate) trait Transport {
    /// The registers of the queue.
    fn registers(&self) -> &QueueRegisters;

    /// Stores instruction `count`. The card does not look at it before [`ring`](Transport::ring).
    fn store(&self, count: u32, word: &[u8; instruction::BYTES]) -> Result<()>;

    /// Tells the card that `pushed` instructions are stored: the doorbell.
    fn ring(&self, pushed: u32) -> Result<()>;

    /// Copies completion `count` to `word` and returns true if the card has written it.
    fn poll(&self, count: u32, word: &mut [u8; completion::BYTES]) -> Result<bool>;

    /// Tells the card that `taken` completions are taken, so that it may write over them.
    fn announce(&self, taken: u32) -> Result<()> {
        self.registers().announce(taken)
    }

    /// Has the card raise the queue's interrupt, once, when it has written more than `taken` completions.
    fn arm(&self, taken: u32) -> Result<()> {
        self.registers().arm(taken)
    }

    /// Tells the card that the interrupt was seen. Only an interrupt that is a level needs it.
    fn acknowledge(&self) -> Result<()> {
        self.registers().acknowledge()
    }

    /// Starts the sequencer on rings that are [empty](Transport::empty), with all counts at zero.
    fn start(&self) -> Result<()>;

    /// Stops fetching and completing, once the sequencer runs nothing.
    fn stop(&self) -> Result<()> {
        self.registers().stop()
    }

    /// Empties both rings after the card has stopped. If the card cannot be trusted to leave them alone, takes others where
    /// there are others.
    fn empty(&mut self, is_trusted: bool) -> Result<()>;

    /// Keeps the memory that the card may still use until the process ends.
    fn leak(&self);
}

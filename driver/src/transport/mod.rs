//! How instructions reach a sequencer, and how its completions come back.
//!
//! A queue is above a [`Transport`] and knows none by name. There are three, and four ways:
//!
//! | way | transport | instruction | doorbell | completion |
//! |---|---|---|---|---|
//! | host ring | [`HostRing`](host_ring::HostRing) | stored in host memory; the card fetches it by DMA | one register write | the card writes it to host memory by DMA |
//! | host ring by bypass | [`BypassRing`](bypass_ring::BypassRing) | as above, through a channel of the shell's engine | one register write | as above; one that failed has STATUS of the channels read |
//! | card ring | [`CardRing`](card_ring::CardRing) | stored on the card through a BAR, 16 writes | one register write; before it a read, where the BAR keeps no order | the shell's engine copies it to host memory: a register write for each look |
//! | registers | [`CardRing`](card_ring::CardRing) without an engine's channel | stored on the card through a BAR, 16 writes | one register write; before it a read, where the BAR keeps no order | read on the card through a BAR: a read for each look, 8 for each completion |
//!
//! All have the same registers ([`QueueRegisters`](queue_registers::QueueRegisters)) and the same rings ([`ring`]): a
//! completion is complete when its phase bit has turned.

pub(crate) mod any;
pub(crate) mod bypass_ring;
pub(crate) mod card_ring;
pub(crate) mod fetched_ring;
pub(crate) mod host_ring;
pub(crate) mod queue_registers;
pub(crate) mod ring;
pub(crate) mod scratchpad;

use cmdseq::{completion, instruction};

use crate::board::Feed;
use crate::error::Result;
use crate::transport::queue_registers::QueueRegisters;
use crate::transport::scratchpad::Scratchpad;

/// The way between one queue and its sequencer. Entries are named by their count, modulo 2^32.
///
/// The queue keeps the counts: it stores no entry that the card has not read, and announces what it has taken before the
/// card may write over it.
pub(crate) trait Transport {
    /// How instructions and completions travel.
    fn feed(&self) -> Feed;

    /// The registers of the queue.
    fn registers(&self) -> &QueueRegisters;

    /// Stores instruction `count`. The card does not look at it before [`ring`](Transport::ring).
    fn store(&self, count: u32, word: &[u8; instruction::BYTES]) -> Result<()>;

    /// Tells the card that `pushed` instructions are stored: the doorbell.
    fn ring(&self, pushed: u32) -> Result<()>;

    /// Copies completion `count` to `word` and returns true if the card has written it.
    fn poll(&self, count: u32, word: &mut [u8; completion::BYTES]) -> Result<bool>;

    /// As [`poll`](Transport::poll), but looks only at what has arrived in host memory, if completions arrive there.
    #[inline(always)]
    fn peek(&self, count: u32, word: &mut [u8; completion::BYTES]) -> Result<bool> {
        self.poll(count, word)
    }

    /// Has the card raise the queue's interrupt, once, when it has written more than `taken` completions.
    fn arm(&self, taken: u32) -> Result<()> {
        self.registers().arm(taken)
    }

    /// Starts the sequencer on rings that are [empty](Transport::empty), with all counts at zero.
    fn start(&self) -> Result<()>;

    /// Empties both rings after the card has stopped. If the card cannot be trusted to leave them alone, takes others where
    /// there are others.
    fn empty(&mut self, is_trusted: bool) -> Result<()>;

    /// Makes sure that completions can arrive, while none comes.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Takes what is between the card and the host into use again after the function was reset.
    fn after_reset(&mut self) -> Result<()> {
        Ok(())
    }

    /// Memory for what the sequencer reads besides instructions; `None` if it reads that in host memory.
    fn scratchpad(&self) -> Option<&Scratchpad> {
        None
    }

    /// Keeps the memory that the card may still use until the process ends.
    fn leak(&self);
}

//! What hardware does to a driver, and a model of a card need not: switches that tests turn.

/// Most register writes of a card that may be pending.
const PENDING_MAX: u32 = 64;
/// Largest deviation of a clock: ten times what a crystal oscillator for a serial link may have.
const DRIFT_MAX_PPM: u32 = 1000;
/// Longest reset: what PCI Express allows a function (Base Specification 5.0, section 6.6.2).
const RESET_MAX_MS: u32 = 100;

/// What the cards of a fabric do that a real card does. All is off by default: a register write acts at once, a read of host
/// memory is answered in one piece before any other, and all cards count on one clock.
///
/// What the cards count does not depend on these switches, except [`drift_ppm`](Hardware::drift_ppm) and bit errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hardware {
    /// Register writes are posted: a write is accepted at once, and acts when so many later ones are pending, after a
    /// microsecond of the fabric's time, or before the next read of the same card, or access to its configuration space,
    /// whichever comes first. Writes to one card act in order (PCI Express Base 5.0, section 2.4.1: a read does not pass a
    /// write). The cards' own DMA pushes nothing: registers and DMA are different parts of a card.
    pub posted_writes: Option<u32>,
    /// Host memory is reached as over PCIe, with choices drawn from this seed. All jobs of all cards are outstanding at once,
    /// each in up to 32 requests. A read is requested and a write is made in pieces that cross no 4 KiB boundary and
    /// are as large as Device Control says. A read is answered in parts that end at multiples of 64 bytes, in the order of
    /// addresses; different reads are answered in any order. Writes of a card stay in order, and none of its reads passes
    /// them.
    pub split_dma: Option<u64>,
    /// Each card counts on a clock of its own, off by up to so many parts in a million, and of its own phase. How fast a card
    /// works stays the same: a deviation is less than a cycle within a transfer of a few microseconds.
    pub drift_ppm: u32,
    /// One in so many bits that links carry is wrong. OPTWEB has no retry: a block, burst, signal or request with a bit error is
    /// lost. The card that it comes to counts it in LINK_ERRORS; an instruction that waits for the data fails with
    /// [`LinkError`](cmdseq::Status::LinkError). The cards need version 1.6 of the registers.
    pub bits_per_error: Option<u64>,
    /// Milliseconds of the fabric's time that a reset of a card takes. In the first half the function answers nothing: all reads are
    /// all-ones. In the second half it answers, and its sequencer trains links: READY is 0, and writes to its registers do
    /// nothing. What other cards send to it meanwhile is lost. Without a clock, the time passes while the host polls configuration
    /// space or STATUS.
    pub reset_ms: u32,
}

impl Hardware {
    /// Names the switch that is out of its range, with its limit.
    pub(crate) fn check(&self) -> Result<(), (&'static str, u32)> {
        if self.posted_writes.is_some_and(|pending| pending > PENDING_MAX) {
            return Err(("posted writes", PENDING_MAX));
        }
        if self.drift_ppm > DRIFT_MAX_PPM {
            return Err(("clock drift in ppm", DRIFT_MAX_PPM));
        }
        if self.reset_ms > RESET_MAX_MS { Err(("milliseconds of a reset", RESET_MAX_MS)) } else { Ok(()) }
    }
}

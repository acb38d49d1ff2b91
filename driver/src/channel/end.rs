//! What the two kinds of ends have in common: a ring in host memory, a page of registers, an interrupt.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::utils::Backoff;
use fpga_hal::memory::barrier;
use fpga_hal::{DmaBuffer, Interrupt};
use fpga_regs::channel::{end as registers, slot};

use crate::channel::card::{Card, FreeEnd};
use crate::channel::error::{Error, Result};
use crate::deadline::Deadline;
use crate::error::Error as CardError;

/// How long a wait spins before it sleeps.
const SPIN: Duration = Duration::from_micros(20);
/// First and longest sleep between checks that the card is still there.
const SLEEP_FIRST: Duration = Duration::from_millis(10);
const SLEEP_MAX: Duration = Duration::from_millis(200);
/// Buffers for the card are pages of their own.
const ALIGNMENT: usize = 4096;
/// Bytes at the end of the buffer for the number of slots that the card has taken.
const COUNT_BYTES: usize = 64;
/// Bytes of a slot's header.
pub(super) const HEADER: usize = slot::HEADER_BYTES as usize;

/// A channel, as the program at one end of it sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Id of the channel at the card that reads.
    pub id: u8,
    /// Bytes of a word, 1 to 64. Both ends name the same.
    pub word_bytes: u32,
    /// Words that the buffer in host memory holds at least, from 1.
    pub depth: u32,
}

/// An open end.
#[derive(Debug)]
pub(super) struct End {
    pub(super) card: Arc<Card>,
    pub(super) settings: Settings,
    pub(super) ring: Arc<DmaBuffer>,
    /// Powers of two.
    slot_bytes: u32,
    pub(super) slots: u32,
    /// Bytes of whole words in a slot.
    pub(super) payload: usize,
    index: u32,
    /// Given back when the end is closed.
    interrupt: Option<Interrupt>,
    /// The card wrote what it must not: nothing it says counts any more.
    is_broken: bool,
}

impl End {
    /// Opens an end that writes to the node `peer`, or reads.
    pub(super) fn open(card: &Arc<Card>, peer: Option<u32>, settings: Settings) -> Result<Self> {
        let (slot_bytes, slots) = ring_size(card, settings)?;
        let bytes = slot_bytes as usize * slots as usize;
        let ring = card.domain().allocate(bytes + COUNT_BYTES, ALIGNMENT).map_err(|error| card.block.bus(error))?;
        // An end may still send what was written to it before; others do not.
        let mut refused = Vec::new();
        let opened = loop {
            let Some(place) = card.free().pop() else { break Ok(None) };
            match enable(card, place.index, peer, settings, (&ring, slot_bytes, slots)) {
                Ok(true) => break Ok(Some(place)),
                Ok(false) => refused.push(place),
                Err(error) => {
                    if leave(card, place.index, &ring) {
                        card.free().push(place);
                    }
                    break Err(error);
                }
            }
        };
        let is_refused = !refused.is_empty();
        card.free().extend(refused.into_iter().rev());
        let Some(FreeEnd { index, interrupt }) = opened? else {
            let name = card.name().to_owned();
            return Err(match is_refused {
                true => Error::Refused { name, id: settings.id },
                false => Error::NoEnd { name, ends: card.limits.ends },
            });
        };
        let room = slot_bytes - slot::HEADER_BYTES;
        let payload = (room - room % settings.word_bytes) as usize;
        let (card, interrupt) = (Arc::clone(card), Some(interrupt));
        Ok(End { card, settings, ring, slot_bytes, slots, payload, index, interrupt, is_broken: false })
    }

    /// Where slot `number` since the opening is in the buffer.
    #[inline]
    pub(super) fn offset(&self, number: u32) -> usize {
        ((number & (self.slots - 1)) * self.slot_bytes) as usize
    }

    /// Reads the slots that the card has taken.
    #[inline]
    pub(super) fn load_count(&self) -> Result<u64> {
        let offset = self.slot_bytes as usize * self.slots as usize;
        Ok(self.ring.load_acquire(offset).map_err(|error| self.card.block.bus(error))?)
    }

    /// Tells the card the number of slots that were filled or taken.
    #[inline]
    pub(super) fn ring_doorbell(&self, slots: u32) -> Result<()> {
        barrier::memory_before_mmio();
        Ok(self.card.block.write(registers::base(self.index) + registers::DOORBELL, slots)?)
    }

    /// Refuses further calls, because the card wrote `found`.
    #[cold]
    pub(super) fn broken(&mut self, what: &'static str, found: u64, expected: String) -> Error {
        self.is_broken = true;
        Error::Invalid { name: self.card.name().to_owned(), id: self.settings.id, what, found, expected }
    }

    /// Makes sure that the end may be used, and that `bytes` bytes are whole words.
    pub(super) fn check(&self, bytes: usize) -> Result<()> {
        if self.is_broken {
            return Err(self.stopped("the card wrote an invalid value before".into()));
        }
        let word = self.settings.word_bytes as usize;
        if !bytes.is_multiple_of(word) {
            let expected = format!("a multiple of the channel's word of {word} bytes");
            return Err(CardError::argument("number of bytes", bytes, expected).into());
        }
        Ok(())
    }

    fn stopped(&self, why: String) -> Error {
        Error::Stopped { name: self.card.name().to_owned(), id: self.settings.id, why }
    }

    /// Makes sure that the card still serves the end.
    fn check_health(&self) -> Result<()> {
        let base = registers::base(self.index);
        if self.card.block.read_present(base + registers::ENABLE)? & 1 == 0 {
            return Err(self.stopped("it was reset".into()));
        }
        match self.card.block.read_present(base + registers::FAULT)? {
            0 => Ok(()),
            1 => Err(self.stopped("the bus refused a read of host memory".into())),
            2 => Err(self.stopped("the bus refused a write of host memory".into())),
            3 => Err(self.stopped("it found a slot with an invalid header".into())),
            4 => Err(self.stopped("it found an invalid doorbell".into())),
            other => Err(self.stopped(format!("unknown reason {other}"))),
        }
    }
}

impl Drop for End {
    /// Closes the end, and gives it back unless the card may still use it.
    fn drop(&mut self) {
        if leave(&self.card, self.index, &self.ring)
            && let Some(interrupt) = self.interrupt.take()
        {
            // A late interrupt of this stream wakes the next one, which finds nothing and sleeps again.
            let _ = interrupt.drain();
            self.card.free().push(FreeEnd { index: self.index, interrupt });
        }
    }
}

/// Disables an end. Returns whether the card certainly leaves the end's memory alone; if not, the memory stays for good.
fn leave(card: &Card, index: u32, ring: &Arc<DmaBuffer>) -> bool {
    let is_quiet = match card.disable(index) {
        Ok(is_quiet) => is_quiet,
        Err(Error::Card(CardError::Removed { .. })) => true,
        Err(error) => {
            log::warn!("{}: closing end {index}: {error}", card.name());
            false
        }
    };
    if !is_quiet {
        log::error!("{}: end {index} did not close: the memory that it may still use is kept for good", card.name());
        std::mem::forget(Arc::clone(ring));
    }
    is_quiet
}

/// A stream that waits for its card.
pub(super) trait Waiting {
    fn end(&self) -> &End;

    /// Slots of the card's that were seen.
    fn seen(&self) -> u32;

    /// Returns whether there are more.
    fn is_ready(&mut self) -> Result<bool>;
}

/// Waits until the card has taken or filled another slot, until `deadline`: spins, then sleeps on the interrupt. Returns
/// whether it has.
pub(super) fn wait(waiting: &mut impl Waiting, deadline: Deadline) -> Result<bool> {
    let (start, backoff, spin) = (Instant::now(), Backoff::new(), SPIN.min(deadline.left()));
    while start.elapsed() < spin {
        if waiting.is_ready()? {
            return Ok(true);
        }
        backoff.spin();
    }
    let (mut slice, mut is_armed) = (SLEEP_FIRST, false);
    loop {
        if !is_armed {
            let end = waiting.end();
            end.card.block.write(registers::base(end.index) + registers::INTERRUPT_ARM, waiting.seen())?;
            if waiting.is_ready()? {
                return Ok(true);
            }
        }
        let end = waiting.end();
        if deadline.left().is_zero() {
            end.check_health()?;
            return waiting.is_ready();
        }
        let time = deadline.left().min(slice);
        let is_raised = match &end.interrupt {
            Some(interrupt) => interrupt.wait(time).map_err(|error| end.card.block.bus(error))?,
            None => false,
        };
        if waiting.is_ready()? {
            return Ok(true);
        }
        if !is_raised {
            waiting.end().check_health()?;
        }
        is_armed = !is_raised;
        slice = (slice * 2).min(SLEEP_MAX);
    }
}

/// Returns bytes of a slot, and slots of a ring.
fn ring_size(card: &Card, settings: Settings) -> Result<(u32, u32)> {
    let (limits, Settings { word_bytes, depth, .. }) = (card.limits, settings);
    if !(1..=limits.word_bytes).contains(&word_bytes) {
        let expected = format!("1 to {} on this card", limits.word_bytes);
        return Err(CardError::argument("bytes of a word", word_bytes, expected).into());
    }
    let bytes = u64::from(depth) * u64::from(word_bytes);
    let least = (word_bytes + slot::HEADER_BYTES).next_power_of_two().max(slot::BYTES_MIN);
    // An eighth of the buffer, so that it is refilled while the rest is in use.
    let slot_bytes = (bytes / 8).next_power_of_two().clamp(least.into(), limits.slot_bytes.into()) as u32;
    let words = (slot_bytes - slot::HEADER_BYTES) / word_bytes;
    // Every word may be a message of its own, in a slot of its own; not in large buffers.
    let slots = u64::from(depth.div_ceil(words).max(depth.min(64))).next_power_of_two().max(2);
    if depth == 0 || slots > limits.slots.into() {
        let most = u64::from(limits.slots) * u64::from((limits.slot_bytes - slot::HEADER_BYTES) / word_bytes);
        return Err(CardError::argument("depth of a channel", depth, format!("1 to {most} words")).into());
    }
    Ok((slot_bytes, slots as u32))
}

/// Sets up an end. Returns whether the card has opened it.
fn enable(
    card: &Card,
    index: u32,
    peer: Option<u32>,
    settings: Settings,
    (ring, slot_bytes, slots): (&DmaBuffer, u32, u32),
) -> Result<bool> {
    let base = registers::base(index);
    let iova = ring.iova().0;
    let count = iova + u64::from(slot_bytes) * u64::from(slots);
    let direction = if peer.is_some() { registers::WRITES } else { registers::READS };
    for (register, value) in [
        (registers::DIRECTION, direction),
        (registers::CHANNEL, settings.id.into()),
        (registers::PEER, peer.unwrap_or(0)),
        (registers::WORD_BYTES, settings.word_bytes),
        (registers::RING_BASE_LO, iova as u32),
        (registers::RING_BASE_HI, (iova >> 32) as u32),
        (registers::COUNT_BASE_LO, count as u32),
        (registers::COUNT_BASE_HI, (count >> 32) as u32),
        (registers::SLOT_BYTES, slot_bytes),
        (registers::SLOTS, slots),
        (registers::VECTOR, index),
    ] {
        card.block.write(base + register, value)?;
    }
    barrier::memory_before_mmio();
    card.block.write(base + registers::ENABLE, 1)?;
    Ok(card.block.read_present(base + registers::ENABLE)? & 1 == 1)
}

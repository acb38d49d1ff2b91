//! Card memory: large, initially zero, in frames that are allocated when they are first written.
//!
//! What leaves a card for another shares its frames until one of the two writes: a block that fills whole frames of both costs
//! no copy, and what is in flight stays as it was when it left.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use cmdseq::Status;

use crate::card::budget::Budget;
use crate::card::frames::{Contents, Discarded, Part, parts};
use crate::net::payload::{FRAME, Frame, Payload, Piece};

static ZEROS: LazyLock<Frame> = LazyLock::new(zeros);

/// Bytes that share an error-correcting code: a beat of a pseudo channel.
const WORD: u64 = 32;

/// Error of an access to card memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The fabric has no such card.
    #[error("the fabric has no node {node}")]
    NoCard {
        /// The node.
        node: u32,
    },
    /// The range is outside card memory.
    #[error("range outside card memory: {bytes} bytes at {address:#x}")]
    OutOfRange {
        /// First byte.
        address: u64,
        /// Length.
        bytes: u64,
    },
    /// The fabric's memory budget is exhausted.
    #[error("this machine has no memory for {bytes} bytes at {address:#x} of the mock card")]
    Exhausted {
        /// First byte.
        address: u64,
        /// Length.
        bytes: u64,
    },
    /// A word has more bit errors than its code corrects.
    #[error("uncorrectable error in the memory of card {node} at {address:#x}")]
    Uncorrectable {
        /// The card.
        node: u32,
        /// First byte of the word.
        address: u64,
    },
}

impl From<MemoryError> for Status {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::NoCard { .. } | MemoryError::OutOfRange { .. } | MemoryError::Exhausted { .. } => {
                Status::OutOfRange
            }
            MemoryError::Uncorrectable { .. } => Status::MemoryError,
        }
    }
}

/// The memory of one card.
#[derive(Debug)]
pub struct CardMemory {
    bytes: u64,
    node: u32,
    budget: Arc<Budget>,
    contents: Contents,
    /// Number of times the memory was cleared.
    clears: u64,
    /// Discards what cards write by themselves.
    is_hollow: bool,
    /// The lack of memory was logged.
    is_reported: bool,
    /// Flipped bits of words, by number.
    flipped: BTreeMap<u64, u8>,
    /// Words that were read with an error that was corrected.
    corrected: Cell<u32>,
}

impl CardMemory {
    /// Bytes of a frame, in which memory is allocated: however few are written, a whole one is.
    pub const FRAME_BYTES: u64 = FRAME as u64;

    pub(crate) fn new(bytes: u64, node: u32, budget: &Arc<Budget>) -> Self {
        let contents = Contents::new(budget, node);
        let budget = Arc::clone(budget);
        let (flipped, corrected) = Default::default();
        CardMemory {
            bytes,
            node,
            budget,
            contents,
            clears: 0,
            is_hollow: false,
            is_reported: false,
            flipped,
            corrected,
        }
    }

    /// Discards, from now on, what cards write: blocks, folds, copies and fills.
    pub(crate) fn hollow_out(&mut self) {
        self.is_hollow = true;
    }

    pub(crate) fn is_hollow(&self) -> bool {
        self.is_hollow
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns whether `bytes` bytes at `address` are inside.
    pub fn contains(&self, address: u64, bytes: u64) -> bool {
        address.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }

    /// Clears the memory to zeros. Returns what was in it: freeing that takes long, so the caller frees it where nobody waits.
    pub(crate) fn clear(&mut self) -> Discarded {
        self.clears += 1;
        self.flipped.clear();
        Discarded(std::mem::replace(&mut self.contents, Contents::new(&self.budget, self.node)))
    }

    /// Returns the number of times the memory was cleared.
    pub(crate) fn clears(&self) -> u64 {
        self.clears
    }

    /// Flips bits of the word at `address`, whatever is written there, until the memory is cleared.
    pub(crate) fn flip_bits(&mut self, address: u64, bits: u8) {
        self.flipped.insert(address / WORD, bits);
    }

    /// Counts corrected errors from zero again.
    pub(crate) fn forget_corrected(&mut self) {
        self.corrected.set(0);
    }

    /// Returns the number of words that were read with an error that was corrected, modulo 2^32.
    pub(crate) fn corrected(&self) -> u32 {
        self.corrected.get()
    }

    /// Checks a range that is read.
    fn check_read(&self, address: u64, bytes: u64) -> Result<(), MemoryError> {
        self.check(address, bytes)?;
        if self.flipped.is_empty() || bytes == 0 {
            return Ok(());
        }
        for (word, bits) in self.flipped.range(address / WORD..=(address + bytes - 1) / WORD) {
            match bits {
                0 => {}
                1 => self.corrected.set(self.corrected.get().wrapping_add(1)),
                _ => return Err(MemoryError::Uncorrectable { node: self.node, address: word * WORD }),
            }
        }
        Ok(())
    }

    /// Reads `bytes` bytes at `address`.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`] if the range is outside, [`MemoryError::Uncorrectable`] if it cannot be read.
    pub fn read(&self, address: u64, bytes: u64) -> Result<Vec<u8>, MemoryError> {
        self.check(address, bytes)?;
        let mut data = Vec::with_capacity(bytes as usize);
        self.append_to(address, bytes, &mut data)?;
        Ok(data)
    }

    /// Writes `data` at `address`. The first write to a frame of 4 KiB is charged to the fabric's memory budget.
    ///
    /// # Errors
    /// [`MemoryError`] if the range is outside, or no memory is left for it.
    pub fn write(&mut self, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.charge_for(address, data.len() as u64)?;
        let mut rest = data;
        for part in parts(address, data.len() as u64) {
            let (bytes, after) = rest.split_at(part.bytes);
            write_part(self.contents.slot(part.frame), part, bytes);
            rest = after;
        }
        Ok(())
    }

    /// Appends `bytes` bytes at `address` to `data`.
    pub(crate) fn append_to(&self, address: u64, bytes: u64, data: &mut Vec<u8>) -> Result<(), MemoryError> {
        self.check_read(address, bytes)?;
        for part in parts(address, bytes) {
            match self.contents.frame(part.frame) {
                Some(frame) => data.extend_from_slice(&frame[part.range()]),
                None => data.resize(data.len() + part.bytes, 0),
            }
        }
        Ok(())
    }

    /// Returns `bytes` bytes at `address`, which `scratch` holds if they do not lie together.
    pub(crate) fn view<'a>(
        &'a self,
        address: u64,
        bytes: u64,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], MemoryError> {
        self.check(address, bytes)?;
        if let Some(part) = parts(address, bytes).next().filter(|part| part.bytes as u64 == bytes)
            && let Some(frame) = self.contents.frame(part.frame)
        {
            self.check_read(address, bytes)?;
            return Ok(&frame[part.range()]);
        }
        scratch.clear();
        self.append_to(address, bytes, scratch)?;
        Ok(scratch)
    }

    /// Returns `bytes` bytes at `address`, to be carried elsewhere: what is written later does not change them.
    pub(crate) fn payload(&self, address: u64, bytes: u64) -> Result<Payload, MemoryError> {
        self.check(address, bytes)?;
        if bytes == 0 {
            return Ok(Payload::empty());
        }
        // What nobody has written stays zeros, which cost nothing elsewhere.
        let is_written = |part: Part| self.contents.frame(part.frame).is_some();
        if Payload::is_small(bytes) && parts(address, bytes).any(is_written) {
            return Ok(Payload::Copied(self.read(address, bytes)?.into()));
        }
        self.check_read(address, bytes)?;
        Ok(self.contents.share(address, bytes))
    }

    /// Writes the bytes of `range` of a payload at `address`.
    pub(crate) fn write_payload(
        &mut self,
        address: u64,
        payload: &Payload,
        range: Range<u64>,
    ) -> Result<(), MemoryError> {
        let bytes = range.end - range.start;
        self.check(address, bytes)?;
        if self.is_hollow {
            return Ok(());
        }
        let mut from = range.start;
        while from < range.end {
            let at = address + (from - range.start);
            let piece = payload.piece(from..range.end);
            match piece {
                Piece::Zeros(bytes) => self.write_zeros(at, bytes as u64)?,
                Piece::Bytes(bytes) => self.write(at, bytes)?,
                Piece::Frame(frame) if at % FRAME as u64 == 0 => {
                    self.charge_for(at, FRAME as u64)?;
                    *self.contents.slot((at / FRAME as u64) as usize) = Some(Arc::clone(frame));
                }
                Piece::Frame(frame) => self.write(at, &frame[..])?,
            }
            from += piece.len() as u64;
        }
        Ok(())
    }

    /// Makes sure that a later write of the range succeeds.
    pub(crate) fn reserve(&mut self, address: u64, bytes: u64) -> Result<(), MemoryError> {
        self.charge_for(address, bytes)?;
        for part in parts(address, bytes) {
            self.contents.slot(part.frame).get_or_insert_with(|| Arc::clone(&ZEROS));
        }
        Ok(())
    }

    /// Fills the range with repetitions of `pattern`.
    pub(crate) fn fill(&mut self, address: u64, bytes: u64, pattern: u64) -> Result<(), MemoryError> {
        if self.is_hollow {
            return Ok(());
        }
        if pattern == 0 {
            return self.write_zeros(address, bytes);
        }
        self.charge_for(address, bytes)?;
        let pattern = pattern.to_le_bytes();
        for part in parts(address, bytes) {
            // The pattern begins at `address`, in this frame or in an earlier one.
            let before = (part.frame * FRAME + part.start) as u64 - address;
            let mut rotated = pattern;
            rotated.rotate_left((before % 8) as usize);
            let frame = Arc::make_mut(self.contents.slot(part.frame).get_or_insert_with(zeros));
            let (whole, rest) = frame[part.range()].as_chunks_mut::<8>();
            whole.fill(rotated);
            rest.iter_mut().zip(rotated).for_each(|(byte, of_pattern)| *byte = of_pattern);
        }
        Ok(())
    }

    /// Writes zeros; frames never written are skipped.
    fn write_zeros(&mut self, address: u64, bytes: u64) -> Result<(), MemoryError> {
        self.check(address, bytes)?;
        for part in parts(address, bytes) {
            if self.contents.frame(part.frame).is_some()
                && let Some(frame) = self.contents.slot(part.frame)
            {
                match part.bytes {
                    FRAME => *frame = Arc::clone(&ZEROS),
                    _ => Arc::make_mut(frame)[part.range()].fill(0),
                }
            }
        }
        Ok(())
    }

    fn check(&self, address: u64, bytes: u64) -> Result<(), MemoryError> {
        if self.contains(address, bytes) { Ok(()) } else { Err(MemoryError::OutOfRange { address, bytes }) }
    }

    /// Checks a range, and charges its frames that were not written before.
    fn charge_for(&mut self, address: u64, bytes: u64) -> Result<(), MemoryError> {
        self.check(address, bytes)?;
        let missing = parts(address, bytes).filter(|part| self.contents.frame(part.frame).is_none());
        let missing: u64 = missing.map(|_| FRAME as u64).sum();
        if missing == 0 || self.contents.charge.add(missing) {
            return Ok(());
        }
        // Logged once: hosts can ask again and again.
        if !std::mem::replace(&mut self.is_reported, true) {
            let total = self.budget.total();
            log::warn!(
                "card {} fails instructions for lack of memory: the cards of this fabric may use {total} bytes together",
                self.node
            );
        }
        Err(MemoryError::Exhausted { address, bytes })
    }
}

fn zeros() -> Frame {
    Arc::new([0; FRAME])
}

fn write_part(slot: &mut Option<Frame>, part: Part, bytes: &[u8]) {
    if let Some(frame) = slot.as_mut().and_then(Arc::get_mut) {
        frame[part.range()].copy_from_slice(bytes);
    } else if let Ok(whole) = <&[u8; FRAME]>::try_from(bytes) {
        *slot = Some(Arc::new(*whole));
    } else {
        Arc::make_mut(slot.get_or_insert_with(zeros))[part.range()].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests;

//! The records of one queue. On the path of an instruction nothing is allocated, and no lock is taken.

use std::collections::{TryReserveError, VecDeque};
use std::fmt;
use std::time::Instant;

use cmdseq::{Completion, Instruction};

/// An instruction and its completion, with the host's times, in nanoseconds since the recording began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstructionRecord {
    /// The instruction as it was stored.
    pub instruction: Instruction,
    /// What the card said. An instruction that the card did not complete, because it was stopped or reset, has the status
    /// aborted, and no cycles.
    pub completion: Completion,
    /// Before the doorbell that told the card of it.
    pub rung_ns: u64,
    /// After its completion was seen.
    pub seen_ns: u64,
}

/// An instruction that the card was told of and had not completed when the recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlightRecord {
    /// The instruction as it was stored.
    pub instruction: Instruction,
    /// Before the doorbell that told the card of it, in nanoseconds since the recording began.
    pub rung_ns: u64,
}

/// A doorbell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DoorbellRecord {
    /// Before the register was written, in nanoseconds since the recording began.
    pub begin_ns: u64,
    /// After.
    pub end_ns: u64,
    /// Instructions that the card was told of.
    pub count: u32,
}

/// What a ring of records has dropped, because there was no room for more: the oldest ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dropped {
    /// Instructions.
    pub instructions: u64,
    /// Doorbells.
    pub doorbells: u64,
}

/// What is recorded of a queue: the latest instructions and doorbells.
pub(crate) struct Recording {
    began: Instant,
    /// By place in the ring.
    pending: Box<[InFlightRecord]>,
    /// When the doorbell that is being rung began.
    ringing_ns: u64,
    instructions: Ring<InstructionRecord>,
    doorbells: Ring<DoorbellRecord>,
}

impl Recording {
    /// Records the latest `limit` instructions, and as many doorbells, of a ring of `depth` entries.
    ///
    /// # Errors
    /// If this machine has no memory for the records.
    pub(crate) fn new(began: Instant, depth: u32, limit: usize) -> Result<Self, TryReserveError> {
        let nothing = InFlightRecord { instruction: Instruction::nop(), rung_ns: 0 };
        Ok(Recording {
            began,
            pending: vec![nothing; depth as usize].into(),
            ringing_ns: 0,
            instructions: Ring::new(limit)?,
            doorbells: Ring::new(limit)?,
        })
    }

    fn now(&self) -> u64 {
        nanoseconds(self.began)
    }

    /// Entry `count` of the ring.
    fn pending(&mut self, count: u32) -> &mut InFlightRecord {
        let place = count as usize & (self.pending.len() - 1);
        &mut self.pending[place]
    }

    /// Notes that `instruction` was stored as number `count`.
    pub(crate) fn stored(&mut self, count: u32, instruction: &Instruction) {
        let now = self.ringing_ns;
        *self.pending(count) = InFlightRecord { instruction: *instruction, rung_ns: now };
    }

    /// Notes that the doorbell is about to be rung.
    pub(crate) fn ringing(&mut self) {
        self.ringing_ns = self.now();
    }

    /// Notes that the card was told of the instructions from `from` to `to`.
    pub(crate) fn rung(&mut self, from: u32, to: u32) {
        let (begin_ns, count) = (self.ringing_ns, to.wrapping_sub(from));
        for ahead in 0..count {
            self.pending(from.wrapping_add(ahead)).rung_ns = begin_ns;
        }
        let end_ns = self.now();
        self.doorbells.push(DoorbellRecord { begin_ns, end_ns, count });
    }

    /// Notes the completion of number `count`.
    pub(crate) fn completed(&mut self, count: u32, completion: &Completion) {
        let seen_ns = self.now();
        let InFlightRecord { instruction, rung_ns } = *self.pending(count);
        self.instructions.push(InstructionRecord { instruction, completion: *completion, rung_ns, seen_ns });
    }

    /// Returns the instructions from number `from` to `to`, which are in flight.
    pub(crate) fn in_flight(&mut self, from: u32, to: u32) -> Vec<InFlightRecord> {
        (0..to.wrapping_sub(from)).map(|ahead| *self.pending(from.wrapping_add(ahead))).collect()
    }

    /// Returns the records, the oldest first, and how many older ones were dropped.
    pub(crate) fn into_records(self) -> (Vec<InstructionRecord>, Vec<DoorbellRecord>, Dropped) {
        let dropped = Dropped { instructions: self.instructions.dropped, doorbells: self.doorbells.dropped };
        (self.instructions.records.into(), self.doorbells.records.into(), dropped)
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Recording").field(&self.instructions.records.len()).finish()
    }
}

/// Nanoseconds since `began`.
pub(crate) fn nanoseconds(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The latest records, in memory that was allocated before.
struct Ring<R> {
    records: VecDeque<R>,
    limit: usize,
    dropped: u64,
}

impl<R> Ring<R> {
    fn new(limit: usize) -> Result<Self, TryReserveError> {
        let mut records = VecDeque::new();
        records.try_reserve_exact(limit)?;
        Ok(Ring { records, limit, dropped: 0 })
    }

    fn push(&mut self, record: R) {
        if self.records.len() == self.limit {
            self.dropped += 1;
            if self.records.pop_front().is_none() {
                return;
            }
        }
        self.records.push_back(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_drops_the_oldest_and_allocates_nothing() {
        let mut ring = Ring::new(3).unwrap();
        let capacity = ring.records.capacity();
        (0..8).for_each(|one| ring.push(one));
        assert_eq!((Vec::from(ring.records.clone()), ring.dropped), (vec![5, 6, 7], 5));
        assert_eq!(ring.records.capacity(), capacity);
        let mut none = Ring::new(0).unwrap();
        none.push(1);
        assert_eq!((none.records.len(), none.dropped), (0, 1));
    }
}

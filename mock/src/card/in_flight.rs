//! Instructions that were issued and are not completed: they end in any order, and complete in the order of the program.

use std::collections::VecDeque;

use cmdseq::Flags;
use cmdseq::completion::Status;

use crate::card::running::Running;
use crate::engine::Time;

/// The parts of an ended instruction or launch that its completion needs.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) tag: u16,
    pub(crate) flags: Flags,
    /// Life of the queue in which it was issued.
    pub(crate) life: u32,
    pub(crate) issued: Time,
    pub(crate) counted_out: Time,
    pub(crate) ended: Time,
    pub(crate) arrival: Option<Time>,
    pub(crate) bytes: u64,
    pub(crate) status: Status,
    pub(crate) detail: u16,
    /// Index in the resident program.
    pub(crate) place: usize,
}

impl Ended {
    pub(crate) fn new(running: &Running, now: Time) -> Self {
        Ended {
            tag: running.instruction.tag,
            flags: running.instruction.flags,
            life: running.life,
            issued: running.issued,
            counted_out: running.counted_out,
            ended: now,
            arrival: running.arrival,
            bytes: running.bytes,
            status: running.status,
            detail: running.detail,
            place: running.place,
        }
    }
}

/// Issued instructions in the order of the program, from the first that is not completed.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// Order of the first.
    first: u64,
    /// `None` while the instruction runs.
    issued: VecDeque<Option<Ended>>,
}

impl InFlight {
    /// Adds an instruction, and returns its order.
    pub(crate) fn begin(&mut self) -> u64 {
        self.issued.push_back(None);
        self.first + self.issued.len() as u64 - 1
    }

    /// Removes the instruction that was added last.
    pub(crate) fn take_back(&mut self) {
        self.issued.pop_back();
    }

    /// Removes the instruction of this order if it is the first.
    pub(crate) fn take_first(&mut self, order: u64) -> bool {
        let is_first = order == self.first;
        if is_first {
            self.issued.pop_front();
            self.first += 1;
        }
        is_first
    }

    pub(crate) fn end(&mut self, order: u64, ended: Ended) {
        self.issued[(order - self.first) as usize] = Some(ended);
    }

    /// Removes and returns the first instruction, if it has ended.
    pub(crate) fn take_ended(&mut self) -> Option<Ended> {
        let ended = self.issued.front_mut()?.take()?;
        self.issued.pop_front();
        self.first += 1;
        Some(ended)
    }

    /// Removes all instructions. None runs.
    pub(crate) fn clear(&mut self) {
        self.first += self.issued.len() as u64;
        self.issued.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.issued.len()
    }
}

//! What a sequencer is doing, by its registers.

use std::fmt;

use cmdseq::Operation;
use fpga_regs::bits::Status;
use fpga_regs::sequencer;

use crate::error::Result;
use crate::sequencer::block::{ALL_ONES, Block};
use crate::sequencer::health::Health;

/// The instruction a sequencer is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Current {
    /// Its tag.
    pub tag: u16,
    /// Code of its operation.
    pub code: u8,
}

/// What a sequencer is doing: its registers, read one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequencerState {
    /// What it does.
    pub status: Status,
    /// The errors that the card reports outside of any instruction.
    pub health: Health,
    /// What it is running.
    pub current: Option<Current>,
    /// The node that the instruction waits for.
    pub waiting_peer: Option<u32>,
    /// Instructions ever fetched from queue 0, modulo 2^32.
    pub fetched: u32,
    /// Completions ever written to queue 0, modulo 2^32.
    pub completed: u32,
}

impl SequencerState {
    pub(crate) fn read(block: &Block) -> Result<Self> {
        let status = Status::from_bits_retain(block.read_present(sequencer::STATUS)?);
        let health = block.health()?;
        let current = block.read(sequencer::CURRENT)?;
        let waiting_peer = block.read(sequencer::WAITING_PEER)?;
        let queue = sequencer::queue::base(0);
        let fetched = block.read(queue + sequencer::queue::SUBMISSION_HEAD)?;
        let completed = block.read(queue + sequencer::queue::COMPLETION_TAIL)?;
        // The last register: if the card vanished before, this one shows it.
        if completed == ALL_ONES {
            block.check_alive()?;
        }
        Ok(SequencerState {
            status,
            health,
            current: (current >> 24 & 1 == 1).then_some(Current { tag: current as u16, code: (current >> 16) as u8 }),
            waiting_peer: (waiting_peer != sequencer::NO_PEER).then_some(waiting_peer),
            fetched,
            completed,
        })
    }

    /// Whether the sequencer has stopped because of an error.
    pub fn is_halted(&self) -> bool {
        self.status.contains(Status::HALTED)
    }
}

impl fmt::Display for SequencerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.current {
            Some(Current { tag, code }) => match Operation::from_code(code) {
                Some(operation) => write!(f, "running {operation} (tag {tag})")?,
                None => write!(f, "running operation code {code} (tag {tag})")?,
            },
            None if self.is_halted() => f.write_str("halted")?,
            None if self.status.contains(Status::BUSY) => f.write_str("busy")?,
            None => f.write_str("idle")?,
        }
        if let Some(peer) = self.waiting_peer {
            write!(f, ", waiting for node {peer}")?;
        }
        write!(f, "; {} fetched, {} completed", self.fetched, self.completed)?;
        if self.health.is_good() { Ok(()) } else { write!(f, "; {}", self.health) }
    }
}

#[cfg(test)]
mod tests {
    use fpga_regs::bits::Errors;

    use super::*;

    #[test]
    fn a_sequencer_that_runs_nothing_is_halted_busy_or_idle() {
        for (status, shown) in [
            (Status::HALTED | Status::BUSY, "halted; 3 fetched, 2 completed"),
            (Status::BUSY, "busy; 3 fetched, 2 completed"),
            (Status::empty(), "idle; 3 fetched, 2 completed"),
        ] {
            let state = SequencerState {
                status,
                health: Health { errors: Errors::empty(), link_errors: 0, pcie: None },
                current: None,
                waiting_peer: None,
                fetched: 3,
                completed: 2,
            };
            assert_eq!(state.to_string(), shown);
        }
    }
}

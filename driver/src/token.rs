//! Tokens: the promise of one completion each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use cmdseq::Operation;
use crossbeam::utils::CachePadded;

/// Nobody uses the cell.
pub(crate) const FREE: u8 = 0;
/// The instruction is on its way, and a token waits for it.
pub(crate) const PENDING: u8 = 1;
/// The completion is there, and a token may take it.
pub(crate) const DONE: u8 = 2;
/// The instruction is on its way, and nobody waits for it.
pub(crate) const ABANDONED: u8 = 3;
/// The completion is there, and nobody will take it.
pub(crate) const RELEASED: u8 = 4;

/// States of a queue's cells, shared with its tokens. A token touches it only when it is dropped, on whatever thread.
#[derive(Debug)]
pub(crate) struct Cells {
    states: Box<[AtomicU8]>,
    /// Cells in state [`RELEASED`], for the queue to take back.
    released: CachePadded<AtomicU32>,
}

impl Cells {
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Cells { states: (0..count).map(|_| AtomicU8::new(FREE)).collect(), released: Default::default() })
    }

    pub(crate) fn state(&self, cell: u32) -> u8 {
        self.states[cell as usize].load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, cell: u32, state: u8) {
        self.states[cell as usize].store(state, Ordering::Release);
    }

    /// The completion has come. Says whether somebody waits for it; if not, the cell is free.
    pub(crate) fn complete(&self, cell: u32) -> bool {
        let state = &self.states[cell as usize];
        if state.compare_exchange(PENDING, DONE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return true;
        }
        state.store(FREE, Ordering::Release);
        false
    }

    /// Whether there are cells for the queue to take back; forgets that there are.
    pub(crate) fn take_released(&self) -> bool {
        self.released.swap(0, Ordering::AcqRel) != 0
    }

    fn abandon(&self, cell: u32) {
        let state = &self.states[cell as usize];
        if state.compare_exchange(PENDING, ABANDONED, Ordering::AcqRel, Ordering::Acquire).is_err() {
            state.store(RELEASED, Ordering::Release);
            self.released.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// The promise of one completion: what [`QueuePair::push`](crate::QueuePair::push) gives for an instruction.
///
/// [Wait for it](crate::QueuePair::wait), [test it](crate::QueuePair::test) or [abandon it](Token::abandon). It keeps its
/// completion until it is dropped. Dropping it before the completion has come abandons it, with a line in the log; the
/// instruction runs all the same, and the buffers bound to it are kept until it is complete.
#[derive(Debug)]
#[must_use = "wait for the token, or abandon it"]
pub struct Token {
    cells: Arc<Cells>,
    cell: u32,
    tag: u16,
    operation: Operation,
    settled: bool,
}

impl Token {
    pub(crate) fn new(cells: &Arc<Cells>, cell: u32, tag: u16, operation: Operation) -> Self {
        Token { cells: Arc::clone(cells), cell, tag, operation, settled: false }
    }

    /// What the instruction does.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Tag the instruction carries: the count of instructions pushed before, cut to 16 bits.
    pub fn tag(&self) -> u16 {
        self.tag
    }

    /// Whether the queue has taken the completion. It does so only in its own calls.
    pub fn is_done(&self) -> bool {
        self.cells.state(self.cell) == DONE
    }

    /// Gives the completion up. The instruction runs all the same.
    pub fn abandon(mut self) {
        self.settle_abandoned();
    }

    pub(crate) fn is_of(&self, cells: &Arc<Cells>) -> bool {
        Arc::ptr_eq(&self.cells, cells)
    }

    pub(crate) fn cell(&self) -> u32 {
        self.cell
    }

    /// The queue has taken the cell back.
    pub(crate) fn settle(mut self) {
        self.settled = true;
    }

    fn settle_abandoned(&mut self) {
        if !self.settled {
            self.settled = true;
            self.cells.abandon(self.cell);
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if !self.settled {
            if !self.is_done() {
                log::debug!("token of the instruction with tag {} dropped without waiting for it", self.tag());
            }
            self.settle_abandoned();
        }
    }
}

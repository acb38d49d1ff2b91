//! Tokens: the promise of one completion each.

use std::sync::Arc;

use cmdseq::Operation;

use crate::ledger::cells::{Cells, DONE};

/// The promise of one completion, returned by [`QueuePair::push`](crate::QueuePair::push) for each instruction.
///
/// [Wait for it](crate::QueuePair::wait), [test it](crate::QueuePair::test) or [abandon it](Token::abandon). It keeps its
/// completion until it is dropped. Dropping it before the completion has come abandons it, with a line in the log; the
/// instruction still runs, and the buffers bound to it are kept until it is complete.
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

    /// Operation of the instruction.
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

    /// Gives up the completion. The instruction still runs.
    #[inline]
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

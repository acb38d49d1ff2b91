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
    /// `None` once the token is settled: taken back by the queue, or abandoned.
    cells: Option<Arc<Cells>>,
    entry: Entry,
}

/// An instruction that was pushed: it gets one token, or is taken back.
#[derive(Debug)]
#[must_use]
pub(crate) struct Entry {
    pub(crate) cell: u32,
    pub(crate) tag: u16,
    pub(crate) operation: Operation,
}

impl Token {
    #[inline]
    pub(crate) fn new(cells: &Arc<Cells>, entry: Entry) -> Self {
        Token { cells: Some(Arc::clone(cells)), entry }
    }

    /// Operation of the instruction.
    pub fn operation(&self) -> Operation {
        self.entry.operation
    }

    /// Tag the instruction carries: the count of instructions pushed before, cut to 16 bits.
    pub fn tag(&self) -> u16 {
        self.entry.tag
    }

    /// Whether the queue has taken the completion. It does so only in its own calls.
    pub fn is_done(&self) -> bool {
        self.cells.as_ref().is_some_and(|cells| cells.state(self.entry.cell) == DONE)
    }

    /// Gives up the completion. The instruction still runs.
    #[inline]
    pub fn abandon(mut self) {
        self.settle_abandoned();
    }

    pub(crate) fn is_of(&self, cells: &Arc<Cells>) -> bool {
        self.cells.as_ref().is_some_and(|own| Arc::ptr_eq(own, cells))
    }

    pub(crate) fn cell(&self) -> u32 {
        self.entry.cell
    }

    /// The queue has taken the cell back.
    pub(crate) fn settle(mut self) {
        self.cells = None;
    }

    #[inline]
    #[cold]
    fn drop_unsettled(&mut self) {
        if !self.is_done() {
            log::debug!("token of the instruction with tag {} dropped without waiting for it", self.tag());
        }
        self.settle_abandoned();
    }

    fn settle_abandoned(&mut self) {
        if let Some(cells) = self.cells.take() {
            cells.abandon(self.entry.cell);
        }
    }
}

/// Tokens of one queue, the oldest first, without a reference to the queue's cells for each. Few: the oldest is removed from
/// the front of an array.
#[derive(Debug)]
pub(crate) struct Tokens {
    cells: Arc<Cells>,
    entries: Vec<Entry>,
}

impl Tokens {
    pub(crate) fn with_capacity(cells: &Arc<Cells>, count: usize) -> Self {
        Tokens { cells: Arc::clone(cells), entries: Vec::with_capacity(count) }
    }

    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Removes and returns the oldest, if the queue has taken its completion.
    pub(crate) fn pop_done(&mut self) -> Option<Token> {
        let is_done = self.entries.first().is_some_and(|entry| self.cells.state(entry.cell) == DONE);
        is_done.then(|| Token::new(&self.cells, self.entries.remove(0)))
    }

    /// Gives up all completions.
    pub(crate) fn abandon(&mut self) {
        self.entries.drain(..).for_each(|entry| self.cells.abandon(entry.cell));
    }
}

impl Drop for Tokens {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl Drop for Token {
    #[inline]
    fn drop(&mut self) {
        if self.cells.is_some() {
            self.drop_unsettled();
        }
    }
}

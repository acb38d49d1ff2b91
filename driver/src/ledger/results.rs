//! Completions of a queue's cells, in memory that is touched as cells come into use.

use cmdseq::{Completion, Status};

/// Cells that are given a place at a time: their completions fill a page or less.
pub(crate) const FIRST: u32 = 64;

/// Completions by cell, up to the last cell that was given one. There is room for all from the start, so that none is moved or
/// allocated later; but what no cell needed yet is untouched, and takes no memory.
pub(crate) struct Results {
    completions: Vec<Completion>,
    cells: usize,
}

impl Results {
    /// Room for the completions of `cells` cells.
    pub(crate) fn new(cells: u32) -> Self {
        let cells = cells as usize;
        Results { completions: Vec::with_capacity(cells), cells }
    }

    /// Whether each cell has a place.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.completions.len() == self.cells
    }

    /// Gives a place to each cell up to `cell`.
    pub(crate) fn reach(&mut self, cell: u32) {
        let len = self.completions.len().max(cell as usize + 1);
        self.completions.resize(len, aborted(0));
    }

    /// The completion of a cell that has a place.
    #[inline]
    pub(crate) fn of(&self, cell: u32) -> Completion {
        self.completions[cell as usize]
    }

    /// Stores the completion of a cell that has a place.
    #[inline(always)]
    pub(crate) fn set(&mut self, cell: u32, completion: Completion) {
        self.completions[cell as usize] = completion;
    }
}

/// The completion of an instruction that the card did not complete.
pub(crate) fn aborted(tag: u16) -> Completion {
    Completion { tag, status: Status::Aborted, detail: 0, issued: 0, t1: 0, t2: 0, arrival: 0, bytes: 0, phase: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_made_once_and_never_moved() {
        let mut results = Results::new(8);
        let start = results.completions.as_ptr();
        results.reach(2);
        results.set(2, aborted(7));
        for (cell, is_whole) in [(0, false), (6, false), (7, true), (1, true)] {
            results.reach(cell);
            assert_eq!((results.is_whole(), results.of(2).tag), (is_whole, 7), "cell {cell}");
        }
        assert_eq!(results.completions.as_ptr(), start);
    }
}

//! The arguments of a collective call, in one form for all functions.

use cmdseq::plan::Collective;

use crate::foreign::Word;

/// A buffer with its elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side {
    pub(crate) buffer: Word,
    pub(crate) count: i64,
    pub(crate) datatype: Word,
}

/// The arguments of one call. Functions with one buffer, such as a broadcast, have it on both sides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arguments {
    pub(crate) collective: Collective,
    pub(crate) communicator: Word,
    pub(crate) send: Side,
    pub(crate) receive: Side,
    /// Significant if the collective reduces.
    pub(crate) operation: Word,
    /// Significant if the collective has a root.
    pub(crate) root: i32,
    /// Address of the receive counts of an `MPI_Reduce_scatter`, and bytes of each; else 0.
    pub(crate) counts: (Word, usize),
}

impl Arguments {
    pub(crate) fn new(collective: Collective, communicator: Word) -> Self {
        let none = Side { buffer: 0, count: 0, datatype: 0 };
        Arguments { collective, communicator, send: none, receive: none, operation: 0, root: 0, counts: (0, 0) }
    }

    pub(crate) fn send(mut self, buffer: Word, count: i64, datatype: Word) -> Self {
        self.send = Side { buffer, count, datatype };
        self
    }

    pub(crate) fn receive(mut self, buffer: Word, count: i64, datatype: Word) -> Self {
        self.receive = Side { buffer, count, datatype };
        self
    }

    pub(crate) fn operation(mut self, operation: Word) -> Self {
        self.operation = operation;
        self
    }

    pub(crate) fn root(mut self, root: Word) -> Self {
        self.root = root as i32;
        self
    }

    pub(crate) fn counts(mut self, counts: Word, bytes: usize) -> Self {
        self.counts = (counts, bytes);
        self
    }

    /// The receive count of rank `index`, which must be a rank, of an `MPI_Reduce_scatter`.
    pub(crate) fn count(&self, index: usize) -> i64 {
        let (address, bytes) = self.counts;
        let place = address + index * bytes;
        match bytes {
            // SAFETY: MPI requires an array with one count for each rank, of 4 or of 8 bytes by the function called.
            4 => i64::from(unsafe { (place as *const i32).read() }),
            // SAFETY: as for 4 bytes.
            _ => unsafe { (place as *const i64).read() },
        }
    }
}

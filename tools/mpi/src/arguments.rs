//! The arguments of a collective call, in one form for all functions.

use cmdseq::plan::Collective;

use crate::foreign::Word;

/// The type of the counts of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    /// `int`, of 4 bytes.
    Int,
    /// `MPI_Count`, and `MPI_Aint` for displacements, of 8 bytes.
    Large,
}

impl Width {
    /// A count that is an argument.
    pub(crate) fn read(self, word: Word) -> i64 {
        match self {
            Width::Int => i64::from(word as i32),
            Width::Large => word as i64,
        }
    }
}

/// An array of the program with a number for each rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Array {
    address: Word,
    width: Width,
}

impl Array {
    pub(crate) fn is_null(self) -> bool {
        self.address == 0
    }

    /// The number of rank `index`, which must be a rank of the communicator, in an array that MPI reads on this rank.
    pub(crate) fn get(self, index: usize) -> i64 {
        match self.width {
            // SAFETY: MPI requires an array with one number for each rank, of this type by the function called.
            Width::Int => i64::from(unsafe { (self.address as *const i32).wrapping_add(index).read() }),
            // SAFETY: as for the other type.
            Width::Large => unsafe { (self.address as *const i64).wrapping_add(index).read() },
        }
    }
}

/// Where a side has a block of each rank, of lengths of their own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocks {
    /// Elements of each block.
    pub(crate) counts: Array,
    /// Elements before each block; those of an `MPI_Reduce_scatter` have none.
    pub(crate) displacements: Option<Array>,
}

/// A buffer with its elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side {
    pub(crate) buffer: Word,
    /// Elements, or those of a block. 0 if there are `blocks`.
    pub(crate) count: i64,
    pub(crate) datatype: Word,
    pub(crate) blocks: Option<Blocks>,
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
}

impl Arguments {
    pub(crate) fn new(collective: Collective, communicator: Word) -> Self {
        let none = Side { buffer: 0, count: 0, datatype: 0, blocks: None };
        Arguments { collective, communicator, send: none, receive: none, operation: 0, root: 0 }
    }

    pub(crate) fn send(mut self, buffer: Word, count: i64, datatype: Word) -> Self {
        self.send = Side { buffer, count, datatype, blocks: None };
        self
    }

    pub(crate) fn receive(mut self, buffer: Word, count: i64, datatype: Word) -> Self {
        self.receive = Side { buffer, count, datatype, blocks: None };
        self
    }

    /// A block for each rank, with arrays of numbers of this width.
    pub(crate) fn send_blocks(mut self, buffer: Word, arrays: (Word, Word), width: Width, datatype: Word) -> Self {
        self.send = blocks(buffer, arrays, width, datatype);
        self
    }

    /// A block of each rank, with arrays of numbers of this width.
    pub(crate) fn receive_blocks(mut self, buffer: Word, arrays: (Word, Word), width: Width, datatype: Word) -> Self {
        self.receive = blocks(buffer, arrays, width, datatype);
        self
    }

    /// The receive counts of an `MPI_Reduce_scatter`.
    pub(crate) fn receive_counts(mut self, buffer: Word, counts: Word, width: Width, datatype: Word) -> Self {
        let blocks = Blocks { counts: Array { address: counts, width }, displacements: None };
        self.receive = Side { buffer, count: 0, datatype, blocks: Some(blocks) };
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
}

fn blocks(buffer: Word, (counts, displacements): (Word, Word), width: Width, datatype: Word) -> Side {
    let [counts, displacements] = [counts, displacements].map(|address| Array { address, width });
    Side { buffer, count: 0, datatype, blocks: Some(Blocks { counts, displacements: Some(displacements) }) }
}

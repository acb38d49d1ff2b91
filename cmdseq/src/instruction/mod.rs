//! The instruction: its fields, its constructors, and the 64-byte word it is encoded in.

mod constructors;
mod fields;
mod operand;
mod operation;
mod word;

use crate::reduction::{Combine, Element, Reduction};

pub use fields::Side;
pub(crate) use fields::{FIELDS, Field, Value};
pub use operand::{AddressSpace, Layout, Operand};
pub(crate) use operation::is_collective;
pub use operation::{Fields, Operation, takes_tables};
pub use word::{BYTES, DecodeError, VERSION, offset, seal};
pub(crate) use word::{DESTINATION_SHIFT, OPERAND_ARGUMENT, OPERAND_HOST, OPERAND_STRIPED, SOURCE_SHIFT};

/// The communicator that always exists: all cards of the fabric, in order of their nodes.
pub const WORLD: u16 = 0;
/// Arguments a launch passes to a resident program.
pub const ARGUMENTS: usize = 3;

bitflags::bitflags! {
    /// How an instruction is run.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Flags: u16 {
        /// Send eagerly whatever the size; refused by the card past its receive buffer.
        const EAGER = 1 << 0;
        /// Use rendezvous whatever the size.
        const RENDEZVOUS = 1 << 1;
        /// Raise the queue's interrupt with the completion.
        const INTERRUPT = 1 << 2;
        /// Last instruction of a resident program.
        const LAST = 1 << 3;
    }
}

/// One word to the sequencer.
///
/// Which fields an operation reads is said by [`Operation::fields`]; those it does not read are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// What to do.
    pub operation: Operation,
    /// Comes back in the completion.
    pub tag: u16,
    /// Index into the card's communicator table.
    pub communicator: u16,
    /// Rank that distributes or collects; for [`Operation::Sendrecv`] the rank received from.
    pub root: u16,
    /// The other rank of a point to point operation.
    pub peer: u16,
    /// How to run it.
    pub flags: Flags,
    /// Where data comes from.
    pub source: Operand,
    /// Where data goes to.
    pub destination: Operand,
    /// Bytes of one block: what one pair exchanges in one direction.
    pub bytes: u64,
    /// Type of what a reduction folds; `None` for other operations.
    pub element: Option<Element>,
    /// What a reduction does with the elements; `None` for other operations.
    pub reduction: Option<Reduction>,
    /// Operation by operation: for scatter, gather, allgather and reduce_scatter, the bytes of the divided vector if its last blocks are
    /// short or empty (0: all blocks are full); a fill's pattern; a delay's cycles; a resident program's or a table's slot;
    /// the address of the own contribution to a sendrecv_reduce; what a loop adds to a launch argument.
    pub extent: u64,
    /// In a resident program: the launch argument that is added to the extent of a sendrecv_reduce, or to which a loop adds
    /// its own.
    pub extent_argument: Option<u8>,
    /// Number of a signal of a card.
    pub signal_id: u16,
    /// What is added to a signal, or waited for and subtracted.
    pub signal_value: u32,
    /// How often a loop's body is run.
    pub loop_count: u16,
    /// Instructions of a loop's body, which follow it.
    pub loop_body: u16,
}

impl Instruction {
    /// An instruction of `operation` whose other fields are zero.
    pub const fn new(operation: Operation) -> Self {
        let nothing = Operand::card(0);
        Instruction {
            operation,
            tag: 0,
            communicator: WORLD,
            root: 0,
            peer: 0,
            flags: Flags::empty(),
            source: nothing,
            destination: nothing,
            bytes: 0,
            element: None,
            reduction: None,
            extent: 0,
            extent_argument: None,
            signal_id: 0,
            signal_value: 0,
            loop_count: 0,
            loop_body: 0,
        }
    }

    /// The same with another tag.
    pub const fn with_tag(mut self, tag: u16) -> Self {
        self.tag = tag;
        self
    }

    /// The same on another communicator.
    pub const fn on(mut self, communicator: u16) -> Self {
        self.communicator = communicator;
        self
    }

    /// The same with other flags.
    pub const fn with_flags(mut self, flags: Flags) -> Self {
        self.flags = flags;
        self
    }

    /// The same, dividing a vector of `bytes` over the ranks: the last blocks may be short or empty.
    pub const fn dividing(mut self, bytes: u64) -> Self {
        self.extent = bytes;
        self
    }

    /// In a resident program, as the card runs it: the launch arguments that it names are added to its addresses. What a
    /// loop names stays, because it changes that argument.
    pub fn with_arguments(mut self, arguments: &[u64; ARGUMENTS]) -> Self {
        let value = |index: Option<u8>| index.and_then(|index| arguments.get(usize::from(index))).copied().unwrap_or(0);
        for operand in [&mut self.source, &mut self.destination] {
            operand.address = operand.address.wrapping_add(value(operand.argument.take()));
        }
        if self.operation == Operation::SendrecvReduce {
            self.extent = self.extent.wrapping_add(value(self.extent_argument.take()));
        }
        self
    }

    /// What a reduction folds, and how; `None` for other operations, and if only one of the two is said.
    pub const fn combine(&self) -> Option<Combine> {
        match (self.reduction, self.element) {
            (Some(reduction), Some(element)) => Some(Combine { reduction, element }),
            _ => None,
        }
    }

    /// Bytes of block `rank`: [`Instruction::bytes`], or what is left of a divided vector.
    pub const fn block_bytes(&self, rank: u64) -> u64 {
        let divides = matches!(
            self.operation,
            Operation::Scatter | Operation::Gather | Operation::Allgather | Operation::ReduceScatter
        );
        if self.extent == 0 || !divides {
            return self.bytes;
        }
        let left = self.extent.saturating_sub(self.bytes.saturating_mul(rank));
        if left < self.bytes { left } else { self.bytes }
    }
}

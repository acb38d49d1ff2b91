//! The instruction: operations, fields, constructors, and the 64-byte word.
//!
//! This is the lowest module: it uses element types and reductions only.

mod constructors;
mod fields;
mod form;
pub mod offset;
mod operand;
mod operation;
mod window;
mod word;

use crate::reduction::{Combine, Element, Reduction};

pub use fields::Side;
pub(crate) use fields::{FIELDS, Field, Value};
pub use form::Form;
pub(crate) use form::has_forms;
pub use operand::{AddressSpace, Layout, Operand};
pub(crate) use operation::is_collective;
pub use operation::{Fields, Operation, has_address_in_extent, takes_tables};
pub use window::{Rights, Window};
pub use word::{BYTES, DecodeError, VERSION, seal};
pub(crate) use word::{
    DESTINATION_SHIFT, OPERAND_ARGUMENT, OPERAND_SPACE_HIGH, OPERAND_SPACE_LOW, OPERAND_STRIPED, SOURCE_SHIFT,
};

/// The permanent communicator: all cards of the fabric, in node order.
pub const WORLD: u16 = 0;
/// Longest delay that a card takes, in cycles (`docs/isa.md`).
pub const DELAY_MAX: u64 = 1 << 36;
/// Number of arguments of a launch.
pub const ARGUMENTS: usize = 3;

bitflags::bitflags! {
    /// How an instruction is run.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Flags: u16 {
        /// Send eagerly at any size; the card refuses sizes above its receive buffer.
        const EAGER = 1 << 0;
        /// Use rendezvous at any size.
        const RENDEZVOUS = 1 << 1;
        /// Raise the queue's interrupt with the completion.
        const INTERRUPT = 1 << 2;
        /// Last instruction of a resident program.
        const LAST = 1 << 3;
        /// Run after all instructions before it have ended.
        const FENCE = 1 << 4;
        /// The switches of the network compute the collective, along a tree.
        const TREE = 1 << 5;
        /// The switches compute it by recursive doubling.
        const DOUBLING = 1 << 6;
        /// The switches compute it by recursive halving.
        const HALVING = 1 << 7;
        /// The switches compute it around a ring.
        const RING = 1 << 8;
    }
}

/// One instruction of the sequencer.
///
/// [`Operation::fields`] lists the fields that an operation reads; the others are zero.
// Laid out in the order of the word: encoding loads neighbours together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Instruction {
    /// The operation.
    pub operation: Operation,
    /// Returned in the completion.
    pub tag: u16,
    /// Id of the communicator.
    pub communicator: u16,
    /// Rank that distributes or collects; for [`Operation::Sendrecv`], the rank received from.
    pub root: u16,
    /// The other rank of a point-to-point operation.
    pub peer: u16,
    /// Element type of a reduction; `None` for other operations.
    pub element: Option<Element>,
    /// How a reduction combines elements; `None` for other operations.
    pub reduction: Option<Reduction>,
    /// How to run it.
    pub flags: Flags,
    /// Where data is read.
    pub source: Operand,
    /// Where data is written.
    pub destination: Operand,
    /// Bytes of one block: from one rank to one other.
    pub bytes: u64,
    /// Depends on the operation. Scatter, gather, allgather, reduce_scatter: bytes of a divided vector whose last blocks are short or
    /// empty (0: all blocks are full). Pattern of a fill; cycles of a delay; slot of a resident program or table; address of the
    /// own contribution to a sendrecv_reduce, and of the second operand of a fold; increment of a loop; slot, rights and key of a
    /// window ([`Instruction::window`]).
    pub extent: u64,
    /// Number of a signal of a card.
    pub signal_id: u16,
    /// Rounds of a loop.
    pub loop_count: u16,
    /// Added to a signal, or awaited and subtracted.
    pub signal_value: u32,
    /// Instructions in the body of a loop, which follow it.
    pub loop_body: u16,
    /// In a resident program: the launch argument that is added to the extent of a sendrecv_reduce or fold, or to which a loop adds
    /// its extent.
    pub extent_argument: Option<u8>,
    /// The lane of an exchange or fold, below the card's [`lanes`](crate::Capabilities::lanes).
    pub lane: u8,
}

impl Instruction {
    /// Returns an instruction of `operation` with all other fields zero.
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
            lane: 0,
            signal_id: 0,
            signal_value: 0,
            loop_count: 0,
            loop_body: 0,
        }
    }

    /// Replaces the tag.
    pub const fn with_tag(mut self, tag: u16) -> Self {
        self.tag = tag;
        self
    }

    /// Replaces the communicator.
    pub const fn on(mut self, communicator: u16) -> Self {
        self.communicator = communicator;
        self
    }

    /// Replaces the flags.
    pub const fn with_flags(mut self, flags: Flags) -> Self {
        self.flags = flags;
        self
    }

    /// Replaces the lane.
    pub const fn in_lane(mut self, lane: u8) -> Self {
        self.lane = lane;
        self
    }

    /// Divides a vector of `bytes` over the ranks: the last blocks may be short or empty.
    pub const fn dividing(mut self, bytes: u64) -> Self {
        self.extent = bytes;
        self
    }

    /// Adds launch arguments to the addresses that name one, as the card does in a resident program. A loop keeps its argument,
    /// which it changes.
    pub fn with_arguments(mut self, arguments: &[u64; ARGUMENTS]) -> Self {
        let value = |index: Option<u8>| index.and_then(|index| arguments.get(usize::from(index))).copied().unwrap_or(0);
        for operand in [&mut self.source, &mut self.destination] {
            operand.address = operand.address.wrapping_add(value(operand.argument.take()));
        }
        if has_address_in_extent(self.operation) {
            self.extent = self.extent.wrapping_add(value(self.extent_argument.take()));
        }
        self
    }

    /// Whether an operand is in host memory.
    #[inline]
    pub const fn names_host(&self) -> bool {
        matches!(self.source.space, AddressSpace::Host) || matches!(self.destination.space, AddressSpace::Host)
    }

    /// Whether an operand or the extent names a launch argument.
    pub const fn has_arguments(&self) -> bool {
        self.source.argument.is_some() || self.destination.argument.is_some() || self.extent_argument.is_some()
    }

    /// Returns reduction and element type; `None` unless both are set.
    pub const fn combine(&self) -> Option<Combine> {
        match (self.reduction, self.element) {
            (Some(reduction), Some(element)) => Some(Combine { reduction, element }),
            _ => None,
        }
    }

    /// Whether the extent says how many bytes all blocks have together.
    const fn divides(&self) -> bool {
        use Operation::{Allgather, Gather, ReduceScatter, Scatter};
        self.extent != 0 && matches!(self.operation, Scatter | Gather | Allgather | ReduceScatter)
    }

    /// Returns the bytes of block `rank`: [`Instruction::bytes`], or the rest of a divided vector.
    pub const fn block_bytes(&self, rank: u64) -> u64 {
        if !self.divides() {
            return self.bytes;
        }
        let left = self.extent.saturating_sub(self.bytes.saturating_mul(rank));
        if left < self.bytes { left } else { self.bytes }
    }

    /// Returns the number of blocks among `ranks`, without the empty ones at the end of a divided vector.
    pub(crate) const fn filled_blocks(&self, ranks: u32) -> u32 {
        if !self.divides() || self.bytes == 0 {
            return ranks;
        }
        let filled = self.extent.div_ceil(self.bytes);
        if filled < ranks as u64 { filled as u32 } else { ranks }
    }
}

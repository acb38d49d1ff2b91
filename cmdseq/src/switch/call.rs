//! Calls of collectives: what each rank gives and gets, in blocks and chunks.

use std::ops::Range;

use crate::communicator::ContextId;
use crate::instruction::Form;
use crate::named::named;
use crate::reduction::{Combine, Element, Reduction};
use crate::{Instruction, Operation};

/// Most bytes of data in a network packet: whole elements.
pub const PAYLOAD_BYTES: usize = 240;

named! {
    /// A collective that the switches compute, in the order of their codes in headers.
    Collective {
        /// `MPI_Reduce`.
        Reduce, "reduce";
        /// `MPI_Allreduce`.
        Allreduce, "allreduce";
        /// `MPI_Bcast`.
        Broadcast, "broadcast";
        /// `MPI_Scatter`.
        Scatter, "scatter";
        /// `MPI_Gather`.
        Gather, "gather";
        /// `MPI_Allgather`.
        Allgather, "allgather";
        /// `MPI_Reduce_scatter_block`.
        ReduceScatter, "reduce_scatter";
    }
}

impl Collective {
    /// Returns what an operation of the sequencer is to switches.
    pub const fn of(operation: Operation) -> Option<Self> {
        Some(match operation {
            Operation::Reduce => Collective::Reduce,
            Operation::Allreduce => Collective::Allreduce,
            Operation::Broadcast => Collective::Broadcast,
            Operation::Scatter => Collective::Scatter,
            Operation::Gather => Collective::Gather,
            Operation::Allgather => Collective::Allgather,
            Operation::ReduceScatter => Collective::ReduceScatter,
            _ => return None,
        })
    }

    /// Whether contributions are combined.
    pub const fn combines(self) -> bool {
        matches!(self, Collective::Reduce | Collective::Allreduce | Collective::ReduceScatter)
    }

    /// Returns the forms that a direct network has for it, the one for short messages first (table 1 of the paper).
    pub const fn forms(self) -> &'static [Form] {
        match self {
            Collective::Reduce => &[Form::Tree, Form::Halving],
            Collective::Allreduce => &[Form::Doubling, Form::Halving, Form::Tree],
            Collective::Broadcast => &[Form::Tree, Form::Ring],
            Collective::Scatter | Collective::Gather => &[Form::Tree],
            Collective::Allgather => &[Form::Doubling, Form::Ring],
            Collective::ReduceScatter => &[Form::Tree, Form::Halving],
        }
    }
}

/// Refusal of a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CallError(pub String);

/// A call of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The communicator.
    pub context: ContextId,
    /// The collective.
    pub collective: Collective,
    /// The algorithm in a direct network. An indirect one has one tree of switches.
    pub form: Form,
    /// The operation, for a collective that combines.
    pub combine: Option<Combine>,
    /// The root, if there is one.
    pub root: u16,
    /// Bytes of a block: what a rank gives or gets; for `ReduceScatter` what it gets.
    pub bytes: u32,
}

/// Most chunks of a block: 16 bits of a header.
const CHUNKS_MAX: u32 = 1 << 16;
/// Most bytes of a block.
pub const BLOCK_BYTES_MAX: u32 = CHUNKS_MAX * PAYLOAD_BYTES as u32;

/// A piece of a block that one packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Chunk {
    /// The block, by rank.
    pub block: u16,
    /// The piece of the block.
    pub index: u16,
}

/// What all packets of a chunk have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Entry of the communicator table.
    pub context: u8,
    /// The collective.
    pub collective: Collective,
    /// The algorithm in a direct network.
    pub form: Form,
    /// The operation of a collective that combines.
    pub combine: Option<Combine>,
    /// The root, if there is one.
    pub root: u16,
    /// Which of the calls on the communicator it is.
    pub number: u32,
    /// The chunk.
    pub chunk: Chunk,
}

impl Call {
    /// Returns the call that an instruction is, if switches compute it.
    pub fn of(instruction: &Instruction) -> Option<Call> {
        Some(Call {
            context: ContextId::from_raw(instruction.communicator)?,
            collective: Collective::of(instruction.operation)?,
            form: instruction.form()?,
            combine: instruction.combine(),
            root: instruction.root,
            bytes: u32::try_from(instruction.bytes).unwrap_or(u32::MAX),
        })
    }

    /// Returns after how many chunks of a block the steps of switches are the same again.
    pub fn period(&self, size: u32) -> u32 {
        let powers = 1u32.checked_shl(size.max(1).ilog2()).unwrap_or(1);
        let changes = matches!(
            (self.collective, self.form),
            (Collective::Reduce | Collective::Allreduce, Form::Halving) | (Collective::Broadcast, Form::Ring)
        );
        if changes { powers.min(self.chunks()).max(1) } else { 1 }
    }

    /// Checks a call on a communicator of `size` ranks.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn check(&self, size: u32, is_direct: bool) -> Result<(), CallError> {
        let Call { collective, form, combine, root, bytes, .. } = *self;
        let refuse = |why: String| Err(CallError(why));
        if is_direct && !collective.forms().contains(&form) {
            return refuse(format!("no {form:?} form of {collective} (available: {:?})", collective.forms()));
        }
        if is_direct && form == Form::Ring && !size.is_power_of_two() {
            return refuse(format!(
                "no ring of {size} ranks: an entry of the table holds the neighbours only if the size is a power of two"
            ));
        }
        if collective.combines() && combine.is_none() {
            return refuse(format!("{collective} needs an operation and an element type"));
        }
        if let Some(combine) = combine.filter(|combine| !is_supported(*combine)) {
            return refuse(format!(
                "no {combine} in the units (operations: sum, min, max, xor, and, or; of integers, f32 and f64)"
            ));
        }
        let (element, most) = (combine.map_or(1, |combine| combine.element.bytes()), BLOCK_BYTES_MAX);
        if bytes == 0 || bytes > most || !u64::from(bytes).is_multiple_of(element) {
            return refuse(format!(
                "invalid block of {bytes} bytes (expected 1 to {most} bytes, in whole elements of {element})"
            ));
        }
        if u32::from(root) >= size {
            return refuse(format!("no root {root} in a communicator of {size} ranks"));
        }
        Ok(())
    }

    /// Returns the blocks that a rank gives.
    pub fn inputs(&self, rank: u32, size: u32) -> Range<u32> {
        let if_root = |blocks| if rank == u32::from(self.root) { 0..blocks } else { 0..0 };
        match self.collective {
            Collective::Reduce | Collective::Allreduce => 0..1,
            Collective::Broadcast => if_root(1),
            Collective::Scatter => if_root(size),
            Collective::Gather | Collective::Allgather => rank..rank + 1,
            Collective::ReduceScatter => 0..size,
        }
    }

    /// Returns the blocks that a rank gets.
    pub fn outputs(&self, rank: u32, size: u32) -> Range<u32> {
        let if_root = |blocks| if rank == u32::from(self.root) { 0..blocks } else { 0..0 };
        match self.collective {
            Collective::Reduce => if_root(1),
            Collective::Allreduce | Collective::Broadcast => 0..1,
            Collective::Scatter | Collective::ReduceScatter => rank..rank + 1,
            Collective::Gather => if_root(size),
            Collective::Allgather => 0..size,
        }
    }

    /// Returns the number of chunks of a block.
    pub fn chunks(&self) -> u32 {
        self.bytes.div_ceil(PAYLOAD_BYTES as u32)
    }

    /// Returns the place of a chunk in its block.
    pub fn place(&self, index: u16) -> Range<usize> {
        let from = usize::from(index) * PAYLOAD_BYTES;
        from..(from + PAYLOAD_BYTES).min(self.bytes as usize)
    }
}

/// Returns whether the published units have the operation.
pub fn is_supported(combine: Combine) -> bool {
    use Reduction::{And, Max, Min, Or, Sum, Xor};
    let is_narrow = matches!(combine.element, Element::F16 | Element::Bf16);
    matches!(combine.reduction, Sum | Min | Max | Xor | And | Or) && combine.is_defined() && !is_narrow
}

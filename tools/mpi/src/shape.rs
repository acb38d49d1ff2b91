//! What a call asks for, and whether the cards take it: decided from what MPI requires to be equal on all ranks.
//!
//! Datatypes may differ by rank as long as their signatures match (MPI 4.0, section 6.1), so data is moved by its number of bytes.
//! Reductions have one operation and one datatype on all ranks.

use std::fmt;

use cmdseq::plan::Collective;
use cmdseq::{Combine, Element, Reduction};

use crate::abi::{Constants, Kind};
use crate::arguments::{Arguments, Array, Side};
use crate::foreign::Word;
use crate::mpi::Datatype;

/// Most bytes that one rank gives or gets in a call: they go through host memory that is kept.
pub(crate) const BYTES_MAX: u64 = 64 << 20;

/// Why a call goes to the MPI library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reason {
    NoCards,
    Never,
    ThreadMultiple,
    Intercommunicator,
    SingleRank,
    OtherProcesses,
    Registration,
    OneCard,
    HostWithoutCard,
    SharedCard,
    RankOrder,
    Hint,
    ZeroBytes,
    TooLarge,
    Invalid,
    Operation,
    Datatype,
    UnequalCounts,
    NoPlan,
    Slower,
    Vector,
    Neighbourhood,
    NonBlocking,
}

impl Reason {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Reason::NoCards => "no cards",
            Reason::Never => "the policy is never",
            Reason::ThreadMultiple => "MPI_THREAD_MULTIPLE",
            Reason::Intercommunicator => "intercommunicator",
            Reason::SingleRank => "one rank",
            Reason::OtherProcesses => "ranks outside of MPI_COMM_WORLD",
            Reason::Registration => "the cards refused the communicator",
            Reason::OneCard => "one card",
            Reason::HostWithoutCard => "ranks of a host without a card",
            Reason::SharedCard => "more ranks than cards",
            Reason::RankOrder => "ranks of a card are not a range",
            Reason::Hint => "fpga_offload differs by rank or is invalid",
            Reason::ZeroBytes => "zero bytes",
            Reason::TooLarge => "too many bytes",
            Reason::Invalid => "invalid arguments",
            Reason::Operation => "operation that the cards lack",
            Reason::Datatype => "datatype that the cards do not reduce",
            Reason::UnequalCounts => "unequal counts",
            Reason::NoPlan => "no plan",
            Reason::Slower => "the MPI library is faster",
            Reason::Vector => "vector form",
            Reason::Neighbourhood => "neighbourhood collective",
            Reason::NonBlocking => "non-blocking",
        }
    }
}

/// A collective with what all ranks have alike.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) collective: Collective,
    /// As [`Collective`] counts them.
    pub(crate) bytes: u64,
    pub(crate) root: u32,
    pub(crate) combine: Option<Combine>,
    /// Bytes of the blocks of a vector form, as [`Request`](cmdseq::plan::Request) has them; else empty.
    pub(crate) counts: Vec<u64>,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} B", self.collective, self.bytes + self.counts.iter().sum::<u64>())?;
        if let Some(combine) = self.combine {
            write!(f, ", {combine}")?;
        }
        if self.collective.has_root() { write!(f, ", root {}", self.root) } else { Ok(()) }
    }
}

/// Returns the shape of a call by rank `rank` of `size`, on an intracommunicator. Vector forms have a
/// [function of their own](crate::vector::shape).
///
/// # Errors
/// Why the cards do not take it.
pub(crate) fn shape(arguments: &Arguments, constants: &Constants, rank: u32, size: u32) -> Result<Shape, Reason> {
    use Collective::{Allgather, Alltoall, Barrier, Broadcast, Gather, Scatter};
    let Arguments { collective, send, receive, .. } = *arguments;
    let root = if collective.has_root() { u32::try_from(arguments.root).map_err(|_| Reason::Invalid)? } else { 0 };
    if root >= size {
        return Err(Reason::Invalid);
    }
    let is_root = rank == root;
    let is_in_place = |side: &Side| side.buffer == constants.in_place;
    let mut combine = None;
    let bytes = match collective {
        Barrier => 0,
        Broadcast => bytes(&send, constants)?,
        Scatter if is_root => bytes(&send, constants)?,
        Gather if !is_root => bytes(&send, constants)?,
        Scatter | Gather | Allgather | Alltoall => bytes(&receive, constants)?,
        _ => {
            let element = combined(arguments, constants)?;
            combine = Some(element);
            let count = match receive.blocks {
                Some(blocks) => equal_count(blocks.counts, size)?,
                None => receive.count,
            };
            u64::try_from(count).map_err(|_| Reason::Invalid)?.saturating_mul(element.element.bytes())
        }
    };
    // The other side is significant in all but these cases; the MPI library names what is wrong with it.
    let is_both = collective.reduces() && (collective != Collective::Reduce || is_root)
        || matches!(collective, Allgather | Alltoall)
        || matches!(collective, Scatter | Gather) && is_root;
    let is_negative = send.count < 0 || receive.count < 0;
    if is_both && !is_in_place(&send) && !is_in_place(&receive) && is_negative {
        return Err(Reason::Invalid);
    }
    if collective != Barrier && bytes == 0 {
        return Err(Reason::ZeroBytes);
    }
    if bytes.saturating_mul(blocks(collective, size.into())) > BYTES_MAX {
        return Err(Reason::TooLarge);
    }
    if is_misplaced(arguments, constants, is_root) {
        return Err(Reason::Invalid);
    }
    Ok(Shape { collective, bytes, root, combine, counts: Vec::new() })
}

/// Blocks of the larger side of a rank: one, or one for each rank. Vector forms have blocks of different lengths.
pub(crate) fn blocks(collective: Collective, ranks: u64) -> u64 {
    use Collective::{Allgather, Alltoall, Gather, ReduceScatter, Scatter};
    if matches!(collective, Scatter | Gather | Allgather | Alltoall | ReduceScatter) { ranks } else { 1 }
}

/// Whether `MPI_IN_PLACE` is where MPI does not take it, in a buffer that is significant on this rank.
pub(crate) fn is_misplaced(arguments: &Arguments, constants: &Constants, is_root: bool) -> bool {
    use Collective::{Broadcast, Gather, Gatherv, Reduce, Scatter, Scatterv};
    let is_in_place = |side: &Side| side.buffer == constants.in_place;
    let Arguments { collective, send, receive, .. } = arguments;
    match collective {
        Broadcast => is_in_place(send),
        Scatter | Scatterv => is_in_place(if is_root { send } else { receive }),
        Reduce | Gather | Gatherv => is_in_place(if is_root { receive } else { send }),
        _ => is_in_place(receive),
    }
}

/// Bytes of the data of one side.
pub(crate) fn bytes(side: &Side, constants: &Constants) -> Result<u64, Reason> {
    let count = u64::try_from(side.count).map_err(|_| Reason::Invalid)?;
    Ok(count.saturating_mul(size_of(side.datatype, constants)?))
}

/// Bytes of the data of an element.
pub(crate) fn size_of(datatype: Word, constants: &Constants) -> Result<u64, Reason> {
    match contiguous(datatype, constants) {
        Some(bytes) => Ok(bytes),
        None if constants.abi.handle(datatype) == constants.datatype_null => Err(Reason::Invalid),
        None => Datatype(datatype).size().map_err(|_| Reason::Invalid),
    }
}

/// Bytes of an element of a predefined datatype without gaps; `None` for others.
pub(crate) fn contiguous(datatype: Word, constants: &Constants) -> Option<u64> {
    match constants.kind(datatype)? {
        Kind::Text | Kind::Byte => Some(1),
        Kind::Number(element) | Kind::Integer(element) => Some(element.bytes()),
        Kind::Pair(_) => None,
    }
}

fn combined(arguments: &Arguments, constants: &Constants) -> Result<Combine, Reason> {
    let reduction = constants.reduction(arguments.operation).ok_or(Reason::Operation)?;
    let element = match constants.kind(arguments.receive.datatype) {
        Some(Kind::Number(element) | Kind::Pair(element)) => element,
        Some(Kind::Integer(element)) if !matches!(reduction, Reduction::Land | Reduction::Lor | Reduction::Lxor) => {
            element
        }
        Some(Kind::Byte) if matches!(reduction, Reduction::And | Reduction::Or | Reduction::Xor) => Element::U8,
        _ => return Err(Reason::Datatype),
    };
    if reduction.takes(element) { Ok(Combine { reduction, element }) } else { Err(Reason::Datatype) }
}

/// The receive count of an `MPI_Reduce_scatter`, if it is the same for all ranks.
fn equal_count(counts: Array, size: u32) -> Result<i64, Reason> {
    if counts.is_null() {
        return Err(Reason::Invalid);
    }
    let first = counts.get(0);
    let are_equal = (1..size as usize).all(|index| counts.get(index) == first);
    if are_equal { Ok(first) } else { Err(Reason::UnequalCounts) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_names_the_call() {
        let combine = Combine { reduction: Reduction::Sum, element: Element::I32 };
        let shape = |collective, combine, counts| Shape { collective, bytes: 0, root: 2, combine, counts };
        let reduce = Shape { bytes: 8, ..shape(Collective::Reduce, Some(combine), Vec::new()) };
        assert_eq!(reduce.to_string(), "reduce of 8 B, sum of i32, root 2");
        assert_eq!(shape(Collective::Allgatherv, None, vec![4, 8]).to_string(), "allgatherv of 12 B");
    }
}

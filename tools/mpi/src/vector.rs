//! The shape of a vector form: the bytes of all its blocks, which all ranks must know.
//!
//! All ranks know the counts of an allgatherv. Those of a scatterv and of a gatherv the root knows, and each rank its own row of an
//! alltoallv: they are exchanged by the MPI library before the call. What one rank finds invalid, it tells the others in this round.

use cmdseq::plan::{Collective, Request};

use crate::abi::Constants;
use crate::arguments::{Arguments, Side};
use crate::mpi::{self, Comm};
use crate::shape::{BYTES_MAX, Reason, Shape, is_misplaced, size_of};

/// Stands for counts that are invalid.
const INVALID: i64 = -1;

/// Returns the shape of a vector form by rank `rank` of the `size` ranks of `comm`. Collective if not all ranks know the counts.
///
/// # Errors
/// Those of MPI. The inner one says why the cards do not take the call.
pub(crate) fn shape(
    arguments: &Arguments,
    constants: &Constants,
    comm: Comm,
    (rank, size): (u32, u32),
) -> mpi::Result<Result<Shape, Reason>> {
    let Arguments { collective, send, receive, .. } = arguments;
    let root = if collective.has_root() { arguments.root } else { 0 };
    let Some(root) = u32::try_from(root).ok().filter(|root| *root < size) else { return Ok(Err(Reason::Invalid)) };
    let is_in_place = |side: &Side| side.buffer == constants.in_place;
    let row = |side: &Side| row(side, constants, size);
    let counts = match collective {
        Collective::Allgatherv => row(receive),
        Collective::Alltoallv => {
            let sends = if is_in_place(send) { row(receive) } else { row(send) };
            let own = [sends, row(receive)].concat();
            let all = comm.allgather_numbers(&own, constants)?;
            square(&all, size as usize)
        }
        _ => {
            let side = if *collective == Collective::Scatterv { send } else { receive };
            let mut counts = if rank == root { row(side) } else { vec![0; size as usize] };
            comm.broadcast_numbers(&mut counts, root, constants)?;
            counts
        }
    };
    let counts: Result<Vec<u64>, _> = counts.into_iter().map(u64::try_from).collect();
    let Ok(counts) = counts else { return Ok(Err(Reason::Invalid)) };
    let shape = Shape { collective: *collective, bytes: 0, root, combine: None, counts };
    let request = shape.request((0..size).collect());
    let largest = (0..size).map(|rank| request.input_bytes(rank).max(request.output_bytes(rank))).max().unwrap_or(0);
    Ok(match largest {
        0 => Err(Reason::ZeroBytes),
        bytes if bytes > BYTES_MAX => Err(Reason::TooLarge),
        _ if is_misplaced(arguments, constants, rank == root) => Err(Reason::Invalid),
        _ => Ok(shape),
    })
}

/// The bytes of the blocks of one side, all [`INVALID`] if one is.
fn row(side: &Side, constants: &Constants, size: u32) -> Vec<i64> {
    let invalid = || vec![INVALID; size as usize];
    if side.buffer == constants.in_place {
        return invalid();
    }
    let (Some(blocks), Ok(element)) = (side.blocks, size_of(side.datatype, constants)) else { return invalid() };
    if blocks.counts.is_null() || blocks.displacements.is_none_or(|array| array.is_null()) {
        return invalid();
    }
    let bytes = |index| blocks.counts.get(index).checked_mul(i64::try_from(element).ok()?).filter(|bytes| *bytes >= 0);
    (0..size as usize).map(bytes).collect::<Option<Vec<i64>>>().unwrap_or_else(invalid)
}

/// The bytes that each rank sends to each, row by row, from what each has stated: its sends and its receives. All [`INVALID`] if
/// the receives are not what is sent.
fn square(all: &[i64], size: usize) -> Vec<i64> {
    let sends = |from: usize, to: usize| all[from * 2 * size + to];
    let receives = |from: usize, to: usize| all[to * 2 * size + size + from];
    let pairs = || (0..size).flat_map(|from| (0..size).map(move |to| (from, to)));
    if pairs().any(|(from, to)| sends(from, to) != receives(from, to)) {
        return vec![INVALID; size * size];
    }
    pairs().map(|(from, to)| sends(from, to)).collect()
}

impl Shape {
    /// The request to the planner for this shape, on the cards of `group`.
    pub(crate) fn request(&self, group: Vec<u32>) -> Request {
        let mut request = Request::new(self.collective, group, self.bytes);
        request.root = self.root;
        request.combine = self.combine;
        request.counts.clone_from(&self.counts);
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alltoallv_is_what_each_sends_if_each_receives_that() {
        // Rank 0 sends 1 to itself and 2 to rank 1, which sends 3 and 4.
        let stated = [1, 2, 1, 3, 3, 4, 2, 4];
        assert_eq!(square(&stated, 2), [1, 2, 3, 4]);
        for place in 0..stated.len() {
            let mut other = stated;
            other[place] += 1;
            // Sends and receives of a rank to itself are stated by the same rank, twice.
            assert_eq!(square(&other, 2), [INVALID; 4], "{place}");
        }
    }
}

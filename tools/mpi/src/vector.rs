//! The shape of a vector form: the bytes of all its blocks, which all ranks must know.
//!
//! All ranks know the counts of an allgatherv. Those of a scatterv and of a gatherv the root knows, and each rank its own row of an
//! alltoallv: they are exchanged by the MPI library before the call. In the same round each rank states the bytes that it sends or
//! receives itself: if the counts say otherwise, all ranks pass the call on. An MPI library runs some of these calls, which MPI excludes.

use cmdseq::plan::{Collective, Request};

use crate::abi::Constants;
use crate::arguments::{Arguments, Side};
use crate::rounds::Rounds;
use crate::shape::{BYTES_MAX, Reason, Shape, bytes, is_misplaced, size_of};
use crate::trouble::Trouble;

/// Stands for counts that are invalid.
const INVALID: i64 = -1;

/// Returns the shape of a vector form by rank `rank` of the `size` ranks of `comm`. Collective if not all ranks know the counts.
///
/// # Errors
/// Those of MPI, and counts of an allgatherv that differ on this rank. The inner one says why the cards do not take the call.
pub(crate) fn shape(
    arguments: &Arguments,
    rounds: Rounds<'_>,
    (rank, size): (u32, u32),
) -> Result<Result<Shape, Reason>, Trouble> {
    let (constants, Arguments { collective, send, receive, .. }) = (rounds.constants, arguments);
    let root = if collective.has_root() { arguments.root } else { 0 };
    let Some(root) = u32::try_from(root).ok().filter(|root| *root < size) else { return Ok(Err(Reason::Invalid)) };
    let is_in_place = |side: &Side| side.buffer == constants.in_place;
    let row = |side: &Side| row(side, constants, size);
    let counts = match collective {
        Collective::Allgatherv => row(receive),
        Collective::Alltoallv => {
            let sends = if is_in_place(send) { row(receive) } else { row(send) };
            let own = [sends, row(receive)].concat();
            let all = rounds.allgather_numbers(own)?;
            square(&all, size as usize)
        }
        _ => {
            let (side, other) = if *collective == Collective::Scatterv { (send, receive) } else { (receive, send) };
            let own = match is_in_place(other) {
                false => whole(other, constants),
                // The block of the root stays where it is.
                true if rank == root => row(side)[rank as usize],
                true => INVALID,
            };
            // The counts of the root, and the bytes of each rank: whoever does not know a number adds 0.
            let mut numbers = if rank == root { row(side) } else { vec![0; size as usize] };
            numbers.extend((0..size).map(|other| if other == rank { own } else { 0 }));
            of_root(rounds.sum_numbers(numbers)?)
        }
    };
    let counts: Result<Vec<u64>, _> = counts.into_iter().map(u64::try_from).collect();
    let Ok(counts) = counts else { return Ok(Err(Reason::Invalid)) };
    let shape = Shape { collective: *collective, bytes: 0, root, combine: None, counts };
    let request = shape.request((0..size).collect());
    let largest = (0..size).map(|rank| request.input_bytes(rank).max(request.output_bytes(rank))).max().unwrap_or(0);
    match largest {
        0 => return Ok(Err(Reason::ZeroBytes)),
        bytes if bytes > BYTES_MAX => return Ok(Err(Reason::TooLarge)),
        _ if is_misplaced(arguments, constants, rank == root) => return Ok(Err(Reason::Invalid)),
        _ => {}
    }
    if *collective == Collective::Allgatherv && !is_in_place(send) {
        // Nobody else knows it, and the others go on. What is no size at all the MPI library reports.
        let Ok(sent) = u64::try_from(whole(send, constants)) else { return Ok(Err(Reason::Invalid)) };
        let counted = request.input_bytes(rank);
        if sent != counted {
            return Err(Trouble::Counts { sent, counted });
        }
    }
    Ok(Ok(shape))
}

/// The counts of the root, which are followed by the bytes that each rank sends or receives itself. All [`INVALID`] if these differ.
fn of_root(mut numbers: Vec<i64>) -> Vec<i64> {
    let own = numbers.split_off(numbers.len() / 2);
    if own == numbers { numbers } else { vec![INVALID; own.len()] }
}

/// The bytes of a side with one block; [`INVALID`] if they are no number of bytes. Of no elements, the datatype is not looked at.
fn whole(side: &Side, constants: &Constants) -> i64 {
    let bytes = if side.count == 0 { Ok(0) } else { bytes(side, constants) };
    bytes.ok().and_then(|bytes| i64::try_from(bytes).ok()).unwrap_or(INVALID)
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
    fn the_counts_of_a_root_hold_if_each_rank_has_as_many() {
        let stated = vec![8, 4, 8, 4];
        assert_eq!(of_root(stated.clone()), [8, 4]);
        for place in 0..4 {
            let mut other = stated.clone();
            other[place] += 1;
            assert_eq!(of_root(other), [INVALID; 2], "{place}");
        }
    }

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

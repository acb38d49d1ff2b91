//! Recursive doubling: in each round the distance of the partners doubles, and so does what each rank has of the others.
//!
//! The barrier is the dissemination barrier, and allgather is Bruck's: they go with any number of ranks. Allreduce folds
//! the ranks past a power of two in before, and tells them the result behind. Scan is that of Hillis and Steele.

use super::draft::Draft;
use super::placement::{Areas, pieces_at, whole};
use super::rounds::{Blocks, Core, Move, TOKEN_BYTES, Turns, check_rounds};
use crate::Capabilities;
use crate::refusal::Refusal;
use crate::request::{Collective, Request};

/// The programs of `request`, with a round for each distance.
pub(super) fn build(request: &Request, capabilities: &Capabilities) -> Result<Draft, Refusal> {
    check_rounds(request, "recursive-doubling")?;
    let mut draft = Draft::on_one_communicator(request, capabilities);
    match request.collective {
        Collective::Barrier => barrier(request, &mut draft, capabilities)?,
        Collective::Allgather => allgather(request, &mut draft, capabilities)?,
        Collective::Allreduce => allreduce(request, &mut draft, capabilities)?,
        Collective::Scan | Collective::Exscan => scan(request, &mut draft, capabilities)?,
        other => {
            return Err(Refusal::general(format!(
                "recursive-doubling is for barrier, allgather, allreduce, scan and exscan, not for {other}"
            )));
        }
    }
    Ok(draft)
}

/// 1, 2, 4 and so on below `ranks`.
fn distances(ranks: u32) -> impl Iterator<Item = u32> {
    (0..ranks.next_power_of_two().ilog2()).map(|level| 1 << level)
}

fn barrier(request: &Request, draft: &mut Draft, capabilities: &Capabilities) -> Result<(), Refusal> {
    let ranks = request.ranks();
    let [_, _, source, destination] = Areas::place(request, capabilities, [0, 0, TOKEN_BYTES, TOKEN_BYTES])?;
    for distance in distances(ranks) {
        let token =
            |from| Move { from, to: (from + distance) % ranks, source, destination, bytes: TOKEN_BYTES, own: None };
        draft.round((0..ranks).map(token), None);
    }
    Ok(())
}

/// Each rank has its own block first and those of the ranks behind it after, around the group.
fn allgather(request: &Request, draft: &mut Draft, capabilities: &Capabilities) -> Result<(), Refusal> {
    let ranks = request.ranks();
    let blocks = Blocks::of_ranks(request, capabilities);
    let [_, data] = Areas::place(request, capabilities, [0, blocks.total()])?;
    for distance in distances(ranks) {
        let bytes = blocks.bytes(0..distance.min(ranks - distance));
        let first = |from: u32| Move {
            from,
            to: (from + ranks - distance) % ranks,
            source: data,
            destination: data + blocks.offset(distance),
            bytes,
            own: None,
        };
        draft.round((0..ranks).map(first), None);
    }
    let at = |rank: u32, number: u32| data + blocks.offset((number + ranks - rank) % ranks);
    draft.lies(request, |rank| {
        let output = pieces_at(request.bytes, request.output_bytes(rank), |number| at(rank, number));
        (whole(data, request.bytes), output)
    });
    Ok(())
}

fn allreduce(request: &Request, draft: &mut Draft, capabilities: &Capabilities) -> Result<(), Refusal> {
    let bytes = request.bytes;
    let [input, output, between] = Areas::place(request, capabilities, [bytes; 3])?;
    let core = Core::new(request);
    let mut turns = Turns::new(input, output, between, request.ranks(), |rank| core.folds(rank));
    let fold = |turns: &Turns, from, to| Move {
        from,
        to,
        source: turns.current(from),
        destination: turns.next(to),
        bytes,
        own: Some(turns.current(to)),
    };
    draft.round(core.pairs().map(|(stays, goes)| fold(&turns, goes, stays)), request.combine);
    turns.turn(core.pairs().map(|(stays, _)| stays));
    for distance in core.distances() {
        let exchange = |number: u32| fold(&turns, core.rank(number), core.rank(number ^ distance));
        draft.round((0..core.count).map(exchange), request.combine);
        turns.turn((0..core.count).map(|number| core.rank(number)));
    }
    let back = |(stays, goes): (u32, u32)| Move { own: None, ..fold(&turns, stays, goes) };
    draft.round(core.pairs().map(back), None);
    turns.turn(core.pairs().map(|(_, goes)| goes));
    draft.lies(request, |rank| (whole(input, bytes), whole(turns.current(rank), bytes)));
    Ok(())
}

/// Exscan first shifts the vectors by one rank, and is a scan of the others from there on.
fn scan(request: &Request, draft: &mut Draft, capabilities: &Capabilities) -> Result<(), Refusal> {
    let (ranks, bytes) = (request.ranks(), request.bytes);
    let [input, output, between] = Areas::place(request, capabilities, [bytes; 3])?;
    let is_exclusive = request.collective == Collective::Exscan;
    let lowest = u32::from(is_exclusive);
    // Rank r receives over all distances up to the lowest rank, and before them the shift.
    let folds = |rank: u32| (rank.saturating_sub(lowest) + 1).next_power_of_two().ilog2() + lowest.min(rank);
    let mut turns = Turns::new(input, output, between, ranks, folds);
    let onward = |turns: &Turns, from: u32, distance: u32| Move {
        from,
        to: from + distance,
        source: turns.current(from),
        destination: turns.next(from + distance),
        bytes,
        own: Some(turns.current(from + distance)),
    };
    if is_exclusive {
        draft.round((0..ranks - 1).map(|from| Move { own: None, ..onward(&turns, from, 1) }), None);
        turns.turn(1..ranks);
    }
    for distance in distances(ranks - lowest) {
        draft.round((lowest..ranks - distance).map(|from| onward(&turns, from, distance)), request.combine);
        turns.turn(lowest + distance..ranks);
    }
    draft.lies(request, |rank| (whole(input, bytes), whole(turns.current(rank), request.output_bytes(rank))));
    Ok(())
}

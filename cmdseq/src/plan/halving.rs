//! Recursive halving and doubling: partners exchange halves of what they still share, from the farthest to the nearest, and
//! back again what came of it.
//!
//! The ranks past a power of two are folded in before, and told what is theirs behind.

use super::draft::Draft;
use super::placement::{Areas, pieces_at, whole};
use super::rounds::{Blocks, Core, Move, Turns, check_rounds};
use crate::Capabilities;
use crate::refusal::Refusal;
use crate::request::{Collective, Request};

/// The programs of `request`, with a round for each distance, there and perhaps back.
pub(super) fn build(request: &Request, capabilities: &Capabilities) -> Result<Draft, Refusal> {
    check_rounds(request, "halving-doubling")?;
    let core = Core::new(request);
    let is_scattered = request.collective == Collective::ReduceScatter;
    let blocks = match is_scattered {
        true => Blocks::of_ranks(request, capabilities),
        false => Blocks::dividing(request, capabilities, core.count.into()),
    };
    let shares = Shares { core, blocks, is_of_ranks: is_scattered };
    let draft = Draft::on_one_communicator(request, capabilities);
    match request.collective {
        Collective::Reduce | Collective::Allreduce | Collective::ReduceScatter => {
            reduce(request, shares, draft, capabilities)
        }
        Collective::Broadcast => broadcast(request, shares, draft, capabilities),
        other => Err(Refusal::general(format!(
            "halving-doubling is for broadcast, reduce, allreduce and reduce_scatter, not for {other}"
        ))),
    }
}

/// Which part of a vector is whose: each number of the core has blocks one after another.
#[derive(Clone, Copy)]
struct Shares {
    core: Core,
    blocks: Blocks,
    /// There is a block for each rank, and a number has those of the ranks that it stands for; otherwise it has one block.
    is_of_ranks: bool,
}

impl Shares {
    fn first_block(self, number: u32) -> u32 {
        if self.is_of_ranks { self.core.first_rank(number) } else { number }
    }

    /// Where the shares of the `size` numbers around `number` begin, and their bytes; `size` is a power of two.
    fn around(self, number: u32, size: u32) -> (u64, u64) {
        let start = number & !(size - 1);
        let range = self.first_block(start)..self.first_block(start + size);
        (self.blocks.offset(range.start), self.blocks.bytes(range))
    }
}

fn reduce(request: &Request, shares: Shares, mut draft: Draft, capabilities: &Capabilities) -> Result<Draft, Refusal> {
    let Shares { core, blocks, .. } = shares;
    let [input, output, between] = Areas::place(request, capabilities, [blocks.total(); 3])?;
    let mut turns = Turns::new(input, output, between, request.ranks(), |rank| core.folds(rank));
    let fold = |turns: &Turns, from: u32, to: u32, (offset, bytes): (u64, u64)| Move {
        from,
        to,
        source: turns.current(from) + offset,
        destination: turns.next(to) + offset,
        bytes,
        own: Some(turns.current(to) + offset),
    };
    let all = (0, blocks.total());
    draft.round(core.pairs().map(|(stays, goes)| fold(&turns, goes, stays, all)), request.combine);
    turns.turn(core.pairs().map(|(stays, _)| stays));
    for distance in core.distances().rev() {
        let exchange = |number: u32| {
            let partner = number ^ distance;
            fold(&turns, core.rank(number), core.rank(partner), shares.around(partner, distance))
        };
        draft.round((0..core.count).map(exchange), request.combine);
        turns.turn((0..core.count).map(|number| core.rank(number)));
    }
    // After all turns the results are where the output is to be.
    let result = |_| output;
    match request.collective {
        Collective::Allreduce => collect(shares, &mut draft, result),
        Collective::Reduce => {
            let root = core.number(request.root);
            for distance in core.distances() {
                let is_sent = |number: &u32| (number ^ root) & (2 * distance - 1) == distance;
                let toward = |number| copy(shares, number, number ^ distance, number, distance, result);
                draft.round((0..core.count).filter(is_sent).map(toward), None);
            }
        }
        _ => {}
    }
    // Those that others stood in for get theirs.
    let theirs = |rank: u32| match request.collective {
        Collective::ReduceScatter => (output + blocks.offset(rank), request.bytes),
        _ => (output, request.bytes),
    };
    if request.collective != Collective::Reduce {
        let back = |(from, to): (u32, u32)| {
            let (place, bytes) = theirs(to);
            Move { from, to, source: place, destination: place, bytes, own: None }
        };
        draft.round(core.pairs().map(back), None);
    }
    draft.lies(request, |rank| {
        let at = |number| input + blocks.offset(number);
        let given = pieces_at(request.bytes, request.input_bytes(rank), at);
        (given, whole(theirs(rank).0, request.output_bytes(rank)))
    });
    Ok(draft)
}

/// What `from` has of the shares of the `size` numbers around `around` goes to `to`; rank r has them at `at(r)`.
fn copy(shares: Shares, from: u32, to: u32, around: u32, size: u32, at: impl Fn(u32) -> u64) -> Move {
    let (from, to) = (shares.core.rank(from), shares.core.rank(to));
    let (offset, bytes) = shares.around(around, size);
    Move { from, to, source: at(from) + offset, destination: at(to) + offset, bytes, own: None }
}

/// Every number has its share, and gets those of all.
fn collect(shares: Shares, draft: &mut Draft, at: impl Fn(u32) -> u64) {
    for distance in shares.core.distances() {
        let exchange = |number| copy(shares, number, number ^ distance, number, distance, &at);
        draft.round((0..shares.core.count).map(exchange), None);
    }
}

/// The root hands out shares, and all collect them.
fn broadcast(
    request: &Request,
    shares: Shares,
    mut draft: Draft,
    capabilities: &Capabilities,
) -> Result<Draft, Refusal> {
    let core = shares.core;
    // What the root has is where it was.
    let [input, output] = Areas::place(request, capabilities, [request.bytes; 2])?;
    let at = |rank: u32| if rank == request.root { input } else { output };
    let root = core.number(request.root);
    for distance in core.distances().rev() {
        let has = |number: &u32| (number ^ root) & (2 * distance - 1) == 0;
        let onward = |number: u32| copy(shares, number, number ^ distance, number ^ distance, distance, at);
        draft.round((0..core.count).filter(has).map(onward), None);
    }
    collect(shares, &mut draft, at);
    let back = |(from, to): (u32, u32)| Move {
        from,
        to,
        source: at(from),
        destination: at(to),
        bytes: request.bytes,
        own: None,
    };
    draft.round(core.pairs().map(back), None);
    draft.lies(request, |rank| (whole(input, request.input_bytes(rank)), whole(at(rank), request.bytes)));
    Ok(draft)
}

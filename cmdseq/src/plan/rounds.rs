//! Programs that go in rounds: in each, a rank sends at most one block and receives at most one.

use std::ops::Range;

use super::draft::Draft;
use super::placement::pieces_at;
use crate::program::Piece;
use crate::refusal::Refusal;
use crate::request::{Collective, Request};
use crate::{Capabilities, Combine, Instruction, Operand};

/// What a rank sends to say that it is there.
pub(super) const TOKEN_BYTES: u64 = 1;

/// A block on its way in one round. Addresses are in card memory, bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Move {
    pub(super) from: u32,
    pub(super) to: u32,
    /// Where it lies at `from`.
    pub(super) source: u64,
    /// Where it, or what it is folded to, comes to lie at `to`.
    pub(super) destination: u64,
    pub(super) bytes: u64,
    /// Where the contribution of `to` lies that it is folded with; `None` if it is not.
    pub(super) own: Option<u64>,
}

impl Draft {
    /// Appends a round. Blocks of no bytes are left out on both sides.
    ///
    /// A rank whose two blocks are of one length sends and receives at once. Otherwise the longer goes first, at all ranks, so
    /// that ranks never wait for each other in a circle.
    pub(super) fn round(&mut self, moves: impl IntoIterator<Item = Move>, combine: Option<Combine>) {
        let mut sends: Vec<Option<Move>> = vec![None; self.programs.len()];
        let mut receives = sends.clone();
        for one in moves.into_iter().filter(|one| one.bytes != 0) {
            if let (Some(send), Some(receive)) = (sends.get_mut(one.from as usize), receives.get_mut(one.to as usize)) {
                (*send, *receive) = (Some(one), Some(one));
            }
        }
        for ((program, send), receive) in self.programs.iter_mut().zip(sends).zip(receives) {
            let instructions = match (send, receive) {
                (Some(send), Some(receive)) if send.bytes == receive.bytes => {
                    [Some(both(send, receive, combine)), None]
                }
                (Some(send), Some(receive)) if send.bytes < receive.bytes => {
                    [Some(incoming(receive, combine)), Some(outgoing(send))]
                }
                (send, receive) => [send.map(outgoing), receive.map(|one| incoming(one, combine))],
            };
            let communicator = self.communicator;
            program.instructions.extend(instructions.into_iter().flatten().map(|one| one.on(communicator)));
        }
    }
}

fn outgoing(send: Move) -> Instruction {
    Instruction::send(send.to as u16, Operand::card(send.source), send.bytes)
}

fn incoming(receive: Move, combine: Option<Combine>) -> Instruction {
    let (from, destination) = (receive.from as u16, Operand::card(receive.destination));
    match (receive.own, combine) {
        (Some(own), Some(combine)) => {
            Instruction::recv_reduce(combine, from, Operand::card(own), destination, receive.bytes)
        }
        _ => Instruction::recv(from, destination, receive.bytes),
    }
}

fn both(send: Move, receive: Move, combine: Option<Combine>) -> Instruction {
    let (to, from) = (send.to as u16, receive.from as u16);
    let (source, destination) = (Operand::card(send.source), Operand::card(receive.destination));
    match (receive.own, combine) {
        (Some(own), Some(combine)) => {
            Instruction::sendrecv_reduce(combine, (to, from), source, Operand::card(own), destination, send.bytes)
        }
        _ => Instruction::sendrecv(to, from, source, destination, send.bytes),
    }
}

/// Refuses what `way` has no rounds for.
pub(super) fn check_rounds(request: &Request, way: &str) -> Result<(), Refusal> {
    let refuse = |cause| Err(Refusal::general(format!("{way} {cause}; use direct")));
    let is_empty = match request.collective {
        Collective::Barrier => false,
        one if one.has_counts() => {
            let ranks = 0..request.ranks();
            let pairs = ranks.clone().flat_map(|from| ranks.clone().map(move |to| (from, to)));
            pairs.filter(|(from, to)| from != to).all(|(from, to)| request.given(from, to) == 0)
        }
        _ => request.bytes == 0,
    };
    match request.ranks() {
        0 | 1 => refuse("needs two ranks"),
        _ if is_empty => refuse("has nothing to send"),
        _ => Ok(()),
    }
}

/// A vector as blocks one after another: the last may be short, and those behind it empty.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocks {
    /// Bytes of all, with what lies between blocks.
    total: u64,
    /// From one block to the next.
    distance: u64,
}

impl Blocks {
    /// One block of the request's bytes for each rank, at multiples of the alignment.
    pub(super) fn of_ranks(request: &Request, capabilities: &Capabilities) -> Self {
        let align = u64::from(capabilities.address_align.max(1));
        let distance = request.bytes.checked_next_multiple_of(align).unwrap_or(u64::MAX);
        Blocks { total: distance.saturating_mul(request.ranks().into()), distance }
    }

    /// The request's bytes in `parts` chunks of whole beats and elements.
    pub(super) fn dividing(request: &Request, capabilities: &Capabilities, parts: u64) -> Self {
        let element = request.combine.map_or(1, |combine| combine.element.bytes());
        let unit = u64::from(capabilities.timing.beat_bytes.max(capabilities.address_align)).max(1);
        let unit = unit.checked_next_multiple_of(element).unwrap_or(unit);
        let distance = request.bytes.div_ceil(parts.max(1)).checked_next_multiple_of(unit).unwrap_or(u64::MAX);
        Blocks { total: request.bytes, distance }
    }

    /// Bytes of all.
    pub(super) const fn total(self) -> u64 {
        self.total
    }

    /// From one block to the next, bytes.
    pub(super) const fn distance(self) -> u64 {
        self.distance
    }

    /// Where block `number` begins.
    pub(super) fn offset(self, number: u32) -> u64 {
        self.distance.saturating_mul(number.into()).min(self.total)
    }

    /// Bytes of the blocks `numbers`.
    pub(super) fn bytes(self, numbers: Range<u32>) -> u64 {
        self.offset(numbers.end) - self.offset(numbers.start)
    }
}

/// Blocks in two areas by turns, so that what a card sends and what comes in do not share a pseudo channel.
#[derive(Debug, Clone, Copy)]
pub(super) struct ByTurns {
    areas: [u64; 2],
    blocks: Blocks,
}

impl ByTurns {
    /// Bytes of each area for `count` blocks.
    pub(super) fn area_bytes(blocks: Blocks, count: u32) -> u64 {
        blocks.distance.saturating_mul(count.div_ceil(2).into())
    }

    pub(super) const fn new(areas: [u64; 2], blocks: Blocks) -> Self {
        ByTurns { areas, blocks }
    }

    /// Address of block `number`.
    pub(super) fn at(self, number: u32) -> u64 {
        self.areas[number as usize % 2].saturating_add(self.blocks.distance.saturating_mul((number / 2).into()))
    }

    /// Where a vector lies of which each block has `bytes` bytes, or what is left of `total`.
    pub(super) fn pieces(self, bytes: u64, total: u64) -> Vec<Piece> {
        pieces_at(bytes, total, |number| self.at(number))
    }
}

/// The greatest power of two of a group's ranks. Of each of the first pairs of ranks, one stands in for both.
///
/// With `extra` ranks past the power of two, number i < extra is of ranks 2i and 2i + 1, and number i >= extra is rank
/// i + extra.
#[derive(Debug, Clone, Copy)]
pub(super) struct Core {
    /// Numbers: a power of two.
    pub(super) count: u32,
    extra: u32,
    ranks: u32,
    root: u32,
}

impl Core {
    /// Of a request with two ranks or more. The root, if there is one, stands in for its pair.
    pub(super) fn new(request: &Request) -> Self {
        let ranks = request.ranks().max(1);
        let count = 1 << ranks.ilog2();
        let root = if request.collective.has_root() { request.root } else { 0 };
        Core { count, extra: ranks - count, ranks, root }
    }

    /// The rank that stands for number `number`.
    pub(super) const fn rank(self, number: u32) -> u32 {
        match number < self.extra {
            true if self.root == 2 * number + 1 => self.root,
            true => 2 * number,
            false => number + self.extra,
        }
    }

    /// The number that `rank` is part of.
    pub(super) const fn number(self, rank: u32) -> u32 {
        if rank < 2 * self.extra { rank / 2 } else { rank - self.extra }
    }

    /// Ranks that stand in, and those they stand in for.
    pub(super) fn pairs(self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.extra).map(move |number| (self.rank(number), 4 * number + 1 - self.rank(number)))
    }

    /// The first of the ranks that `number` stands for; behind the last number, the number of ranks.
    pub(super) const fn first_rank(self, number: u32) -> u32 {
        if number < self.extra {
            2 * number
        } else if number < self.count {
            number + self.extra
        } else {
            self.ranks
        }
    }

    /// Rounds that `rank` folds in, with that of its pair.
    pub(super) const fn folds(self, rank: u32) -> u32 {
        let number = self.number(rank);
        let is_paired = number < self.extra;
        if is_paired && self.rank(number) != rank { 1 } else { self.count.ilog2() + is_paired as u32 }
    }

    /// Distances of partners: 1, 2, 4 and so on.
    pub(super) fn distances(self) -> impl DoubleEndedIterator<Item = u32> {
        (0..self.count.ilog2()).map(|level| 1 << level)
    }
}

/// Where a rank's latest result lies, and its next one goes: to two areas by turns, so that what was there before can still be
/// sent; at first the input, which stays.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    areas: [u64; 2],
    current: Vec<u64>,
    next: Vec<u64>,
}

impl Turns {
    /// From `input` on, so that the result of rank r lies at `output` after `turns(r)` turns.
    pub(super) fn new(input: u64, output: u64, between: u64, ranks: u32, turns: impl Fn(u32) -> u32) -> Self {
        let first = |rank| if turns(rank) % 2 == 1 { output } else { between };
        Turns { areas: [output, between], current: vec![input; ranks as usize], next: (0..ranks).map(first).collect() }
    }

    /// Where `rank`'s latest result lies.
    pub(super) fn current(&self, rank: u32) -> u64 {
        self.current[rank as usize]
    }

    /// Where its next one goes.
    pub(super) fn next(&self, rank: u32) -> u64 {
        self.next[rank as usize]
    }

    /// The next ones of all `ranks` are there.
    pub(super) fn turn(&mut self, ranks: impl IntoIterator<Item = u32>) {
        let [one, other] = self.areas;
        for rank in ranks {
            let rank = rank as usize;
            self.current[rank] = self.next[rank];
            self.next[rank] = if self.current[rank] == one { other } else { one };
        }
    }
}

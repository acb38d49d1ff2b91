//! Programs that go in rounds: in each, a rank sends at most one block and receives at most one.

use std::ops::Range;

use super::draft::Draft;
use super::placement::{Areas, copies, pieces_at, unit};
use crate::program::Piece;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::{Capabilities, Combine, Instruction, Operand};

pub(super) use super::moves::Move;

/// What a rank sends to say that it is there.
pub(super) const TOKEN_BYTES: u64 = 1;

impl Draft {
    /// Appends a round. Blocks of no bytes are left out on both sides. Where not all ranks are linked, [`finish`](Draft::finish)
    /// appends the hops of all rounds.
    pub(super) fn round(&mut self, moves: impl IntoIterator<Item = Move>, combine: Option<Combine>) {
        match &mut self.routed {
            Some(routed) => routed.timetable.add_round(moves.into_iter().filter(|one| one.bytes != 0)),
            None => self.append(moves, combine),
        }
    }

    /// Places input, output, and areas between, as [`Areas::place`], or where not all ranks are linked, as [`Areas::with_room`].
    pub(super) fn place<const COUNT: usize>(
        &mut self,
        request: &Request,
        capabilities: &Capabilities,
        sizes: [u64; COUNT],
    ) -> Result<[u64; COUNT], Refusal> {
        let Some(routed) = &mut self.routed else { return Areas::place(request, capabilities, sizes) };
        let (places, room) = Areas::with_room(request, capabilities, sizes)?;
        routed.room = room;
        Ok(places)
    }

    /// Completes programs whose rounds go over other cards.
    pub(super) fn finish(mut self, request: &Request, capabilities: &Capabilities) -> Result<Self, Refusal> {
        let Some(routed) = self.routed.take() else { return Ok(self) };
        let ranks = 0..request.ranks();
        let placed = |rank| request.placement.as_ref().map(|placement| placement.pieces(request, capabilities, rank));
        for (program, [input, _]) in self.programs.iter_mut().zip(ranks.clone().filter_map(placed)) {
            program.instructions.splice(0..0, copies(&input, &program.input));
        }
        for round in routed.timetable.rounds(routed.room, capabilities)? {
            self.append(round, request.combine);
        }
        for (program, [input, output]) in self.programs.iter_mut().zip(ranks.filter_map(placed)) {
            program.instructions.extend(copies(&program.output, &output));
            (program.input, program.output) = (input, output);
        }
        Ok(self)
    }

    /// Appends one round of blocks between linked cards.
    fn append(&mut self, moves: impl IntoIterator<Item = Move>, combine: Option<Combine>) {
        let mut sends: Vec<Option<Move>> = vec![None; self.programs.len()];
        let mut receives = sends.clone();
        for one in moves.into_iter().filter(|one| one.bytes != 0) {
            if let (Some(send), Some(receive)) = (sends.get_mut(one.from as usize), receives.get_mut(one.to as usize)) {
                (*send, *receive) = (Some(one), Some(one));
            }
        }
        let communicator = self.communicator;
        for ((program, send), receive) in self.programs.iter_mut().zip(sends).zip(receives) {
            program.instructions.extend(exchange(send, receive, combine).map(|one| one.on(communicator)));
        }
    }
}

/// What a rank runs that sends one block and receives another, if there are both.
///
/// Blocks of one length go at once. Otherwise the longer goes first, at all cards, so that cards never wait for each other in a
/// circle.
pub(super) fn exchange(
    send: Option<Move>,
    receive: Option<Move>,
    combine: Option<Combine>,
) -> impl Iterator<Item = Instruction> {
    let in_turn = match (send, receive) {
        (Some(sent), Some(received)) if sent.bytes == received.bytes => [(send, receive), (None, None)],
        (Some(sent), Some(received)) if sent.bytes < received.bytes => [(None, receive), (send, None)],
        _ => [(send, None), (None, receive)],
    };
    in_turn.into_iter().filter_map(move |(send, receive)| instruction(send, receive, combine))
}

/// Sends and receives blocks of one length, at once if there are both.
fn instruction(send: Option<Move>, receive: Option<Move>, combine: Option<Combine>) -> Option<Instruction> {
    let bytes = send.or(receive)?.bytes;
    let sent = send.map(|one| (one.to as u16, Operand::card(one.source)));
    let received = receive.map(|one| (one.from as u16, Operand::card(one.destination)));
    let folded = receive.and_then(|one| one.own).map(Operand::card).zip(combine);
    Some(match (sent, received, folded) {
        (Some((to, source)), Some((from, destination)), Some((own, combine))) => {
            Instruction::sendrecv_reduce(combine, (to, from), source, own, destination, bytes)
        }
        (Some((to, source)), Some((from, destination)), None) => {
            Instruction::sendrecv(to, from, source, destination, bytes)
        }
        (None, Some((from, destination)), Some((own, combine))) => {
            Instruction::recv_reduce(combine, from, own, destination, bytes)
        }
        (None, Some((from, destination)), None) => Instruction::recv(from, destination, bytes),
        (Some((to, source)), None, _) => Instruction::send(to, source, bytes),
        (None, None, _) => return None,
    })
}

/// Refuses what `way` has no rounds for, and what has nothing to send, unless it may go over other cards: direct might have no room
/// for it.
pub(super) fn check_rounds(request: &Request, way: &str, is_routed: bool) -> Result<(), Refusal> {
    let refuse = |cause| Err(Refusal::general(format!("{way} {cause}; use direct")));
    let is_empty = || !(0..request.ranks()).any(|rank| request.takes_part(rank));
    match request.ranks() {
        0 | 1 => refuse("needs two ranks"),
        _ if !is_routed && is_empty() => refuse("has nothing to send"),
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
        let part = request.bytes.div_ceil(parts.max(1));
        let distance = part.checked_next_multiple_of(unit(request, capabilities)).unwrap_or(u64::MAX);
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

//! Programs that go in rounds: in each, a rank sends at most one block and receives at most one.

use std::ops::Range;

use super::draft::Draft;
use super::placement::{Areas, Copies, pieces_at, unit};
use crate::program::Piece;
use crate::refusal::Refusal;
use crate::request::{Collective, Request};
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
        let copies = request.placement.as_ref().map(|placement| Copies::new(placement, request, capabilities));
        if let Some(copies) = &copies {
            for (rank, program) in (0..request.ranks()).zip(&mut self.programs) {
                let before = copies.into(rank, &program.input);
                program.instructions.splice(0..0, before);
            }
        }
        for round in routed.timetable.rounds(routed.room, capabilities)? {
            self.append(round, request.combine);
        }
        if let Some(copies) = &copies {
            for (rank, program) in (0..request.ranks()).zip(&mut self.programs) {
                program.instructions.extend(copies.out(rank, &program.output));
                (program.input, program.output) = copies.pieces(rank);
            }
        }
        Ok(self)
    }

    /// Appends one round of blocks between linked cards.
    ///
    /// A card whose two blocks are of one length sends and receives at once. Otherwise the longer goes first, at all cards, so
    /// that cards never wait for each other in a circle.
    fn append(&mut self, moves: impl IntoIterator<Item = Move>, combine: Option<Combine>) {
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

/// Refuses what `way` has no rounds for, and what has nothing to send, unless it may go over other cards: direct might have no room
/// for it.
pub(super) fn check_rounds(request: &Request, way: &str, is_routed: bool) -> Result<(), Refusal> {
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
        _ if is_empty && !is_routed => refuse("has nothing to send"),
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

//! Programs that go in rounds: in each, a rank sends at most one block and receives at most one.

use std::ops::Range;

use super::draft::Draft;
use super::placement::{pieces_at, unit};
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

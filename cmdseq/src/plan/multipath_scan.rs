//! Scan and exscan over all links: an alltoall_scan, then an alltoall.
//!
//! Rank j folds block j of all vectors and keeps each partial result: the fold up to rank i is block j of what rank i should
//! have. An alltoall brings it there. Each link carries twice the vector's Nth part, where a single scan sends the whole vector
//! of each rank over each of its links.
//!
//! Blocks are in stripes: contributions and outputs in the lower halves, partial results in the upper. A vector too long for
//! one stripe of each rank is cut into pieces, which use the next stripes.

use super::draft::Draft;
use super::placement::{pieces_at, unit};
use crate::program::Communicator;
use crate::refusal::Refusal;
use crate::request::{Collective, Request};
use crate::{Capabilities, Combine, Instruction, Operand};

/// The programs of `request`, a scan or exscan of two ranks or more.
pub(super) fn build(request: &Request, capabilities: &Capabilities, combine: Combine) -> Result<Draft, Refusal> {
    let refuse = |cause| Err(Refusal::general(cause));
    if request.ranks() < 2 {
        return refuse("multipath needs two different cards".into());
    }
    if request.placement.is_some() {
        return refuse(format!("multipath places a {} in stripes: a placement is not supported", request.collective));
    }
    if !capabilities.topology.all_reach(&request.group, capabilities.nodes) {
        return refuse(format!("multipath needs a link between every two cards for a {}", request.collective));
    }
    let blocks = Blocks::of(request, capabilities)?;
    let mut draft = Draft::on_one_communicator(request, capabilities);
    let all = draft.communicator;
    let mut to_ranks = all;
    if blocks.is_exclusive {
        to_ranks += 1;
        // The partial result up to rank i is for rank i + 1, which is rank i here.
        let mut members = request.group.clone();
        members.rotate_left(1);
        draft.communicators.push(Communicator { id: to_ranks, members });
    }
    for (rank, program) in (0..).zip(&mut draft.programs) {
        for piece in 0..blocks.pieces {
            let [source, partial, result] = blocks.operands(piece, rank);
            program.instructions.extend([
                Instruction::alltoall_scan(combine, source, partial, blocks.bytes).on(all),
                Instruction::alltoall(partial, result, blocks.bytes).on(to_ranks),
            ]);
        }
    }
    draft.lies(request, |rank| {
        let input = pieces_at(blocks.bytes, request.input_bytes(rank), |number| blocks.input_at(number));
        let output = pieces_at(blocks.bytes, request.output_bytes(rank), |number| blocks.output_at(number));
        (input, output)
    });
    Ok(draft)
}

/// A vector as blocks of the same size in stripes: of each piece a block for each rank.
struct Blocks {
    is_exclusive: bool,
    ranks: u32,
    half: u64,
    /// Of a block.
    bytes: u64,
    pieces: u32,
}

impl Blocks {
    fn of(request: &Request, capabilities: &Capabilities) -> Result<Self, Refusal> {
        let is_exclusive = request.collective == Collective::Exscan;
        let (ranks, half) = (request.ranks(), capabilities.stripe_half_bytes);
        // Rank 0 of an exscan receives what nobody needs, next to its output.
        let in_half = if is_exclusive { 3 } else { 2 };
        let unit = unit(request, capabilities);
        let longest = half / in_half / unit * unit;
        let stripes = capabilities.memory_bytes.checked_div(capabilities.stripe_bytes()).unwrap_or(0);
        let most = stripes / u64::from(ranks);
        let pieces = request.bytes.div_ceil(u64::from(ranks)).div_ceil(longest.max(1)).max(1);
        if pieces > most || longest == 0 {
            return Err(Refusal::general(format!(
                "{} B exceed the stripes: {ranks} ranks have {most} blocks each of at most {longest} B",
                request.bytes
            )));
        }
        let bytes = request.bytes.div_ceil(u64::from(ranks) * pieces).next_multiple_of(unit);
        Ok(Blocks { is_exclusive, ranks, half, bytes, pieces: pieces as u32 })
    }

    /// Of the stripe `number`.
    fn stripe(&self, number: u32) -> u64 {
        2 * self.half * u64::from(number)
    }

    fn input_at(&self, number: u32) -> u64 {
        self.stripe(number)
    }

    fn output_at(&self, number: u32) -> u64 {
        let (piece, block) = (number / self.ranks, number % self.ranks);
        // Where it comes from rank `block` of the communicator of the second step.
        let from = if self.is_exclusive { (block + self.ranks - 1) % self.ranks } else { block };
        self.stripe(piece * self.ranks + from) + self.bytes
    }

    /// The contributions, partial results and outputs of `rank` for a piece.
    fn operands(&self, piece: u32, rank: u32) -> [Operand; 3] {
        let first = self.stripe(piece * self.ranks);
        let beside = if self.is_exclusive && rank == 0 { 2 * self.bytes } else { self.bytes };
        [first, first + self.half, first + beside].map(|address| Operand::card(address).striped())
    }
}

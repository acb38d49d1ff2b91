//! Over all links in two hops: the data is scattered over all ranks and collected where it should be.
//!
//! Section 3.4 of the OPTWEB paper: a transfer between two cards is a scatter, then a gather. Broadcast is a scatter, then
//! an allgather.

use super::placement::Stripes;
use super::{Collective, Draft, Program, Refusal, Request};
use crate::{Capabilities, Instruction, Operand};

/// The programs of `request` with two instructions for each rank.
pub(super) fn build(request: &Request, capabilities: &Capabilities) -> Result<Draft, Refusal> {
    let is_transfer = request.collective.has_peer();
    if !is_transfer && request.collective != Collective::Broadcast {
        return Err(Refusal::general(format!(
            "multipath is for send, recv and broadcast, not for {}, which uses all links anyway",
            request.collective
        )));
    }
    if request.ranks() < 2 || (is_transfer && request.root == request.peer) {
        return Err(Refusal::general("multipath needs two cards that differ".into()));
    }
    let beat = u64::from(capabilities.timing.beat_bytes.max(capabilities.address_align).max(1));
    let piece = request.bytes.div_ceil(u64::from(request.ranks())).checked_next_multiple_of(beat).unwrap_or(u64::MAX);
    let stripes = Stripes::new(request, capabilities);
    stripes.check(piece)?;
    // The first instruction reads the lower halves and writes an upper one; the second reads that and writes the lower
    // halves. What the second writes at the root of a broadcast is what lies there already.
    let data = stripes.lower();
    let between = Operand::card(capabilities.stripe_half_bytes);
    let mut draft = Draft::on_one_communicator(request, capabilities);
    let first = Instruction::scatter(request.root as u16, data, between, piece);
    let second = match is_transfer {
        true => Instruction::gather(request.peer as u16, between, data, piece),
        false => Instruction::allgather(between, data, piece),
    };
    for (rank, program) in (0..request.ranks()).zip(&mut draft.programs) {
        *program = Program {
            instructions: [first, second].map(|one| one.dividing(request.bytes).on(draft.communicator)).to_vec(),
            input: stripes.pieces(data, piece, request.input_bytes(rank)),
            output: stripes.pieces(data, piece, request.output_bytes(rank)),
        };
    }
    Ok(draft)
}

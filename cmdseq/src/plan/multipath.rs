//! Over all links in two hops: the data is scattered over all ranks and collected where it should be.
//!
//! Section 3.4 of the OPTWEB paper: a transfer between two cards is a scatter, then a gather. Broadcast is a scatter, then
//! an allgather. In the same way an allreduce is a reduce_scatter, then an allgather, and a reduce ends with a gather: each
//! link carries twice the vector's Nth part, which is the least that N cards can do. The order of the fold is that of
//! the direct way, so the bits are.

use super::draft::Draft;
use super::placement::{Areas, Stripes};
use crate::program::Program;
use crate::refusal::Refusal;
use crate::request::{Collective, Request};
use crate::{Capabilities, Instruction, Operand};

/// The programs of `request` with two instructions for each rank.
pub(super) fn build(request: &Request, capabilities: &Capabilities) -> Result<Draft, Refusal> {
    let is_transfer = request.collective.has_peer();
    let reduces = matches!(request.collective, Collective::Reduce | Collective::Allreduce);
    if !is_transfer && !reduces && request.collective != Collective::Broadcast {
        return Err(Refusal::general(format!(
            "multipath is for send, recv, broadcast, reduce and allreduce, not for {}, which uses all links in any case",
            request.collective
        )));
    }
    if request.ranks() < 2 || (is_transfer && request.root == request.peer) {
        return Err(Refusal::general("multipath needs two different cards".into()));
    }
    let beat = u64::from(capabilities.timing.beat_bytes.max(capabilities.address_align).max(1));
    let piece = request.bytes.div_ceil(u64::from(request.ranks())).checked_next_multiple_of(beat).unwrap_or(u64::MAX);
    let stripes = Stripes::new(request, capabilities);
    // The input stays: the result of a reduction goes behind it, in the same halves, which nothing reads any more. What the
    // second instruction writes at the root of a broadcast is what lies there already.
    let (data, between, result) = if request.placement.is_some() {
        let sizes = [request.bytes, request.bytes, piece];
        let [input, output, between] = Areas::place(request, capabilities, sizes)?.map(Operand::card);
        (input, between, output)
    } else {
        // The first instruction reads the lower halves and writes an upper one; the second reads that and writes the
        // lower halves.
        stripes.check(piece)?;
        let data = stripes.lower();
        let result = if reduces { stripes.lower_behind(piece, beat)? } else { data };
        (data, Operand::card(capabilities.stripe_half_bytes), result)
    };
    let mut draft = Draft::on_one_communicator(request, capabilities);
    let first = match request.combine {
        Some(combine) if reduces => Instruction::reduce_scatter(combine, data, between, piece),
        _ => Instruction::scatter(request.root as u16, data, between, piece),
    };
    let second = match request.collective {
        Collective::Broadcast | Collective::Allreduce => Instruction::allgather(between, result, piece),
        Collective::Reduce => Instruction::gather(request.root as u16, between, result, piece),
        _ => Instruction::gather(request.peer as u16, between, result, piece),
    };
    for (rank, program) in (0..request.ranks()).zip(&mut draft.programs) {
        *program = Program {
            instructions: [first, second].map(|one| one.dividing(request.bytes).on(draft.communicator)).to_vec(),
            input: stripes.lie_at(data, piece, request.input_bytes(rank)),
            output: stripes.lie_at(result, piece, request.output_bytes(rank)),
            ..Program::default()
        };
    }
    Ok(draft)
}

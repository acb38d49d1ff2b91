//! One instruction, one hop. The vector forms are in a module of their own.

use super::channels::{Spread, are_apart};
use super::draft::Draft;
use super::placement::Stripes;
use crate::program::Program;
use crate::refusal::Refusal;
use crate::request::{Collective, Placement, Request};
use crate::{Capabilities, Instruction, Layout, Operand};

/// The programs of `request` with one instruction for each rank.
pub(super) fn build(request: &Request, capabilities: &Capabilities) -> Result<Draft, Refusal> {
    let (ranks, bytes) = (request.ranks(), request.bytes);
    let stripes = Stripes::new(request, capabilities);
    let many = request.collective.takes_blocks() || request.collective.gives_blocks();
    let (source, destination) = match &request.placement {
        Some(placement) => as_asked(request, placement, &stripes)?,
        None => {
            // The only block of a rank that is alone need not be striped, so it may be as long as the memory allows.
            let is_striped = many && ranks > 1;
            if is_striped {
                stripes.check(bytes)?;
            }
            let (low, high) = (Operand::card(0), stripes.single_upper(bytes)?);
            let (many_low, many_high) = if is_striped { (stripes.lower(), stripes.upper()) } else { (low, high) };
            match request.collective {
                Collective::Scatter | Collective::ReduceScatter => (many_low, high),
                Collective::Gather | Collective::Allgather => (low, many_high),
                Collective::Alltoall => (many_low, many_high),
                _ => (low, high),
            }
        }
    };
    let mut draft = Draft::on_one_communicator(request, capabilities);
    let root = request.root as u16;
    let combine = request.combine;
    // Where channels are shared, what a rank copies or folds of its own goes where no other block is, if there is such a channel.
    let is_in_place = request.placement.is_none() && many && !are_apart(capabilities);
    let blocks = Spread::new(0, ranks, bytes, 1, capabilities).filter(|_| is_in_place);
    let free = blocks.and_then(|blocks| blocks.free.first().copied());
    for (rank, program) in (0..ranks).zip(&mut draft.programs) {
        let (source, destination) = match (request.collective, is_in_place) {
            (Collective::ReduceScatter, true) => (source, free.map_or(destination, Operand::card)),
            (Collective::Scatter, true) if rank == request.root => (source, stripes.block(source, rank)),
            (Collective::Gather, true) if rank == request.root => (stripes.block(destination, rank), destination),
            (Collective::Allgather, true) => (stripes.block(destination, rank), destination),
            _ => (source, destination),
        };
        let instruction = match request.collective {
            Collective::Barrier => Some(Instruction::barrier()),
            Collective::Send | Collective::Recv => point_to_point(request, rank, source, destination),
            Collective::Sendrecv => {
                let (next, last) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
                Some(Instruction::sendrecv(next as u16, last as u16, source, destination, bytes))
            }
            Collective::Scatter => Some(Instruction::scatter(root, source, destination, bytes)),
            Collective::Gather => Some(Instruction::gather(root, source, destination, bytes)),
            Collective::Broadcast => Some(Instruction::broadcast(root, source, destination, bytes)),
            Collective::Alltoall => Some(Instruction::alltoall(source, destination, bytes)),
            Collective::Allgather => Some(Instruction::allgather(source, destination, bytes)),
            Collective::Reduce => combine.map(|how| Instruction::reduce(how, root, source, destination, bytes)),
            Collective::Allreduce => combine.map(|how| Instruction::allreduce(how, source, destination, bytes)),
            Collective::ReduceScatter => {
                combine.map(|how| Instruction::reduce_scatter(how, source, destination, bytes))
            }
            Collective::Scan => combine.map(|how| Instruction::scan(how, source, destination, bytes)),
            Collective::Exscan => combine.map(|how| Instruction::exscan(how, source, destination, bytes)),
            Collective::Scatterv | Collective::Gatherv | Collective::Allgatherv | Collective::Alltoallv => None,
        };
        *program = Program {
            instructions: instruction.map(|one| one.on(draft.communicator)).into_iter().collect(),
            input: stripes.lie_at(source, bytes, request.input_bytes(rank)),
            output: stripes.lie_at(destination, bytes, request.output_bytes(rank)),
            ..Program::default()
        };
    }
    Ok(draft)
}

/// Source and destination where they are to be. Only a side of several blocks can be striped.
fn as_asked(request: &Request, placement: &Placement, stripes: &Stripes) -> Result<(Operand, Operand), Refusal> {
    let collective = request.collective;
    let sides = [
        ("input", placement.input, collective.takes_blocks()),
        ("output", placement.output, collective.gives_blocks()),
    ];
    for (name, operand, is_many) in sides {
        if operand.layout == Layout::Striped {
            if !is_many {
                return Err(Refusal::general(format!(
                    "the {name} of {collective} is one block: a striped placement is not supported"
                )));
            }
            stripes.check(request.bytes)?;
        }
    }
    Ok((placement.input, placement.output))
}

/// What `rank` does in a transfer from root to peer; to oneself, that is a shift by nothing.
fn point_to_point(request: &Request, rank: u32, source: Operand, destination: Operand) -> Option<Instruction> {
    let (root, peer, bytes) = (request.root as u16, request.peer as u16, request.bytes);
    match (rank == request.root, rank == request.peer) {
        (true, true) => Some(Instruction::sendrecv(peer, root, source, destination, bytes)),
        (true, false) => Some(Instruction::send(peer, source, bytes)),
        (false, true) => Some(Instruction::recv(root, destination, bytes)),
        (false, false) => None,
    }
}

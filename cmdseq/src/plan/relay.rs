//! From rank to rank, over other cards between ranks that are not linked, with as many blocks on their way at once as cards can carry.
//!
//! For groups of a Dragonfly that are no grid, and for what goes from root to peer on a grid. Broadcasts, allgathers and reductions
//! take [`ring`](super::ring) and [`binomial`](super::binomial), which go over other cards too.

use super::draft::Draft;
use super::phases;
use super::placement::{Packed, unit, whole};
use super::ring::{SEGMENT_BYTES, SEGMENTS};
use super::rounds::Move;
use crate::refusal::Refusal;
use crate::request::{Collective, Request};
use crate::{Capabilities, Instruction, Operand};

/// Segments of all blocks from which on blocks are not cut: then all cards have others to relay meanwhile.
const SEGMENTS_TOGETHER: u64 = 2048;

/// The programs of `request`: with long blocks in segments, and if all ranks send, also with whole blocks. Whole blocks are faster if
/// cards have others to relay meanwhile.
pub(super) fn build(request: &Request, capabilities: &Capabilities) -> Result<Vec<Draft>, Refusal> {
    let longest = request.counts.iter().copied().max().unwrap_or(request.bytes);
    let most_segments: &[u64] = match request.collective.has_root() {
        true => &[SEGMENTS],
        false if longest <= SEGMENT_BYTES => &[1],
        false => &[1, SEGMENTS],
    };
    let one = |most: &u64| in_segments(request, capabilities, *most)?.finish(request, capabilities);
    phases::possible(most_segments.iter().map(one))
}

/// With at most so many segments of a block.
fn in_segments(request: &Request, capabilities: &Capabilities, most_segments: u64) -> Result<Draft, Refusal> {
    let mut draft = Draft::with_routes(request, capabilities)?;
    if draft.routed.is_none() {
        let cause = "relay is for ranks that are not linked, on a grid only for send and recv; use direct or two-level";
        return Err(Refusal::general(cause.into()));
    }
    let blocks = match request.collective {
        Collective::Send | Collective::Recv | Collective::Sendrecv => {
            let (ranks, bytes) = (request.ranks(), request.bytes);
            let [source, destination] = draft.place(request, capabilities, [bytes; 2])?;
            draft.lies(request, |rank| {
                (whole(source, request.input_bytes(rank)), whole(destination, request.output_bytes(rank)))
            });
            let one = |from, to| Move { from, to, source, destination, bytes, own: None };
            match request.collective {
                Collective::Sendrecv => (0..ranks).map(|from| one(from, (from + 1) % ranks)).collect(),
                _ => vec![one(request.root, request.peer)],
            }
        }
        Collective::Scatter | Collective::Scatterv | Collective::Gather | Collective::Gatherv => {
            with_root(request, &mut draft, capabilities)?
        }
        _ => among_all(request, &mut draft, capabilities)?,
    };
    add(&blocks, &mut draft, request, capabilities, most_segments);
    Ok(draft)
}

/// Adds blocks that do not wait for each other. Own blocks are copied. Those that go over other cards follow in segments.
fn add(blocks: &[Move], draft: &mut Draft, request: &Request, capabilities: &Capabilities, most_segments: u64) {
    for own in blocks.iter().filter(|one| one.from == one.to) {
        let copy = Instruction::copy(Operand::card(own.source), Operand::card(own.destination), own.bytes);
        draft.programs[own.from as usize].instructions.extend((own.bytes != 0).then_some(copy));
    }
    let Some(routed) = &mut draft.routed else { return };
    let routes = routed.timetable.routes();
    let blocks: Vec<(Move, u64)> = blocks
        .iter()
        .filter(|one| one.bytes != 0 && one.from != one.to)
        .map(|one| {
            let is_linked = routes.hops(one.from as usize, one.to as usize).is_some_and(|hops| hops < 2);
            (*one, if is_linked { 1 } else { one.bytes.div_ceil(SEGMENT_BYTES).clamp(1, most_segments) })
        })
        .collect();
    let together: u64 = blocks.iter().map(|(_, segments)| segments).sum();
    let most = (SEGMENTS_TOGETHER / (blocks.len() as u64).max(1)).max(1);
    let unit = unit(request, capabilities);
    for (block, segments) in blocks {
        let segments = if together > SEGMENTS_TOGETHER { segments.min(most) } else { segments };
        let length = block.bytes.div_ceil(segments).next_multiple_of(unit);
        let mut offset = 0;
        while offset < block.bytes {
            let bytes = length.min(block.bytes - offset);
            let (source, destination) = (block.source + offset, block.destination + offset);
            routed.timetable.add_independent(&Move { source, destination, bytes, ..block });
            offset += bytes;
        }
    }
}

/// Scatter and gather: those with the longest way go first from the root, and come last to it.
fn with_root(request: &Request, draft: &mut Draft, capabilities: &Capabilities) -> Result<Vec<Move>, Refusal> {
    let (ranks, root) = (0..request.ranks(), request.root);
    let blocks = Packed::new(ranks.clone().map(|rank| request.block(rank)), capabilities);
    let longest = ranks.clone().map(|rank| request.block(rank)).max().unwrap_or(0);
    let is_scatter = request.collective.takes_blocks();
    let sizes = if is_scatter { [blocks.total(), longest] } else { [longest, blocks.total()] };
    let [input, output] = draft.place(request, capabilities, sizes)?;
    let (at_root, at_rank) = if is_scatter { (input, output) } else { (output, input) };
    // What the root has for itself is where it is to be.
    let at = |rank: u32| if rank == root { at_root + blocks.offset(rank) } else { at_rank };
    draft.lies(request, |rank| {
        let all = if rank == root { blocks.pieces(at_root) } else { Vec::new() };
        let own = whole(at(rank), blocks.length(rank));
        if is_scatter { (all, own) } else { (own, all) }
    });
    let mut others: Vec<u32> = ranks.filter(|rank| *rank != root).collect();
    if let Some(routed) = &mut draft.routed {
        let routes = routed.timetable.routes();
        others.sort_by_key(|rank| routes.hops(*rank as usize, root as usize));
    }
    let way = |rank: u32| {
        let (there, bytes) = (at_root + blocks.offset(rank), blocks.length(rank));
        match is_scatter {
            true => Move { from: root, to: rank, source: there, destination: at(rank), bytes, own: None },
            false => Move { from: rank, to: root, source: at(rank), destination: there, bytes, own: None },
        }
    };
    if is_scatter {
        others.reverse();
    }
    Ok(others.into_iter().map(way).collect())
}

/// Alltoall: first the own blocks, then all blocks for the next rank, then those for the one after it, and so on.
fn among_all(request: &Request, draft: &mut Draft, capabilities: &Capabilities) -> Result<Vec<Move>, Refusal> {
    let ranks = request.ranks();
    let packed = |of: &dyn Fn(u32) -> u64| Packed::new((0..ranks).map(of), capabilities);
    let sent: Vec<Packed> = (0..ranks).map(|from| packed(&|to| request.block_between(from, to))).collect();
    let received: Vec<Packed> = (0..ranks).map(|to| packed(&|from| request.block_between(from, to))).collect();
    let sizes = [&sent, &received].map(|all| all.iter().map(Packed::total).max().unwrap_or(0));
    let [input, output] = draft.place(request, capabilities, sizes)?;
    let one = |from: u32, to: u32| Move {
        from,
        to,
        source: input + sent[from as usize].offset(to),
        destination: output + received[to as usize].offset(from),
        bytes: request.block_between(from, to),
        own: None,
    };
    draft.lies(request, |rank| (sent[rank as usize].pieces(input), received[rank as usize].pieces(output)));
    Ok((0..ranks)
        .flat_map(|distance| (0..ranks).map(move |from| (from, (from + distance) % ranks)))
        .map(|(from, to)| one(from, to))
        .collect())
}

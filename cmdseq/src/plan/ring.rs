//! A ring: every rank hands on to the next what it got from the one before.
//!
//! Allgather, reduce_scatter and allreduce send a block around; each link carries what it must and no more. Broadcast,
//! reduce and scan go along the ring once, in segments that follow each other. So do all reductions that must fold in
//! the order of ranks.

use super::draft::Draft;
use super::placement::{Packed, pieces_at, pieces_of, whole};
use super::rounds::{Blocks, ByTurns, Move, check_rounds};
use crate::refusal::Refusal;
use crate::request::{Collective, Request};
use crate::{Capabilities, Instruction, Operand};

/// Least bytes of a segment: what its signals take is then little beside them.
pub(super) const SEGMENT_BYTES: u64 = 64 << 10;
/// Most segments of a vector.
pub(super) const SEGMENTS: u64 = 64;

/// The programs of `request`.
pub(super) fn build(request: &Request, capabilities: &Capabilities) -> Result<Draft, Refusal> {
    let mut draft = Draft::with_routes(request, capabilities)?;
    check_rounds(request, "ring", draft.routed.is_some())?;
    if draft.routed.is_none() {
        check_links(request, capabilities)?;
    }
    let in_order = request.needs_rank_order();
    match request.collective {
        Collective::Allgather | Collective::Allgatherv => allgather(request, &mut draft, capabilities)?,
        Collective::Allreduce if !in_order => allreduce(request, &mut draft, capabilities)?,
        Collective::ReduceScatter if !in_order => reduce_scatter(request, &mut draft, capabilities)?,
        Collective::Broadcast => broadcast(request, &mut draft, capabilities)?,
        Collective::Scan | Collective::Exscan => scan(request, &mut draft, capabilities)?,
        _ => fold_along(request, &mut draft, capabilities)?,
    }
    Ok(draft)
}

/// Refuses a group in which a rank does not reach the next, before there are rounds: there would be many.
fn check_links(request: &Request, capabilities: &Capabilities) -> Result<(), Refusal> {
    let next = request.group.iter().cycle().skip(1);
    for (rank, (here, there)) in request.group.iter().zip(next).enumerate() {
        if !capabilities.topology.reaches(*here, *there, capabilities.nodes) {
            let cause = format!("no link from node {here} to node {there}, the next on the ring");
            return Err(Refusal::of(rank, cause));
        }
    }
    Ok(())
}

/// The block that rank `rank` has after it was handed on `steps` times.
const fn block(rank: u32, steps: u32, ranks: u32) -> u32 {
    (rank + 2 * ranks - steps) % ranks
}

fn allgather(request: &Request, draft: &mut Draft, capabilities: &Capabilities) -> Result<(), Refusal> {
    let ranks = request.ranks();
    // By turns in two areas, as all that goes around.
    let [even, odd] =
        [0, 1].map(|first| Packed::new((first..ranks).step_by(2).map(|rank| request.block(rank)), capabilities));
    let [_, even_at, odd_at] = draft.place(request, capabilities, [0, even.total(), odd.total()])?;
    let block = |number: u32| match number.is_multiple_of(2) {
        true => (even_at + even.offset(number / 2), request.block(number)),
        false => (odd_at + odd.offset(number / 2), request.block(number)),
    };
    circulate(draft, ranks, block);
    draft.lies(request, |rank| (pieces_of([block(rank)]), pieces_of((0..ranks).map(block))));
    Ok(())
}

/// Every rank has its own block, and gets those of all. `at` gives a block's address and bytes.
fn circulate(draft: &mut Draft, ranks: u32, at: impl Fn(u32) -> (u64, u64)) {
    for step in 0..ranks - 1 {
        let onward = |from: u32| {
            let (address, bytes) = at(block(from, step, ranks));
            Move { from, to: (from + 1) % ranks, source: address, destination: address, bytes, own: None }
        };
        draft.round((0..ranks).map(onward), None);
    }
}

/// Every rank gets the fold of one of the `blocks` at `input`. `at` gives where a rank folds block `number` in a step.
fn fold_around(request: &Request, draft: &mut Draft, blocks: Blocks, input: u64, at: impl Fn(u32, u32) -> u64) {
    let ranks = request.ranks();
    for step in 0..ranks - 1 {
        let onward = |from: u32| {
            let number = block(from, step + 1, ranks);
            let own = input + blocks.offset(number);
            let source = if step == 0 { own } else { at(step - 1, number) };
            let bytes = blocks.bytes(number..number + 1).min(request.bytes);
            Move { from, to: (from + 1) % ranks, source, destination: at(step, number), bytes, own: Some(own) }
        };
        draft.round((0..ranks).map(onward), request.combine);
    }
}

fn allreduce(request: &Request, draft: &mut Draft, capabilities: &Capabilities) -> Result<(), Refusal> {
    let ranks = request.ranks();
    let blocks = Blocks::dividing(request, capabilities, ranks.into());
    let area = ByTurns::area_bytes(blocks, ranks);
    let [input, even, odd] = draft.place(request, capabilities, [request.bytes, area, area])?;
    let result = ByTurns::new([even, odd], blocks);
    let bytes = |number: u32| blocks.bytes(number..number + 1);
    fold_around(request, draft, blocks, input, |_, number| result.at(number));
    circulate(draft, ranks, |number| (result.at(number), bytes(number)));
    draft.lies(request, |_| (whole(input, request.bytes), result.pieces(blocks.distance(), request.bytes)));
    Ok(())
}

fn reduce_scatter(request: &Request, draft: &mut Draft, capabilities: &Capabilities) -> Result<(), Refusal> {
    let (ranks, bytes) = (request.ranks(), request.bytes);
    let blocks = Blocks::of_ranks(request, capabilities);
    let [input, output, between] = draft.place(request, capabilities, [blocks.total(), bytes, bytes])?;
    // The last of all steps gives the result.
    let partial = |step: u32| if (ranks - step).is_multiple_of(2) { output } else { between };
    fold_around(request, draft, blocks, input, |step, _| partial(step));
    draft.lies(request, |rank| {
        let given = pieces_at(bytes, request.input_bytes(rank), |number| input + blocks.offset(number));
        (given, whole(output, bytes))
    });
    Ok(())
}

/// A vector in segments.
fn segments(request: &Request, capabilities: &Capabilities) -> (Blocks, u32) {
    let count = request.bytes.div_ceil(SEGMENT_BYTES).clamp(1, SEGMENTS) as u32;
    (Blocks::dividing(request, capabilities, count.into()), count)
}

/// Who hands which segment on in round `round`, if the first of `ranks` begins with the first of `count` segments: place in
/// the order of hands, and number of the segment.
fn in_flight(round: u32, ranks: u32, count: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..ranks - 1).filter_map(move |place| Some((place, round.checked_sub(place)?))).filter(move |one| one.1 < count)
}

fn broadcast(request: &Request, draft: &mut Draft, capabilities: &Capabilities) -> Result<(), Refusal> {
    let ranks = request.ranks();
    let (blocks, count) = segments(request, capabilities);
    let area = ByTurns::area_bytes(blocks, count);
    let [_, even, odd] = draft.place(request, capabilities, [0, area, area])?;
    let data = ByTurns::new([even, odd], blocks);
    for round in 0..ranks + count - 2 {
        let onward = |(place, segment): (u32, u32)| {
            let (from, to) = ((request.root + place) % ranks, (request.root + place + 1) % ranks);
            let (address, bytes) = (data.at(segment), blocks.bytes(segment..segment + 1));
            Move { from, to, source: address, destination: address, bytes, own: None }
        };
        draft.round(in_flight(round, ranks, count).map(onward), None);
    }
    let pieces = |total| data.pieces(blocks.distance(), total);
    draft.lies(request, |rank| (pieces(request.input_bytes(rank)), pieces(request.bytes)));
    Ok(())
}

/// The fold along the ranks, from the first to the last, of which every rank has its part.
struct Along {
    input: u64,
    blocks: Blocks,
    count: u32,
    partial: ByTurns,
}

impl Along {
    /// Where rank `rank` has segment `segment` of the fold up to it.
    fn at(&self, rank: u32, segment: u32) -> u64 {
        if rank == 0 { self.input + self.blocks.offset(segment) } else { self.partial.at(segment) }
    }

    fn bytes(&self, segment: u32) -> u64 {
        self.blocks.bytes(segment..segment + 1)
    }

    /// What goes from each rank to the next in one round.
    fn onward(&self, round: u32, ranks: u32) -> impl Iterator<Item = Move> {
        in_flight(round, ranks, self.count).map(|(from, segment)| Move {
            from,
            to: from + 1,
            source: self.at(from, segment),
            destination: self.partial.at(segment),
            bytes: self.bytes(segment),
            own: Some(self.input + self.blocks.offset(segment)),
        })
    }

    /// Appends the rounds. `last` is told of each segment when the last rank has folded it.
    fn fold(&self, request: &Request, draft: &mut Draft, last: impl Fn(&mut Draft, u32)) {
        let ranks = request.ranks();
        for round in 0..ranks + self.count - 2 {
            draft.round(self.onward(round, ranks), request.combine);
            if let Some(segment) = round.checked_sub(ranks - 2) {
                last(draft, segment);
            }
        }
    }
}

impl Along {
    /// Appends the rounds of the fold, and of its result on the way back, to `output` at each rank but the last. A result follows
    /// the one before it, so the fold goes on meanwhile.
    fn fold_and_return(&self, request: &Request, draft: &mut Draft, output: u64) {
        let (ranks, last) = (request.ranks(), request.ranks() - 1);
        let back = |(place, segment): (u32, u32)| {
            let (from, to) = (last - place, last - place - 1);
            let destination = output + self.blocks.offset(segment);
            let source = if from == last { self.at(last, segment) } else { destination };
            Move { from, to, source, destination, bytes: self.bytes(segment), own: None }
        };
        for round in 0..2 * (ranks - 1) + self.count - 1 {
            draft.round(self.onward(round, ranks), request.combine);
            if let Some(round) = round.checked_sub(last) {
                draft.round(in_flight(round, ranks, self.count).map(back), None);
            }
        }
    }
}

/// Scan is the fold along the ranks as it goes; exscan is that, handed on by one rank.
fn scan(request: &Request, draft: &mut Draft, capabilities: &Capabilities) -> Result<(), Refusal> {
    let ranks = request.ranks();
    let (blocks, count) = segments(request, capabilities);
    let is_exclusive = request.collective == Collective::Exscan;
    let area = ByTurns::area_bytes(blocks, count);
    let result = if is_exclusive { request.bytes } else { 0 };
    let [input, output, even, odd] = draft.place(request, capabilities, [request.bytes, result, area, area])?;
    let along = Along { input, blocks, count, partial: ByTurns::new([even, odd], blocks) };
    along.fold(request, draft, |_, _| {});
    if is_exclusive {
        for segment in 0..count {
            let shift = |from: u32| Move {
                from,
                to: from + 1,
                source: along.at(from, segment),
                destination: output + blocks.offset(segment),
                bytes: along.bytes(segment),
                own: None,
            };
            draft.round((0..ranks - 1).map(shift), None);
        }
    }
    draft.lies(request, |rank| {
        let bytes = request.output_bytes(rank);
        let given = if is_exclusive {
            whole(output, bytes)
        } else {
            pieces_at(blocks.distance(), bytes, |segment| along.at(rank, segment))
        };
        (whole(input, request.bytes), given)
    });
    Ok(())
}

/// Reductions along the ranks: the last rank has the result, segment by segment, and sends it where it should be.
fn fold_along(request: &Request, draft: &mut Draft, capabilities: &Capabilities) -> Result<(), Refusal> {
    let ranks = request.ranks();
    let is_scattered = request.collective == Collective::ReduceScatter;
    let (blocks, count) = match is_scattered {
        true => (Blocks::of_ranks(request, capabilities), ranks),
        false => segments(request, capabilities),
    };
    let area = ByTurns::area_bytes(blocks, count);
    let sizes = [blocks.total(), request.bytes, area, area];
    let [input, output, even, odd] = draft.place(request, capabilities, sizes)?;
    let along = Along { input, blocks, count, partial: ByTurns::new([even, odd], blocks) };
    let last = ranks - 1;
    let place = |segment: u32| if is_scattered { output } else { output + blocks.offset(segment) };
    let communicator = draft.communicator;
    if request.collective == Collective::Allreduce && draft.routed.is_some() {
        along.fold_and_return(request, draft, output);
        draft.lies(request, |rank| {
            let result = |segment| if rank == last { along.at(last, segment) } else { place(segment) };
            (whole(input, request.bytes), pieces_at(blocks.distance(), request.bytes, result))
        });
        return Ok(());
    }
    along.fold(request, draft, |draft, segment| {
        let (source, bytes) = (along.at(last, segment), along.bytes(segment));
        let to = match request.collective {
            Collective::ReduceScatter => segment,
            Collective::Allreduce if bytes != 0 => {
                let (source, destination) = (Operand::card(source), Operand::card(place(segment)));
                let all = Instruction::broadcast(last as u16, source, destination, bytes).on(communicator);
                draft.programs.iter_mut().for_each(|program| program.instructions.push(all));
                return;
            }
            _ => request.root,
        };
        if to != last {
            let given = Move { from: last, to, source, destination: place(segment), bytes, own: None };
            draft.round([given], None);
        }
    });
    draft.lies(request, |rank| {
        let distance = if is_scattered { request.bytes } else { blocks.distance() };
        let given = pieces_at(distance, request.input_bytes(rank), |number| input + blocks.offset(number));
        let bytes = request.output_bytes(rank);
        // The last rank keeps what it is to have where it folded it.
        let result = match request.collective {
            Collective::Allreduce => whole(output, bytes),
            _ if rank != last => whole(output, bytes),
            Collective::ReduceScatter => whole(along.at(last, last), bytes),
            _ => pieces_at(blocks.distance(), bytes, |segment| along.at(last, segment)),
        };
        (given, result)
    });
    Ok(())
}

//! From one rank to others over all of its links, or the reverse: as many trees as it has links, no two of which use the same
//! direction of a link, in pieces that follow each other.
//!
//! The root is in row a and column b of a grid, which is one row if all ranks are linked. The vector is cut into a *chunk* for each
//! link of the root: those of its row are named by their column c, those of its column by their row r. To all ranks, a piece of the
//! chunk of column c goes in three steps, and one of the chunk of row r with rows and columns exchanged:
//!
//! 1. along row a to the rank in column c (a scatter to all c),
//! 2. along column c to all rows (a broadcast),
//! 3. along each row to all columns (an allgather over all c).
//!
//! With one row, step 2 is left out; if a channel has two stripes, step 3 begins where step 1 wrote ([`Room::in_place`]). To one
//! rank, step 2 goes to the row of that rank only, and step 3 is a gather there. A reduction goes the reverse way: reduce_scatter,
//! reduce, gather. In one tick, each step has another piece. In row a, links leave the root in step 1 and the other columns in step
//! 3; a link along row i leaves column b only in step 2 of a chunk of rows.

use super::ticks::Ticks;
use crate::plan::channels::{Spread, are_apart};
use crate::plan::draft::Draft;
use crate::plan::folding::Folding;
use crate::plan::grid::Grid;
use crate::plan::placement::{pieces_at, unit};
use crate::program::Communicator;
use crate::refusal::Refusal;
use crate::request::{Algorithm, Collective, Request};
use crate::table::Entry;
use crate::{Capabilities, Combine, Instruction, Operand, Operation, Table, Tables};

/// Id of the communicator of a row, the root's column last, and of a column, the root's row last.
const ACROSS: [u16; 2] = [1, 2];
/// The same for the row and the column of the root, without it.
const OTHERS: [u16; 2] = [3, 4];
/// Most tables of a rank: pieces may be whole or the last, and the last chunk whole, short or empty in them.
const TABLES_MAX: u32 = 4;
/// Most pieces of a chunk: a program has a few instructions for each.
const PIECES_MAX: u64 = 64;

/// A direction of the grid in which chunks leave the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    /// 0 along the row, 1 along the column.
    number: usize,
    /// Number of its first chunk.
    first: u32,
    /// Its chunks.
    count: u32,
}

/// A row and a column, or for the axis of columns a column and a row.
type Place = [u32; 2];

/// The trees of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trees {
    request: Request,
    /// Rows and columns.
    size: Place,
    root: Place,
    axes: Vec<Axis>,
    /// Bytes of a chunk, of which the last may have fewer.
    pub(crate) chunk: u64,
    /// Bytes of a piece of a chunk.
    piece: u64,
    pieces: u64,
    half: u64,
    stripe: u64,
    /// Address of the first chunk.
    begin: u64,
    /// Addresses of the buffers between the steps of the first axis, then those of the second.
    buffers: Vec<u64>,
    /// What a rank receives for itself goes to its place at once.
    is_in_place: bool,
    /// The bytes of each chunk in a piece, where tables hold them: few pieces differ.
    lengths: Vec<Vec<u64>>,
}

pub(super) fn build(request: &Request, capabilities: &Capabilities) -> Result<Vec<Draft>, Refusal> {
    let trees = Trees::new(request, capabilities)?;
    Ok(vec![trees.draft()])
}

/// Whether trees are for a reduce: its root needs other pseudo channels for what it reads than for what it writes at once.
pub(crate) fn reduces(capabilities: &Capabilities) -> bool {
    are_apart(capabilities)
}

impl Trees {
    pub(crate) fn new(request: &Request, capabilities: &Capabilities) -> Result<Self, Refusal> {
        let refuse = |cause: String| Err(Refusal::general(format!("lanes {cause}")));
        let ranks = request.ranks();
        let size = match capabilities.topology.all_reach(&request.group, capabilities.nodes) {
            true => [1, ranks],
            false => Grid::needed_by(Algorithm::Lanes, request, capabilities).map(|grid| [grid.groups, grid.size])?,
        };
        if ranks < 3 || request.bytes == 0 || (request.collective.has_peer() && request.root == request.peer) {
            return refuse("needs three ranks, and bytes from one to another".into());
        }
        let lanes = if size[0] == 1 { 2 } else { 6 };
        if capabilities.lanes < lanes {
            return refuse(format!("needs {lanes} lanes: these cards have {}", capabilities.lanes));
        }
        let links = size[1] - 1 + size[0] - 1;
        let room =
            Room::in_place(request, size, links, capabilities).or_else(|| Room::of(request, size, links, capabilities));
        let Some(Room { spread, buffers, buffer, is_in_place }) = room else {
            return refuse(format!("has no room for {} B over {links} links", request.bytes));
        };
        let chunk = spread.bytes;
        let number = pieces(chunk, spread.block_mbps(capabilities), size[0] > 1, capabilities);
        let piece = chunk.div_ceil(number).next_multiple_of(unit(request, capabilities));
        if piece > buffer {
            return refuse(format!("has no room for pieces of {piece} B"));
        }
        // No channel has chunks of both axes.
        let share = (spread.count * (size[1] - 1)).div_ceil(links).next_multiple_of(spread.in_a_channel);
        let share = share.min(spread.count).min(size[1] - 1);
        let along = |number, first, count| Axis { number, first, count };
        let axes = [along(0, 0, share), along(1, share, spread.count - share)];
        let axes = axes[..if size[0] == 1 { 1 } else { 2 }].to_vec();
        let pieces = chunk.div_ceil(piece);
        let (request, root) = (request.clone(), [request.root / size[1], request.root % size[1]]);
        let (half, stripe, begin) = (capabilities.stripe_half_bytes, capabilities.stripe_bytes(), spread.begin);
        let lengths = Vec::new();
        let mut trees = Trees {
            request,
            size,
            root,
            axes,
            chunk,
            piece,
            pieces,
            half,
            stripe,
            begin,
            buffers,
            is_in_place,
            lengths,
        };
        if trees.request.collective == Collective::Broadcast && is_in_place {
            trees.lengths = (0..pieces).map(|piece| trees.lengths_of(piece)).collect();
            trees.lengths.dedup();
        }
        Ok(trees)
    }

    fn lengths_of(&self, piece: u64) -> Vec<u64> {
        (0..self.axes[0].count).map(|chunk| self.bytes(chunk, piece)).collect()
    }

    /// The rank at `place` as `axis` sees it.
    fn rank(&self, axis: Axis, place: Place) -> u32 {
        let [row, column] = if axis.number == 0 { place } else { [place[1], place[0]] };
        row * self.size[1] + column
    }

    /// `place` as `axis` sees it.
    fn seen(&self, axis: Axis, place: Place) -> Place {
        if axis.number == 0 { place } else { [place[1], place[0]] }
    }

    /// The numbers below `size` without `root`, in order: a chunk of the axis for each.
    fn others(size: u32, root: u32) -> impl Iterator<Item = u32> {
        (0..size).filter(move |one| *one != root)
    }

    /// The rank of number `one` among those below `size`, `root` last.
    fn digit(one: u32, size: u32, root: u32) -> u16 {
        (if one == root { size - 1 } else { one - u32::from(one > root) }) as u16
    }

    fn communicators(&self) -> Vec<Communicator> {
        let mut all = Vec::new();
        for axis in &self.axes {
            let ([rows, columns], [a, b]) = (self.seen(*axis, self.size), self.seen(*axis, self.root));
            let nodes = |row: u32, columns: &mut dyn Iterator<Item = u32>| -> Vec<u32> {
                columns.map(|column| self.request.group[self.rank(*axis, [row, column]) as usize]).collect()
            };
            for row in 0..rows {
                let members = nodes(row, &mut Self::others(columns, b).chain([b]));
                all.push(Communicator { id: ACROSS[axis.number], members });
            }
            // Only a broadcast leaves out the root.
            if self.request.collective == Collective::Broadcast {
                let members = nodes(a, &mut Self::others(columns, b));
                all.push(Communicator { id: OTHERS[axis.number], members });
            }
        }
        all
    }

    /// Bytes of piece `piece` of a chunk that is not short: the last has what is left.
    fn block(&self, piece: u64) -> u64 {
        self.piece.min(self.chunk - self.piece * piece)
    }

    /// Bytes of piece `piece` of chunk `chunk`.
    fn bytes(&self, chunk: u32, piece: u64) -> u64 {
        let before = self.chunk.saturating_mul(chunk.into()).saturating_add(self.piece.saturating_mul(piece));
        let left = self.chunk.saturating_mul(u64::from(chunk) + 1).min(self.request.bytes);
        left.saturating_sub(before).min(self.block(piece))
    }

    /// Bytes of piece `piece` of all chunks of `axis`.
    fn all_bytes(&self, axis: Axis, piece: u64) -> u64 {
        (axis.first..axis.first + axis.count).map(|chunk| self.bytes(chunk, piece)).sum()
    }

    /// Piece `piece` of chunk `chunk` in the lower (0) or upper (1) half of its stripe.
    fn at(&self, half: u64, chunk: u32, piece: u64) -> Operand {
        Operand::card(self.begin + self.stripe * u64::from(chunk) + self.half * half + self.piece * piece)
    }

    /// The same of all chunks of `axis`.
    fn all(&self, axis: Axis, half: u64, piece: u64) -> Operand {
        self.at(half, axis.first, piece).striped()
    }

    /// Buffer `number` of `axis`.
    fn buffer(&self, axis: Axis, number: u64) -> Operand {
        let of_each = self.buffers.len() / self.axes.len();
        Operand::card(self.buffers[axis.number * of_each + number as usize])
    }

    /// Piece `piece` of chunk `chunk` of a broadcast, where `rank` has it. If that receives its own chunk in place, no other is beside
    /// it in its channel: the one that would be there is in the stripe behind all chunks.
    fn broadcast_place(&self, rank: u32, chunk: u32, piece: u64) -> Operand {
        let own = self.own_chunk(rank).filter(|_| self.is_in_place);
        let stripe = if own == Some(chunk ^ 1) { self.axes[0].count } else { chunk };
        self.at(0, stripe, piece)
    }

    /// The chunk that a rank receives from the root, if all ranks are linked.
    fn own_chunk(&self, rank: u32) -> Option<u32> {
        (rank != self.request.root).then(|| rank - u32::from(rank > self.request.root))
    }

    /// The buffer in which `piece` waits for the next step.
    fn between(&self, axis: Axis, piece: u64) -> Operand {
        // One more than steps behind the first.
        self.buffer(axis, piece % if self.axes.len() == 1 { 2 } else { 3 })
    }

    /// The ranks of a row but the root's, in order, of which each has a chunk of `axis`.
    fn with_chunks(&self, axis: Axis) -> impl Iterator<Item = (u32, u32)> + use<> {
        let (columns, b) = (self.seen(axis, self.size)[1], self.seen(axis, self.root)[1]);
        (axis.first..axis.first + axis.count).zip(Self::others(columns, b))
    }

    /// How a reduction folds chunk `chunk`: across its steps, each with the root's row or column last.
    pub(crate) fn folding(&self, chunk: u32) -> Option<Folding> {
        let axis = *self.axes.iter().find(|axis| chunk < axis.first + axis.count)?;
        let ([rows, columns], [a, b]) = (self.seen(axis, self.size), self.seen(axis, self.root));
        let in_row = |row: u32| {
            let ranks = Self::others(columns, b).chain([b]).map(|column| self.rank(axis, [row, column]));
            Folding::Left(ranks.map(Folding::Rank).collect())
        };
        Some(Folding::Left(Self::others(rows, a).chain([a]).map(in_row).collect()))
    }

    fn draft(&self) -> Draft {
        let mut ticks = Ticks::new(&self.request, self.communicators());
        // With one row there is no step between the first and the last.
        let steps: &[u64] = if self.axes.len() == 1 { &[0, 2] } else { &[0, 1, 2] };
        for tick in 0..self.pieces + steps.len() as u64 - 1 {
            ticks.next();
            for (order, step) in (0..).zip(steps) {
                let Some(piece) = tick.checked_sub(order).filter(|piece| *piece < self.pieces) else { continue };
                for axis in &self.axes {
                    let lane = self.axes.len() * order as usize + axis.number;
                    self.step(*axis, *step, piece, lane as u8, &mut ticks);
                }
            }
        }
        let request = &self.request;
        ticks.draft.lies(request, |rank| {
            let lie = |bytes, at: &dyn Fn(u32) -> Operand| pieces_at(self.chunk, bytes, |chunk| at(chunk).address);
            let input = lie(request.input_bytes(rank), &|chunk| self.at(0, chunk, 0));
            let output = lie(request.output_bytes(rank), &|chunk| match request.collective {
                Collective::Reduce => self.at(1, chunk, 0),
                Collective::Broadcast => self.broadcast_place(rank, chunk, 0),
                _ => self.at(0, chunk, 0),
            });
            (input, output)
        });
        for rank in Self::others(request.ranks(), request.root) {
            ticks.draft.programs[rank as usize].tables = self.tables(rank);
        }
        ticks.draft
    }

    fn step(&self, axis: Axis, step: u64, piece: u64, lane: u8, ticks: &mut Ticks) {
        match (self.request.collective, self.request.combine) {
            (Collective::Broadcast, _) if self.is_in_place => self.broadcast_in_place(axis, step, piece, lane, ticks),
            (Collective::Broadcast, _) => self.broadcast(axis, step, piece, lane, ticks),
            (Collective::Reduce, Some(combine)) => self.reduce(axis, step, piece, lane, combine, ticks),
            _ => self.transfer(axis, step, piece, lane, ticks),
        }
    }

    /// Appends a scatter of `piece` from the root along its row: to a buffer, or where `to` says.
    fn scatter(&self, axis: Axis, piece: u64, lane: u8, to: impl Fn(u32) -> Option<Operand>, ticks: &mut Ticks) {
        let (columns, [a, _]) = (self.seen(axis, self.size)[1], self.seen(axis, self.root));
        let total = self.all_bytes(axis, piece);
        if total == 0 {
            return;
        }
        for column in 0..columns {
            let rank = self.rank(axis, [a, column]);
            let to = to(rank).unwrap_or_else(|| self.between(axis, piece));
            let one = Instruction::scatter(columns as u16 - 1, self.all(axis, 0, piece), to, self.block(piece));
            ticks.push(rank, lane, one.dividing(total).on(ACROSS[axis.number]));
        }
    }

    fn broadcast(&self, axis: Axis, step: u64, piece: u64, lane: u8, ticks: &mut Ticks) {
        let ([rows, columns], [a, b]) = (self.seen(axis, self.size), self.seen(axis, self.root));
        let across = ACROSS[1 - axis.number];
        let buffer = self.between(axis, piece);
        match step {
            0 => self.scatter(axis, piece, lane, |_| None, ticks),
            1 => {
                for (chunk, column) in self.with_chunks(axis) {
                    let bytes = self.bytes(chunk, piece);
                    let one = Instruction::broadcast(rows as u16 - 1, buffer, buffer, bytes).on(across);
                    (0..rows)
                        .filter(|_| bytes > 0)
                        .for_each(|row| ticks.push(self.rank(axis, [row, column]), lane, one));
                }
            }
            _ => {
                let total = self.all_bytes(axis, piece);
                let one = Instruction::allgather(buffer, self.all(axis, 0, piece), self.block(piece)).dividing(total);
                for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                    let communicator = if row == a { OTHERS } else { ACROSS }[axis.number];
                    if total > 0 && (row, column) != (a, b) {
                        ticks.push(self.rank(axis, [row, column]), lane, one.on(communicator));
                    }
                }
            }
        }
    }

    /// As [`broadcast`](Trees::broadcast), without buffers: a rank's own chunk is sent on from its place.
    fn broadcast_in_place(&self, axis: Axis, step: u64, piece: u64, lane: u8, ticks: &mut Ticks) {
        if step == 0 {
            // The root receives nothing, wherever that would go.
            let to = |rank: u32| Some(self.broadcast_place(rank, self.own_chunk(rank).unwrap_or(0), piece));
            return self.scatter(axis, piece, lane, to, ticks);
        }
        let lengths = self.lengths_of(piece);
        let table = self.lengths.iter().position(|one| *one == lengths).unwrap_or(0) as u16;
        for (own, rank) in self.with_chunks(axis) {
            let (place, all) = (self.broadcast_place(rank, own, piece), self.at(0, 0, piece));
            let one = Instruction::allgatherv(place, all, lengths[own as usize], table);
            ticks.push(rank, lane, one.on(OTHERS[axis.number]));
        }
    }

    /// The tables of a rank, which say where the chunks of a piece go.
    fn tables(&self, rank: u32) -> Tables {
        let of_lengths = |lengths: &Vec<u64>| {
            let place = |chunk: u32| self.broadcast_place(rank, chunk, 0).address - self.at(0, 0, 0).address;
            let entries = (0..).zip(lengths).map(|(chunk, bytes)| Entry { displacement: place(chunk), bytes: *bytes });
            Table { entries: entries.collect() }
        };
        (0..).zip(self.lengths.iter().map(of_lengths)).collect()
    }

    /// To one rank.
    fn transfer(&self, axis: Axis, step: u64, piece: u64, lane: u8, ticks: &mut Ticks) {
        let peer = self.request.peer;
        let to = self.seen(axis, [peer / self.size[1], peer % self.size[1]]);
        let ([rows, columns], [a, b]) = (self.seen(axis, self.size), self.seen(axis, self.root));
        let own = |rank: u32, chunk: Option<u32>| {
            let chunk = chunk.filter(|_| rank == peer && self.is_in_place);
            chunk.map(|chunk| self.at(0, chunk, piece))
        };
        let chunk_of = |column: u32| {
            let chunk = self.with_chunks(axis).find(|(_, other)| *other == column);
            chunk.map(|(chunk, _)| chunk)
        };
        let buffer = self.between(axis, piece);
        match step {
            0 => self.scatter(axis, piece, lane, |rank| own(rank, chunk_of(to[1])).filter(|_| to[0] == a), ticks),
            1 if to[0] != a => {
                let [from_rank, to_rank] = [a, to[0]].map(|row| Self::digit(row, rows, a));
                for (chunk, column) in self.with_chunks(axis) {
                    let (bytes, rank) = (self.bytes(chunk, piece), self.rank(axis, [to[0], column]));
                    if bytes > 0 {
                        let receive = Instruction::recv(from_rank, own(rank, Some(chunk)).unwrap_or(buffer), bytes);
                        let send = Instruction::send(to_rank, buffer, bytes).on(ACROSS[1 - axis.number]);
                        ticks.push(self.rank(axis, [a, column]), lane, send);
                        ticks.push(rank, lane, receive.on(ACROSS[1 - axis.number]));
                    }
                }
            }
            1 => {}
            // The peer is in the root's column: what came along the axis is there.
            _ => {
                let total = self.all_bytes(axis, piece);
                for column in (0..columns).filter(|_| total > 0) {
                    let rank = self.rank(axis, [to[0], column]);
                    let source = own(rank, chunk_of(column)).filter(|_| column != b).unwrap_or(buffer);
                    let target = Self::digit(to[1], columns, b);
                    let one = Instruction::gather(target, source, self.all(axis, 0, piece), self.block(piece));
                    ticks.push(rank, lane, one.dividing(total).on(ACROSS[axis.number]));
                }
            }
        }
    }

    fn reduce(&self, axis: Axis, step: u64, piece: u64, lane: u8, combine: Combine, ticks: &mut Ticks) {
        let ([rows, columns], [a, _]) = (self.seen(axis, self.size), self.seen(axis, self.root));
        let total = self.all_bytes(axis, piece);
        let folded = self.buffer(axis, piece % 2);
        let reduced = if self.axes.len() == 1 { folded } else { self.buffer(axis, 2 + piece % 2) };
        match step {
            _ if total == 0 => {}
            0 => {
                let from = self.all(axis, 0, piece);
                let one = Instruction::reduce_scatter(combine, from, folded, self.block(piece)).dividing(total);
                for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                    ticks.push(self.rank(axis, [row, column]), lane, one.on(ACROSS[axis.number]));
                }
            }
            1 => {
                for (chunk, column) in self.with_chunks(axis) {
                    let bytes = self.bytes(chunk, piece);
                    let one = Instruction::reduce(combine, rows as u16 - 1, folded, reduced, bytes);
                    for row in (0..rows).filter(|_| bytes > 0) {
                        ticks.push(self.rank(axis, [row, column]), lane, one.on(ACROSS[1 - axis.number]));
                    }
                }
            }
            _ => {
                let one = Instruction::gather(columns as u16 - 1, reduced, self.all(axis, 1, piece), self.block(piece));
                for column in 0..columns {
                    ticks.push(self.rank(axis, [a, column]), lane, one.dividing(total).on(ACROSS[axis.number]));
                }
            }
        }
    }
}

/// Where chunks, and pieces between the steps, have room.
struct Room {
    spread: Spread,
    buffers: Vec<u64>,
    /// Bytes of a buffer.
    buffer: u64,
    is_in_place: bool,
}

impl Room {
    /// For a broadcast among linked ranks with a chunk for each link. If a channel has two stripes, each rank may have the chunk that it
    /// receives for itself alone in a channel, where it is read while the next piece comes: without a buffer.
    fn in_place(request: &Request, size: Place, links: u32, capabilities: &Capabilities) -> Option<Self> {
        let channel = capabilities.channel_bytes();
        let is_even = capabilities.stripe_bytes().checked_mul(2) == Some(channel)
            && links == 2 * capabilities.memory_channels - 1;
        let has_tables = capabilities.runs(Operation::Allgatherv) && capabilities.tables >= TABLES_MAX;
        if size[0] != 1 || request.collective != Collective::Broadcast || !is_even || !has_tables || request.resident {
            return None;
        }
        let bytes = request.bytes.div_ceil(links.into()).checked_next_multiple_of(unit(request, capabilities))?;
        let spread = Spread::new(0, links, bytes, 1, capabilities)?;
        Some(Room { spread, buffers: Vec::new(), buffer: capabilities.stripe_half_bytes, is_in_place: true })
    }

    fn of(request: &Request, size: Place, links: u32, capabilities: &Capabilities) -> Option<Self> {
        // In a tick, a rank uses two buffers between two steps; on a grid, three of an axis to distribute, and four to reduce. Those
        // of one row may be as many in a channel as chunks are.
        let slots = match (size[0], request.collective) {
            (1, _) => 2,
            (_, Collective::Reduce) => 8,
            _ => 6,
        };
        let in_a_channel = |chunks: u32| if size[0] == 1 { chunks.min(2) } else { 1 };
        // What the peer receives for itself goes to its place at once, so buffers are on other ranks only; but on a grid it comes later
        // than what is beside it in its channel.
        let is_in_place = request.collective.has_peer() && (size[0] == 1 || are_apart(capabilities));
        let kept = |chunks| if is_in_place { 0 } else { slots / in_a_channel(chunks) };
        let spread = Spread::of_vector(request.bytes, unit(request, capabilities), links, 1, capabilities, kept)?;
        let shares = u64::from(in_a_channel(spread.in_a_channel));
        let channel = capabilities.channel_bytes();
        let any: Vec<u64> = (0..u64::from(slots)).map(|number| channel * number).collect();
        let free = if is_in_place { &any } else { &spread.free };
        let all = (0..shares).flat_map(|share| free.iter().map(move |free| free + channel / shares * share));
        let buffers = all.take(slots as usize).collect();
        Some(Room { spread, buffers, buffer: channel / shares, is_in_place })
    }
}

/// The number of pieces of a chunk of `bytes`, at `mbps`, with which the last arrives earliest, by what a tick takes apart from its
/// bytes.
pub(super) fn pieces(bytes: u64, mbps: u64, is_grid: bool, capabilities: &Capabilities) -> u64 {
    let timing = &capabilities.timing;
    let cycles = u64::from(timing.dispatch_cycles + timing.memory_read_cycles + timing.handover_cycles + 2);
    let cycle_ps = 1_000_000_000 / u64::from(capabilities.clock_khz.max(1));
    let signals = u64::from(timing.control_ps) + u64::from(timing.data_ps) + u64::from(timing.acknowledge_ps);
    let tick = (cycles * cycle_ps + signals).max(1);
    let whole = u128::from(bytes) * 8_000_000 / u128::from(mbps.max(1));
    // Ticks that fill the way before the last piece begins.
    let more = if is_grid { 2 } else { 1 };
    u64::try_from(whole * more / u128::from(tick)).unwrap_or(u64::MAX).isqrt().clamp(1, PIECES_MAX)
}

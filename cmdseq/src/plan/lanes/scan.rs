//! Scan and exscan on the rows and columns of a grid, in pieces that follow each other.
//!
//! The vector has a block for each column. A piece of all blocks goes in four steps:
//!
//! 1. along each row, an alltoall_scan: the card in column j has the prefixes of block j, the last of which is the row's total,
//! 2. along each column, an exscan of these totals: the *carry* of block j, the fold of all rows before,
//! 3. along each row, an allgather of the carries,
//! 4. each card sends its prefixes to the cards of its row, which fold them with the carry of the same block while they receive. A
//!    lane for each card of the row, as far as there are lanes. The prefix of the own block does not travel: `fold` folds it with
//!    the carry, one half in each of two lanes.
//!
//! Row 0 has no carry: it only sends the prefixes. Step 2 uses links of columns, so it runs with step 1 of the next piece. The other
//! steps use those of rows, one after another: three times a block for each link of a row.
//!
//! What runs at once is in different pseudo channels. Inputs and outputs are in the lower halves of the first stripes, one for each
//! column, and the carries in those of the next. Prefixes are in the upper halves, those of even pieces in the first stripes. An
//! own carry lies with the first prefix, which step 2 does not read.

use super::ticks::Ticks;
use super::trees::pieces;
use crate::plan::channels::has_stripes_apart;
use crate::plan::draft::Draft;
use crate::plan::grid::{COLUMN, Grid, ROW};
use crate::plan::placement::{pieces_at, unit};
use crate::plan::rounds::{Move, exchange};
use crate::refusal::Refusal;
use crate::request::{Algorithm, Collective, Request};
use crate::{Capabilities, Combine, Instruction, Operand, Operation};

/// The lanes of steps 1 and 3, and of step 2.
const ALONG_ROWS: u8 = 0;
const ALONG_COLUMNS: u8 = 1;

pub(super) fn build(request: &Request, capabilities: &Capabilities) -> Result<Vec<Draft>, Refusal> {
    let refuse = |cause: String| Err(Refusal::general(cause));
    let Some(combine) = request.combine else { return refuse(format!("{} is not a reduction", request.collective)) };
    let scan = Scan::new(request, capabilities, combine)?;
    let mut ticks = Ticks::new(request, scan.grid.communicators(request));
    scan.in_all_rows(&mut ticks, |_| vec![scan.prefixes(0)]);
    for piece in 0..scan.pieces {
        scan.in_all_rows(&mut ticks, |_| {
            let next = (piece + 1 < scan.pieces).then(|| scan.prefixes(piece + 1));
            next.into_iter().chain([scan.carry(piece)]).collect()
        });
        scan.in_all_rows(&mut ticks, |rank| scan.carries(rank, piece).into_iter().collect());
        scan.in_all_rows(&mut ticks, |rank| scan.results(rank, piece));
    }
    ticks.draft.lies(request, |rank| {
        let input = pieces_at(scan.block, request.input_bytes(rank), |number| scan.stripe(number));
        let output = pieces_at(scan.block, request.output_bytes(rank), |number| match scan.has_prefix(rank) {
            true => scan.output(number, 0),
            false => scan.carry_of(number, 0),
        });
        (input, output)
    });
    Ok(vec![ticks.draft])
}

/// An instruction, and its lane.
type InLane = (u8, Instruction);

struct Scan {
    is_exclusive: bool,
    combine: Combine,
    grid: Grid,
    lanes: u64,
    half: u64,
    /// Alignment of halves of a piece, bytes.
    unit: u64,
    /// Bytes of a block.
    block: u64,
    /// Bytes of a piece of a block; the last may have fewer.
    piece: u64,
    pieces: u64,
}

impl Scan {
    fn new(request: &Request, capabilities: &Capabilities, combine: Combine) -> Result<Self, Refusal> {
        let refuse = |cause: String| Err(Refusal::general(format!("lanes {cause}")));
        let grid = Grid::needed_by(Algorithm::Lanes, request, capabilities)?;
        if let Some(missing) =
            [Operation::AlltoallScan, Operation::Fold].into_iter().find(|one| !capabilities.runs(*one))
        {
            return refuse(format!("needs {missing}, which these cards do not have"));
        }
        let columns = grid.size;
        if !has_stripes_apart(2 * columns, capabilities) {
            return refuse(format!("needs {} stripes, with pseudo channels of their own", 2 * columns));
        }
        let (unit, half) = (unit(request, capabilities), capabilities.stripe_half_bytes);
        let block = request.bytes.div_ceil(columns.into()).checked_next_multiple_of(unit).unwrap_or(u64::MAX);
        if block == 0 || block > half / 2 {
            return refuse(format!("has no room for blocks of {block} B, or none to send"));
        }
        // Of the last piece, step 2 runs alone: more pieces make it shorter, and each begins three ticks.
        let count = pieces(block / 3, capabilities.timing.link_mbps.into(), false, capabilities);
        let piece = block.div_ceil(count).next_multiple_of(unit);
        Ok(Scan {
            is_exclusive: request.collective == Collective::Exscan,
            combine,
            grid,
            lanes: capabilities.lanes.min(1 << 8).into(),
            half,
            unit,
            block,
            piece,
            pieces: block.div_ceil(piece),
        })
    }

    /// Appends what each rank does in the next tick.
    fn in_all_rows(&self, ticks: &mut Ticks, of: impl Fn(u32) -> Vec<InLane>) {
        ticks.next();
        for rank in 0..self.grid.groups * self.grid.size {
            of(rank).into_iter().for_each(|(lane, instruction)| ticks.push(rank, lane, instruction));
        }
    }

    fn column(&self, rank: u32) -> u32 {
        self.grid.place(rank).1
    }

    fn has_carry(&self, rank: u32) -> bool {
        self.grid.place(rank).0 > 0
    }

    /// Whether a prefix of its row is part of the rank's output.
    fn has_prefix(&self, rank: u32) -> bool {
        !self.is_exclusive || self.column(rank) > 0
    }

    fn bytes(&self, piece: u64) -> u64 {
        self.piece.min(self.block - self.piece * piece)
    }

    fn stripe(&self, number: u32) -> u64 {
        2 * self.half * u64::from(number)
    }

    fn output(&self, number: u32, piece: u64) -> u64 {
        self.stripe(number) + self.block + self.piece * piece
    }

    fn carry_of(&self, number: u32, piece: u64) -> u64 {
        self.stripe(self.grid.size + number) + self.piece * piece
    }

    /// The prefix up to `column`.
    fn prefix(&self, column: u32, piece: u64) -> u64 {
        let first = if piece % 2 == 0 { 0 } else { self.grid.size };
        self.stripe(first + column) + self.half
    }

    fn own_carry(&self, piece: u64) -> Operand {
        Operand::card(self.prefix(0, piece) + self.piece)
    }

    fn prefixes(&self, piece: u64) -> InLane {
        let [from, to] = [self.piece * piece, self.prefix(0, piece)].map(|address| Operand::card(address).striped());
        (ALONG_ROWS, Instruction::alltoall_scan(self.combine, from, to, self.bytes(piece)).on(ROW))
    }

    fn carry(&self, piece: u64) -> InLane {
        let total = Operand::card(self.prefix(self.grid.size - 1, piece));
        let one = Instruction::exscan(self.combine, total, self.own_carry(piece), self.bytes(piece));
        (ALONG_COLUMNS, one.on(COLUMN))
    }

    fn carries(&self, rank: u32, piece: u64) -> Option<InLane> {
        let to = Operand::card(self.carry_of(0, piece)).striped();
        let one = Instruction::allgather(self.own_carry(piece), to, self.bytes(piece)).on(ROW);
        self.has_carry(rank).then_some((ALONG_ROWS, one))
    }

    /// Sends to each card of the row its prefix, and folds those that arrive.
    fn results(&self, rank: u32, piece: u64) -> Vec<InLane> {
        let (own, columns) = (self.column(rank), self.grid.size);
        let has_carry = self.has_carry(rank);
        let lane = |job: u32| (u64::from(job) % self.lanes) as u8;
        let at_step = |step: u32| {
            let [to, from] = [own + step, own + columns - step].map(|column| column % columns);
            let [sent, received] = [(own, to), (from, own)].map(|way| self.prefix_to(way, piece, has_carry));
            exchange(sent, received, Some(self.combine)).map(move |one| (lane(step - 1), one.on(ROW)))
        };
        // Without a carry, the prefix of the own block goes like those of the others.
        let steps = if has_carry { columns } else { columns + 1 };
        let folds = if has_carry { self.folds(own, piece) } else { Vec::new() };
        let folds = folds.into_iter().zip(columns - 1..).map(|(one, job)| (lane(job), one));
        (1..steps).flat_map(at_step).chain(folds).collect()
    }

    /// The prefix of the block of the first of two columns, on its way to the card in the other, if there is one.
    fn prefix_to(&self, (from, to): (u32, u32), piece: u64, is_folded: bool) -> Option<Move> {
        let source = self.prefix(to.checked_sub(self.is_exclusive.into())?, piece);
        let own = is_folded.then(|| self.carry_of(from, piece));
        Some(Move { from, to, source, destination: self.output(from, piece), bytes: self.bytes(piece), own })
    }

    /// Folds the prefix of the own block with its carry, one half in each of two lanes.
    fn folds(&self, column: u32, piece: u64) -> Vec<Instruction> {
        let Some(Move { source, destination, bytes, .. }) = self.prefix_to((column, column), piece, true) else {
            return Vec::new();
        };
        let first = (bytes / 2).next_multiple_of(self.unit).min(bytes);
        let part = |(begin, end): (u64, u64)| {
            let [carry, prefix, output] =
                [self.carry_of(column, piece), source, destination].map(|address| Operand::card(address + begin));
            Instruction::fold(self.combine, carry, prefix, output, end - begin)
        };
        [(0, first), (first, bytes)].into_iter().filter(|(begin, end)| begin < end).map(part).collect()
    }
}

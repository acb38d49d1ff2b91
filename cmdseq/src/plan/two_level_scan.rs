//! Scan and exscan on rows and columns with all links of a row in use: the folds are those of `two_level_reduce`.
//!
//! In each row, an alltoall_scan and an alltoall, as in `multipath_scan`. The card in column j then has block j of its row's
//! total, and an exscan along the column folds block j of the rows before. An allgather brings these blocks to the whole row.
//! Cards fold what they receive, so each card sends the fold of the rows before, block by block, to its neighbour, which folds
//! each block with that of its own scan.
//!
//! Blocks are in stripes. Contributions, scans and outputs are in the lower halves; partial results and the folds of the rows
//! before in the upper.

use super::draft::Draft;
use super::grid::{ALL, COLUMN, Grid, ROW};
use super::placement::{pieces_at, unit};
use super::rounds::Move;
use crate::program::Communicator;
use crate::refusal::Refusal;
use crate::request::{Collective, Request};
use crate::{Capabilities, Combine, Instruction, Operand};

/// Id of the communicator of a row in which each card has the rank of the one before.
const SHIFTED: u16 = ALL + 1;

/// The programs of `request`, a scan or exscan in any order.
pub(super) fn build(request: &Request, capabilities: &Capabilities, grid: Grid) -> Result<Draft, Refusal> {
    let Some(combine) = request.combine else {
        return Err(Refusal::general(format!("{} is not a reduction", request.collective)));
    };
    let blocks = Blocks::of(request, capabilities, grid)?;
    let mut draft = grid.draft(request).with_all(ALL, request, capabilities);
    if blocks.is_exclusive {
        draft.communicators.extend(request.group.chunks(grid.size as usize).map(|row| {
            let mut members = row.to_vec();
            members.rotate_left(1);
            Communicator { id: SHIFTED, members }
        }));
    }
    for (rank, program) in (0..).zip(&mut draft.programs) {
        let place = grid.place(rank);
        program.instructions.extend(blocks.in_row(combine, place));
        program.instructions.extend(blocks.of_rows_before(combine, place, request.bytes));
    }
    let is_folded = |rank: &u32| grid.place(*rank).0 > 0 && !(blocks.is_exclusive && grid.place(*rank).1 == 0);
    for number in 0..grid.size {
        let onward = |to: u32| {
            let (row, column) = grid.place(to);
            Move {
                from: row * grid.size + (column + grid.size - 1) % grid.size,
                to,
                source: blocks.before(number),
                destination: blocks.folded(number),
                bytes: blocks.length(number, request.bytes),
                own: Some(blocks.scanned(number)),
            }
        };
        draft.round((0..request.ranks()).filter(is_folded).map(onward), Some(combine));
    }
    draft.lies(request, |rank| {
        let input = pieces_at(blocks.bytes, request.input_bytes(rank), |number| blocks.stripe(number));
        let output = pieces_at(blocks.bytes, request.output_bytes(rank), |number| match grid.place(rank) {
            (0, _) => blocks.scanned(number),
            (_, 0) if blocks.is_exclusive => blocks.before(number),
            _ => blocks.folded(number),
        });
        (input, output)
    });
    Ok(draft)
}

/// A vector as a block for each rank of a row, in stripes.
struct Blocks {
    is_exclusive: bool,
    columns: u32,
    half: u64,
    /// Of a block.
    bytes: u64,
}

impl Blocks {
    fn of(request: &Request, capabilities: &Capabilities, grid: Grid) -> Result<Self, Refusal> {
        if request.placement.is_some() {
            return Err(Refusal::general("blocks are in stripes: a placement is not supported".into()));
        }
        let half = capabilities.stripe_half_bytes;
        let unit = unit(request, capabilities);
        // Contributions, scans, outputs, and one block of the rows before.
        let longest = half / 4 / unit * unit;
        let bytes = request.bytes.div_ceil(grid.size.into());
        let held = capabilities.stripe_bytes().saturating_mul(grid.size.into());
        if bytes > longest || held > capabilities.memory_bytes {
            return Err(Refusal::general(format!(
                "blocks of {bytes} B exceed a quarter of half a stripe, {longest} B"
            )));
        }
        let is_exclusive = request.collective == Collective::Exscan;
        Ok(Blocks { is_exclusive, columns: grid.size, half, bytes: bytes.next_multiple_of(unit) })
    }

    /// Of block `number` of a vector of `total` bytes.
    fn length(&self, number: u32, total: u64) -> u64 {
        total.saturating_sub(self.bytes * u64::from(number)).min(self.bytes)
    }

    /// Address of stripe `number`, where block `number` of the contribution is.
    fn stripe(&self, number: u32) -> u64 {
        2 * self.half * u64::from(number)
    }

    /// The stripe of block `number` of the scan: it comes from this rank of the second communicator.
    fn from(&self, number: u32) -> u32 {
        if self.is_exclusive { (number + self.columns - 1) % self.columns } else { number }
    }

    fn scanned(&self, number: u32) -> u64 {
        self.stripe(self.from(number)) + self.bytes
    }

    /// Block `number` of the result, in another stripe than that of the scan with which it is folded.
    fn folded(&self, number: u32) -> u64 {
        self.stripe((self.from(number) + 1) % self.columns) + 2 * self.bytes
    }

    /// The partial result up to the card in `column`.
    fn partial(&self, column: u32) -> u64 {
        self.stripe(column) + self.half
    }

    /// Block `number` of the fold of the rows before.
    fn before(&self, number: u32) -> u64 {
        self.stripe(number) + self.half + self.bytes
    }

    /// Scans the row at row and column `place`.
    fn in_row(&self, combine: Combine, place: (u32, u32)) -> [Instruction; 2] {
        let partial = Operand::card(self.partial(0)).striped();
        // The first of a row has nothing before it; what it receives is not needed.
        let beside = if self.is_exclusive && place.1 == 0 { 2 * self.bytes } else { self.bytes };
        let second = if self.is_exclusive { SHIFTED } else { ROW };
        [
            Instruction::alltoall_scan(combine, Operand::card(0).striped(), partial, self.bytes).on(ROW),
            Instruction::alltoall(partial, Operand::card(beside).striped(), self.bytes).on(second),
        ]
    }

    /// Folds the rows before the card at `place`.
    fn of_rows_before(&self, combine: Combine, (row, column): (u32, u32), total: u64) -> Vec<Instruction> {
        let (own, bytes) = (Operand::card(3 * self.bytes), self.length(column, total));
        let row_total = Operand::card(self.partial(self.columns - 1));
        let mut instructions = Vec::new();
        if bytes > 0 {
            instructions.push(Instruction::exscan(combine, row_total, own, bytes).on(COLUMN));
        }
        if row > 0 {
            let all = Operand::card(self.before(0)).striped();
            instructions.push(Instruction::allgather(own, all, self.bytes).dividing(total).on(ROW));
        }
        instructions
    }
}

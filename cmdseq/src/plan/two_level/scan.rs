//! Scan and exscan on rows and columns with all links of a row in use: the folds are those of `reduce`.
//!
//! In each row, an alltoall_scan and an alltoall, as in `multipath::scan`. The card in column j then has block j of its row's
//! total, and an exscan along the column folds block j of the rows before. An allgather brings these blocks to the whole row.
//! Cards fold what they receive, so each card sends the fold of the rows before, block by block, to its neighbour, which folds
//! each block with that of its own scan.
//!
//! Blocks are in stripes. Contributions, scans and outputs are in the lower halves; partial results and the folds of the rows
//! before in the upper.

use crate::plan::draft::Draft;
use crate::plan::grid::{ALL, COLUMN, Grid, ROW};
use crate::plan::placement::pieces_at;
use crate::plan::rounds::Move;
use crate::plan::scan_blocks::ScanBlocks;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::{Capabilities, Combine, Instruction, Operand};

/// Id of the communicator of a row in which each card has the rank of the one before.
const SHIFTED: u16 = ALL + 1;

/// The programs of `request`, a scan or exscan by `combine` in any order.
pub(super) fn build(
    request: &Request,
    capabilities: &Capabilities,
    combine: Combine,
    grid: Grid,
) -> Result<Draft, Refusal> {
    if request.placement.is_some() {
        return Err(Refusal::general("blocks are in stripes: a placement is not supported".into()));
    }
    // Contributions, scans, outputs, and one block of the rows before.
    let blocks = ScanBlocks::new(request, capabilities, grid.size, 4, 1)?;
    let mut draft = grid.draft(request).with_all(ALL, request, capabilities);
    let rows = request.group.chunks(grid.size as usize);
    draft.communicators.extend(rows.filter_map(|row| blocks.shifted(SHIFTED, row)));
    for (rank, program) in (0..).zip(&mut draft.programs) {
        let place = grid.place(rank);
        program.instructions.extend(blocks.scan(combine, 0, place.1, [ROW, SHIFTED]));
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

/// What a row does with its blocks besides the scan.
impl ScanBlocks {
    /// Of block `number` of a vector of `total` bytes.
    fn length(&self, number: u32, total: u64) -> u64 {
        total.saturating_sub(self.bytes * u64::from(number)).min(self.bytes)
    }

    /// Block `number` of the result, in another stripe than that of the scan with which it is folded.
    fn folded(&self, number: u32) -> u64 {
        self.stripe((self.from(number) + 1) % self.ranks) + 2 * self.bytes
    }

    /// The partial result up to the card in `column`.
    fn partial(&self, column: u32) -> u64 {
        self.stripe(column) + self.half
    }

    /// Block `number` of the fold of the rows before.
    fn before(&self, number: u32) -> u64 {
        self.stripe(number) + self.half + self.bytes
    }

    /// Folds the rows before the card at `place`.
    fn of_rows_before(&self, combine: Combine, (row, column): (u32, u32), total: u64) -> Vec<Instruction> {
        let (own, bytes) = (Operand::card(3 * self.bytes), self.length(column, total));
        let row_total = Operand::card(self.partial(self.ranks - 1));
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

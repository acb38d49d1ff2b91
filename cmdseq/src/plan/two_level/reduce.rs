//! Reductions on a Dragonfly: within the rows and across them, or rank by rank where the order of ranks must be kept.

use crate::plan::draft::Draft;
use crate::plan::grid::{ALL, COLUMN, Grid, ROW};
use crate::plan::placement::{Areas, pieces_at, whole};
use crate::plan::rounds::{Blocks, Move};
use crate::refusal::Refusal;
use crate::request::{Collective, Request};
use crate::{Capabilities, Combine, Instruction, Operand};

/// The programs of a reduction of all cards of `grid`.
pub(super) fn build(
    request: &Request,
    capabilities: &Capabilities,
    combine: Combine,
    grid: Grid,
) -> Result<Draft, Refusal> {
    let has_rounds = request.needs_rank_order() || matches!(request.collective, Collective::Scan | Collective::Exscan);
    let draft = grid.draft(request);
    let draft = if has_rounds { draft.with_all(ALL, request, capabilities) } else { draft };
    let mut levels = Levels { request, capabilities, grid, combine, draft };
    match request.collective {
        _ if request.needs_rank_order() => levels.along_the_ranks()?,
        Collective::Scan | Collective::Exscan => levels.scan()?,
        _ => levels.fold()?,
    }
    Ok(levels.draft)
}

/// A plan of two levels being made.
struct Levels<'a> {
    request: &'a Request,
    capabilities: &'a Capabilities,
    grid: Grid,
    combine: Combine,
    draft: Draft,
}

impl Levels<'_> {
    /// Appends what the card at each row and column runs, if anything.
    fn phase(&mut self, communicator: u16, instruction: impl Fn(u32, u32) -> Option<Instruction>) {
        for (rank, program) in (0..).zip(&mut self.draft.programs) {
            let (row, column) = self.grid.place(rank);
            program.instructions.extend(instruction(row, column).map(|one| one.on(communicator)));
        }
    }

    fn place<const COUNT: usize>(&self, sizes: [u64; COUNT]) -> Result<[u64; COUNT], Refusal> {
        Areas::place(self.request, self.capabilities, sizes)
    }

    /// Input, of a vector or a block for each rank, and output.
    fn lie(&mut self, input: u64, output: u64) {
        let (request, blocks) = (self.request, Blocks::of_ranks(self.request, self.capabilities));
        let at = |number| input + blocks.offset(number);
        let given = |rank| pieces_at(request.bytes, request.input_bytes(rank), at);
        self.draft.lies(request, |rank| (given(rank), whole(output, request.output_bytes(rank))));
    }

    /// Reduce and allreduce: in the rows, then in the columns with a rank that needs the result.
    fn fold(&mut self) -> Result<(), Refusal> {
        let (how, bytes) = (self.combine, self.request.bytes);
        let [input, output, between] = self.place([bytes; 3])?;
        let [source, result, middle] = [input, output, between].map(Operand::card);
        let (root_row, root_column) = self.grid.place(self.request.root);
        let is_for_all = self.request.collective == Collective::Allreduce;
        let one = |root: u32, from, to| match is_for_all {
            true => Instruction::allreduce(how, from, to, bytes),
            false => Instruction::reduce(how, root as u16, from, to, bytes),
        };
        self.phase(ROW, |_, _| Some(one(root_column, source, middle)));
        let takes_part = |column| is_for_all || column == root_column;
        self.phase(COLUMN, |_, column| takes_part(column).then(|| one(root_row, middle, result)));
        self.lie(input, output);
        Ok(())
    }

    /// Scans in the rows; then what the rows before come to, folded with each. Whole vectors: long ones are in `scan`.
    fn scan(&mut self) -> Result<(), Refusal> {
        let (how, bytes, last) = (self.combine, self.request.bytes, self.grid.size - 1);
        let is_exclusive = self.request.collective == Collective::Exscan;
        let [input, output, scanned, before, total] = self.place([bytes; 5])?;
        let [source, before_at, total_at] = [input, before, total].map(Operand::card);
        // Nothing comes before the first row.
        let in_row = |row: u32| if row == 0 { output } else { scanned };
        self.phase(ROW, |row, _| {
            let result = Operand::card(in_row(row));
            Some(match is_exclusive {
                true => Instruction::exscan(how, source, result, bytes),
                false => Instruction::scan(how, source, result, bytes),
            })
        });
        if is_exclusive {
            self.phase(ROW, |_, _| Some(Instruction::reduce(how, last as u16, source, total_at, bytes)));
        }
        let row_total = |row: u32| if is_exclusive { total_at } else { Operand::card(in_row(row)) };
        self.phase(COLUMN, |row, column| {
            (column == last).then(|| Instruction::exscan(how, row_total(row), before_at, bytes))
        });
        // The first of a row has of an exscan what the rows before come to, and no more.
        let kept = |column: u32| if is_exclusive && column == 0 { output } else { before };
        self.phase(ROW, |row, column| {
            let to = Operand::card(kept(column));
            (row > 0).then(|| Instruction::broadcast(last as u16, before_at, to, bytes))
        });
        let size = self.grid.size;
        let is_folded = |rank: &u32| *rank >= size && !(is_exclusive && rank % size == last);
        let onward = |rank: u32| {
            let (row, column) = (rank / size, rank % size);
            let to = row * size + (column + 1) % size;
            Move { from: rank, to, source: kept(column), destination: output, bytes, own: Some(scanned) }
        };
        self.draft.round((0..self.request.ranks()).filter(is_folded).map(onward), Some(how));
        self.lie(input, output);
        Ok(())
    }

    /// From each rank to the next, over another card from row to row; then to all that need the result at once. What one rank needs
    /// of it, or each as it goes, is for [`ring`](super::ring).
    fn along_the_ranks(&mut self) -> Result<(), Refusal> {
        let (request, bytes, size) = (self.request, self.request.bytes, self.grid.size);
        if matches!(request.collective, Collective::Reduce | Collective::Scan) {
            let cause = format!("two-level does not keep rank order in a {}; use ring", request.collective);
            return Err(Refusal::general(cause));
        }
        let (last, last_column) = (request.ranks() - 1, size - 1);
        let blocks = Blocks::of_ranks(request, self.capabilities);
        let is_scattered = request.collective == Collective::ReduceScatter;
        let (vector, result) = if is_scattered { (blocks.total(), blocks.distance()) } else { (bytes, bytes) };
        let [input, output, partial, passed] = self.place([vector, result, vector, vector])?;
        let at = |rank: u32| match rank {
            0 => input,
            _ if rank == last && request.collective == Collective::Allreduce => output,
            _ => partial,
        };
        for rank in 0..last {
            let mut fold = Move {
                from: rank,
                to: rank + 1,
                source: at(rank),
                destination: at(rank + 1),
                bytes: vector,
                own: Some(input),
            };
            if (rank + 1).is_multiple_of(size) {
                let passes = rank + size;
                self.draft.round([Move { to: passes, destination: passed, own: None, ..fold }], None);
                (fold.from, fold.source) = (passes, passed);
            }
            self.draft.round([fold], Some(self.combine));
        }
        match request.collective {
            Collective::Allreduce => {
                let (data, last_row) = (Operand::card(output), self.grid.groups - 1);
                let broadcast = |root: u32| Instruction::broadcast(root as u16, data, data, bytes);
                self.phase(ROW, |row, _| (row == last_row).then(|| broadcast(last_column)));
                self.phase(COLUMN, |_, _| Some(broadcast(last_row)));
            }
            Collective::ReduceScatter => {
                let [source, middle, to] = [partial, passed, output].map(Operand::card);
                let (last_row, row_bytes) = (self.grid.groups - 1, blocks.bytes(0..size));
                self.phase(COLUMN, |_, column| {
                    let scatter = || Instruction::scatter(last_row as u16, source, middle, row_bytes);
                    (column == last_column).then(scatter)
                });
                let block = blocks.distance();
                self.phase(ROW, |_, _| Some(Instruction::scatter(last_column as u16, middle, to, block)));
            }
            Collective::Exscan => {
                // The last of a row still has what the row before came to.
                let shift = |rank: u32| match rank % size == last_column {
                    true => Move {
                        from: rank,
                        to: rank - last_column,
                        source: passed,
                        destination: output,
                        bytes,
                        own: None,
                    },
                    false => Move { from: rank, to: rank + 1, source: at(rank), destination: output, bytes, own: None },
                };
                let is_sent = |rank: &u32| *rank != last_column;
                self.draft.round((0..=last).filter(is_sent).map(shift), None);
            }
            _ => {}
        }
        self.lie(input, output);
        Ok(())
    }
}

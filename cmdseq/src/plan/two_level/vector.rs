//! The vector forms within the groups of a Dragonfly and across them.
//!
//! As the forms of one length go: what a card has for a row, or of a row, lies there one block behind the other, and crosses
//! the columns as one block. How long these are, tables say.

use crate::plan::draft::Draft;
use crate::plan::grid::{ALL, COLUMN, Grid, ROW};
use crate::plan::placement::{Areas, Packed, whole};
use crate::plan::rounds::Move;
use crate::plan::vector;
use crate::program::Program;
use crate::refusal::Refusal;
use crate::request::{Collective, Request};
use crate::table::Entry;
use crate::{Capabilities, Instruction, Operand, Table, Tables};

/// Slot of the table of the blocks that cross the columns: of an alltoallv, of those that are sent.
const ACROSS: u16 = 0;
/// Slot of the table of the blocks within a row.
const WITHIN: u16 = 1;
/// Of an alltoallv, slot of the table of the blocks that come down the column.
const TAKEN: u16 = 1;

/// The programs of `request`, which is for a vector form of all cards, with a phase in the rows and a phase in the columns.
pub(super) fn build(request: &Request, capabilities: &Capabilities, grid: Grid) -> Result<Draft, Refusal> {
    match request.collective {
        Collective::Alltoallv => alltoallv(request, capabilities, grid),
        _ => Ok(Draft { programs: one_block_each(request, capabilities, grid)?, ..grid.draft(request) }),
    }
}

/// Scatterv, gatherv and allgatherv: rank r has, or gets, block r.
fn one_block_each(request: &Request, capabilities: &Capabilities, grid: Grid) -> Result<Vec<Program>, Refusal> {
    let blocks = Packed::new(request.counts.iter().copied(), capabilities);
    let rows = grid.rows_of(&blocks);
    let (longest, longest_row) = (request.counts.iter().copied().max().unwrap_or(0), rows.longest());
    let sizes = match request.collective {
        Collective::Scatterv => [blocks.total(), longest, longest_row],
        Collective::Gatherv => [longest, blocks.total(), longest_row],
        _ => [longest, blocks.total(), 0],
    };
    let [input, output, room] = Areas::place(request, capabilities, sizes)?;
    let [source, destination, between] = [input, output, room].map(Operand::card);
    let (root_row, root_column) = grid.place(request.root);
    let (within, across) = (
        |one: Instruction| one.with_flags(vector::flags(request, capabilities, longest)).on(ROW),
        |one: Instruction| one.with_flags(vector::flags(request, capabilities, longest_row)).on(COLUMN),
    );
    let program = |rank: u32| {
        let (row, column) = grid.place(rank);
        let (bytes, row_bytes) = (blocks.length(rank), rows.get(row).unwrap_or_default().bytes);
        let relays = column == root_column;
        let own_row = grid.row_of(&blocks, row);
        let mut tables = Tables::new();
        // Only who distributes or collects has a table; the others name slot 0.
        let mut slot = |slot: u16, is_known: bool, table: &Table| {
            if !is_known {
                return 0;
            }
            tables.insert(slot, table.clone());
            slot
        };
        let instructions = match request.collective {
            Collective::Scatterv => {
                let (root_row, known) = (root_row as u16, slot(ACROSS, rank == request.root, &rows));
                let first = Instruction::scatterv(root_row, source, between, row_bytes, known);
                let known = slot(WITHIN, relays, &own_row);
                let second = Instruction::scatterv(root_column as u16, between, destination, bytes, known);
                if relays { vec![across(first), within(second)] } else { vec![within(second)] }
            }
            Collective::Gatherv => {
                let known = slot(WITHIN, relays, &own_row);
                let first = Instruction::gatherv(root_column as u16, source, between, bytes, known);
                let (root_row, known) = (root_row as u16, slot(ACROSS, rank == request.root, &rows));
                let second = Instruction::gatherv(root_row, between, destination, row_bytes, known);
                if relays { vec![within(first), across(second)] } else { vec![within(first)] }
            }
            _ => {
                let here = Operand::card(output + blocks.offset(row * grid.size));
                let first = Instruction::allgatherv(source, here, bytes, slot(WITHIN, true, &own_row));
                let second = Instruction::allgatherv(here, destination, row_bytes, slot(ACROSS, true, &rows));
                vec![within(first), across(second)]
            }
        };
        let is_root = rank == request.root;
        let (given, taken) = match request.collective {
            Collective::Scatterv if is_root => (blocks.pieces(input), whole(output, bytes)),
            Collective::Scatterv => (Vec::new(), whole(output, bytes)),
            Collective::Gatherv if !is_root => (whole(input, bytes), Vec::new()),
            _ => (whole(input, bytes), blocks.pieces(output)),
        };
        Program { instructions, input: given, output: taken, tables }
    };
    Ok((0..request.ranks()).map(program).collect())
}

/// Blocks go along the row to the column they are for, those for one row after those for another, and down the column all
/// those for one card as one. If a card runs out of tables, the blocks for the remaining rows go in rounds along their row.
fn alltoallv(request: &Request, capabilities: &Capabilities, grid: Grid) -> Result<Draft, Refusal> {
    let ranks = request.ranks();
    let packed = |lengths: &mut dyn Iterator<Item = u64>| Packed::new(lengths, capabilities);
    let given = |rank: u32| packed(&mut (0..ranks).map(|to| request.given(rank, to)));
    let taken = |rank: u32| packed(&mut (0..ranks).map(|from| request.given(from, rank)));
    // What comes along the row for each row: block `row * size + column` is from that column.
    let relayed = |rank: u32| {
        let (row, column) = grid.place(rank);
        let from = |number: u32| (row * grid.size + number % grid.size, number / grid.size * grid.size + column);
        packed(&mut (0..ranks).map(from).map(|(from, to)| request.given(from, to)))
    };
    let blocks: Vec<[Packed; 3]> = (0..ranks).map(|rank| [given(rank), taken(rank), relayed(rank)]).collect();
    let sizes = [0, 1, 2].map(|kind: usize| blocks.iter().map(|of_rank| of_rank[kind].total()).max().unwrap_or(0));
    let longest_row = blocks.iter().map(|[.., relayed]| grid.rows_of(relayed).longest()).max().unwrap_or(0);
    let [input, output, room] = Areas::place(request, capabilities, sizes)?;
    let [source, destination, between] = [input, output, room].map(Operand::card);
    let within = vector::flags(request, capabilities, request.counts.iter().copied().max().unwrap_or(0));
    let across = vector::flags(request, capabilities, longest_row);
    // Two tables for each row, behind those of the columns.
    let rows = grid.groups.min((capabilities.tables.min(1 << 16) / 2).saturating_sub(1));
    let in_rows = |[given, taken, relayed]: &[Packed; 3]| {
        let mut tables = Tables::from([(ACROSS, grid.rows_of(relayed)), (TAKEN, grid.rows_of(taken))]);
        let along = |row: u32| {
            let (numbers, sends) = (row * grid.size..(row + 1) * grid.size, 2 * (row + 1) as u16);
            tables.insert(sends, given.table(numbers.clone()));
            tables.insert(sends + 1, relayed.table(numbers));
            Instruction::alltoallv(source, between, sends, sends + 1).with_flags(within).on(ROW)
        };
        let instructions = (0..rows).map(along).collect();
        Program { instructions, input: given.pieces(input), output: taken.pieces(output), tables }
    };
    let mut draft = Draft { programs: blocks.iter().map(in_rows).collect(), ..grid.draft(request) };
    if rows < grid.groups {
        draft = draft.with_all(ALL, request, capabilities);
    }
    for (row, step) in (rows..grid.groups).flat_map(|row| (0..grid.size).map(move |step| (row, step))) {
        draft.round((0..ranks).map(|from| onward(&blocks, grid, from, (row, step), [input, room])), None);
    }
    let last = Instruction::alltoallv(between, destination, ACROSS, TAKEN).with_flags(across).on(COLUMN);
    draft.programs.iter_mut().for_each(|program| program.instructions.push(last));
    Ok(draft)
}

/// The block for row `row` of the card that is `step` places behind rank `from` in its row.
fn onward(blocks: &[[Packed; 3]], grid: Grid, from: u32, (row, step): (u32, u32), [input, room]: [u64; 2]) -> Move {
    let (own_row, column) = grid.place(from);
    let to_column = (column + step) % grid.size;
    let to = own_row * grid.size + to_column;
    let ([given, ..], [.., relayed]) = (&blocks[from as usize], &blocks[to as usize]);
    let (sent, comes) = (row * grid.size + to_column, row * grid.size + column);
    let (source, destination) = (input + given.offset(sent), room + relayed.offset(comes));
    Move { from, to, source, destination, bytes: given.length(sent), own: None }
}

impl Grid {
    /// The blocks of each row as one.
    fn rows_of(self, blocks: &Packed) -> Table {
        let row = |row: u32| {
            let numbers = row * self.size..(row + 1) * self.size;
            Entry { displacement: blocks.offset(numbers.start), bytes: blocks.bytes(numbers) }
        };
        Table { entries: (0..self.groups).map(row).collect() }
    }

    /// The blocks of row `row`, from where the first of them lies.
    fn row_of(self, blocks: &Packed, row: u32) -> Table {
        let start = blocks.offset(row * self.size);
        let mut table = blocks.table(row * self.size..(row + 1) * self.size);
        table.entries.iter_mut().for_each(|entry| entry.displacement -= start);
        table
    }
}

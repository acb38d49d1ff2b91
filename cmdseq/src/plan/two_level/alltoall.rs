//! An alltoall on the rows and columns of a Dragonfly: blocks go along the row to the column that they are for, then along the column.

use super::alltoall_channels;
use crate::plan::draft::Draft;
use crate::plan::grid::{COLUMN, Grid, ROW};
use crate::plan::phases;
use crate::plan::placement::{Areas, pieces_of};
use crate::plan::vector;
use crate::program::Program;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::table::Entry;
use crate::{Capabilities, Instruction, Operand, Operation, Table, Tables};

/// Most passes: a program has an instruction for each row and each column in each of them.
const PASSES_MAX: u64 = 16;

/// A draft in which blocks have places of their own, and one of fewer instructions. The output replaces the input only if both do not
/// fit with what lies between.
pub(super) fn build(request: &Request, capabilities: &Capabilities, grid: Grid) -> Result<Vec<Draft>, Refusal> {
    let in_channels = alltoall_channels::build(request, capabilities, grid);
    phases::possible([in_channels, in_areas(request, capabilities, grid)]).or_else(|refusal| {
        let in_place =
            InPlace::new(request, capabilities, grid).and_then(|stripes| stripes.draft(request, capabilities));
        in_place.map(|draft| vec![draft]).ok_or(refusal)
    })
}

/// Blocks of one row go after those of another, and down the column all those for one card as one.
fn in_areas(request: &Request, capabilities: &Capabilities, grid: Grid) -> Result<Draft, Refusal> {
    let block = request.bytes.checked_next_multiple_of(capabilities.address_align.max(1).into()).unwrap_or(u64::MAX);
    let row_bytes = block.saturating_mul(grid.size.into());
    let all = row_bytes.saturating_mul(grid.groups.into());
    let [source, destination, between] = Areas::place(request, capabilities, [all; 3])?;
    let along = |row: u32| {
        let [from, to] = [source, between].map(|area| Operand::card(area + u64::from(row) * row_bytes));
        Instruction::alltoall(from, to, block).on(ROW)
    };
    let down = Instruction::alltoall(Operand::card(between), Operand::card(destination), row_bytes).on(COLUMN);
    let mut draft = grid.draft(request);
    let instructions = (0..grid.groups).map(along).chain([down]).collect();
    let place =
        |area: u64| pieces_of((0..request.ranks().into()).map(|number: u64| (area + number * block, request.bytes)));
    let [input, output] = [source, destination].map(place);
    draft.programs.fill(Program { instructions, input, output, ..Program::default() });
    Ok(draft)
}

/// Blocks of which no two of an instruction are in one stripe. In the input, that for row r and column c is block r of stripe c. What
/// comes along row r from column c lies in stripe r + c. The output replaces the input.
#[derive(Debug, Clone, Copy)]
struct InPlace {
    grid: Grid,
    stripe: u64,
    /// From one block of a stripe to the next.
    block: u64,
    /// What comes along the rows lies from byte `between` of the stripes on: so many bytes of each block in a pass.
    between: u64,
    pass: u64,
}

impl InPlace {
    /// What comes along the rows lies behind the input, or in the upper halves. In each pass as much of each block moves as there is
    /// room for. `None` if that takes too many passes.
    fn new(request: &Request, capabilities: &Capabilities, grid: Grid) -> Option<Self> {
        let (stripe, half) = (capabilities.stripe_bytes(), capabilities.stripe_half_bytes);
        let (unit, rows) = (capabilities.aligned_beat(), u64::from(grid.groups));
        let block = request.bytes.checked_next_multiple_of(unit)?.max(unit);
        let between = block.checked_mul(rows)?.max(half);
        let room = stripe.checked_sub(between)? / rows / unit * unit;
        let passes = block.checked_next_multiple_of(room)?.checked_div(room)?;
        let pass = block.div_ceil(passes).next_multiple_of(unit);
        (passes <= PASSES_MAX).then_some(InPlace { grid, stripe, block, between, pass })
    }

    /// `bytes` behind the beginning of a stripe.
    fn at(self, stripe: u32, bytes: u64) -> u64 {
        self.stripe * u64::from(stripe) + bytes
    }

    /// Where the block from a row and a column comes to lie. It is read from stripe row + column. Where there are as many columns to the
    /// right, it is written that many further, and what those read is written where these are: so one instruction reads and writes
    /// stripes apart from each other. Row and stripe tell the column.
    fn received(self, row: u32, column: u32) -> u64 {
        let Grid { groups, size } = self.grid;
        let first = match column / groups % 2 {
            0 if column + groups < size => column + groups,
            0 => column,
            _ => column - groups,
        };
        self.at(first + row, self.block * u64::from(row))
    }

    /// In each pass an instruction for each row, and one for each column. `None` if the cards have no such tables or stripes.
    fn draft(self, request: &Request, capabilities: &Capabilities) -> Option<Draft> {
        let InPlace { grid, block, pass, .. } = self;
        let bytes = request.bytes;
        // The last pass may be shorter, and needs tables of its own then.
        let tables = if bytes <= pass || bytes.is_multiple_of(pass) { 2 } else { 4 };
        let has_tables = capabilities.runs(Operation::Alltoallv) && capabilities.tables >= tables;
        let held = self.stripe.saturating_mul((grid.groups + grid.size - 1).into());
        if request.placement.is_some() || !has_tables || held > capabilities.memory_bytes {
            return None;
        }
        let spread = |distance: u64, bytes: u64| Table {
            entries: (0..grid.groups).map(|row| Entry { displacement: distance * u64::from(row), bytes }).collect(),
        };
        let (mut instructions, mut tables) = (Vec::new(), Tables::new());
        for begin in (0..bytes.max(1)).step_by(pass as usize) {
            let length = pass.min(bytes - begin);
            let slot = if begin == 0 || length == pass { 0 } else { 2 };
            if begin == 0 || slot == 2 {
                let distances = [self.stripe + pass, self.stripe + block];
                tables.extend((slot..).zip(distances.map(|distance| spread(distance, length))));
            }
            let flags = vector::flags(request, capabilities, length);
            let along = |row: u32| {
                let source = Operand::card(block * u64::from(row) + begin).striped();
                let between = Operand::card(self.at(row, self.between + pass * u64::from(row))).striped();
                Instruction::alltoall(source, between, length).on(ROW)
            };
            let down = |column: u32| {
                let between = Operand::card(self.at(column, self.between));
                let destination = Operand::card(self.received(0, column) + begin);
                Instruction::alltoallv(between, destination, slot, slot + 1).with_flags(flags).on(COLUMN)
            };
            instructions.extend((0..grid.groups).map(along).chain((0..grid.size).map(down)));
        }
        let mut draft = grid.draft(request);
        let places = || (0..request.ranks()).map(|rank| grid.place(rank));
        let input = pieces_of(places().map(|(row, column)| (self.at(column, block * u64::from(row)), bytes)));
        let output = pieces_of(places().map(|(row, column)| (self.received(row, column), bytes)));
        draft.programs.fill(Program { instructions, input, output, tables });
        draft.replaces_input = true;
        Some(draft)
    }
}

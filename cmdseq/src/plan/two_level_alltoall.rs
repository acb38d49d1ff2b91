//! An alltoall on the rows and columns of a Dragonfly: blocks go along the row to the column that they are for, then along the column.

use super::draft::Draft;
use super::grid::{COLUMN, Grid, ROW};
use super::phases;
use super::placement::{Areas, pieces_of};
use super::vector;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::table::Entry;
use crate::{Capabilities, Instruction, Operand, Operation, Table};

/// One draft for each layout. The output replaces the input only if both do not fit with what lies between.
pub(super) fn build(request: &Request, capabilities: &Capabilities, grid: Grid) -> Result<Vec<Draft>, Refusal> {
    let in_stripes = |stripes: fn(&Request, &Capabilities, Grid) -> Option<Stripes>| {
        let stripes = stripes(request, capabilities, grid);
        stripes.map_or_else(|| refuse("has no room for blocks that long"), |one| one.draft(request, capabilities))
    };
    phases::possible([in_stripes(Stripes::side_by_side), in_areas(request, capabilities, grid)])
        .or_else(|refusal| phases::possible([in_stripes(Stripes::in_place)]).map_err(|_| refusal))
}

fn refuse<T>(cause: &str) -> Result<T, Refusal> {
    Err(Refusal::general(format!("two-level in stripes {cause}")))
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
    for program in &mut draft.programs {
        program.instructions = (0..grid.groups).map(along).chain([down]).collect();
        let place = |area: u64| {
            pieces_of((0..request.ranks().into()).map(|number: u64| (area + number * block, request.bytes)))
        };
        [program.input, program.output] = [source, destination].map(place);
    }
    Ok(draft)
}

/// Blocks of which no two of an instruction are in one stripe. In the input, that for row r and column c is block r of stripe c. What
/// comes along row r from column c lies in stripe r + c.
#[derive(Debug, Clone, Copy)]
struct Stripes {
    grid: Grid,
    stripe: u64,
    /// From one block of a stripe to the next.
    block: u64,
    /// What comes along the rows lies from byte `between` of the stripes on: so many bytes of each block in a pass.
    between: u64,
    pass: u64,
    /// The output lies from byte `output` of the stripes on.
    output: u64,
    /// Stripes over which the output from one row is spread.
    columns: u32,
}

impl Stripes {
    /// Input and then output in the lower halves, and what comes along the rows in the upper.
    fn side_by_side(request: &Request, capabilities: &Capabilities, grid: Grid) -> Option<Self> {
        let (stripe, between) = (capabilities.stripe_bytes(), capabilities.stripe_half_bytes);
        let block = request.bytes.checked_next_multiple_of(capabilities.address_align.max(1).into())?;
        let output = block.checked_mul(grid.groups.into())?;
        let fits = block.checked_mul(grid.size.into())?.checked_add(output)? <= between;
        fits.then_some(Stripes { grid, stripe, block, between, pass: block.max(1), output, columns: 1 })
    }

    /// The output in the place of the input. Behind it is what comes along the rows: as much of each block as there is room for, in as
    /// many passes as that takes.
    fn in_place(request: &Request, capabilities: &Capabilities, grid: Grid) -> Option<Self> {
        let (stripe, unit) = (capabilities.stripe_bytes(), capabilities.aligned_beat());
        let block = request.bytes.checked_next_multiple_of(unit)?;
        let columns = (grid.size / grid.groups).max(1);
        let between = block.checked_mul(grid.groups.max(grid.size.div_ceil(columns)).into())?;
        let room = stripe.checked_sub(between)? / u64::from(grid.groups) / unit * unit;
        let passes = block.checked_next_multiple_of(room)?.checked_div(room)?;
        let pass = block.div_ceil(passes.max(1)).next_multiple_of(unit);
        Some(Stripes { grid, stripe, block, between, pass, output: 0, columns })
    }

    /// `bytes` behind the beginning of a stripe.
    fn at(self, stripe: u32, bytes: u64) -> u64 {
        self.stripe * u64::from(stripe) + bytes
    }

    /// Where the block from a row and a column comes to lie.
    fn received(self, row: u32, column: u32) -> u64 {
        let in_stripe = self.grid.size.div_ceil(self.columns);
        let block = self.block * u64::from(column % in_stripe);
        self.at(row * self.columns + column / in_stripe, self.output + block)
    }

    /// In each pass an instruction for each row, and one for each column.
    fn draft(self, request: &Request, capabilities: &Capabilities) -> Result<Draft, Refusal> {
        let Stripes { grid, block, pass, .. } = self;
        if request.placement.is_some() {
            return refuse("has places of its own");
        }
        if self.stripe.saturating_mul((grid.groups + grid.size - 1).into()) > capabilities.memory_bytes {
            return refuse("needs a stripe for each row and column");
        }
        // The last pass may be shorter, and needs tables of its own then.
        let bytes = request.bytes;
        let is_even = bytes <= pass || bytes.is_multiple_of(pass);
        if !capabilities.runs(Operation::Alltoallv) || capabilities.tables < if is_even { 2 } else { 4 } {
            return refuse("needs alltoallv with two tables for each length of a pass");
        }
        let spread = |distance: u64, bytes: u64| Table {
            entries: (0..grid.groups).map(|row| Entry { displacement: distance * u64::from(row), bytes }).collect(),
        };
        let (mut instructions, mut tables) = (Vec::new(), Vec::new());
        for begin in (0..bytes.max(1)).step_by(pass as usize) {
            let length = pass.min(bytes - begin);
            let slot = if begin == 0 || length == pass { 0 } else { 2 };
            if begin == 0 || slot == 2 {
                let distances = [self.stripe + pass, self.stripe * u64::from(self.columns)];
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
        for program in &mut draft.programs {
            program.tables = tables.iter().cloned().collect();
            program.instructions.clone_from(&instructions);
            (program.input, program.output) = (input.clone(), output.clone());
        }
        Ok(draft)
    }
}

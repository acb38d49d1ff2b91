//! An alltoall on rows and columns by pseudo channels: each block has a place of its own, so that the streams of an instruction
//! spread evenly over the channels. Tables of alltoallv hold the places.
//!
//! Rows and columns have *steps*. What comes along row r from column c lies in channel step(r) + step(c): an instruction of a row
//! writes consecutive channels, and one of a column reads consecutive channels. The output of a column lies in other channels if there
//! are enough, and the input of a row where channels have fewest streams.

use std::iter;
use std::ops::Range;

use super::channel_shares::shares;
use crate::plan::draft::Draft;
use crate::plan::grid::{COLUMN, Grid, ROW};
use crate::plan::placement::pieces_of;
use crate::plan::vector;
use crate::program::Program;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::table::Entry;
use crate::{Capabilities, Instruction, Operand, Operation, Table};

/// Most passes: in each, one of so many parts of every block moves.
const PASSES_MAX: u64 = 16;
/// Most rows or columns with the same step.
const ALIKE_MAX: u32 = 4;
/// Most streams of an instruction in a channel.
const STREAMS_MAX: u32 = 8;

/// Slots of the tables: what comes along a row, by column; what goes along a column, and the output, by row. The tables of the input
/// follow, one for each step of the rows.
const COMING: u16 = 0;
const GOING: u16 = 1;
const OUTPUT: u16 = 2;
const INPUT: u16 = 3;

/// The layout that moves fastest; of those, one with the fewest passes.
pub(super) fn build(request: &Request, capabilities: &Capabilities, grid: Grid) -> Result<Draft, Refusal> {
    let refuse = |cause: &str| Err(Refusal::general(format!("two-level by tables {cause}")));
    if request.placement.is_some() {
        return refuse("has places of its own");
    }
    if !capabilities.runs(Operation::Alltoallv) {
        return refuse("needs alltoallv");
    }
    // Of numbers that give the same, the first is enough.
    let numbers = |of: u32| {
        let mut numbers: Vec<u32> = (1..=ALIKE_MAX).map(|alike| of.div_ceil(alike)).collect();
        numbers.dedup();
        numbers
    };
    let (rows, columns) = (numbers(grid.groups), numbers(grid.size));
    let both = rows.iter().flat_map(|rows| columns.iter().map(move |columns| (*rows, *columns)));
    let steps: Vec<Steps> = both.filter_map(|numbers| Steps::new(capabilities, grid, numbers)).collect();
    let mut passes: Vec<Passes> = (1..=PASSES_MAX).map(|count| Passes::new(request, capabilities, count)).collect();
    passes.dedup();
    let of_passes = |passes: &Passes| {
        let passes = *passes;
        steps.iter().filter_map(move |steps| Layout::new(capabilities, steps, passes))
    };
    match passes.iter().flat_map(of_passes).min_by_key(|layout| layout.cost(capabilities)) {
        Some(layout) => Ok(layout.draft(request, capabilities)),
        None => refuse("has no room for blocks that long, or needs more tables than the cards have"),
    }
}

/// A step, and a number among those with the same step.
type Place = (u32, u64);

/// The places of rows and columns.
#[derive(Debug, Clone)]
struct Steps {
    grid: Grid,
    channels: u32,
    /// Steps of the rows. Row r has the step r modulo this.
    rows: u32,
    /// Places of the columns, in what comes along the rows.
    coming: Vec<Place>,
    /// In the output.
    output: Vec<Place>,
}

impl Steps {
    /// With so many steps of rows, and of columns. `None` if there are more than channels or tables.
    fn new(capabilities: &Capabilities, grid: Grid, (rows, columns): (u32, u32)) -> Option<Self> {
        let channels = capabilities.memory_channels;
        let steps = (channels + 1).checked_sub(rows)?;
        if steps < columns || u32::from(INPUT) + rows > capabilities.tables {
            return None;
        }
        let coming = (0..grid.size).map(|column| (column % columns, u64::from(column / columns))).collect();
        let mut taken = vec![0; steps as usize];
        let apart = |column: u32| {
            let is_near = |step: u32| step.abs_diff(column % columns) < rows;
            let step = (0..steps).min_by_key(|step| (is_near(*step), taken[*step as usize]))?;
            let before = taken[step as usize];
            taken[step as usize] += 1;
            Some((step, before))
        };
        let output = (0..grid.size).map(apart).collect::<Option<_>>()?;
        Some(Steps { grid, channels, rows, coming, output })
    }

    fn rows_alike(&self) -> u64 {
        self.grid.groups.div_ceil(self.rows).into()
    }

    fn step_of(&self, row: u32) -> u32 {
        row % self.rows
    }

    fn number_of(&self, row: u32) -> u64 {
        (row / self.rows).into()
    }

    /// Streams that the instruction of a row with this step writes, by channel.
    fn written_along(&self, step: u32) -> Vec<u32> {
        self.counted(self.coming.iter().map(|(column, _)| step + column))
    }

    /// Streams in the fullest channel during the instruction of each column.
    fn most_down(&self) -> impl Iterator<Item = u32> {
        self.coming.iter().zip(&self.output).map(|(read, written)| {
            let of_row = |row| [read.0, written.0].map(|column| self.step_of(row) + column);
            self.counted((0..self.grid.groups).flat_map(of_row)).into_iter().max().unwrap_or(0)
        })
    }

    fn counted(&self, streams: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut counted = vec![0; self.channels as usize];
        streams.for_each(|channel| counted[channel as usize] += 1);
        counted
    }
}

/// Blocks for each row and column. An address is the sum of what the row and what the column add.
#[derive(Debug, Clone, Copy)]
struct Area<'a> {
    steps: &'a Steps,
    columns: &'a [Place],
    channel: u64,
    /// Where the area begins in each channel.
    begin: u64,
    /// From one block to the next.
    distance: u64,
}

impl Area<'_> {
    /// Most steps of rows that meet in a channel.
    fn meeting(&self) -> u32 {
        let steps = || self.columns.iter().map(|(step, _)| *step);
        let span = steps().max().zip(steps().min()).map_or(0, |(last, first)| last - first);
        self.steps.rows.min(span + 1)
    }

    /// Blocks of which a channel has room.
    fn depth(&self) -> u64 {
        u64::from(self.meeting()) * self.steps.rows_alike() * self.columns_alike()
    }

    fn columns_alike(&self) -> u64 {
        self.columns.iter().map(|(_, before)| before + 1).max().unwrap_or(1)
    }

    /// Rows with neighbouring steps have neighbouring places, so that the end of a channel that few steps meet in stays free.
    fn of_row(&self, row: u32) -> u64 {
        let step = self.steps.step_of(row);
        let number = u64::from(step % self.meeting()) * self.steps.rows_alike() + self.steps.number_of(row);
        self.channel * u64::from(step) + self.distance * self.columns_alike() * number
    }

    fn of_column(&self, column: u32) -> u64 {
        let (step, before) = self.columns[column as usize];
        self.channel * u64::from(step) + self.begin + self.distance * before
    }

    /// By channel, from the first block to the end of the last.
    fn extents(&self) -> Vec<Option<Range<u64>>> {
        let mut extents = vec![None; self.steps.channels as usize];
        for of_row in (0..self.steps.grid.groups).map(|row| self.of_row(row)) {
            for column in 0..self.steps.grid.size {
                let at = of_row + self.of_column(column);
                let extent = extents[(at / self.channel) as usize].get_or_insert(at..at);
                *extent = extent.start.min(at)..extent.end.max(at + self.distance);
            }
        }
        extents
    }
}

/// The parts of a block that move in the passes. All are equally long, so that one set of tables is enough: the last may begin before
/// the one before it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Passes {
    /// Room for a block, and for a part.
    block: u64,
    part: u64,
    /// Bytes of a part.
    bytes: u64,
    /// From one part to the next.
    step: u64,
    /// Where the last begins in its block.
    last: u64,
}

impl Passes {
    fn new(request: &Request, capabilities: &Capabilities, count: u64) -> Self {
        let unit = capabilities.aligned_beat();
        let room = |bytes: u64| bytes.div_ceil(unit).max(1).saturating_mul(unit);
        // The last part begins at an aligned address, and ends with the block.
        let rest = request.bytes % unit;
        let step = room((request.bytes - rest).div_ceil(count));
        let bytes = step.saturating_add(rest).min(request.bytes);
        Passes { block: room(request.bytes), part: room(bytes), bytes, step, last: request.bytes - bytes }
    }

    fn count(self) -> u64 {
        self.last.div_ceil(self.step) + 1
    }

    fn begins(self) -> impl Iterator<Item = u64> {
        (0..self.count()).map(move |pass| self.last.min(pass * self.step))
    }
}

/// Where everything lies.
#[derive(Debug, Clone)]
struct Layout<'a> {
    passes: Passes,
    coming: Area<'a>,
    output: Area<'a>,
    /// By step of the rows and by column: where the input of the first row with this step lies. That of the next lies behind it.
    input: Vec<Vec<u64>>,
    /// Streams in the fullest channel during the instruction of a row.
    streams: u32,
}

impl<'a> Layout<'a> {
    /// The output is at the beginning of its channels, what comes along the rows at the end, and the input in what is left.
    fn new(capabilities: &Capabilities, steps: &'a Steps, passes: Passes) -> Option<Self> {
        let channel = capabilities.channel_bytes();
        if channel == 0 || !channel.is_multiple_of(capabilities.aligned_beat()) {
            return None;
        }
        let output = Area { steps, columns: &steps.output, channel, begin: 0, distance: passes.block };
        let mut coming = Area { columns: &steps.coming, distance: passes.part, ..output };
        coming.begin = channel.checked_sub(coming.depth().checked_mul(passes.part)?)?;
        if output.depth().checked_mul(passes.block)? > channel {
            return None;
        }
        let held = steps.rows_alike() * passes.block;
        let most = steps.rows as usize * steps.grid.size as usize;
        let extents = output.extents().into_iter().zip(coming.extents());
        let room = (0..).zip(extents).map(|(number, (output, coming))| {
            places(channel * number..channel * (number + 1), [output, coming].into_iter().flatten(), held, most)
        });
        let room: Vec<Vec<u64>> = room.collect::<Option<_>>()?;
        let (most, shares) = input_shares(steps, &room.iter().map(|places| places.len() as u32).collect::<Vec<_>>())?;
        let mut left: Vec<_> = room.into_iter().map(Vec::into_iter).collect();
        let of_step = |shares: Vec<u32>| {
            let places = shares.iter().zip(&mut left).flat_map(|(count, left)| left.take(*count as usize));
            places.collect()
        };
        let input = shares.into_iter().map(of_step).collect();
        Some(Layout { passes, coming, output, input, streams: most })
    }

    /// The time of all streams of a block of one byte, then the passes.
    fn cost(&self, capabilities: &Capabilities) -> (u64, u64) {
        let (timing, steps) = (&capabilities.timing, self.output.steps);
        let cost = |streams: u32| {
            let mbps = timing.link_mbps.min(timing.channel_mbps / streams.max(1)).max(1);
            8_000_000 / u64::from(mbps)
        };
        let along = u64::from(steps.grid.groups) * cost(self.streams);
        (along + steps.most_down().map(cost).sum::<u64>(), self.passes.count())
    }

    fn input_of(&self, row: u32, column: u32) -> u64 {
        let steps = self.output.steps;
        self.input[steps.step_of(row) as usize][column as usize] + self.passes.block * steps.number_of(row)
    }

    /// In each pass an instruction for each row, and one for each column.
    fn draft(&self, request: &Request, capabilities: &Capabilities) -> Draft {
        let Layout { passes, coming, output, .. } = *self;
        let (steps, grid) = (output.steps, output.steps.grid);
        let bytes = passes.bytes;
        let table = |displacements: Vec<u64>| Table {
            entries: displacements.into_iter().map(|displacement| Entry { displacement, bytes }).collect(),
        };
        let by_column = (0..grid.size).map(|column| coming.of_column(column)).collect();
        let by_row = |area: Area<'_>| (0..grid.groups).map(|row| area.of_row(row)).collect();
        let tables = [by_column, by_row(coming), by_row(output)].into_iter().chain(self.input.iter().cloned());
        let flags = vector::flags(request, capabilities, bytes);
        let along = |row: u32, begin: u64| {
            let from = Operand::card(passes.block * steps.number_of(row) + begin);
            let to = Operand::card(coming.of_row(row));
            Instruction::alltoallv(from, to, INPUT + steps.step_of(row) as u16, COMING).with_flags(flags).on(ROW)
        };
        let down = |column: u32, begin: u64| {
            let from = Operand::card(coming.of_column(column));
            let to = Operand::card(output.of_column(column) + begin);
            Instruction::alltoallv(from, to, GOING, OUTPUT).with_flags(flags).on(COLUMN)
        };
        let pass = |begin: u64| {
            let rows = (0..grid.groups).map(move |row| along(row, begin));
            rows.chain((0..grid.size).map(move |column| down(column, begin)))
        };
        let mut draft = grid.draft(request);
        let places = || (0..request.ranks()).map(|rank| grid.place(rank));
        let received = |(row, column)| (output.of_row(row) + output.of_column(column), request.bytes);
        let given = |(row, column)| (self.input_of(row, column), request.bytes);
        let (input, output) = (pieces_of(places().map(given)), pieces_of(places().map(received)));
        let tables = (COMING..).zip(tables.map(table)).collect();
        draft.programs.fill(Program { instructions: passes.begins().flat_map(pass).collect(), input, output, tables });
        draft
    }
}

/// How many inputs of each step are in each channel, and the streams in the fullest one during the instruction of a row: as few as
/// there is room for.
fn input_shares(steps: &Steps, room: &[u32]) -> Option<(u32, Vec<Vec<u32>>)> {
    let written: Vec<Vec<u32>> = (0..steps.rows).map(|step| steps.written_along(step)).collect();
    let fullest = written.iter().flatten().copied().max()?;
    (fullest..=STREAMS_MAX).find_map(|most| {
        let may_read = |written: &Vec<u32>| written.iter().map(|streams| most - streams).collect();
        Some((most, shares(steps.grid.size, &written.iter().map(may_read).collect::<Vec<_>>(), room)?))
    })
}

/// Up to `most` places of `held` bytes in a channel, beside what is taken. `None` if that overlaps.
fn places(channel: Range<u64>, taken: impl Iterator<Item = Range<u64>>, held: u64, most: usize) -> Option<Vec<u64>> {
    let (mut places, mut from) = (Vec::new(), channel.start);
    for taken in taken.chain(iter::once(channel.end..channel.end)) {
        let gap = taken.start.checked_sub(from)?;
        let left = most - places.len();
        places.extend((0..gap / held).map(|place| from + place * held).take(left));
        from = taken.end;
    }
    Some(places)
}

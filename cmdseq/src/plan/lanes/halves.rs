//! Both dimensions of a grid at once: one part of each block goes along the columns first, the other along the rows first.
//!
//! While the first part uses the links of the columns, the second uses those of the rows, and the reverse. The parts lie in
//! different stripes. With G rows and R columns, the first phase of the parts takes as long if they are as G to R.
//!
//! Where stripes share pseudo channels, a reduction's vector is cut into fewer blocks than there are links, so that channels are left
//! for what the blocks become along the second dimension. Blocks for all ranks have no second part there: all goes along the rows.

use super::ticks::Ticks;
use crate::plan::channels::{Spread, are_apart, has_stripes_apart};
use crate::plan::draft::Draft;
use crate::plan::factorisation::Dimension;
use crate::plan::folding::Folding;
use crate::plan::grid::Grid;
use crate::plan::phases::{Layout, Phases, Way};
use crate::plan::placement::{pieces_of, unit};
use crate::plan::vector::flags;
use crate::program::Piece;
use crate::refusal::Refusal;
use crate::request::{Algorithm, Collective, Request};
use crate::table::Entry;
use crate::{Capabilities, Flags, Instruction, Operand, Operation, Table};

/// The parts of a request on a grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Halves {
    grid: Grid,
    /// The request with the bytes of each part; the first may be empty.
    parts: [Request; 2],
    /// From the first stripe of one part to that of the other.
    stripes: u32,
    /// Of each part.
    layouts: [Layout; 2],
}

pub(super) fn build(request: &Request, capabilities: &Capabilities) -> Result<Vec<Draft>, Refusal> {
    let halves = Halves::new(request, capabilities)?;
    let draft = match Way::of_blocks(request).or_else(|| Way::of_vector(request)) {
        Some(way) => halves.in_phases(request, capabilities, way),
        None => halves.alltoall(request, capabilities),
    };
    draft.map(|draft| vec![draft])
}

impl Halves {
    pub(crate) fn new(request: &Request, capabilities: &Capabilities) -> Result<Self, Refusal> {
        let refuse = |cause: String| Err(Refusal::general(format!("lanes {cause}")));
        let grid = Grid::needed_by(Algorithm::Lanes, request, capabilities)?;
        let unit = unit(request, capabilities);
        let of_columns = match request.collective {
            Collective::Alltoall => request.bytes / 2,
            _ => (u128::from(request.bytes) * u128::from(grid.groups) / u128::from(grid.groups + grid.size)) as u64,
        };
        let is_shared = !are_apart(capabilities);
        let is_whole = is_shared && Way::of_blocks(request).is_some();
        let first = if is_whole { 0 } else { of_columns / unit * unit };
        if request.bytes == 0 || first == 0 && !is_whole {
            return refuse(format!("has two parts: {} B are too few", request.bytes));
        }
        let parts = [first, request.bytes - first].map(|bytes| Request { bytes, ..request.clone() });
        let stripes = grid.groups.max(grid.size);
        let is_cut = is_shared && matches!(request.collective, Collective::Allreduce | Collective::Reduce);
        let layouts = match is_cut.then(|| Cut::new(grid, &parts, capabilities)).flatten() {
            Some(cut) => cut.layouts(capabilities),
            None if is_whole => {
                let along = along_rows(grid, request.bytes, unit, capabilities)?;
                [along.clone(), along]
            }
            None if has_stripes_apart(2 * stripes, capabilities) => [0, stripes].map(|first| Layout::Stripes { first }),
            None => return refuse(format!("needs {} stripes, with pseudo channels of their own", 2 * stripes)),
        };
        Ok(Halves { grid, parts, stripes, layouts })
    }

    /// Bytes of the first part of a vector, or of each block; all if there is one part only.
    pub(crate) fn first_bytes(&self) -> u64 {
        let [first, second] = [0, 1].map(|part: usize| self.parts[part].bytes);
        if first == 0 { second } else { first }
    }

    /// How a reduction folds byte `offset` of a vector or of a block: along the first dimension of its part, then along the other.
    pub(crate) fn folding(&self, offset: u64) -> Folding {
        Folding::of_grid(self.grid.groups, self.grid.size, offset < self.parts[0].bytes)
    }

    /// The dimensions in the order of each part.
    fn dimensions(&self) -> [[Dimension; 2]; 2] {
        let (row, column) = (self.grid.row(), self.grid.column());
        [[column, row], [row, column]]
    }

    fn in_phases(&self, request: &Request, capabilities: &Capabilities, way: Way) -> Result<Draft, Refusal> {
        let dimensions = self.dimensions();
        let phases =
            |part: usize| Phases::new(&self.parts[part], capabilities, &dimensions[part], way, &self.layouts[part]);
        let is_empty = |part: usize| self.parts[part].bytes == 0;
        let parts = (0..2).filter(|part| !is_empty(*part)).map(phases).collect::<Result<Vec<_>, _>>()?;
        let mut ticks = Ticks::new(request, self.grid.communicators(request));
        for step in 0..parts.first().map_or(0, |phases| phases.steps(way)) {
            ticks.next();
            for rank in 0..request.ranks() {
                ticks.by_turns(rank, parts.iter().map(|phases| phases.step(rank, way, step)));
            }
        }
        let is_cut = way.distribute.is_some() && way.collect.is_some();
        ticks.draft.lies(request, |rank| {
            let blocks: Vec<[Vec<(u64, u64)>; 2]> = parts.iter().map(|phases| phases.blocks_of(rank, way)).collect();
            let [input, output] = [0, 1].map(|side: usize| match is_cut {
                true => pieces_of(blocks.iter().flat_map(|blocks| blocks[side].iter().copied())),
                false => joined(&blocks, side),
            });
            (input, output)
        });
        Ok(ticks.draft)
    }

    /// A block for each rank. What goes along the first dimension comes to lie by where it comes from; along the second, each
    /// instruction takes blocks from all stripes, another one for each rank.
    fn alltoall(&self, request: &Request, capabilities: &Capabilities) -> Result<Draft, Refusal> {
        let refuse = |cause: &str| Err(Refusal::general(format!("lanes {cause}")));
        let [first, second] = &self.parts;
        let align = u64::from(capabilities.address_align.max(1));
        let bytes = first.bytes.max(second.bytes);
        let block = bytes.checked_next_multiple_of(align).unwrap_or(u64::MAX);
        // Of a square grid whose parts have one length, both use the same tables.
        let is_shared = self.grid.groups == self.grid.size && first.bytes == second.bytes;
        let tables = (self.stripes + 1) * if is_shared { 1 } else { 2 };
        if !capabilities.runs(Operation::Alltoallv) || tables > capabilities.tables {
            return refuse("needs alltoallv with a table for each row and column");
        }
        let most = u64::from(self.stripes);
        if block.saturating_mul(2 * most) > capabilities.stripe_half_bytes {
            return refuse("has no room for blocks that long");
        }
        let mut ticks = Ticks::new(request, self.grid.communicators(request));
        let exchanges = [0, 1].map(|part| Exchange::new(self, part, capabilities, block, is_shared));
        for step in 0..2 {
            ticks.next();
            for rank in 0..request.ranks() {
                ticks.by_turns(rank, exchanges.iter().map(|exchange| exchange.step(rank, step)));
            }
        }
        let blocks = exchanges.each_ref().map(|exchange| exchange.blocks_of(request.ranks()));
        let [input, output] = [0, 1].map(|side| joined(&blocks, side));
        for program in &mut ticks.draft.programs {
            program.tables = exchanges.iter().flat_map(Exchange::tables).collect();
            (program.input, program.output) = (input.clone(), output.clone());
        }
        Ok(ticks.draft)
    }
}

/// How the parts of a vector are cut where stripes share pseudo channels: into as many blocks, of both parts together, as move
/// fastest. Along the second dimension each becomes a few, in channels without blocks.
struct Cut {
    spread: Spread,
    /// Blocks of each part.
    counts: [u32; 2],
    /// Blocks of each part along its second dimension.
    then: u32,
}

impl Cut {
    fn new(grid: Grid, parts: &[Request; 2], capabilities: &Capabilities) -> Option<Self> {
        let held = u32::try_from(capabilities.memory_bytes.checked_div(capabilities.stripe_bytes())?).ok()?;
        let one = |(first, then): (u32, u32)| {
            let count = held.checked_sub(first + 2 * then)?.min(grid.groups + grid.size) / 2 * 2;
            // No channel has blocks of both.
            let of_columns = count * grid.groups / (grid.groups + grid.size) / 2 * 2;
            let counts = [of_columns, count - of_columns];
            let fits = (1..=grid.groups).contains(&counts[0]) && (1..=grid.size).contains(&counts[1]);
            let block = |part: usize| {
                let blocks = u64::from(counts[part] * then).max(1);
                let bytes = parts[part].bytes.div_ceil(blocks).checked_next_multiple_of(capabilities.aligned_beat())?;
                bytes.checked_mul(then.into())
            };
            let spread = Spread::new(first.into(), count, block(0)?.max(block(1)?), 2, capabilities)?;
            let cut = Cut { spread, counts, then };
            let channel = capabilities.channel_bytes();
            let is_free = cut.spread.free.contains(&(cut.behind(capabilities) / channel * channel));
            (fits && is_free).then_some(cut)
        };
        // Along the second dimension, the bytes of one block go as the blocks of both parts.
        let time = |cut: &Cut| {
            let all = u128::from(cut.spread.bytes) * u128::from(cut.then + 1) * 1_000_000;
            all / (u128::from(cut.then) * u128::from(cut.spread.block_mbps(capabilities)).max(1))
        };
        let ways = (1..=grid.groups.min(grid.size)).flat_map(|then| [(0, then), (1, then)]);
        ways.filter_map(one).min_by_key(time)
    }

    /// The first address behind the stripes of the blocks.
    fn behind(&self, capabilities: &Capabilities) -> u64 {
        self.spread.begin + capabilities.stripe_bytes() * u64::from(self.spread.count)
    }

    fn layouts(&self, capabilities: &Capabilities) -> [Layout; 2] {
        [0, 1].map(|part: usize| {
            let stripe = |number: u32| capabilities.stripe_bytes() * u64::from(number);
            let begin = self.spread.begin + stripe(self.counts[0]) * part as u64;
            let then = self.behind(capabilities) + stripe(self.then) * part as u64;
            let addresses = vec![begin, then, begin + capabilities.stripe_half_bytes];
            Layout::Shared { counts: vec![self.counts[part], self.then], addresses }
        })
    }
}

/// Blocks of which each has all `parts`, of input (0) or output (1).
fn joined(parts: &[[Vec<(u64, u64)>; 2]], side: usize) -> Vec<Piece> {
    let count = parts.first().map_or(0, |blocks| blocks[side].len());
    pieces_of((0..count).flat_map(|number| parts.iter().map(move |blocks| blocks[side][number])))
}

/// Blocks of all ranks, of `bytes` each, where stripes share pseudo channels: a row's in a stripe for each column, in the last stripes,
/// and behind the first of these stripes, in the first ones, what becomes of them along the column.
fn along_rows(grid: Grid, bytes: u64, unit: u64, capabilities: &Capabilities) -> Result<Layout, Refusal> {
    let (stripe, Grid { groups, size }) = (capabilities.stripe_bytes(), grid);
    let block = bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
    let held = block.saturating_mul(groups.into());
    let fits = stripe.saturating_mul((groups - 1 + size).into()) <= capabilities.memory_bytes;
    if !fits || held.saturating_add(block) > stripe || block > capabilities.stripe_half_bytes {
        return Err(Refusal::general(format!("lanes has no room for blocks of {bytes} B in stripes of {stripe} B")));
    }
    let first = stripe * u64::from(groups - 1);
    let last = first + stripe * u64::from(size - 1) + held;
    Ok(Layout::Shared { counts: vec![size, groups], addresses: vec![first, held, last] })
}

/// An alltoall along one dimension and then along the other.
struct Exchange {
    dimensions: [Dimension; 2],
    bytes: u64,
    /// From one block of a stripe to the next.
    block: u64,
    stripe: u64,
    half: u64,
    /// Address of the first stripe.
    begin: u64,
    /// Slot of the table of stripes; those of the ways through them follow.
    slot: u16,
    flags: Flags,
}

impl Exchange {
    fn new(halves: &Halves, part: usize, capabilities: &Capabilities, block: u64, is_shared: bool) -> Self {
        let stripe = capabilities.stripe_bytes();
        Exchange {
            dimensions: halves.dimensions()[part],
            bytes: halves.parts[part].bytes,
            block,
            stripe,
            half: capabilities.stripe_half_bytes,
            begin: stripe * u64::from(halves.stripes) * part as u64,
            slot: if is_shared { 0 } else { (halves.stripes as u16 + 1) * part as u16 },
            flags: flags(&halves.parts[part], capabilities, halves.parts[part].bytes),
        }
    }

    /// Block `number` of a stripe, from byte `base` of it on.
    fn at(&self, base: u64, stripe: u32, number: u32) -> u64 {
        self.begin + base + self.stripe * u64::from(stripe) + self.block * u64::from(number)
    }

    /// Where the output begins in a stripe: behind the input.
    fn output(&self) -> u64 {
        self.block * u64::from(self.dimensions[0].size.max(self.dimensions[1].size))
    }

    fn step(&self, rank: u32, step: usize) -> Vec<Instruction> {
        let [along, then] = self.dimensions;
        match step {
            // From rank c of the first dimension, for rank r of the second: block r of stripe c.
            0 => (0..then.size)
                .map(|number| {
                    let source = Operand::card(self.at(0, 0, number)).striped();
                    let destination = Operand::card(self.at(self.half, 0, number)).striped();
                    Instruction::alltoall(source, destination, self.bytes).on(along.communicator)
                })
                .collect(),
            // To rank r what came from rank number + r, so here comes what came from number + own.
            _ => (0..along.size)
                .map(|number| {
                    let from = (number + then.digit(rank)) % along.size;
                    let source = Operand::card(self.at(self.half, 0, 0));
                    let destination = Operand::card(self.at(self.output(), 0, from));
                    Instruction::alltoallv(source, destination, self.slot + 1 + number as u16, self.slot)
                        .with_flags(self.flags)
                        .on(then.communicator)
                })
                .collect(),
        }
    }

    fn tables(&self) -> Vec<(u16, Table)> {
        let [along, then] = self.dimensions;
        let table = |displacement: &dyn Fn(u32) -> u64| Table {
            entries: (0..then.size).map(|rank| Entry { displacement: displacement(rank), bytes: self.bytes }).collect(),
        };
        let stripes = (self.slot, table(&|rank| self.stripe * u64::from(rank)));
        let way = |number: u32| {
            let from = |rank: u32| self.stripe * u64::from((number + rank) % along.size) + self.block * u64::from(rank);
            (self.slot + 1 + number as u16, table(&from))
        };
        [stripes].into_iter().chain((0..along.size).map(way)).collect()
    }

    /// Addresses and bytes of the blocks of input and output.
    fn blocks_of(&self, ranks: u32) -> [Vec<(u64, u64)>; 2] {
        let [along, then] = self.dimensions;
        let input = (0..ranks).map(|rank| (self.at(0, along.digit(rank), then.digit(rank)), self.bytes)).collect();
        let output =
            (0..ranks).map(|rank| (self.at(self.output(), then.digit(rank), along.digit(rank)), self.bytes)).collect();
        [input, output]
    }
}

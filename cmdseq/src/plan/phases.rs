//! Blocks that are distributed along one dimension of a group after another, and collected in the reverse order.
//!
//! Level 0 is all blocks; after the phase along dimension i, level i + 1 is the blocks of the ranks with one digit more. With
//! dimensions of 4 and 2, level 0 has 4 blocks of 2 parts, level 1 has 2 parts, and level 2 is one part.
//!
//! In *stripes*, each block of a level is in a stripe of its own, so the streams of an instruction do not share a pseudo
//! channel. A phase then has an instruction for each block of the next level. What one instruction reads and what it writes
//! are in different halves of the stripes. In *areas*, blocks are consecutive, and a phase is one instruction. *Packed*, all
//! blocks are in stripes and those of the levels between are consecutive: one instruction for each phase too, and the streams of
//! the phase with the long blocks do not share a pseudo channel. That is faster for short blocks.

use super::channels::Spread;
use super::draft::Draft;
use super::factorisation::{Dimension, Factorisation};
use super::placement::{Areas, pieces_of};
use crate::refusal::Refusal;
use crate::request::{Collective, Request};
use crate::{Capabilities, Combine, Instruction, Operand};

/// How a phase moves blocks along a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exchange {
    /// Distributes those of this rank.
    Scatter(u32),
    /// Distributes the folds of those of all ranks.
    ReduceScatter(Combine),
    /// Collects those of all ranks at this rank.
    Gather(u32),
    /// Collects those of all ranks at all ranks.
    Allgather,
}

/// What the parts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parts {
    /// A vector of so many bytes, cut: the last part may be short, and those behind it empty.
    Cut(u64),
    /// A block of so many bytes for each rank.
    Blocks(u64),
}

/// Where the blocks of a level are.
#[derive(Debug, Clone, Copy)]
struct Level {
    /// Address of the first block.
    address: u64,
    /// From one block to the next.
    distance: u64,
    is_striped: bool,
}

impl Level {
    /// The address of block `number`.
    fn at(self, number: u32) -> u64 {
        self.address.saturating_add(self.distance.saturating_mul(number.into()))
    }

    /// All blocks, each from byte `offset` on.
    fn all(self, offset: u64) -> Operand {
        let operand = Operand::card(self.address.saturating_add(offset));
        if self.is_striped { operand.striped() } else { operand }
    }
}

/// How the blocks of a request are cut, and where they are.
pub(super) struct Phases<'a> {
    request: &'a Request,
    dimensions: Vec<Dimension>,
    /// Blocks along each dimension: one for each rank, or fewer, and the last ranks have none.
    counts: Vec<u32>,
    parts: Parts,
    /// Bytes of a block at each level.
    blocks: Vec<u64>,
    /// One for each dimension, and the last part.
    levels: Vec<Level>,
    /// The collected blocks.
    result: Level,
    /// An allgather in areas goes to the result at once: the blocks of a rank at level 1 are one block there.
    is_in_place: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Layout {
    /// From this stripe on.
    Stripes {
        first: u32,
    },
    /// Level 0 in stripes, the levels between consecutive.
    Packed,
    /// Blocks of a cut vector in stripes that share pseudo channels.
    Shared {
        /// Blocks along each dimension.
        counts: Vec<u32>,
        /// Where each level begins, and the last part.
        addresses: Vec<u64>,
    },
    Areas,
}

/// A distribution, a collection, or one after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// From all blocks to one for each rank: a [`Exchange::Scatter`] or [`Exchange::ReduceScatter`].
    pub(super) distribute: Option<Exchange>,
    /// From one block of each rank to all: a [`Exchange::Gather`] or [`Exchange::Allgather`].
    pub(super) collect: Option<Exchange>,
}

impl Way {
    /// How the blocks of a request go that are distributed or collected; `None` of any other request.
    pub(super) fn of_blocks(request: &Request) -> Option<Way> {
        let (distribute, collect) = match (request.collective, request.combine) {
            (Collective::Scatter, _) => (Some(Exchange::Scatter(request.root)), None),
            (Collective::ReduceScatter, Some(combine)) => (Some(Exchange::ReduceScatter(combine)), None),
            (Collective::Gather, _) => (None, Some(Exchange::Gather(request.root))),
            (Collective::Allgather, _) => (None, Some(Exchange::Allgather)),
            _ => return None,
        };
        Some(Way { distribute, collect })
    }

    /// How a vector goes that is distributed and then collected; `None` of any other request.
    pub(super) fn of_vector(request: &Request) -> Option<Way> {
        let (distribute, collect) = match (request.collective, request.combine) {
            (Collective::Reduce, Some(combine)) => (Exchange::ReduceScatter(combine), Exchange::Gather(request.root)),
            (Collective::Allreduce, Some(combine)) => (Exchange::ReduceScatter(combine), Exchange::Allgather),
            (Collective::Broadcast, _) => (Exchange::Scatter(request.root), Exchange::Allgather),
            (Collective::Send | Collective::Recv, _) => {
                (Exchange::Scatter(request.root), Exchange::Gather(request.peer))
            }
            _ => return None,
        };
        Some(Way { distribute: Some(distribute), collect: Some(collect) })
    }
}

/// The programs of `request` in phases, one draft for each layout that is possible.
pub(super) fn build(
    request: &Request,
    capabilities: &Capabilities,
    factorisation: &Factorisation,
    way: Way,
) -> Result<Vec<Draft>, Refusal> {
    // One instruction for each phase reads and writes what the request says; stripes are the planner's own.
    let striped = match (way.distribute.is_some() && way.collect.is_some(), factorisation.dimensions.as_slice()) {
        (true, [all]) => with_a_channel_for_parts(request, capabilities, *all),
        _ => None,
    };
    let striped = striped.unwrap_or(Layout::Stripes { first: 0 });
    let one = |layout: Layout| {
        Phases::new(request, capabilities, &factorisation.dimensions, way, &layout)
            .map(|phases| phases.draft(factorisation, way))
    };
    match (&request.placement, factorisation.dimensions.len()) {
        (Some(_), _) => possible([one(Layout::Areas)]),
        (None, 1) => possible([one(striped)]),
        // Areas hold what stripes do not.
        (None, _) => possible([one(striped), one(Layout::Packed)])
            .or_else(|refusal| possible([one(Layout::Areas)]).map_err(|_| refusal)),
    }
}

/// A vector in blocks that leave a pseudo channel for the parts, if all blocks would not.
fn with_a_channel_for_parts(request: &Request, capabilities: &Capabilities, all: Dimension) -> Option<Layout> {
    let spread = Spread::of_vector(request.bytes, capabilities.aligned_beat(), all.size, 2, capabilities, |_| 1)?;
    let part = *spread.free.first()?;
    Some(Layout::Shared { counts: vec![spread.count], addresses: vec![spread.begin, part] })
}

/// The drafts that are possible, or why none is.
pub(super) fn possible(drafts: impl IntoIterator<Item = Result<Draft, Refusal>>) -> Result<Vec<Draft>, Refusal> {
    let (mut possible, mut refusal) = (Vec::new(), None);
    for draft in drafts {
        match draft {
            Ok(draft) => possible.push(draft),
            Err(cause) => refusal = Some(cause),
        }
    }
    match refusal {
        Some(cause) if possible.is_empty() => Err(cause),
        _ => Ok(possible),
    }
}

impl<'a> Phases<'a> {
    pub(super) fn new(
        request: &'a Request,
        capabilities: &Capabilities,
        dimensions: &[Dimension],
        way: Way,
        layout: &Layout,
    ) -> Result<Self, Refusal> {
        let dimensions = dimensions.to_vec();
        let counts = match layout {
            Layout::Shared { counts, .. } => counts.clone(),
            _ => dimensions.iter().map(|dimension| dimension.size).collect(),
        };
        let unit = u64::from(capabilities.address_align).max(1);
        let (parts, part) = match way {
            Way { distribute: Some(_), collect: Some(_) } => {
                let all = counts.iter().fold(1_u64, |all, count| all.saturating_mul(u64::from(*count).max(1)));
                let part = request.bytes.div_ceil(all);
                (Parts::Cut(request.bytes), part.checked_next_multiple_of(capabilities.aligned_beat()))
            }
            _ => (Parts::Blocks(request.bytes), request.bytes.checked_next_multiple_of(unit)),
        };
        let mut blocks = vec![part.unwrap_or(u64::MAX)];
        for count in counts.iter().skip(1).rev() {
            blocks.insert(0, blocks[0].saturating_mul(u64::from(*count)));
        }
        // A reduction's input stays; what a rank collects of its own data is there already.
        let is_apart = matches!(way.distribute, Some(Exchange::ReduceScatter(_)));
        let all = Level { address: 0, distance: 0, is_striped: false };
        let is_in_place = *layout == Layout::Areas && way.collect == Some(Exchange::Allgather);
        let levels = Vec::new();
        let mut phases = Phases { request, dimensions, counts, parts, blocks, levels, result: all, is_in_place };
        match layout {
            Layout::Stripes { first } => phases.place_in_stripes(capabilities, is_apart, *first, layout)?,
            Layout::Packed => phases.place_in_stripes(capabilities, is_apart, 0, layout)?,
            Layout::Shared { addresses, .. } => phases.place_at(addresses, capabilities.stripe_bytes(), is_apart),
            Layout::Areas => phases.place_in_areas(capabilities, way)?,
        }
        Ok(phases)
    }

    /// Levels by turns in the lower and the upper halves; packed, those between in the first stripe.
    fn place_in_stripes(
        &mut self,
        capabilities: &Capabilities,
        is_apart: bool,
        first: u32,
        layout: &Layout,
    ) -> Result<(), Refusal> {
        let (half, stripe) = (capabilities.stripe_half_bytes, capabilities.stripe_bytes());
        let most = first + self.dimensions.iter().map(|dimension| dimension.size).max().unwrap_or(1);
        if stripe.saturating_mul(most.into()) > capabilities.memory_bytes {
            return Err(Refusal::general(format!(
                "{most} blocks, one in each stripe of {stripe} B, exceed the {} B of card memory",
                capabilities.memory_bytes
            )));
        }
        let begin = stripe * u64::from(first);
        let mut used = [0_u64; 2];
        let mut place = |turn: usize, bytes: u64| {
            let address = begin + half.saturating_mul(turn as u64 % 2).saturating_add(used[turn % 2]);
            used[turn % 2] = used[turn % 2].saturating_add(bytes);
            if used[turn % 2] > half {
                return Err(Refusal::general(format!("{} B of blocks exceed half a stripe, {half} B", used[turn % 2])));
            }
            Ok(Level { address, distance: stripe, is_striped: true })
        };
        for (turn, bytes) in self.blocks.iter().enumerate() {
            let level = match turn.checked_sub(1) {
                Some(above) if *layout == Layout::Packed => {
                    Level { distance: *bytes, is_striped: false, ..place(turn, self.blocks[above])? }
                }
                _ => place(turn, *bytes)?,
            };
            if turn == 0 {
                self.result = if is_apart { place(0, *bytes)? } else { level };
            }
            self.levels.push(level);
        }
        let part = self.blocks.last().copied().unwrap_or(0);
        self.levels.push(place(self.blocks.len(), part)?);
        Ok(())
    }

    /// Levels where they are said to be; the result of a reduction behind the blocks that it is of.
    fn place_at(&mut self, addresses: &[u64], stripe: u64, is_apart: bool) {
        self.levels =
            addresses.iter().map(|address| Level { address: *address, distance: stripe, is_striped: true }).collect();
        let behind = if is_apart { self.blocks[0] } else { 0 };
        self.result = Level { address: self.levels[0].address.saturating_add(behind), ..self.levels[0] };
    }

    /// Each level in an area of its own.
    fn place_in_areas(&mut self, capabilities: &Capabilities, way: Way) -> Result<(), Refusal> {
        let all = match self.parts {
            Parts::Cut(bytes) => bytes,
            Parts::Blocks(_) => self.blocks[0].saturating_mul(self.dimensions[0].size.into()),
        };
        let part = self.blocks[self.blocks.len() - 1];
        // Level 1, if there is one between the first and the last.
        let between = if self.dimensions.len() > 1 { self.blocks[0] } else { 0 };
        let [first, result, middle, last] = match (way.distribute, way.collect) {
            (Some(_), Some(_)) => {
                let [input, output, last, middle] =
                    Areas::place(self.request, capabilities, [all, all, part, between])?;
                [input, output, middle, last]
            }
            (Some(_), None) => {
                let [input, output, middle] = Areas::place(self.request, capabilities, [all, part, between])?;
                [input, input, middle, output]
            }
            _ => {
                let between = if self.is_in_place { 0 } else { between };
                let [input, output, middle] = Areas::place(self.request, capabilities, [part, all, between])?;
                [output, output, middle, input]
            }
        };
        let level = |address, distance| Level { address, distance, is_striped: false };
        self.levels.push(level(first, self.blocks[0]));
        if self.dimensions.len() > 1 {
            self.levels.push(level(middle, part));
        }
        self.levels.push(level(last, 0));
        self.result = level(result, self.blocks[0]);
        Ok(())
    }

    fn draft(&self, factorisation: &Factorisation, way: Way) -> Draft {
        let communicators = factorisation.communicators.clone();
        let mut draft = Draft { communicators, ..Draft::empty(self.request) };
        for (rank, program) in (0..self.request.ranks()).zip(&mut draft.programs) {
            program.instructions = (0..self.steps(way)).flat_map(|step| self.step(rank, way, step)).collect();
            let [input, output] = self.blocks_of(rank, way);
            (program.input, program.output) = (pieces_of(input), pieces_of(output));
        }
        draft
    }

    /// Number of phases.
    pub(super) fn steps(&self, way: Way) -> usize {
        self.dimensions.len() * (usize::from(way.distribute.is_some()) + usize::from(way.collect.is_some()))
    }

    /// What `rank` runs in phase `step` of all.
    pub(super) fn step(&self, rank: u32, way: Way, step: usize) -> Vec<Instruction> {
        let (phase, count) = (step % self.dimensions.len(), self.dimensions.len());
        match (way.distribute, way.collect) {
            (Some(distribute), _) if step < count => self.phase(rank, distribute, phase),
            (_, Some(collect)) => self.phase(rank, collect, count - 1 - phase),
            _ => Vec::new(),
        }
    }

    /// Addresses and bytes of the blocks of `rank`'s input and output, in order.
    pub(super) fn blocks_of(&self, rank: u32, way: Way) -> [Vec<(u64, u64)>; 2] {
        let (input, output) = (self.request.input_bytes(rank), self.request.output_bytes(rank));
        let part = self.levels[self.levels.len() - 1].address;
        let lie =
            |is_all: bool, level: Level, bytes: u64| if is_all { self.lie(level, bytes) } else { vec![(part, bytes)] };
        [lie(way.distribute.is_some(), self.levels[0], input), lie(way.collect.is_some(), self.result, output)]
    }

    /// Where `total` bytes at level 0 lie.
    fn lie(&self, level: Level, total: u64) -> Vec<(u64, u64)> {
        let block = self.blocks[0];
        match self.parts {
            Parts::Cut(_) => {
                let count = total.div_ceil(block.max(1)) as u32;
                let left = |number: u32| total - block * u64::from(number);
                (0..count).map(|number| (level.at(number), block.min(left(number)))).collect()
            }
            Parts::Blocks(bytes) => {
                let part = self.blocks[self.blocks.len() - 1];
                let digit = |number: u32, place: usize| {
                    self.dimensions.get(place).map_or(0, |dimension| dimension.digit(number))
                };
                let at = |number: u32| level.at(digit(number, 0)) + u64::from(digit(number, 1)) * part;
                let count = total.checked_div(bytes).unwrap_or(0) as u32;
                (0..count).map(|number| (at(number), bytes)).collect()
            }
        }
    }

    /// The blocks of the next level for which the phase along dimension `phase` has an instruction each.
    fn each(&self, phase: usize) -> u32 {
        match self.counts.get(phase + 1) {
            Some(count) if self.levels[phase + 1].is_striped => *count,
            _ => 1,
        }
    }

    /// Whether `rank` and `root` differ in the first `phase + 1` dimensions only.
    fn is_with(&self, root: u32, phase: usize, rank: u32) -> bool {
        self.dimensions.iter().skip(phase + 1).all(|dimension| dimension.digit(rank) == dimension.digit(root))
    }

    /// Completes `instruction`, number `number` of `phase` at `rank`: `None` if all its blocks are empty.
    fn sized(&self, instruction: Instruction, phase: usize, number: u32, rank: u32) -> Option<Instruction> {
        let dimension = self.dimensions[phase];
        let piece = self.blocks[phase] / u64::from(self.each(phase));
        let mut one = instruction.on(dimension.communicator);
        one.bytes = piece;
        let total = match self.parts {
            Parts::Blocks(bytes) => {
                // Consecutive blocks are as far apart as they are long.
                let is_part = piece == self.blocks[self.blocks.len() - 1] && self.levels[phase].is_striped;
                one.bytes = if is_part { bytes } else { piece };
                return Some(one);
            }
            Parts::Cut(total) => total,
        };
        // Of the vector, from the blocks that the rank has at this level on.
        let before = self.dimensions.iter().zip(&self.blocks).take(phase);
        let start = before.fold(0_u64, |sum, (dimension, block)| {
            sum.saturating_add(block.saturating_mul(dimension.digit(rank).into()))
        });
        let start = start.saturating_add(piece.saturating_mul(number.into()));
        let bytes_of = |digit: u32| {
            if digit >= self.counts[phase] {
                return 0;
            }
            let offset = start.saturating_add(self.blocks[phase].saturating_mul(digit.into()));
            total.saturating_sub(offset).min(piece)
        };
        let bytes = (0..dimension.size).fold(0_u64, |sum, digit| sum.saturating_add(bytes_of(digit)));
        (bytes > 0 || total == 0).then(|| one.dividing(bytes))
    }

    /// The blocks that `rank` has collected at `level`.
    fn collected(&self, level: usize, rank: u32) -> Level {
        match level {
            0 => self.result,
            1 if self.is_in_place && self.dimensions.len() > 1 => {
                Level { address: self.result.at(self.dimensions[0].digit(rank)), ..self.levels[1] }
            }
            _ => self.levels[level],
        }
    }

    fn phase(&self, rank: u32, how: Exchange, phase: usize) -> Vec<Instruction> {
        let dimension = self.dimensions[phase];
        let digit = match how {
            Exchange::Scatter(root) | Exchange::Gather(root) if !self.is_with(root, phase, rank) => return Vec::new(),
            Exchange::Scatter(root) | Exchange::Gather(root) => dimension.digit(root) as u16,
            Exchange::ReduceScatter(_) | Exchange::Allgather => 0,
        };
        let [level, next] = [phase, phase + 1].map(|level| match how {
            Exchange::Gather(_) | Exchange::Allgather => self.collected(level, rank),
            Exchange::Scatter(_) | Exchange::ReduceScatter(_) => self.levels[level],
        });
        let piece = self.blocks[phase] / u64::from(self.each(phase));
        let one = |number: u32| {
            let all = level.all(piece.saturating_mul(number.into()));
            let part = Operand::card(next.at(number));
            let one = match how {
                Exchange::Scatter(_) => Instruction::scatter(digit, all, part, 0),
                Exchange::ReduceScatter(combine) => Instruction::reduce_scatter(combine, all, part, 0),
                Exchange::Gather(_) => Instruction::gather(digit, part, all, 0),
                Exchange::Allgather => Instruction::allgather(part, all, 0),
            };
            self.sized(one, phase, number, rank)
        };
        (0..self.each(phase)).filter_map(one).collect()
    }
}

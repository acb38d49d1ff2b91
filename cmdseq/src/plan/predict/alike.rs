//! Steps that are alike take as long: those of the pieces of a pipeline, of the rounds of a ring, or of the rows of a grid.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use super::clock::Clock;
use super::times::Times;
use crate::cost::{Bound, Moment, Terms};
use crate::instruction::has_address_in_extent;
use crate::matching::{Job, takes_partners};
use crate::ranges::{Blocks, Span, Spans, blocks_of, is_own_in_place};
use crate::{Flags, Instruction, Layout, Operand};

/// Steps that are remembered: the last ones, because a pipeline repeats after a few.
const STEPS: usize = 128;

/// What the times of a step depend on, after the first issue.
pub(super) type Shape = Vec<Alone>;

/// What the times of a step depend on in one instruction.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Alone {
    /// Of the card: its rank in the communicator, of so many. If links have rates of their own, its rank among the programs.
    rank: usize,
    ranks: u32,
    /// With addresses that stand for all in the same pseudo channels.
    instruction: Instruction,
    /// Numbers of the tables of source and destination.
    tables: [Option<u32>; 2],
    /// Whether addresses are equal that need not stand for themselves: those of the own block, and of an own contribution and what
    /// is sent.
    are_equal: [bool; 2],
    /// How much later than the first it is issued, picoseconds.
    later: u64,
}

/// The last steps.
pub(super) struct Alike<'a> {
    job: Job<'a>,
    clock: &'a Clock<'a>,
    /// Tables of each rank.
    spans: Vec<Spans>,
    /// By table.
    places: HashMap<u32, Places>,
    steps: VecDeque<Step>,
}

/// Addresses from which on the blocks of a table are in the same pseudo channels. The last ones.
#[derive(Default)]
struct Places(VecDeque<Range<u64>>);

impl Places {
    /// The first address of those that `address` is among, which `find` finds.
    fn of(&mut self, address: u64, find: impl FnOnce() -> Range<u64>) -> u64 {
        if let Some(known) = self.0.iter().find(|known| known.contains(&address)) {
            return known.start;
        }
        self.0.truncate(STEPS - 1);
        self.0.push_front(find());
        self.0[0].start
    }
}

struct Step {
    /// Equal for equal shapes: most others differ in it.
    key: u64,
    shape: Shape,
    issues: Vec<Moment>,
    times: Vec<Times>,
}

impl<'a> Alike<'a> {
    pub(super) fn new(job: Job<'a>, clock: &'a Clock<'a>) -> Self {
        let spans = Spans::of_each(job.programs.iter().map(|program| &program.tables));
        Alike { job, clock, spans, places: HashMap::new(), steps: VecDeque::new() }
    }

    /// The shape of instructions that run together; `None` if their times depend on more than that.
    pub(super) fn shape(&mut self, together: &[(usize, usize)], issues: &[Moment]) -> Option<Shape> {
        let first = issues.iter().map(|issue| issue.ps).min()?;
        let each = together.iter().zip(issues);
        each.map(|((rank, index), issue)| self.alone(*rank, *index, issue.ps - first)).collect()
    }

    fn alone(&mut self, rank: usize, index: usize, later: u64) -> Option<Alone> {
        let Alike { job, clock, .. } = *self;
        let instruction = job.instruction(rank, index);
        let context =
            job.context_in(rank, &job.membership(rank, instruction).filter(|_| takes_partners(instruction.operation))?);
        let [from, to] = blocks_of(instruction, context.rank)?;
        let own = has_address_in_extent(instruction.operation).then_some(instruction.extent);
        let is_in_place = from.is_some() && to.is_some() && is_own_in_place(instruction, &context);
        let (source, sent) = self.place(rank, instruction.source, from, context.ranks)?;
        let (destination, received) = self.place(rank, instruction.destination, to, context.ranks)?;
        Some(Alone {
            rank: if clock.model.links.is_empty() { context.rank as usize } else { rank },
            ranks: context.ranks,
            instruction: Instruction {
                source,
                destination,
                extent: own.map_or(instruction.extent, |address| clock.channel(address) as u64),
                tag: 0,
                lane: 0,
                flags: instruction.flags - Flags::FENCE,
                ..*instruction
            },
            tables: [sent, received],
            are_equal: [is_in_place, own == Some(instruction.source.address)],
            later,
        })
    }

    /// The operand of `blocks` with an address that stands for all whose blocks are in the same pseudo channels, and the number of
    /// its table.
    fn place(
        &mut self,
        rank: usize,
        operand: Operand,
        blocks: Option<Blocks>,
        ranks: u32,
    ) -> Option<(Operand, Option<u32>)> {
        let capabilities = self.clock.capabilities;
        let channel = capabilities.channel_bytes();
        let is_whole = channel > 0 && capabilities.stripe_bytes().is_multiple_of(channel);
        let at = |address: u64| Operand { address, ..operand };
        Some(match (operand.layout, blocks) {
            (_, None) => (at(0), None),
            (_, Some(Blocks::Listed(slot))) => {
                let span = self.spans[rank].get(slot, ranks)?;
                let known = self.places.entry(span.number).or_default();
                (at(known.of(operand.address, || self.clock.addresses_alike(operand.address, span))), Some(span.number))
            }
            (Layout::Striped, Some(_)) if is_whole => (at(operand.address / channel), None),
            (Layout::Block, Some(Blocks::One)) => (at(self.clock.channel(operand.address) as u64), None),
            _ => (operand, None),
        })
    }

    /// The times of a step, if one alike was timed.
    pub(super) fn find(&self, shape: &Shape, issues: &[Moment]) -> Option<Vec<Times>> {
        let key = key(shape);
        let is_alike = |known: &&Step| known.key == key && known.shape == *shape;
        // What follows from the issue of a partner has its terms.
        let known = self.steps.iter().filter(is_alike).find(|known| have_moved_alike(&known.issues, issues))?;
        let parts = known.times.iter().zip(&known.issues).zip(issues);
        parts.map(|((times, from), to)| times.moved(*from, *to)).collect()
    }

    pub(super) fn add(&mut self, shape: Shape, issues: Vec<Moment>, times: Vec<Times>) {
        if self.steps.len() == STEPS {
            self.steps.pop_front();
        }
        self.steps.push_back(Step { key: key(&shape), shape, issues, times });
    }
}

/// Whether the terms of all issues differ from those of `from` by the same.
fn have_moved_alike(from: &[Moment], to: &[Moment]) -> bool {
    let have_moved = |bound: &Bound| {
        let mut all = from.iter().zip(to).map(|(from, to)| to.terms.of(*bound).wrapping_sub(from.terms.of(*bound)));
        let first = all.next();
        all.all(|other| Some(other) == first)
    };
    Bound::ALL.iter().all(have_moved)
}

/// A number made of what mostly differs between steps: communicator, lengths and addresses of the first instruction, and the last
/// issue.
fn key(shape: &Shape) -> u64 {
    let (Some(first), Some(last)) = (shape.first(), shape.last()) else { return 0 };
    let Instruction { operation, communicator, root, bytes, extent, source, destination, .. } = first.instruction;
    let parts =
        [operation as u64, communicator.into(), root.into(), bytes, extent, source.address, destination.address];
    let mixed = |key: u64, part: u64| (key ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    parts.into_iter().fold(last.later, mixed)
}

impl Clock<'_> {
    /// The addresses around `address` from which on the blocks of a table begin in the same pseudo channels.
    fn addresses_alike(&self, address: u64, span: &Span) -> Range<u64> {
        let mut alike = 0..u64::MAX;
        for block in span.placed_at(address) {
            let channel = self.addresses_of(self.channel(block.address));
            let (before, after) = (block.address - channel.start, channel.end - block.address);
            alike.start = alike.start.max(address.saturating_sub(before));
            alike.end = alike.end.min(address.saturating_add(after));
        }
        alike
    }
}

impl Times {
    /// The same from another issue on; `None` if the terms do not allow it.
    fn moved(&self, from: Moment, to: Moment) -> Option<Times> {
        let moved = |at: Moment| {
            Some(Moment {
                ps: at.ps.checked_add(to.ps)?.checked_sub(from.ps)?,
                terms: at.terms.moved(&from.terms, &to.terms)?,
            })
        };
        let arrival = match self.arrival {
            Some(arrival) => Some(moved(arrival)?),
            None => None,
        };
        Some(Times { t1: moved(self.t1)?, t2: moved(self.t2)?, arrival })
    }
}

impl Terms {
    /// These, with what led to `from` replaced by what led to `to`; `None` if that was more than these.
    fn moved(&self, from: &Terms, to: &Terms) -> Option<Terms> {
        let mut terms = Terms::default();
        for bound in Bound::ALL {
            terms.add(*bound, self.of(*bound).checked_add(to.of(*bound))?.checked_sub(from.of(*bound))?);
        }
        Some(terms)
    }
}

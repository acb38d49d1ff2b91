//! Steps that are alike take as long: those of the pieces of a pipeline, of the rounds of a ring, or of the rows of a grid.

use std::collections::VecDeque;
use std::iter;

use super::clock::Clock;
use super::times::Times;
use crate::cost::{Bound, Moment, Terms};
use crate::instruction::{has_address_in_extent, takes_tables};
use crate::matching::{Members, takes_partners};
use crate::program::Program;
use crate::ranges::{Blocks, Transfer, Transfers, blocks_of, is_own_in_place, transfers};
use crate::{Flags, Instruction, Layout, Operand};

/// Steps that are remembered: the last ones, because a pipeline repeats after a few.
const STEPS: usize = 64;

/// What the times of a step depend on, after the first issue.
pub(super) type Shape = Vec<Alone>;

/// What the times of a step depend on in one instruction.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Alone {
    /// Of the card: its rank in the communicator, of so many. If links have rates of their own, its rank among the programs.
    rank: usize,
    ranks: u32,
    /// With addresses that stand for all in the same pseudo channels; without those that `blocks` has.
    instruction: Instruction,
    /// Of an instruction with tables: rank, pseudo channel and bytes of what it sends, then of what it receives, then of its own block.
    blocks: Vec<(u32, usize, u64)>,
    /// Whether addresses are equal that need not stand for themselves: those of the own block, and of an own contribution and what
    /// is sent.
    are_equal: [bool; 2],
    /// How much later than the first it is issued, picoseconds.
    later: u64,
}

/// The last steps.
#[derive(Default)]
pub(super) struct Alike {
    steps: VecDeque<Step>,
}

struct Step {
    /// Equal for equal shapes: most others differ in it.
    key: u64,
    shape: Shape,
    issues: Vec<Moment>,
    times: Vec<Times>,
}

impl Alike {
    /// The shape of instructions that run together; `None` if their times depend on more than that.
    pub(super) fn shape(
        together: &[(usize, usize)],
        issues: &[Moment],
        programs: &[Program],
        members: &Members,
        clock: &Clock<'_>,
    ) -> Option<Shape> {
        let first = issues.iter().map(|issue| issue.ps).min()?;
        let alone = |((rank, index), issue): (&(usize, usize), &Moment)| {
            let (rank, program) = (*rank, &programs[*rank]);
            let instruction = &program.instructions[*index];
            let meets = takes_partners(instruction.operation);
            let context = members.of(rank, instruction).filter(|_| meets)?.context(&program.tables, clock.capabilities);
            let (blocks, [source, destination], extent, are_equal) = match takes_tables(instruction.operation) {
                true => {
                    let blocks = clock.blocks(&transfers(instruction, &context).ok()?);
                    let operands = [instruction.source, instruction.destination];
                    (blocks, operands.map(|operand| Operand { address: 0, ..operand }), 0, [false; 2])
                }
                false => {
                    let [source, destination] = blocks_of(instruction, context.rank)?;
                    let own = has_address_in_extent(instruction.operation).then_some(instruction.extent);
                    let in_place = source.is_some() && destination.is_some() && is_own_in_place(instruction, &context);
                    let places = [(instruction.source, source), (instruction.destination, destination)];
                    (
                        Vec::new(),
                        places.map(|(operand, blocks)| clock.place(operand, blocks)),
                        own.map_or(instruction.extent, |address| clock.channel(address) as u64),
                        [in_place, own == Some(instruction.source.address)],
                    )
                }
            };
            Some(Alone {
                rank: if clock.model.links.is_empty() { context.rank as usize } else { rank },
                ranks: context.ranks,
                instruction: Instruction {
                    source,
                    destination,
                    extent,
                    tag: 0,
                    lane: 0,
                    flags: instruction.flags - Flags::FENCE,
                    ..*instruction
                },
                blocks,
                are_equal,
                later: issue.ps - first,
            })
        };
        together.iter().zip(issues).map(alone).collect()
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
    let by =
        |(from, to): (&Moment, &Moment)| Bound::ALL.map(|bound| to.terms.of(bound).wrapping_sub(from.terms.of(bound)));
    let mut all = from.iter().zip(to).map(by);
    let first = all.next();
    all.all(|other| Some(other) == first)
}

/// A number made of what mostly differs between steps: communicator, lengths and addresses of the first instruction, and the last
/// issue.
fn key(shape: &Shape) -> u64 {
    let (Some(first), Some(last)) = (shape.first(), shape.last()) else { return 0 };
    let Instruction { operation, communicator, root, bytes, extent, source, destination, .. } = first.instruction;
    let parts =
        [operation as u64, communicator.into(), root.into(), bytes, extent, source.address, destination.address];
    let blocks = first.blocks.iter().map(|(_, channel, bytes)| *channel as u64 ^ bytes);
    let mixed = |key: u64, part: u64| (key ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    parts.into_iter().chain(blocks).fold(last.later, mixed)
}

impl Clock<'_> {
    /// What the times of an instruction with tables depend on in its blocks. An own block in place is none.
    fn blocks(&self, moved: &Transfers) -> Vec<(u32, usize, u64)> {
        let block = |one: &Transfer| (one.peer_rank, self.channel(one.address), one.bytes);
        // As many as are sent, so that none of these stands for one that is received.
        let sent = iter::once((moved.sends.len() as u32, 0, 0));
        let own = moved
            .own
            .iter()
            .flat_map(|own| [own.source, own.destination].map(|address| (u32::MAX, self.channel(address), own.bytes)));
        sent.chain(moved.sends.iter().chain(&moved.receives).map(block)).chain(own).collect()
    }

    /// The operand of `blocks` with an address that stands for all whose blocks are in the same pseudo channels.
    fn place(&self, operand: Operand, blocks: Option<Blocks>) -> Operand {
        let channel = self.capabilities.channel_bytes();
        let is_whole = channel > 0 && self.capabilities.stripe_bytes().is_multiple_of(channel);
        match (operand.layout, blocks) {
            (Layout::Striped, Some(_)) if is_whole => Operand { address: operand.address / channel, ..operand },
            (Layout::Block, Some(Blocks::One)) => Operand { address: self.channel(operand.address) as u64, ..operand },
            (_, None) => Operand { address: 0, ..operand },
            _ => operand,
        }
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
            terms.add(bound, self.of(bound).checked_add(to.of(bound))?.checked_sub(from.of(bound))?);
        }
        Some(terms)
    }
}

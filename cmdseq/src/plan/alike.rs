//! Steps that are alike take as long: those of the pieces of a pipeline, or of the rounds of a ring.

use std::collections::VecDeque;

use super::clock::Clock;
use super::times::Times;
use crate::cost::{Bound, Moment, Terms};
use crate::instruction::takes_tables;
use crate::matching::takes_partners;
use crate::program::Program;
use crate::{Flags, Instruction, Layout, Operand};

/// Steps that are remembered: the last ones, because a pipeline repeats after a few.
const STEPS: usize = 24;

/// What the times of a step depend on, after the first issue: of each instruction its rank, itself as far as times depend on it,
/// and how much later it is issued, in picoseconds.
pub(super) type Shape = Vec<(usize, Instruction, u64)>;

/// The last steps.
#[derive(Default)]
pub(super) struct Alike {
    steps: VecDeque<Step>,
}

struct Step {
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
        clock: &Clock<'_>,
    ) -> Option<Shape> {
        let first = issues.iter().map(|issue| issue.ps).min()?;
        let shape = together.iter().zip(issues).map(|((rank, index), issue)| {
            let it = programs[*rank].instructions[*index];
            let is_plain = takes_partners(it.operation) && !takes_tables(it.operation);
            let [source, destination] = [it.source, it.destination].map(|operand| clock.place(operand));
            let it = Instruction { source, destination, tag: 0, lane: 0, flags: it.flags - Flags::FENCE, ..it };
            is_plain.then_some((*rank, it, issue.ps - first))
        });
        shape.collect()
    }

    /// The times of a step, if one alike was timed.
    pub(super) fn find(&self, shape: &Shape, issues: &[Moment]) -> Option<Vec<Times>> {
        let known = self.steps.iter().find(|known| known.shape == *shape)?;
        let parts = known.times.iter().zip(&known.issues).zip(issues);
        parts.map(|((times, from), to)| times.moved(*from, *to)).collect()
    }

    pub(super) fn add(&mut self, shape: Shape, issues: Vec<Moment>, times: Vec<Times>) {
        if self.steps.len() == STEPS {
            self.steps.pop_front();
        }
        self.steps.push_back(Step { shape, issues, times });
    }
}

impl Clock<'_> {
    /// The operand with an address that stands for all in its pseudo channel, if the blocks of both are in the same ones.
    fn place(&self, operand: Operand) -> Operand {
        let channel = self.capabilities.memory_bytes / self.channels() as u64;
        let is_whole = channel > 0 && self.capabilities.stripe_bytes().is_multiple_of(channel);
        match operand.layout {
            Layout::Striped if is_whole => Operand { address: operand.address / channel, ..operand },
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

//! The schedule of a graph.

use super::allocator::{self, Allocator};
use super::error::GraphError;
use super::step::Buffer;
use crate::instruction::ARGUMENTS;
use crate::matching::{Job, Members};
use crate::plan::{Plan, Prediction, predict};
use crate::program::{Piece, ProgramSet};
use crate::ranges::{Range, card_ranges, remote};
use crate::request::Algorithm;
use crate::{Capabilities, Operand};

/// A buffer of a schedule, with its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The buffer.
    pub buffer: Buffer,
    /// Its address in the memory of each card, bytes.
    pub address: u64,
    /// The launch argument with its address, if it is rebindable.
    pub argument: Option<u8>,
}

impl Placed {
    pub(super) fn operand(&self) -> Operand {
        let operand = Operand::card(self.address);
        if self.buffer.is_striped { operand.striped() } else { operand }
    }

    /// Returns its ranges of card memory.
    pub(super) fn ranges(&self, ranks: u64, stripe: u64) -> Vec<Range> {
        allocator::ranges(&self.buffer, self.address, ranks, stripe)
    }

    /// Returns the ranges of its bytes on a card of a schedule for `ranks` cards.
    pub fn pieces(&self, ranks: u64, capabilities: &Capabilities) -> Vec<Piece> {
        let mut offset = 0;
        let mut pieces = Vec::new();
        for range in self.ranges(ranks, capabilities.stripe_bytes()) {
            pieces.push(Piece { offset, address: range.address, bytes: range.bytes });
            offset += range.bytes;
        }
        pieces
    }
}

/// A step of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduled {
    /// Its algorithm.
    pub algorithm: Algorithm,
    /// Its predicted time alone.
    pub predicted: Prediction,
    /// Index of its first instruction in the program of each rank; `None` if the rank has none.
    pub first: Vec<Option<usize>>,
}

/// One program for each card, of one or several collectives, to store on the cards and launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The programs to store. Addresses in rebindable buffers are relative to the buffer.
    pub set: ProgramSet,
    /// The buffers.
    pub buffers: Vec<Placed>,
    /// Intermediate memory, which the programs overwrite.
    pub between: Range,
    /// Steps in execution order, which is that of the graph.
    pub steps: Vec<Scheduled>,
    /// The predicted time of all steps.
    pub predicted: Prediction,
}

impl From<ProgramSet> for Schedule {
    /// Returns a schedule of these programs, without buffers and steps.
    fn from(set: ProgramSet) -> Self {
        let between = Range { address: 0, bytes: 0 };
        Schedule { set, buffers: Vec::new(), between, steps: Vec::new(), predicted: Prediction::default() }
    }
}

impl Schedule {
    /// Returns the schedule of a single plan, with the plan's placement and no buffers. Relays of the plan follow its ranks.
    pub fn of(plan: &Plan) -> Self {
        let first = plan.set.programs.iter().map(|program| (!program.instructions.is_empty()).then_some(0)).collect();
        let (algorithm, predicted) = (plan.algorithm, plan.predicted);
        let steps = vec![Scheduled { algorithm, predicted, first }];
        Schedule { steps, predicted, ..Schedule::from(plan.set.clone()) }
    }

    /// Returns the arguments of the launch.
    pub fn arguments(&self) -> [u64; ARGUMENTS] {
        let mut arguments = [0; ARGUMENTS];
        for placed in &self.buffers {
            if let Some(argument) = placed.argument.and_then(|index| arguments.get_mut(usize::from(index))) {
                *argument = placed.address;
            }
        }
        arguments
    }

    /// Returns the programs with the launch arguments added.
    pub fn bound(&self) -> ProgramSet {
        let (arguments, mut set) = (self.arguments(), self.set.clone());
        let instructions = set.programs.iter_mut().flat_map(|program| &mut program.instructions);
        instructions.for_each(|one| *one = one.with_arguments(&arguments));
        set
    }

    /// Returns the buffer of this name.
    pub fn buffer(&self, name: &str) -> Option<&Placed> {
        self.buffers.iter().find(|placed| placed.buffer.name == name)
    }

    /// Returns the number of the step of instruction `index` of rank `rank`.
    pub fn step_of(&self, rank: usize, index: usize) -> Option<usize> {
        let begun = |one: &Scheduled| one.first.get(rank).copied().flatten().is_some_and(|first| first <= index);
        self.set.programs.get(rank).filter(|program| index < program.instructions.len())?;
        self.steps.iter().rposition(begun)
    }

    /// Binds a buffer to another address on every card, for the following launches. The programs stay verified: steps access only
    /// buffers and intermediate memory, which must not overlap.
    ///
    /// # Errors
    /// [`GraphError::NotBindable`] or [`GraphError::BadAddress`], with the binding unchanged.
    pub fn rebind(&mut self, name: &str, address: u64, capabilities: &Capabilities) -> Result<(), GraphError> {
        let bindable = |placed: &&Placed| placed.argument.is_some();
        let Some(number) = self.buffers.iter().position(|placed| placed.buffer.name == name && bindable(&placed))
        else {
            let bindable = self.buffers.iter().filter(bindable).map(|placed| placed.buffer.name.clone()).collect();
            return Err(GraphError::NotBindable { buffer: name.to_owned(), bindable });
        };
        let ranks = self.set.nodes.len() as u64;
        let stripe = capabilities.stripe_bytes();
        let mut memory = Allocator::new(None, ranks, capabilities);
        let others = self.buffers.iter().enumerate().filter(|(other, _)| *other != number);
        memory.occupy(others.flat_map(|(_, placed)| placed.ranges(ranks, stripe)));
        memory.occupy([self.between]);
        memory.check(&self.buffers[number].buffer, address)?;
        self.buffers[number].address = address;
        Ok(())
    }

    /// Verifies and times all programs, and reduces the intermediate memory to what they use.
    pub(super) fn finish(&mut self, capabilities: &Capabilities) -> Result<(), GraphError> {
        let bound = self.bound();
        self.predicted = predict(&bound, capabilities).map_err(GraphError::Whole)?;
        self.between = self.used_between(&bound, capabilities);
        Ok(())
    }

    fn used_between(&self, bound: &ProgramSet, capabilities: &Capabilities) -> Range {
        let mut used: Option<Range> = None;
        // Verified programs have valid communicators and ranges.
        let Ok(members) = Members::new(bound, capabilities) else { return self.between };
        let job = Job { programs: &bound.programs, members: &members, capabilities };
        for (rank, program) in bound.programs.iter().enumerate() {
            for instruction in &program.instructions {
                let context = job.context(rank, instruction);
                let Ok(touched) = card_ranges(instruction, &context) else { continue };
                let remote = remote(instruction, &context).ok().flatten().map(|one| one.range());
                let all = touched.reads.iter().chain(&touched.writes).chain(&remote);
                for range in all.filter(|one| one.overlaps(self.between)) {
                    used = Some(used.map_or(*range, |used| used.hull(*range)));
                }
            }
        }
        used.unwrap_or(Range { bytes: 0, ..self.between })
    }
}

//! What is made of a graph.

use super::error::GraphError;
use super::rooms::{self, Rooms};
use super::step::Buffer;
use crate::instruction::ARGUMENTS;
use crate::plan::{Plan, Prediction, predict};
use crate::program::{Communicator, Piece, Program};
use crate::ranges::{Context, Range, card_ranges};
use crate::request::Algorithm;
use crate::{Capabilities, Operand, transfers};

/// A buffer of a schedule, and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The buffer.
    pub buffer: Buffer,
    /// Its address in the memory of each card, bytes.
    pub address: u64,
    /// The launch argument that is its address, if it can be bound to others.
    pub argument: Option<u8>,
}

impl Placed {
    pub(super) fn operand(&self) -> Operand {
        let operand = Operand::card(self.address);
        if self.buffer.is_striped { operand.striped() } else { operand }
    }

    /// Ranges of card memory it takes.
    pub(super) fn ranges(&self, ranks: u64, stripe: u64) -> Vec<Range> {
        rooms::ranges(&self.buffer, self.address, ranks, stripe)
    }

    /// Where its bytes lie on a card of a schedule for `ranks` cards.
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
    /// Its number in the graph.
    pub step: usize,
    /// The way chosen for it.
    pub algorithm: Algorithm,
    /// What it should take by itself.
    pub predicted: Prediction,
    /// By rank, the index of its first instruction in the program; `None` if the rank has nothing to do for it.
    pub first: Vec<Option<usize>>,
}

/// One program for each card, of one or several collectives, to be stored on the cards and launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Nodes by rank.
    pub group: Vec<u32>,
    /// One for each rank; without instructions if it has nothing to do. Addresses in rebindable buffers are relative to them.
    pub programs: Vec<Program>,
    /// Communicators to define before, on all their members.
    pub communicators: Vec<Communicator>,
    /// The buffers.
    pub buffers: Vec<Placed>,
    /// Memory that the programs use besides; what was there is gone.
    pub between: Range,
    /// Steps in the order they are run.
    pub steps: Vec<Scheduled>,
    /// What all of it should take.
    pub predicted: Prediction,
}

impl Schedule {
    pub(super) fn empty(group: Vec<u32>, between: Range) -> Self {
        let programs = vec![Program::default(); group.len()];
        let (communicators, buffers, steps) = (Vec::new(), Vec::new(), Vec::new());
        Schedule { group, programs, communicators, buffers, between, steps, predicted: Prediction::default() }
    }

    /// The schedule of a single plan, with its data where the plan has it and no buffers.
    pub fn of(plan: &Plan) -> Self {
        let first = plan.programs.iter().map(|program| (!program.instructions.is_empty()).then_some(0)).collect();
        let (algorithm, predicted) = (plan.algorithm, plan.predicted);
        Schedule {
            programs: plan.programs.clone(),
            communicators: plan.communicators.clone(),
            steps: vec![Scheduled { step: 0, algorithm, predicted, first }],
            predicted,
            ..Schedule::empty(plan.request.group.clone(), Range { address: 0, bytes: 0 })
        }
    }

    /// Arguments of the launch.
    pub fn arguments(&self) -> [u64; ARGUMENTS] {
        let mut arguments = [0; ARGUMENTS];
        for placed in &self.buffers {
            if let Some(argument) = placed.argument.and_then(|index| arguments.get_mut(usize::from(index))) {
                *argument = placed.address;
            }
        }
        arguments
    }

    /// The programs with the arguments of the launch in place.
    pub fn bound(&self) -> Vec<Program> {
        let arguments = self.arguments();
        let bound = |program: &Program| Program {
            instructions: program.instructions.iter().map(|one| one.with_arguments(&arguments)).collect(),
            ..program.clone()
        };
        self.programs.iter().map(bound).collect()
    }

    /// The buffer of this name.
    pub fn buffer(&self, name: &str) -> Option<&Placed> {
        self.buffers.iter().find(|placed| placed.buffer.name == name)
    }

    /// Number of the step that instruction `index` of rank `rank`'s program belongs to.
    pub fn step_of(&self, rank: usize, index: usize) -> Option<usize> {
        let begun = |one: &&Scheduled| one.first.get(rank).copied().flatten().is_some_and(|first| first <= index);
        self.programs.get(rank).filter(|program| index < program.instructions.len())?;
        self.steps.iter().rev().find(begun).map(|one| one.step)
    }

    /// Binds a buffer to another address on every card, for the launches to come. What is verified stays so: a step touches
    /// nothing but its buffers and what lies between, and none of these may overlap.
    ///
    /// # Errors
    /// [`GraphError::NotBindable`], [`GraphError::BadAddress`]: then it is bound as before.
    pub fn rebind(&mut self, name: &str, address: u64, capabilities: &Capabilities) -> Result<(), GraphError> {
        let bindable = |placed: &&Placed| placed.argument.is_some();
        let Some(number) = self.buffers.iter().position(|placed| placed.buffer.name == name && bindable(&placed))
        else {
            let bindable = self.buffers.iter().filter(bindable).map(|placed| placed.buffer.name.clone()).collect();
            return Err(GraphError::NotBindable { buffer: name.to_owned(), bindable });
        };
        let ranks = self.group.len() as u64;
        let stripe = capabilities.stripe_bytes();
        let mut rooms = Rooms::new(None, ranks, capabilities);
        let others = self.buffers.iter().enumerate().filter(|(other, _)| *other != number);
        rooms.occupy(others.flat_map(|(_, placed)| placed.ranges(ranks, stripe)));
        rooms.occupy([self.between]);
        rooms.check(&self.buffers[number].buffer, address)?;
        self.buffers[number].address = address;
        Ok(())
    }

    /// Verifies the whole, times it, and gives back what of the memory between is not used.
    pub(super) fn settle(&mut self, capabilities: &Capabilities) -> Result<(), GraphError> {
        let programs = self.bound();
        self.predicted =
            predict(&programs, &self.communicators, &self.group, capabilities).map_err(GraphError::Whole)?;
        self.between = self.used_between(&programs, capabilities);
        Ok(())
    }

    fn used_between(&self, programs: &[Program], capabilities: &Capabilities) -> Range {
        let stripe_bytes = capabilities.stripe_bytes();
        let mut used: Option<Range> = None;
        for (rank, program) in programs.iter().enumerate() {
            for instruction in &program.instructions {
                let node = self.group[rank];
                let named = |one: &&Communicator| one.id == instruction.communicator && one.members.contains(&node);
                let (own, ranks) = match self.communicators.iter().find(named) {
                    Some(one) => (one.members.iter().position(|member| *member == node), one.members.len()),
                    None => (Some(node as usize), capabilities.nodes as usize),
                };
                let own = own.unwrap_or(0) as u32;
                let context = Context { rank: own, ranks: ranks as u32, stripe_bytes, tables: &program.tables };
                // Verified programs have no ranges that cannot be.
                let Ok(touched) = card_ranges(instruction, &context) else { continue };
                let remote = transfers(instruction, &context).ok().and_then(|moved| moved.remote);
                let remote = remote.map(|one| Range { address: one.address, bytes: one.bytes });
                let all = touched.reads.iter().chain(&touched.writes).chain(&remote);
                for range in all.filter(|one| one.overlaps(self.between)) {
                    let begin = used.map_or(range.address, |used| used.address.min(range.address));
                    let end = used.map_or(range.end(), |used| used.end().max(range.end()));
                    used = Some(Range { address: begin, bytes: end - begin });
                }
            }
        }
        used.unwrap_or(Range { bytes: 0, ..self.between })
    }
}

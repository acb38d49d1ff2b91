//! Graphs: several collectives as one program for each card, launched repeatedly without the host in between.
//!
//! A [`Graph`] has named [`Buffer`]s and [`Step`]s; each step is a request to the planner from one buffer to another. Every card runs
//! the steps in the order in which they were added. [`Graph::schedule`] places the buffers, plans every step, verifies the whole,
//! and returns a [`Schedule`]. The module uses planner, verifier and matching.
//!
//! ```
//! use cmdseq::graph::{Buffer, Graph, Step};
//! use cmdseq::plan::{Collective, Request};
//! use cmdseq::{Combine, Element, Reduction};
//! # fn example(capabilities: &cmdseq::Capabilities) -> Result<(), cmdseq::graph::GraphError> {
//!
//! let mut graph = Graph::new(vec![0, 1, 2, 3]);
//! graph.buffer(Buffer::new("gradient", 4096).of(Element::F32).rebindable());
//! graph.buffer(Buffer::new("sum", 4096).of(Element::F32));
//! graph.buffer(Buffer::new("all", 4 * 4096));
//! let sum = Request {
//!     combine: Some(Combine::new(Reduction::Sum, Element::F32)),
//!     ..Request::new(Collective::Allreduce, vec![0, 1, 2, 3], 4096)
//! };
//! graph.step(Step::new(sum).input("gradient").output("sum"));
//! graph.step(Step::new(Request::new(Collective::Allgather, vec![0, 1, 2, 3], 4096)).input("sum").output("all"));
//! let mut schedule = graph.schedule(capabilities)?;
//! assert_eq!(schedule.steps.len(), 2);
//! schedule.rebind("gradient", 1 << 30, capabilities)?;
//! # Ok(())
//! # }
//! ```

mod allocator;
mod error;
mod schedule;
mod step;

use std::collections::HashMap;

use crate::instruction::has_address_in_extent;
use crate::instruction::{ARGUMENTS, WORLD};
use crate::plan::{self, Plan};
use crate::program::{Communicator, Program, ProgramSet};
use crate::ranges::Range;
use crate::request::{Placement, Request};
use crate::{Capabilities, Element, Instruction, Operand};

pub use error::GraphError;
pub use schedule::{Placed, Schedule, Scheduled};
pub use step::{Buffer, Step};

use allocator::Allocator;
use step::BufferRole;

/// Collectives with their buffers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    group: Vec<u32>,
    memory: Option<Range>,
    buffers: Vec<Buffer>,
    steps: Vec<Step>,
}

impl Graph {
    /// Returns an empty graph for the cards of these nodes, by rank. A card may relay for a step that it has no part in.
    pub fn new(group: Vec<u32>) -> Self {
        Graph { group, memory: None, buffers: Vec::new(), steps: Vec::new() }
    }

    /// Limits the memory of buffers without an address to `memory`, instead of all card memory.
    pub fn within(&mut self, memory: Range) -> &mut Self {
        self.memory = Some(memory);
        self
    }

    /// Adds a buffer.
    pub fn buffer(&mut self, buffer: Buffer) -> &mut Self {
        self.buffers.push(buffer);
        self
    }

    /// Adds a step, to run after those added before. Returns its number, from 0.
    pub fn step(&mut self, step: Step) -> usize {
        self.steps.push(step);
        self.steps.len() - 1
    }

    /// Places the buffers, plans the steps and verifies the programs. The result is deterministic.
    ///
    /// # Errors
    /// [`GraphError`], including refusals of planner and verifier.
    pub fn schedule(&self, capabilities: &Capabilities) -> Result<Schedule, GraphError> {
        let numbers = self.check()?;
        let arguments = self.arguments()?;
        let mut memory = Allocator::new(self.memory, self.group.len() as u64, capabilities);
        let addresses = memory.place(&self.buffers)?;
        let between = memory.largest();
        let programs = vec![Program::default(); self.group.len()];
        let set = ProgramSet::new(self.group.clone(), programs);
        let mut schedule = Schedule { between, ..Schedule::from(set) };
        schedule.buffers = self
            .buffers
            .iter()
            .zip(addresses)
            .enumerate()
            .map(|(number, (buffer, address))| Placed {
                buffer: buffer.clone(),
                address,
                argument: arguments.iter().position(|one| *one == number).map(|index| index as u8),
            })
            .collect();
        let mut ids = Ids::default();
        for (number, step) in self.steps.iter().enumerate() {
            let place = |role| -> Operand {
                let buffer = step.buffer(role).and_then(|name| numbers.get(name));
                buffer.map_or(Operand::card(between.address), |buffer| schedule.buffers[*buffer].operand())
            };
            let placement = Placement { input: place(BufferRole::Input), output: place(BufferRole::Output), between };
            // Only cards of the graph have its intermediate memory.
            let may_relay = |node: &u32| step.request.relays.as_ref().is_none_or(|allowed| allowed.contains(node));
            let relays = Some(self.group.iter().copied().filter(may_relay).collect());
            let request = Request { placement: Some(placement), relays, ..step.request.clone() };
            let refused = |source| GraphError::Refused { step: number, collective: request.collective, source };
            let plan = plan::plan(&request, capabilities).map_err(refused)?;
            self.append(&mut schedule, number, plan, &mut ids, capabilities)?;
        }
        schedule.finish(capabilities)?;
        Ok(schedule)
    }

    /// Checks the graph before anything is placed. Returns the indices of buffers by name.
    fn check(&self) -> Result<HashMap<&str, usize>, GraphError> {
        let mut numbers = HashMap::new();
        for (number, buffer) in self.buffers.iter().enumerate() {
            if numbers.insert(buffer.name.as_str(), number).is_some() {
                return Err(GraphError::general(format!("duplicate buffer {:?}", buffer.name)));
            }
        }
        if self.steps.is_empty() {
            return Err(GraphError::NoSteps);
        }
        for (number, step) in self.steps.iter().enumerate() {
            if let Some(node) = step.request.group.iter().find(|node| !self.group.contains(node)) {
                return Err(GraphError::of(number, &format!(": node {node} is not in the graph's group")));
            }
            for role in BufferRole::ALL {
                self.check_role(number, step, role, &numbers)?;
            }
            self.check_moved(number, step, &numbers)?;
        }
        Ok(numbers)
    }

    fn check_role(
        &self,
        number: usize,
        step: &Step,
        role: BufferRole,
        numbers: &HashMap<&str, usize>,
    ) -> Result<(), GraphError> {
        let refuse = |cause: String| Err(GraphError::of(number, &cause));
        let Some(name) = step.buffer(role) else {
            return match step.needs(role) {
                0 => Ok(()),
                bytes => refuse(format!(" has no buffer for its {} of {bytes} B", role.name())),
            };
        };
        let Some(buffer) = numbers.get(name).map(|buffer| &self.buffers[*buffer]) else {
            return refuse(format!(": unknown buffer {name:?}"));
        };
        let needed = if buffer.is_striped { step.request.bytes } else { step.needs(role) };
        if needed > buffer.bytes {
            return refuse(format!(
                ": its {} of {needed} B exceeds buffer {name:?} of {} B",
                role.name(),
                buffer.bytes
            ));
        }
        match (buffer.element, step.request.combine) {
            (Some(held), Some(combine)) if held != combine.element => {
                Err(wrong_type(number, buffer, held, combine.element))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a step does not change the element type.
    fn check_moved(&self, number: usize, step: &Step, numbers: &HashMap<&str, usize>) -> Result<(), GraphError> {
        let held = |role| {
            let buffer = &self.buffers[*numbers.get(step.buffer(role)?)?];
            buffer.element.map(|element| (buffer, element))
        };
        match (held(BufferRole::Input), held(BufferRole::Output)) {
            (Some((_, from)), Some((buffer, to))) if from != to => Err(wrong_type(number, buffer, to, from)),
            _ => Ok(()),
        }
    }

    /// Returns the buffers whose addresses are launch arguments, in order.
    fn arguments(&self) -> Result<Vec<usize>, GraphError> {
        let bound: Vec<usize> = (0..self.buffers.len()).filter(|number| self.buffers[*number].is_rebindable).collect();
        if let Some(buffer) = bound.iter().map(|number| &self.buffers[*number]).find(|buffer| buffer.is_striped) {
            return Err(GraphError::general(format!("striped buffer {:?} cannot be rebindable", buffer.name)));
        }
        match bound.get(ARGUMENTS) {
            Some(number) => Err(GraphError::general(format!(
                "too many rebindable buffers: {:?} is the fourth, a launch has three arguments",
                self.buffers[*number].name
            ))),
            None => Ok(bound),
        }
    }

    /// Appends the plan of step `number`, with the schedule's communicators and launch arguments.
    fn append(
        &self,
        schedule: &mut Schedule,
        number: usize,
        plan: Plan,
        ids: &mut Ids,
        capabilities: &Capabilities,
    ) -> Result<(), GraphError> {
        let new_ids = ids.take(&plan.set.communicators, &mut schedule.set.communicators, capabilities)?;
        let stripe = capabilities.stripe_bytes();
        let arguments: Vec<(u8, Vec<Range>)> = schedule
            .buffers
            .iter()
            .filter_map(|placed| Some((placed.argument?, placed.ranges(self.group.len() as u64, stripe))))
            .collect();
        let mut first = vec![None; self.group.len()];
        for (node, program) in plan.set.nodes.iter().zip(&plan.set.programs) {
            let Some(rank) = self.group.iter().position(|other| other == node) else { continue };
            let whole = &mut schedule.set.programs[rank].instructions;
            if !program.tables.is_empty() {
                return Err(GraphError::of(number, " needs tables on the cards, which graphs do not support"));
            }
            first[rank] = (!program.instructions.is_empty()).then_some(whole.len());
            for instruction in &program.instructions {
                let mut instruction = *instruction;
                if instruction.has_arguments() {
                    let cause = format!(": {} uses launch arguments, which graphs do not support", plan.algorithm);
                    return Err(GraphError::of(number, &cause));
                }
                if let Some(id) = new_ids.get(&instruction.communicator) {
                    instruction.communicator = *id;
                }
                bind(&mut instruction, &arguments);
                whole.push(instruction);
            }
        }
        schedule.steps.push(Scheduled { algorithm: plan.algorithm, predicted: plan.predicted, first });
        Ok(())
    }
}

/// The error of a step whose buffer has another element type.
fn wrong_type(step: usize, buffer: &Buffer, held: Element, expected: Element) -> GraphError {
    GraphError::of(step, &format!(": buffer {:?} has elements of {held}, expected {expected}", buffer.name))
}

/// Makes addresses in rebindable buffers relative to the buffer.
fn bind(instruction: &mut Instruction, arguments: &[(u8, Vec<Range>)]) {
    let find = |address: u64| {
        arguments.iter().find_map(|(index, ranges)| {
            let holds = |range: &Range| range.address <= address && address < range.end();
            ranges.iter().any(holds).then(|| (*index, address - ranges[0].address))
        })
    };
    let fields = instruction.operation.fields();
    for (is_read, operand) in
        [(fields.source, &mut instruction.source), (fields.destination, &mut instruction.destination)]
    {
        if let Some((index, offset)) = find(operand.address).filter(|_| is_read) {
            (operand.address, operand.argument) = (offset, Some(index));
        }
    }
    if has_address_in_extent(instruction.operation)
        && let Some((index, offset)) = find(instruction.extent)
    {
        (instruction.extent, instruction.extent_argument) = (offset, Some(index));
    }
}

/// Communicator ids of the schedule: plans with the same communicators share them.
#[derive(Debug, Default)]
struct Ids {
    /// The communicators of each id so far: several if no card is a member of two.
    given: Vec<Vec<Vec<u32>>>,
}

impl Ids {
    /// Returns the ids for the communicators of a plan, and adds new ones to `communicators`.
    fn take(
        &mut self,
        of_plan: &[Communicator],
        communicators: &mut Vec<Communicator>,
        capabilities: &Capabilities,
    ) -> Result<HashMap<u16, u16>, GraphError> {
        let mut by_id: Vec<(u16, Vec<Vec<u32>>)> = Vec::new();
        for Communicator { id, members } in of_plan {
            match by_id.iter_mut().find(|(other, _)| other == id) {
                Some((_, all)) => all.push(members.clone()),
                None => by_id.push((*id, vec![members.clone()])),
            }
        }
        let mut new_ids = HashMap::new();
        for (id, all) in by_id {
            let place = match self.given.iter().position(|given| *given == all) {
                Some(place) => place,
                None => {
                    self.given.push(all.clone());
                    self.given.len() - 1
                }
            };
            let new = WORLD + 1 + place as u16;
            if u32::from(new) >= capabilities.communicators {
                return Err(GraphError::general(format!(
                    "the steps need {} communicators besides communicator 0: the cards' tables have {} entries",
                    self.given.len(),
                    capabilities.communicators
                )));
            }
            if communicators.iter().all(|one| one.id != new) {
                communicators.extend(all.into_iter().map(|members| Communicator { id: new, members }));
            }
            new_ids.insert(id, new);
        }
        Ok(new_ids)
    }
}

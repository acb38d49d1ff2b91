//! The meaning of programs: the final memory of all cards as a function of their inputs.
//!
//! Memory is a map from ranges to symbolic values: bytes of a rank's input, a pattern, or a fold of values. Verified programs
//! do not race, so any order of their instructions gives the same memory. The outputs are compared with a [`Request`]; a
//! barrier, which has no output, is checked by vector clocks.
//!
//! Meaning uses verifier, matching and requests, and never the planner.

mod expectation;
mod value;

use std::collections::HashMap;

use crate::instruction::ARGUMENTS;
use crate::limits::{INPUTS_MAX, too_long};
use crate::matching::{Job, Matching, Membership};
use crate::program::{Program, ProgramSet};
use crate::ranges::{Transfers, transfers};
use crate::refusal::{Reason, Refusal};
use crate::request::{Collective, Request};
use crate::verify::{self, Unrolled};
use crate::{AddressSpace, Capabilities, Instruction, Operation};

use expectation::Expectation;
use value::{Folds, Memory, Pieces, Segment, Value};

/// Verifies programs, and that the outputs of all ranks are those that `request` defines: each byte a copy of the right byte of
/// the right input, or the right fold of the right bytes of all inputs, each once. Of the request's options, only the order
/// matters. For a barrier: no rank ends before all have begun.
///
/// The programs define where inputs and outputs are. Those after the ranks of the request are of cards that relay.
///
/// # Errors
/// As [`verify`](verify::verify); and [`Reason::Expectation`] with the first wrong range of an output and its content.
pub fn expect(set: &ProgramSet, capabilities: &Capabilities, request: &Request) -> Result<(), Refusal> {
    let members = verify::check(set, capabilities)?;
    let job = Job { programs: &set.programs, members: &members, capabilities };
    check_request(job.programs, request)?;
    if request.collective == Collective::Barrier {
        // What a rank knows when an instruction is matched, it may have learned on another lane after that instruction was issued.
        if let Some(rank) = set.programs.iter().position(|one| one.instructions.iter().any(|one| one.lane != 0)) {
            let cause = "no barrier that can be checked: it has instructions on other lanes than 0".to_owned();
            return Err(Refusal::of(rank, cause).because(Reason::Expectation));
        }
        return match verify::early_end(job, request.group.len())? {
            Some((rank, other)) => {
                let cause = format!("no barrier: this rank may end before rank {other} has begun");
                Err(Refusal::of(rank, cause).because(Reason::Expectation))
            }
            None => Ok(()),
        };
    }
    let (folds, pieces) = (Folds::default(), Pieces::default());
    let mut machine = Machine { job, memory: Vec::new(), folds, pieces, calls: 0 };
    machine.load()?;
    machine.run()?;
    machine.compare(Expectation(request))
}

/// As [`expect`], for one launch of resident programs, each rank's with its `arguments`.
///
/// # Errors
/// As [`verify_resident`](verify::verify_resident), and as [`expect`].
pub fn expect_resident(
    set: &ProgramSet,
    arguments: &[[u64; ARGUMENTS]],
    capabilities: &Capabilities,
    request: &Request,
) -> Result<(), Refusal> {
    let unrolled = Unrolled::of_resident(set, arguments, capabilities)?;
    unrolled.located(expect(&unrolled.set, capabilities, request))
}

/// Refuses a request that does not correspond to the programs.
fn check_request(programs: &[Program], request: &Request) -> Result<(), Refusal> {
    let ranks = request.group.len();
    let is_relay = |program: &Program| program.input.is_empty() && program.output.is_empty();
    if ranks == 0 || !programs.get(ranks..).is_some_and(|others| others.iter().all(is_relay)) {
        let cause = format!("{} of {ranks} ranks is expected of {} programs", request.collective, programs.len());
        return Err(Refusal::general(cause).because(Reason::Expectation));
    }
    match request.combine.filter(|_| request.collective.reduces()) {
        Some(combine) => {
            verify::check_combine(combine, [request.bytes]).map_err(|refusal| refusal.because(Reason::Expectation))
        }
        None => Ok(()),
    }
}

struct Machine<'a> {
    job: Job<'a>,
    memory: Vec<Memory>,
    folds: Folds,
    pieces: Pieces,
    /// Number of sets of instructions that ran together.
    calls: usize,
}

impl Machine<'_> {
    /// Writes the inputs into memory.
    fn load(&mut self) -> Result<(), Refusal> {
        for (rank, program) in (0..).zip(self.job.programs) {
            let mut memory = Memory::default();
            for piece in &program.input {
                let value = Value::Input { rank, offset: piece.offset };
                memory.write(piece.address, &[Segment { bytes: piece.bytes, value }]);
            }
            self.pieces.keep(program.input.len(), 0, memory.len())?;
            self.memory.push(memory);
        }
        Ok(())
    }

    /// Reads memory of `rank`.
    fn read(&mut self, rank: usize, address: u64, bytes: u64) -> Result<Vec<Segment>, Refusal> {
        let data = self.memory[rank].read(address, bytes);
        self.pieces.send(data.len())?;
        Ok(data)
    }

    /// Writes memory of `rank`.
    fn write(&mut self, rank: usize, address: u64, data: &[Segment]) -> Result<(), Refusal> {
        let memory = &mut self.memory[rank];
        let before = memory.len();
        memory.write(address, data);
        self.pieces.keep(data.len(), before, memory.len())
    }

    fn run(&mut self) -> Result<(), Refusal> {
        let mut matching = Matching::new(self.job);
        let mut together = Vec::new();
        while matching.step_into(&mut together)? {
            self.pieces.arrived();
            if let [(rank, index)] = together.as_slice()
                && self.alone(*rank, *index)?
            {
                continue;
            }
            self.move_together(&together).map_err(|refusal| match together.first() {
                Some((rank, index)) => refusal.located(*rank, *index),
                None => refusal,
            })?;
        }
        Ok(())
    }

    /// Runs an instruction that only accesses memory of its own card; returns whether it is one.
    fn alone(&mut self, rank: usize, index: usize) -> Result<bool, Refusal> {
        let instruction = self.job.instruction(rank, index);
        let Instruction { operation, source, destination, bytes, extent, .. } = *instruction;
        let data = match operation {
            Operation::Copy if destination.space == AddressSpace::Host => return Ok(true),
            Operation::Copy if source.space == AddressSpace::Host => {
                Ok(vec![Segment { bytes, value: Value::Undefined }])
            }
            Operation::Copy => self.read(rank, source.address, bytes),
            Operation::Fill => Ok(vec![Segment { bytes, value: Value::Fill { pattern: extent } }]),
            Operation::Fold => self.fold(rank, instruction),
            Operation::Launch | Operation::User => {
                let cause = format!("the effect of {operation} on memory is unknown, so no result can be expected");
                return Err(Refusal::at(rank, index, cause).because(Reason::Expectation));
            }
            _ => return Ok(false),
        };
        let written = data.and_then(|data| self.write(rank, destination.address, &data));
        written.map(|()| true).map_err(|refusal| refusal.located(rank, index))
    }

    /// Returns the result of a fold on one card.
    fn fold(&mut self, rank: usize, instruction: &Instruction) -> Result<Vec<Segment>, Refusal> {
        let Instruction { source, extent, bytes, .. } = *instruction;
        let operands = [self.read(rank, source.address, bytes)?, self.read(rank, extent, bytes)?];
        // Verified folds have a reduction.
        let Some(combine) = instruction.combine() else { return Ok(Vec::new()) };
        self.folds.fold(combine, None, &operands, &mut self.pieces)
    }

    /// Runs instructions together. All data is read before any is written.
    fn move_together(&mut self, together: &[(usize, usize)]) -> Result<(), Refusal> {
        let job = self.job;
        self.calls += 1;
        let moved: Vec<(usize, &Instruction, Membership<'_>, Transfers)> = together
            .iter()
            .filter_map(|(rank, index)| {
                let instruction = job.instruction(*rank, *index);
                let membership = job.membership(*rank, instruction)?;
                let moved = transfers(instruction, &job.context_in(*rank, &membership)).ok()?;
                Some((*rank, instruction, membership, moved))
            })
            .collect();
        let mut messages: HashMap<(usize, usize), Vec<Segment>> = HashMap::new();
        let mut results: Vec<(usize, u64, Vec<Segment>)> = Vec::new();
        for (rank, _, membership, moved) in &moved {
            for send in &moved.sends {
                let Some(peer) = membership.program_rank(send.peer_rank) else { continue };
                let data = self.read(*rank, send.address, send.bytes)?;
                match moved.remote {
                    Some(remote) => results.push((peer, remote.address, data)),
                    None => drop(messages.insert((*rank, peer), data)),
                }
            }
            if let Some(own) = moved.own {
                results.push((*rank, own.destination, self.read(*rank, own.source, own.bytes)?));
            }
        }
        for (rank, instruction, membership, moved) in &moved {
            let mut contributions: Vec<(u32, Vec<Segment>)> = Vec::new();
            for receive in &moved.receives {
                let Some(peer) = membership.program_rank(receive.peer_rank) else { continue };
                let data = match moved.remote {
                    Some(remote) => self.read(peer, remote.address, remote.bytes)?,
                    None => messages.remove(&(peer, *rank)).unwrap_or_default(),
                };
                match moved.reduced {
                    Some(_) => contributions.push((receive.peer_rank, data)),
                    None => results.push((*rank, receive.address, data)),
                }
            }
            if let (Some(reduced), Some(combine)) = (moved.reduced, instruction.combine()) {
                if let Some(own) = reduced.own {
                    contributions.push((membership.own, self.read(*rank, own, reduced.bytes)?));
                }
                contributions.sort_by_key(|(rank, _)| *rank);
                // Switches combine in an order of their own.
                let call = instruction.form().map(|_| self.calls);
                let contributions: Vec<Vec<Segment>> = contributions.into_iter().map(|(_, data)| data).collect();
                let mut fold = |count: usize| self.folds.fold(combine, call, &contributions[..count], &mut self.pieces);
                if moved.partials.is_empty() {
                    results.push((*rank, reduced.destination, fold(contributions.len())?));
                }
                for (address, count) in moved.partials.iter().zip(1..=contributions.len()) {
                    results.push((*rank, *address, fold(count)?));
                }
            }
        }
        results.iter().try_for_each(|(rank, address, data)| self.write(*rank, *address, data))
    }

    fn compare(&mut self, expectation: Expectation<'_>) -> Result<(), Refusal> {
        let mut inputs = 0;
        for (rank, program) in self.job.programs.iter().enumerate().take(expectation.0.group.len()) {
            let own = rank as u32;
            let mut covered = 0;
            // What continues the bytes before.
            let mut next = Value::Undefined;
            for piece in &program.output {
                if piece.offset != covered {
                    break;
                }
                covered += piece.bytes;
                let mut at = piece.offset;
                self.pieces.arrived();
                for Segment { mut bytes, mut value } in self.read(rank, piece.address, piece.bytes)? {
                    while bytes > 0 {
                        // Bytes beyond the collective's output are not checked.
                        let Some((wanted, left)) = expectation.wanted(own, at) else { break };
                        inputs += expectation.inputs_of(wanted);
                        if inputs > INPUTS_MAX {
                            return Err(too_long("INPUTS_MAX", INPUTS_MAX, "inputs searched in outputs"));
                        }
                        if !expectation.is_met(wanted, value, &self.folds) {
                            let cause = self.unmet(expectation, at, wanted, value);
                            return Err(Refusal::of(rank, cause).because(Reason::Expectation));
                        }
                        if expectation.is_inside_element(wanted) && value != next {
                            let cause = format!(
                                "after {}, byte {at} of the output must be of the same fold as the bytes of its element before it, but is \
                                 of another, which may be rounded otherwise",
                                expectation.0.collective
                            );
                            return Err(Refusal::of(rank, cause).because(Reason::Expectation));
                        }
                        let step = left.min(bytes);
                        (bytes, at, value) = (bytes - step, at + step, value.skip(step));
                        next = value;
                    }
                }
            }
            if expectation.wanted(own, covered).is_some() {
                let cause = format!(
                    "incomplete output: {} has more than the {covered} B that the program defines",
                    expectation.0.collective
                );
                return Err(Refusal::of(rank, cause).because(Reason::Expectation));
            }
        }
        Ok(())
    }

    fn unmet(&self, expectation: Expectation<'_>, at: u64, wanted: expectation::Wanted, value: Value) -> String {
        let wanted = match wanted {
            expectation::Wanted::Input { rank, offset } => format!("byte {offset} of the input of rank {rank}"),
            expectation::Wanted::Fold { end, offset } => {
                let how = expectation.0.combine.map_or_else(String::new, |combine| combine.to_string());
                let order = if expectation.in_rank_order() { ", in the order of ranks" } else { "" };
                format!("the {how} of byte {offset} of the inputs of ranks 0 to {}, each once{order}", end - 1)
            }
        };
        format!(
            "after {}, byte {at} of the output must be {wanted}, but is {}",
            expectation.0.collective,
            self.shown(value)
        )
    }

    /// Formats a value for a message.
    fn shown(&self, value: Value) -> String {
        match value {
            Value::Undefined => "unknown".into(),
            Value::Input { rank, offset } => format!("byte {offset} of the input of rank {rank}"),
            Value::Fill { .. } => "the pattern of a fill".into(),
            Value::Fold { node, .. } => {
                let node = &self.folds.nodes[node];
                format!("the {} of {} inputs", node.combine, node.inputs)
            }
        }
    }
}

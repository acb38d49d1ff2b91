//! Verifies the programs of all ranks together, before any of them runs.

use std::collections::BTreeSet;

use cmdseq::asm::{Assembly, RankProgram};
use cmdseq::instruction::ARGUMENTS;
use cmdseq::meaning::{expect, expect_resident};
use cmdseq::plan::{Communicator, Program, ProgramSet};
use cmdseq::verify::{verify, verify_resident};
use cmdseq::{AddressSpace, Instruction, Reason, Refusal};

use crate::cards::{Cards, wrong_number};
use crate::exit::{Failure, Result};
use crate::expect::Expect;
use crate::source::Loaded;

/// Collects the distinct communicators of all ranks and translates ranks to nodes.
fn communicators(assembly: &Assembly, nodes: &[u32]) -> impl Iterator<Item = Communicator> {
    let all = assembly.programs.iter().flat_map(|program| &program.communicators);
    let different: BTreeSet<(u16, &[u32])> = all.map(|one| (one.id, one.members.as_slice())).collect();
    let node = move |rank: &u32| nodes.get(*rank as usize).copied();
    let communicator = move |(id, members): (u16, &[u32])| {
        let members = members.iter().filter_map(node).collect();
        Communicator { id, members }
    };
    different.into_iter().map(communicator)
}

/// Base of placeholder addresses for host buffers before allocation, far from addresses that a source is likely to use.
const HOST_BASE: u64 = 1 << 62;

/// Returns the program of one rank, with its host buffers at consecutive placeholder addresses; `run_program` has those of the run.
fn program(one: &RankProgram) -> Result<Program> {
    let mut next = HOST_BASE;
    let mut bases = Vec::with_capacity(one.buffers.len());
    for buffer in &one.buffers {
        bases.push(next);
        if buffer.space == AddressSpace::Host {
            next = next.saturating_add(buffer.bytes);
        }
    }
    let instructions = one.bound(|buffer| bases[buffer]).map_err(Failure::refused)?;
    Ok(Program { instructions, tables: one.tables.clone(), ..Program::default() })
}

/// Refuses stored programs that name host memory, which is bound to queued instructions only.
fn check_no_host_memory(set: &ProgramSet) -> std::result::Result<(), Refusal> {
    for (rank, program) in set.programs.iter().enumerate() {
        if let Some(index) = program.instructions.iter().position(Instruction::names_host) {
            let operation = program.instructions[index].operation;
            let cause = format!(
                "{operation}: a resident program names no host memory; use card buffers, with --load and --dump"
            );
            return Err(Refusal::at(rank, index, cause).because(Reason::Stored));
        }
    }
    Ok(())
}

/// Verifies programs: refuses instructions that a card would refuse or never complete, and programs that do not compute
/// `expected`; errors contain the source line. Returns the programs, with placeholder addresses of host buffers. Programs with
/// `resident` are stored on the cards and launched without arguments, and name no host memory.
pub(crate) fn verify_programs(
    loaded: &Loaded,
    cards: &Cards,
    expected: Option<&Expect>,
    resident: bool,
) -> Result<ProgramSet> {
    let (nodes, capabilities) = (cards.nodes(), cards.capabilities());
    let mut programs = loaded.assembly().programs.iter().map(program).collect::<Result<Vec<_>>>()?;
    if programs.len() != nodes.len() {
        return Err(wrong_number(programs.len() as u32, nodes.len() as u32));
    }
    let expectation = expected.map(|it| it.request_of(loaded.assembly(), &mut programs, capabilities)).transpose()?;
    let arguments = vec![[0; ARGUMENTS]; programs.len()];
    let set = ProgramSet::new(&*nodes, programs).with(communicators(loaded.assembly(), &nodes));
    // What is found with placeholder addresses would hide the cause.
    let checked = if resident { check_no_host_memory(&set) } else { Ok(()) };
    let checked = checked.and_then(|()| match (&expectation, resident) {
        (Some(it), true) => expect_resident(&set, &arguments, capabilities, it),
        (Some(it), false) => expect(&set, capabilities, it),
        (None, true) => verify_resident(&set, &arguments, capabilities),
        (None, false) => verify(&set, capabilities),
    });
    checked.map_err(|refusal| {
        let place = loaded.locate(&refusal);
        Failure::from(refusal).at_locations(place.into_iter().collect())
    })?;
    Ok(set)
}

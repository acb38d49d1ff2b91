//! Programs of all ranks, verified together before anything runs.

use std::collections::BTreeSet;

use cmdseq::AddressSpace;
use cmdseq::asm::{Assembly, RankProgram};
use cmdseq::instruction::ARGUMENTS;
use cmdseq::meaning::{expect, expect_resident};
use cmdseq::plan::{Communicator, Program};
use cmdseq::verify::{verify, verify_resident};

use crate::cards::Cards;
use crate::exit::{Failure, Result};
use crate::expect::Expect;
use crate::source::Loaded;

/// The communicators of all ranks, each once, with nodes for ranks.
fn communicators(assembly: &Assembly, nodes: &[u32]) -> Vec<Communicator> {
    let all = assembly.programs.iter().flat_map(|program| &program.communicators);
    let different: BTreeSet<(u16, &[u32])> = all.map(|one| (one.id, one.members.as_slice())).collect();
    let node = |rank: &u32| nodes.get(*rank as usize).copied();
    different
        .into_iter()
        .map(|(id, members)| Communicator { id, members: members.iter().filter_map(node).collect() })
        .collect()
}

/// Where host buffers are taken to lie until they are allocated: apart from each other, and from any address that a text is
/// likely to name.
const HOST_BASE: u64 = 1 << 62;

/// The program of one rank, with its host buffers one behind the other.
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

/// Refuses what a card would refuse or wait for in vain, and programs that are not what is expected, with the line of the
/// source that it comes from. Gives the communicators that they need.
/// If they are `resident`, they are to be stored on the cards and launched without arguments.
pub(crate) fn verified(
    loaded: &Loaded,
    cards: &Cards,
    expected: Option<&Expect>,
    resident: bool,
) -> Result<Vec<Communicator>> {
    let (nodes, capabilities) = (cards.nodes(), cards.capabilities());
    let mut programs = loaded.assembly().programs.iter().map(program).collect::<Result<Vec<_>>>()?;
    if programs.len() != nodes.len() {
        let (ranks, cards) = (programs.len(), nodes.len());
        return Err(Failure::refused(format!("program has {ranks} ranks, --cards selects {cards} cards")));
    }
    let communicators = communicators(loaded.assembly(), &nodes);
    let expectation = expected.map(|it| it.of(loaded.assembly(), &mut programs, capabilities)).transpose()?;
    let arguments = vec![[0; ARGUMENTS]; programs.len()];
    let checked = match (&expectation, resident) {
        (Some(it), true) => expect_resident(&programs, &arguments, &communicators, &nodes, capabilities, it),
        (Some(it), false) => expect(&programs, &communicators, &nodes, capabilities, it),
        (None, true) => verify_resident(&programs, &arguments, &communicators, &nodes, capabilities),
        (None, false) => verify(&programs, &communicators, &nodes, capabilities),
    };
    checked.map_err(|refusal| {
        let place = refusal.rank.zip(refusal.instruction);
        let place = place.and_then(|(rank, instruction)| loaded.diagnose(rank, instruction, &refusal.cause));
        Failure::from(refusal).at_places(place.into_iter().collect())
    })?;
    Ok(communicators)
}

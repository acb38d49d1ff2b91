//! The verifier on programs as their authors write them: wrong ones with rank, instruction and reason, and right ones.
#![forbid(unsafe_code)]

#[path = "../cards/mod.rs"]
mod cards;

mod edges;
mod exposure;
mod lanes;
mod limits;
mod right;
mod speed;
mod stored;
mod stuck;
mod wrong;

use std::collections::BTreeSet;

use cmdseq::asm::{Options, assemble};
use cmdseq::plan::{Communicator, Program, Refusal};
use cmdseq::{Capabilities, verify};

/// Programs of `ranks` ranks, and the communicators that they name.
fn programs(ranks: u32, text: &str) -> (Vec<Program>, Vec<Communicator>) {
    let mut nothing = |_: &str| Err("there are no other files".to_owned());
    let options = Options { ranks: Some(ranks), raw_host: true, ..Options::default() };
    let assembled =
        assemble("case.seq", text, &mut nothing, &options).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let all = assembled.assembly.programs;
    let different: BTreeSet<(u16, Vec<u32>)> =
        all.iter().flat_map(|one| &one.communicators).map(|one| (one.id, one.members.clone())).collect();
    let communicators = different.into_iter().map(|(id, members)| Communicator { id, members }).collect();
    let program = |one: cmdseq::asm::RankProgram| Program {
        instructions: one.instructions,
        tables: one.tables,
        ..Program::default()
    };
    (all.into_iter().map(program).collect(), communicators)
}

fn verified(ranks: u32, text: &str, capabilities: &Capabilities) -> Result<(), Refusal> {
    let (programs, communicators) = programs(ranks, text);
    let group: Vec<u32> = (0..ranks).collect();
    verify(&programs, &communicators, &group, capabilities)
}

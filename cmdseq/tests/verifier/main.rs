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
use cmdseq::plan::{Communicator, Program, ProgramSet};
use cmdseq::{Capabilities, Refusal, verify};

/// Programs of `ranks` ranks, with the communicators that they name.
fn programs(ranks: u32, text: &str) -> ProgramSet {
    let mut nothing = |_: &str| Err("there are no other files".to_owned());
    let options = Options { ranks: Some(ranks), raw_host: true, ..Options::default() };
    let assembled =
        assemble("case.seq", text, &mut nothing, &options).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let all = assembled.assembly.programs;
    let different: BTreeSet<(u16, Vec<u32>)> =
        all.iter().flat_map(|one| &one.communicators).map(|one| (one.id, one.members.clone())).collect();
    let communicators = different.into_iter().map(|(id, members)| Communicator { id, members });
    let program = |one: cmdseq::asm::RankProgram| Program {
        instructions: one.instructions,
        tables: one.tables,
        ..Program::default()
    };
    ProgramSet::new((0..ranks).collect::<Vec<_>>(), all.into_iter().map(program)).with(communicators)
}

fn verified(ranks: u32, text: &str, capabilities: &Capabilities) -> Result<(), Refusal> {
    verify(&programs(ranks, text), capabilities)
}

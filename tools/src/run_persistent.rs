//! `fpgactl run FILE --persistent`: stores programs on the cards and launches them repeatedly.

use std::time::Duration;

use cmdseq::completion::microseconds;
use cmdseq::graph::Schedule;
use cmdseq::plan::ProgramSet;
use cmdseq::{Completion, Instruction};
use fpga_driver::Summary;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cards::Cards;
use crate::exit::Result;
use crate::interrupt::Interrupt;
use crate::output::counted;
use crate::units::rounded;

/// The launches and their times.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Printed {
    launches: u32,
    /// Number of cards with a program.
    cards: usize,
    /// Number of doorbells: one for each card and launch.
    doorbells: u64,
    /// Number of stored instructions on all cards.
    stored: usize,
    /// Number of instructions that a launch runs on all cards: a loop counts once, its body once in each round.
    instructions: u64,
    t2_us: Spread,
    /// Times of the last launch, by rank.
    ranks: Vec<PrintedRank>,
}

#[derive(Debug, JsonSchema, Serialize)]
struct Spread {
    first: f64,
    least: f64,
    median: f64,
    largest: f64,
}

#[derive(Debug, JsonSchema, Serialize)]
struct PrintedRank {
    rank: u32,
    node: u32,
    t1_us: f64,
    t2_us: f64,
    arrival_us: f64,
    bytes: u64,
}

/// Stores the programs of `set` and launches them `repeat` times, back to back.
pub(crate) fn run(
    cards: &mut Cards,
    set: ProgramSet,
    repeat: u32,
    timeout: Duration,
    interrupt: &Interrupt,
) -> Result<Printed> {
    let prepared = cards.cluster.prepare(&Schedule::from(set));
    let mut prepared = prepared.map_err(|error| cards.failure(error))?;
    let mut all = Summary::default();
    let mut first = None;
    for _ in 0..repeat {
        let times = interrupt.end_at_once_during(|| {
            cards.cluster.launch(&mut prepared)?;
            cards.cluster.finish(&mut prepared, timeout)
        })?;
        let cycles = times.map_err(|error| cards.failure(error))?.t2_cycles;
        first.get_or_insert(cycles);
        all.add(cycles);
    }
    let clock_khz = cards.capabilities().clock_khz;
    let us = |cycles: u64| rounded(microseconds(cycles, clock_khz));
    let t2_us = Spread {
        first: us(first.unwrap_or(0)),
        least: us(all.least()),
        median: us(all.percentile(50)),
        largest: us(all.largest()),
    };
    let set = &prepared.schedule().set;
    let rank = |(rank, one): (u32, Completion)| PrintedRank {
        rank,
        node: set.nodes[rank as usize],
        t1_us: us(one.t1),
        t2_us: us(one.t2),
        arrival_us: us(one.arrival),
        bytes: one.bytes,
    };
    Ok(Printed {
        launches: repeat,
        cards: prepared.cards(),
        doorbells: u64::from(repeat) * prepared.cards() as u64,
        stored: set.instructions().count(),
        instructions: set.programs.iter().map(|program| instructions_run(&program.instructions)).sum(),
        t2_us,
        ranks: prepared.completions().map(rank).collect(),
    })
}

/// Returns the number of instructions that a launch of a verified program runs.
fn instructions_run(program: &[Instruction]) -> u64 {
    let (mut run, mut at) = (0, 0);
    while let Some(instruction) = program.get(at) {
        let body = usize::from(instruction.loop_body);
        run += 1 + body as u64 * u64::from(instruction.loop_count);
        at += 1 + body;
    }
    run
}

impl Printed {
    /// Formats the launches for people.
    pub(crate) fn text(&self) -> String {
        let Printed { launches, cards, doorbells, stored, instructions, t2_us, .. } = self;
        let heads = ["RANK", "NODE", "T1 us", "T2 us", "ARRIVAL us", "BYTES"];
        let rows = self.ranks.iter().map(|one| {
            let [t1, t2, arrival] = [one.t1_us, one.t2_us, one.arrival_us].map(|us| format!("{us:.3}"));
            [one.rank.to_string(), one.node.to_string(), t1, t2, arrival, one.bytes.to_string()]
        });
        let mut text = crate::output::headed(heads, rows);
        text += &format!(
            "{}, {} on {}: {} instructions stored, {instructions} run per launch\n\
             T2 of a launch: first {:.3} us, min {:.3}, median {:.3}, max {:.3}\n",
            counted(u64::from(*launches), "launch", "launches"),
            counted(*doorbells, "doorbell", "doorbells"),
            counted(*cards as u64, "card", "cards"),
            stored,
            t2_us.first,
            t2_us.least,
            t2_us.median,
            t2_us.largest
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_of_a_loop_runs_in_each_round() {
        let (nop, barrier) = (Instruction::nop(), Instruction::barrier());
        assert_eq!(instructions_run(&[nop, barrier]), 2);
        assert_eq!(instructions_run(&[Instruction::repeat(65_535, 1), barrier]), 65_536);
        let twice = [nop, Instruction::repeat(3, 2), nop, barrier, Instruction::repeat(2, 1), nop, nop];
        assert_eq!(instructions_run(&twice), 1 + 7 + 3 + 1);
    }
}

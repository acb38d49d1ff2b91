//! Tests of a command sequencer: instructions, interrupts, card memory.

use std::time::{Duration, Instant};

use cmdseq::Instruction;
use fpga_driver::{Card, CardFunctions, Error};

use crate::data::{compare, pattern};
use crate::selftest::checks::{Checks, Failed, Result, TESTED_BYTES, restoring, timed};

/// Instructions that are timed.
const INSTRUCTIONS: u32 = 1000;
/// Time limit of each wait.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Tests the sequencer of a function. Returns whether it is a model; `None` without a sequencer.
pub(super) fn test(checks: &mut Checks<'_>, functions: CardFunctions) -> Option<bool> {
    if checks.is_interrupted() {
        return None;
    }
    let mut card = match Card::open(functions) {
        Ok(card) => card,
        Err(Error::NoSequencer { .. }) => return None,
        Err(error) => {
            checks.run("sequencer", || Err::<String, _>(error));
            return Some(false);
        }
    };
    checks.run("sequencer", || describe(&card));
    checks.run("instructions", || instructions(&mut card));
    checks.run("card memory", || memory(&mut card));
    checks.run("errors", || errors(&card));
    Some(card.is_mock())
}

fn describe(card: &Card) -> Result<String> {
    let ((major, minor), of) = (card.version(), card.capabilities());
    let (node, nodes, topology) = (card.node(), of.nodes, of.topology.name());
    Ok(format!("registers {major}.{minor}, {} MHz, node {node} of {nodes} ({topology})", of.clock_khz / 1000))
}

fn instructions(card: &mut Card) -> Result<String> {
    let began = Instant::now();
    for _ in 0..INSTRUCTIONS {
        card.run([Instruction::nop()], TIMEOUT)?;
    }
    let us = began.elapsed().as_secs_f64() * 1e6 / f64::from(INSTRUCTIONS);
    Ok(format!("{INSTRUCTIONS} no-ops one by one, {us:.1} us each from doorbell to completion"))
}

fn memory(card: &mut Card) -> Result<String> {
    let bytes = usize::try_from(card.capabilities().memory_bytes).unwrap_or(TESTED_BYTES).min(TESTED_BYTES);
    if bytes == 0 {
        return Err(Failed::Other("the card says that it has no memory".to_owned()));
    }
    restoring(card, bytes, |card| written_and_read(card, bytes))
}

fn written_and_read(card: &mut Card, bytes: usize) -> Result<String> {
    let (mut data, mut back) = (vec![0; bytes], vec![0; bytes]);
    pattern(1, 0, 0, &mut data);
    let write = timed(bytes, || card.write_memory(0, &data))?;
    let read = timed(bytes, || card.read_memory(0, &mut back))?;
    compare(0, &data, &back)?;
    Ok(format!("{} MiB written and read back: write {write}, read {read}", bytes >> 20))
}

fn errors(card: &Card) -> Result<String> {
    let health = card.sequencer_state()?.health;
    let of_sequencer = (!health.is_good()).then(|| health.to_string());
    let of_shell = card.shell_errors()?.into_iter().map(|one| one.to_string());
    let errors: Vec<String> = of_sequencer.into_iter().chain(of_shell).collect();
    match errors.is_empty() {
        true => Ok(health.pcie.filter(|pcie| pcie.correctable != 0).map_or("none reported".to_owned(), |pcie| {
            format!("none reported but corrected PCIe errors ({:#010x})", pcie.correctable)
        })),
        false => Err(Failed::Other(errors.join("; "))),
    }
}

//! Tests of Intel's mSGDMA engine: data through both kinds of completion, and rates.

use fpga_driver::msgdma::{Completion, Engine, Error};
use fpga_hal::Function;

use crate::interrupt::Interrupt;
use crate::selftest::checks::{self, Checks, Result, TESTED_BYTES, restoring, timed};

/// Tests the engine of a function. Returns whether it has one.
pub(super) fn test(checks: &mut Checks<'_>, function: &Function, interrupt: &Interrupt) -> bool {
    for (id, completion) in [("msgdma, poll mode", Completion::Poll), ("msgdma, interrupts", Completion::Interrupt)] {
        if checks.is_interrupted() {
            return false;
        }
        let mut engine = match Engine::open(function.clone(), completion) {
            Ok(engine) => engine,
            Err(Error::NoEngine { .. }) => return false,
            Err(error) => {
                checks.run(id, || Err::<String, _>(error));
                return true;
            }
        };
        checks.run(id, || restoring(&mut engine, TESTED_BYTES, |engine| transfers(engine, completion, interrupt)));
        if completion == Completion::Interrupt {
            checks.run("msgdma, rates", || restoring(&mut engine, TESTED_BYTES, rates));
        }
    }
    true
}

fn transfers(engine: &mut Engine, completion: Completion, interrupt: &Interrupt) -> Result<String> {
    let lengths = checks::transfers(engine, interrupt)?;
    let by = if completion == Completion::Poll { "a word in host memory" } else { "MSI-X" };
    Ok(format!("{lengths}, completed by {by}"))
}

fn rates(engine: &mut Engine) -> Result<String> {
    let mut data = vec![0; TESTED_BYTES];
    let write = timed(TESTED_BYTES, || engine.write(0, &data))?;
    let read = timed(TESTED_BYTES, || engine.read(0, &mut data))?;
    Ok(format!("engine: write {write}, read {read}"))
}

//! Tests of Intel's mSGDMA engine: data through both kinds of completion, and rates.

use std::time::Instant;

use fpga_driver::msgdma::{Completion, Engine, Error};
use fpga_hal::Function;

use crate::data::pattern;
use crate::interrupt::Interrupt;
use crate::selftest::checks::{Checks, NotRestored, TESTED_BYTES, WrongData, after_restoring, compare, rate};

/// Lengths of transfers: around lines, pages and buffers.
const LENGTHS: [usize; 9] = [1, 3, 63, 64, 65, 4095, 4097, 1 << 20, TESTED_BYTES - 1];

/// Why a test of an engine failed.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Engine(#[from] Error),
    #[error(transparent)]
    Data(#[from] WrongData),
    #[error(transparent)]
    NotRestored(#[from] NotRestored),
    #[error("interrupted")]
    Interrupted,
}

/// Tests the engine of a function. Returns whether it has one.
pub(super) fn test(checks: &mut Checks, function: &Function, interrupt: &Interrupt) -> bool {
    for (id, completion) in [("msgdma, poll mode", Completion::Poll), ("msgdma, interrupts", Completion::Interrupt)] {
        let mut engine = match Engine::open(function.clone(), completion) {
            Ok(engine) => engine,
            Err(Error::NoEngine { .. }) => return false,
            Err(error) => {
                checks.run(id, || Err::<String, _>(error));
                return true;
            }
        };
        checks.run(id, || restoring(&mut engine, |engine| transfers(engine, completion, interrupt)));
        if completion == Completion::Interrupt {
            checks.run("msgdma, rates", || restoring(&mut engine, rates));
        }
    }
    true
}

/// Runs a test between saving and restoring the card memory that it uses.
fn restoring(engine: &mut Engine, test: impl FnOnce(&mut Engine) -> Result<String, Failed>) -> Result<String, Failed> {
    let mut saved = vec![0; TESTED_BYTES];
    engine.read(0, &mut saved)?;
    let tested = test(engine);
    // A failed transfer may have left the engine stuck. Memory keeps its contents.
    let ended = if tested.is_err() { engine.reset() } else { Ok(()) };
    let restored = ended.and_then(|()| engine.write(0, &saved)).map_err(Failed::from);
    after_restoring(tested, restored, TESTED_BYTES)
}

fn transfers(engine: &mut Engine, completion: Completion, interrupt: &Interrupt) -> Result<String, Failed> {
    let (mut data, mut back) = (vec![0; TESTED_BYTES], vec![0; TESTED_BYTES]);
    for (number, bytes) in LENGTHS.into_iter().enumerate() {
        if interrupt.check().is_err() {
            return Err(Failed::Interrupted);
        }
        pattern(number as u64, 0, 0, &mut data[..bytes]);
        let address = (TESTED_BYTES - bytes).min(number) as u64;
        engine.write(address, &data[..bytes])?;
        back.fill(0);
        engine.read(address, &mut back[..bytes])?;
        compare(address, &data[..bytes], &back[..bytes])?;
    }
    let by = if completion == Completion::Poll { "a word in host memory" } else { "MSI-X" };
    Ok(format!("{} lengths up to 4 MiB, completed by {by}", LENGTHS.len()))
}

fn rates(engine: &mut Engine) -> Result<String, Failed> {
    let mut data = vec![0; TESTED_BYTES];
    let began = Instant::now();
    engine.write(0, &data)?;
    let write = rate(TESTED_BYTES, began.elapsed().as_secs_f64());
    let began = Instant::now();
    engine.read(0, &mut data)?;
    let read = rate(TESTED_BYTES, began.elapsed().as_secs_f64());
    Ok(format!("engine: write {write}, read {read}"))
}

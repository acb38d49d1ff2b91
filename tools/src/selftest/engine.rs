//! Tests of an XDMA engine: data through both kinds of completion, and rates beside those of a BAR.

use fpga_driver::xdma::{Completion, Direction, Engine, Error};
use fpga_hal::{BarIndex, Function};

use crate::data::{compare, pattern};
use crate::interrupt::Interrupt;
use crate::selftest::checks::{self, Checks, Failed, Result, TESTED_BYTES, restoring, timed};

/// Bytes that are read and written through a BAR, a word at a time.
const BAR_BYTES: usize = 64 << 10;
/// Smallest BAR that can be a window on card memory.
const BYPASS_BYTES_MIN: u64 = 1 << 20;

/// Tests the engine of a function. Returns whether it has one.
pub(super) fn test(checks: &mut Checks<'_>, function: &Function, interrupt: &Interrupt) -> bool {
    for (id, completion) in [("xdma, poll mode", Completion::Poll), ("xdma, interrupts", Completion::Interrupt)] {
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
            checks.run("xdma, rates", || restoring(&mut engine, TESTED_BYTES, |engine| rates(engine, function)));
        }
    }
    true
}

fn transfers(engine: &mut Engine, completion: Completion, interrupt: &Interrupt) -> Result<String> {
    let lengths = checks::transfers(engine, interrupt)?;
    let [h2c, c2h] = Direction::ALL.map(|direction| engine.channels(direction));
    let by = if completion == Completion::Poll { "a word in host memory" } else { "MSI-X" };
    Ok(format!("{h2c} H2C and {c2h} C2H channels; {lengths}, completed by {by}"))
}

fn rates(engine: &mut Engine, function: &Function) -> Result<String> {
    let mut data = vec![0; TESTED_BYTES];
    pattern(TESTED_BYTES as u64, 0, 0, &mut data);
    let write = timed(TESTED_BYTES, || engine.write(0, &data))?;
    let read = timed(TESTED_BYTES, || engine.read(0, &mut data))?;
    let by_engine = format!("engine: write {write}, read {read}");
    let Some(bar) = bypass(function) else { return Ok(by_engine) };
    let window = function.window(bar).map_err(Failed::Window)?;
    let words = || (0..BAR_BYTES as u64).step_by(8);
    // Read before anything is written: what the BAR shows may be other memory, which nobody has saved.
    let mut wrong = None;
    let read = timed(BAR_BYTES, || {
        words().zip(data.as_chunks().0).try_for_each(|(at, word)| {
            let found = window.read_u64(at)?;
            wrong = wrong.or((found != u64::from_le_bytes(*word)).then_some((at, found)));
            Ok(())
        })
    })
    .map_err(Failed::Window)?;
    if let Some((at, found)) = wrong {
        return Err(Failed::other(format!("{bar} reads {found:#x} at {at:#x}, not what the engine wrote there")));
    }
    // What the BAR writes, the engine reads.
    let write = timed(BAR_BYTES, || words().try_for_each(|at| window.write_u64(at, at))).map_err(Failed::Window)?;
    let mut back = vec![0; BAR_BYTES];
    engine.read(0, &mut back)?;
    let wrote: Vec<u8> = words().flat_map(u64::to_le_bytes).collect();
    compare(0, &wrote, &back)?;
    Ok(format!("{by_engine}; {bar}: write {write}, read {read}"))
}

/// Returns the window on card memory, as AMD's drivers find it: the last of three or more BARs.
fn bypass(function: &Function) -> Option<BarIndex> {
    let bars: Vec<BarIndex> = (0..6).filter_map(BarIndex::new).filter(|bar| function.bar(*bar).is_some()).collect();
    let last = bars.last().filter(|_| bars.len() > 2).copied();
    let is_large = |bar: &BarIndex| function.bar(*bar).is_some_and(|layout| layout.bytes >= BYPASS_BYTES_MIN);
    last.filter(is_large)
}

//! Tests of a host exerciser: data from host memory and back, and rates.

use fpga_driver::dfl::{Error, Exercise, Exerciser};
use fpga_hal::Function;

use crate::interrupt::Interrupt;
use crate::selftest::checks::{Checks, Failed, Result, rate};

/// Lines of runs: one request, parts of requests, and the most.
const LINES: [u32; 8] = [1, 2, 15, 16, 17, 255, 1000, 1024];
/// Lines of a request.
const REQUESTS: [u32; 5] = [1, 2, 4, 8, 16];

/// Tests the host exerciser of a function. Returns whether it has one.
pub(super) fn test(checks: &mut Checks<'_>, function: &Function, interrupt: &Interrupt) -> bool {
    if checks.is_interrupted() {
        return false;
    }
    let opened = Exerciser::open(function.clone());
    if let Err(Error::NoExerciser { .. }) = opened {
        return false;
    }
    checks.run("host exerciser", || run(opened?, interrupt));
    true
}

fn run(mut exerciser: Exerciser, interrupt: &Interrupt) -> Result<String> {
    let mut rates = Vec::new();
    for (exercise, name) in Exercise::ALL.into_iter().zip(["loopback", "read", "write", "throughput"]) {
        let mut last = None;
        for (lines, request_lines) in LINES.iter().flat_map(|lines| REQUESTS.map(|request| (*lines, request))) {
            interrupt.check().map_err(|_| Failed::Interrupted)?;
            let run = exerciser.run(exercise, lines, request_lines, u64::from(lines * request_lines))?;
            let (reads, writes) = match exercise {
                Exercise::Loopback | Exercise::Throughput => (run.lines_read, run.lines_written),
                Exercise::Read => (run.lines_read, lines.into()),
                Exercise::Write => (lines.into(), run.lines_written),
            };
            if (reads, writes) != (lines.into(), lines.into()) {
                return Err(Failed::other(format!("{name} of {lines} lines: {reads} read, {writes} written")));
            }
            last = Some(run);
        }
        let by_its_clock = last.map_or(0.0, |run| run.bytes_per_second());
        rates.push(format!("{name} {}", rate(by_its_clock as usize, 1.0)));
    }
    Ok(format!("1 to 1024 lines in {} lengths; by its clock: {}", LINES.len(), rates.join(", ")))
}

//! Measures the latency of a bus: the same four times on each, printed side by side.

use std::fmt;
use std::time::{Duration, Instant};

use cmdseq::Instruction;
use fpga_hal::Function;

use crate::conformance::{LONG, QUEUE, Raw, SCRATCH};

/// Median and 99th percentile of the runs.
#[derive(Debug, Clone, Copy)]
pub struct Quantiles {
    /// Median.
    pub p50: Duration,
    /// 99th percentile.
    pub p99: Duration,
}

impl fmt::Display for Quantiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |time: Duration| time.as_nanos() as f64 / 1e3;
        let text = format!("{:.2} / {:.2}", us(self.p50), us(self.p99));
        f.pad(&text)
    }
}

/// Times of one bus.
#[derive(Debug, Clone, Copy)]
pub struct BusTimes {
    /// A register read.
    pub read: Quantiles,
    /// A posted register write.
    pub write: Quantiles,
    /// From the doorbell of a no-op to its completion in host memory.
    pub completion: Quantiles,
    /// From the doorbell of a no-op to the wake-up by its interrupt.
    pub interrupt: Quantiles,
}

/// Names of the columns of [`BusTimes`] as it is displayed.
pub const COLUMNS: [&str; 4] = ["register read", "register write", "doorbell to completion", "doorbell to interrupt"];

/// Measures on a mock card, which is reset before and after, `runs` times each.
///
/// # Panics
/// If the card fails.
pub fn measure(function: &Function, runs: usize) -> BusTimes {
    let mut raw = Raw::open(function);
    let interrupts = function.enable_interrupts(1).expect("a vector");
    let read = quantiles(runs, || assert_eq!(raw.registers.read_u32(SCRATCH).expect("a read"), 0));
    let write = quantiles(runs, || raw.registers.write_u32(SCRATCH, 1).expect("a write"));
    let completion = quantiles(runs, || {
        raw.submit(Instruction::nop());
        assert!(raw.completion(LONG).is_some(), "it completes");
    });
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        raw.write(QUEUE + 0x20, raw.stored);
        let begin = Instant::now();
        raw.submit(Instruction::nop());
        assert!(interrupts[0].wait(LONG).expect("a wait"), "it interrupts");
        times.push(begin.elapsed());
        assert!(raw.completion(LONG).is_some(), "it completes");
    }
    BusTimes { read, write, completion, interrupt: of(times) }
}

impl fmt::Display for BusTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (quantiles, column) in [self.read, self.write, self.completion, self.interrupt].iter().zip(COLUMNS) {
            write!(f, "  {quantiles:>width$}", width = column.len().max(16))?;
        }
        Ok(())
    }
}

/// Returns the heading line of the table.
pub fn heading() -> String {
    let columns = COLUMNS.iter().map(|column| format!("  {column:>width$}", width = column.len().max(16)));
    format!("{:<12}{}", "us, p50/p99", columns.collect::<String>())
}

fn quantiles(runs: usize, mut run: impl FnMut()) -> Quantiles {
    let time = || {
        let begin = Instant::now();
        run();
        begin.elapsed()
    };
    of(std::iter::repeat_with(time).take(runs).collect())
}

fn of(mut times: Vec<Duration>) -> Quantiles {
    times.sort_unstable();
    let at = |hundredths: usize| times.get(times.len() * hundredths / 100).copied().unwrap_or_default();
    Quantiles { p50: at(50), p99: at(99) }
}

//! Checks of one card, and what they share.

use std::time::Instant;

use cmdseq::text::with_causes;
use fpga_driver::{Card, channel, dfl, msgdma, xdma};
use schemars::JsonSchema;
use serde::Serialize;

use crate::data::{WrongData, compare, pattern};
use crate::interrupt::Interrupt;

/// Card memory that a test uses. Its contents are saved before and restored after.
pub(super) const TESTED_BYTES: usize = 4 << 20;
/// Lengths of transfers: around the beats, lines, pages and buffers of engines.
const LENGTHS: [usize; 9] = [1, 3, 63, 64, 65, 4095, 4097, 1 << 20, TESTED_BYTES - 1];

/// One check.
#[derive(Debug, JsonSchema, Serialize)]
pub(super) struct Check {
    pub(super) id: &'static str,
    pub(super) ok: bool,
    /// What was found; the reason of a failure.
    pub(super) found: String,
    /// Time that the check took.
    pub(super) ms: f64,
}

/// The checks of one card, so far.
#[derive(Debug)]
pub(super) struct Checks<'a> {
    pub(super) done: Vec<Check>,
    interrupt: &'a Interrupt,
}

impl<'a> Checks<'a> {
    pub(super) fn new(interrupt: &'a Interrupt) -> Self {
        Checks { done: Vec::new(), interrupt }
    }

    /// Whether a signal has come. Then no further part is opened, which may reset the card, and no check runs.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupt.check().is_err()
    }

    /// Runs a check, unless a signal has come.
    pub(super) fn run<E: std::error::Error>(
        &mut self,
        id: &'static str,
        check: impl FnOnce() -> std::result::Result<String, E>,
    ) {
        if self.is_interrupted() {
            return;
        }
        let began = Instant::now();
        let result = check();
        let ms = (began.elapsed().as_secs_f64() * 1e5).round() / 100.0;
        let (ok, found) = match result {
            Ok(found) => (true, found),
            Err(error) => (false, with_causes(&error)),
        };
        self.done.push(Check { id, ok, found, ms });
    }
}

/// Why a test failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    #[error(transparent)]
    Card(#[from] fpga_driver::Error),
    #[error(transparent)]
    Xdma(#[from] xdma::Error),
    #[error(transparent)]
    Msgdma(#[from] msgdma::Error),
    #[error(transparent)]
    Control(#[from] dfl::Error),
    #[error(transparent)]
    Channel(#[from] channel::Error),
    #[error(transparent)]
    Data(#[from] WrongData),
    #[error("a window on card memory")]
    Window(#[source] fpga_hal::Error),
    /// The test, or what restores the memory that it used; `first` is the first failure.
    #[error("{first}; {bytes} bytes at 0x0 are not restored")]
    NotRestored { first: String, bytes: usize },
    #[error("interrupted")]
    Interrupted,
    #[error("{0}")]
    Other(String),
}

impl Failed {
    pub(super) fn other(what: impl Into<String>) -> Self {
        Failed::Other(what.into())
    }
}

/// Result with the failure of a test.
pub(super) type Result<T> = std::result::Result<T, Failed>;

/// What moves bytes to and from card memory.
pub(super) trait CardMemory {
    fn read(&mut self, address: u64, data: &mut [u8]) -> Result<()>;

    fn write(&mut self, address: u64, data: &[u8]) -> Result<()>;

    /// Ends what a failed transfer has left in flight. Memory keeps its contents.
    fn end_transfers(&mut self) -> Result<()>;
}

macro_rules! card_memory {
    ($($moves:ty: $read:ident, $write:ident, $end_transfers:ident;)*) => {$(
        impl CardMemory for $moves {
            fn read(&mut self, address: u64, data: &mut [u8]) -> Result<()> {
                Ok(self.$read(address, data)?)
            }

            fn write(&mut self, address: u64, data: &[u8]) -> Result<()> {
                Ok(self.$write(address, data)?)
            }

            fn end_transfers(&mut self) -> Result<()> {
                Ok(self.$end_transfers()?)
            }
        }
    )*};
}

// The methods of each type that move and end.
card_memory! {
    Card: read_memory, write_memory, abort;
    xdma::Engine: read, write, reset;
    msgdma::Engine: read, write, reset;
}

/// Runs a test between saving and restoring the first `bytes` bytes of card memory.
pub(super) fn restoring<M: CardMemory>(
    memory: &mut M,
    bytes: usize,
    test: impl FnOnce(&mut M) -> Result<String>,
) -> Result<String> {
    let mut saved = vec![0; bytes];
    memory.read(0, &mut saved)?;
    let tested = test(memory);
    let ended = if tested.is_err() { memory.end_transfers() } else { Ok(()) };
    match ended.and_then(|()| memory.write(0, &saved)) {
        Ok(()) => tested,
        Err(error) => Err(Failed::NotRestored { first: with_causes(&tested.err().unwrap_or(error)), bytes }),
    }
}

/// Writes and reads back transfers of several lengths, and describes the lengths.
pub(super) fn transfers(memory: &mut impl CardMemory, interrupt: &Interrupt) -> Result<String> {
    let (mut data, mut back) = (vec![0; TESTED_BYTES], vec![0; TESTED_BYTES]);
    for (number, bytes) in LENGTHS.into_iter().enumerate() {
        interrupt.check().map_err(|_| Failed::Interrupted)?;
        pattern(number as u64, 0, 0, &mut data[..bytes]);
        let address = (TESTED_BYTES - bytes).min(number) as u64;
        memory.write(address, &data[..bytes])?;
        back.fill(0);
        memory.read(address, &mut back[..bytes])?;
        compare(address, &data[..bytes], &back[..bytes])?;
    }
    Ok(format!("{} lengths up to 4 MiB", LENGTHS.len()))
}

/// Moves `bytes` bytes, and returns their rate.
pub(super) fn timed<E>(
    bytes: usize,
    act: impl FnOnce() -> std::result::Result<(), E>,
) -> std::result::Result<String, E> {
    let began = Instant::now();
    act()?;
    Ok(rate(bytes, began.elapsed().as_secs_f64()))
}

/// Bytes per time, for people.
pub(super) fn rate(bytes: usize, seconds: f64) -> String {
    let rate = bytes as f64 / (1 << 20) as f64 / seconds.max(1e-9);
    if rate < 10.0 { format!("{rate:.1} MiB/s") } else { format!("{rate:.0} MiB/s") }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn no_check_runs_after_a_signal() {
        let interrupt = Interrupt::default();
        let mut checks = Checks::new(&interrupt);
        checks.run("first", || Ok::<_, Failed>(String::new()));
        interrupt.flag().store(true, Ordering::Relaxed);
        checks.run("second", || -> Result<String> { panic!("it runs") });
        assert_eq!(checks.done.iter().map(|check| check.id).collect::<Vec<_>>(), ["first"]);
    }
}

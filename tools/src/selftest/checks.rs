//! Checks of one card, and what they share.

use std::time::Instant;

use schemars::JsonSchema;
use serde::Serialize;

use crate::exit::with_causes;

/// Card memory that a test uses. Its contents are saved before and restored after.
pub(super) const TESTED_BYTES: usize = 4 << 20;

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
#[derive(Debug, Default)]
pub(super) struct Checks(pub(super) Vec<Check>);

impl Checks {
    /// Runs a check.
    pub(super) fn run<E: std::error::Error>(
        &mut self,
        id: &'static str,
        check: impl FnOnce() -> std::result::Result<String, E>,
    ) {
        let began = Instant::now();
        let result = check();
        let ms = (began.elapsed().as_secs_f64() * 1e5).round() / 100.0;
        let (ok, found) = match result {
            Ok(found) => (true, found),
            Err(error) => (false, with_causes(&error)),
        };
        self.0.push(Check { id, ok, found, ms });
    }
}

/// A test that has failed, or what restores the memory that it used.
#[derive(Debug, thiserror::Error)]
#[error("{first}; {bytes} bytes at 0x0 are not restored")]
pub(super) struct NotRestored {
    /// The first failure.
    first: String,
    bytes: usize,
}

/// Returns how a test has ended that used `bytes` of card memory, given whether they were `restored`.
pub(super) fn after_restoring<T, E: std::error::Error + From<NotRestored>>(
    tested: std::result::Result<T, E>,
    restored: std::result::Result<(), E>,
    bytes: usize,
) -> std::result::Result<T, E> {
    match restored {
        Ok(()) => tested,
        Err(error) => Err(NotRestored { first: with_causes(&tested.err().unwrap_or(error)), bytes }.into()),
    }
}

/// Data that is not what was written.
#[derive(Debug, thiserror::Error)]
#[error("wrong data at card address {address:#x}: wrote {wrote:#04x}, read {read:#04x}")]
pub(super) struct WrongData {
    address: u64,
    wrote: u8,
    read: u8,
}

/// Compares what was read from card memory with what was written.
pub(super) fn compare(address: u64, wrote: &[u8], read: &[u8]) -> std::result::Result<(), WrongData> {
    let differs = wrote.iter().zip(read).position(|(wrote, read)| wrote != read);
    match differs {
        Some(place) => Err(WrongData { address: address + place as u64, wrote: wrote[place], read: read[place] }),
        None => Ok(()),
    }
}

/// Bytes per time, for people.
pub(super) fn rate(bytes: usize, seconds: f64) -> String {
    let rate = bytes as f64 / (1 << 20) as f64 / seconds.max(1e-9);
    if rate < 10.0 { format!("{rate:.1} MiB/s") } else { format!("{rate:.0} MiB/s") }
}

//! Readers of published counters. A file may be of anybody and hold anything: every word is checked.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use cmdseq::text::{self, is_harmful};
use fpga_hal::memory::read_words;

use super::sensed::{self, SensedValue};
use super::{
    FLAG_MOCK, MAGIC, PREFIX, SENSOR_WORDS, SENSORS_MAX, UNFINISHED, VERSION, W_BYTES, W_COMMAND, W_COMPLETED, W_DEPTH,
    W_FAILED, W_LINK_FAILURES, W_LINKS, W_NAME, W_PROCESS, W_RESTARTS, W_SENSED, W_SENSOR_COUNT, W_SENSORS, W_SINCE,
    W_START, W_STATE, W_SUBMITTED, W_VERSION, WORDS, process,
};
use crate::ledger::state::State;

/// What the owner of a card has published.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CardStats {
    /// The selector or bus address that the card was opened by; cut at 512 bytes.
    pub name: String,
    /// Its node in the fabric.
    pub node: u32,
    /// Whether it is a mock card.
    pub is_mock: bool,
    /// The process that holds the card.
    pub pid: u32,
    /// Name of the process; cut at 16 bytes.
    pub command: String,
    /// Whether the process still runs. If not, the counts are the last that it stored.
    pub owner: OwnerState,
    /// When the counts began.
    pub since: SystemTime,
    /// State of the queue.
    pub state: State,
    /// Entries of each ring of the queue.
    pub depth: u32,
    /// Instructions that the card was told of.
    pub submitted: u64,
    /// Completions taken, at most `submitted`.
    pub completed: u64,
    /// Completions with a status other than done: aborted instructions too.
    pub failed: u64,
    /// Bytes that completed instructions moved.
    pub bytes: u64,
    /// How often the queue was started again after an abort or a reset.
    pub restarts: u64,
    /// Links to other cards; 0 if the owner does not publish it.
    pub links: u32,
    /// Instructions that failed because a link was missing or down; they are among `failed`.
    pub link_failures: u64,
    /// The sensors that the owner reads; empty if the card has none, or the owner does not read them.
    pub sensors: Vec<SensedValue>,
    /// When the sensors were read last; `None` if never.
    pub sensed: Option<SystemTime>,
}

impl CardStats {
    /// Instructions on the card and not completed, at most [`depth`](CardStats::depth).
    pub fn in_flight(&self) -> u32 {
        u32::try_from(self.submitted.saturating_sub(self.completed)).unwrap_or(u32::MAX).min(self.depth)
    }
}

/// Whether the owner of a file still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerState {
    /// The process runs.
    Alive,
    /// The process has ended and left its file.
    Gone,
}

/// A file without valid counters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatsError {
    /// The operating system refuses it.
    #[error("Cannot read {}", printable(path))]
    Io {
        /// The file, or the directory.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The content is not that of a statistics file.
    #[error("{} is no statistics file: {what}", printable(path))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Another version of this program wrote the file.
    #[error("{} has version {found} of the format: expected {VERSION}", printable(path))]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
}

/// Reads a file of published counters.
///
/// # Errors
/// [`StatsError`]; a file may hold anything.
pub fn read_stats(path: &Path) -> Result<CardStats, StatsError> {
    let words = read_words(path, WORDS).map_err(|source| match source.kind() {
        io::ErrorKind::InvalidData => StatsError::Invalid { path: path.into(), what: source.to_string() },
        _ => StatsError::Io { path: path.into(), source },
    })?;
    let invalid = |what: String| StatsError::Invalid { path: path.into(), what };
    let word = |index: usize| words[index];
    let (low, high) = (|index| word(index) as u32, |index| (word(index) >> 32) as u32);
    if word(0) != MAGIC {
        return Err(invalid(format!("its first word is {:#018x}", word(0))));
    }
    if low(W_VERSION) != VERSION {
        return Err(StatsError::Version { path: path.into(), found: low(W_VERSION) });
    }
    let state = match word(W_STATE) {
        1 => State::Running,
        2 => State::Stopped,
        3 => State::Poisoned,
        4 => State::Gone,
        other => return Err(invalid(format!("its state is {other}: expected 1 to 4"))),
    };
    let depth = low(W_DEPTH);
    if !depth.is_power_of_two() {
        return Err(invalid(format!("the depth of its queue is {depth}: expected a power of two")));
    }
    let (completed, submitted) = (word(W_COMPLETED), word(W_SUBMITTED));
    // Words are not ordered among each other: a count may be ahead by what was in flight.
    if completed > submitted.saturating_add(u64::from(depth)) {
        return Err(invalid(format!("it has {completed} completions of {submitted} instructions")));
    }
    if word(W_FAILED) > completed.saturating_add(u64::from(depth)) {
        return Err(invalid(format!("{} of its {completed} completions failed", word(W_FAILED))));
    }
    let text = |range: std::ops::Range<usize>, what| {
        text(&words[range]).ok_or_else(|| invalid(format!("the name of its {what} is not printable text")))
    };
    let count = low(W_SENSOR_COUNT) as usize;
    if count > SENSORS_MAX {
        return Err(invalid(format!("it has {count} sensors: expected at most {SENSORS_MAX}")));
    }
    let (entries, _) = words[W_SENSORS..].as_chunks::<SENSOR_WORDS>();
    let sensor = |(index, entry)| {
        sensed::read(entry, self::text)
            .ok_or_else(|| invalid(format!("sensor {index} has a wrong name, unit or state")))
    };
    let sensors = entries.iter().take(count).enumerate().map(sensor).collect::<Result<Vec<_>, _>>()?;
    let mut names = HashSet::new();
    if let Some(twice) = sensors.iter().find(|one| !names.insert((&one.part, &one.name))) {
        return Err(invalid(format!("its sensor {} of {} is there twice", twice.name, twice.part)));
    }
    let since = |word: u64| SystemTime::UNIX_EPOCH + Duration::from_nanos(word);
    let pid = low(W_PROCESS);
    let owner = process::find(pid).map_err(|source| StatsError::Io { path: path.into(), source })?;
    let is_owner = owner.is_some_and(|process| process.start == word(W_START));
    Ok(CardStats {
        name: text(W_NAME, "card")?,
        node: high(W_PROCESS),
        is_mock: high(W_DEPTH) & FLAG_MOCK != 0,
        pid,
        command: text(W_COMMAND, "process")?,
        owner: if is_owner { OwnerState::Alive } else { OwnerState::Gone },
        since: since(word(W_SINCE)),
        state,
        depth,
        submitted,
        completed: completed.min(submitted),
        failed: word(W_FAILED),
        bytes: word(W_BYTES),
        restarts: word(W_RESTARTS),
        links: low(W_LINKS),
        link_failures: word(W_LINK_FAILURES),
        sensors,
        sensed: (word(W_SENSED) > 0).then(|| since(word(W_SENSED))),
    })
}

/// Returns the text in `words`, up to the first zero; `None` if it is not UTF-8 or could harm a terminal.
fn text(words: &[u64]) -> Option<String> {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0).collect();
    String::from_utf8(bytes).ok().filter(|text| !text.chars().any(is_harmful))
}

/// Returns a path as it is shown. Anybody may have chosen the name of a file.
fn printable(path: &Path) -> String {
    text::printable(&path.to_string_lossy())
}

/// Returns the process id in the name of a file of published counters, which ends with `suffix`; `None` if it is no such name. A
/// process and a number have one name, so that no other file has the same.
fn pid_of_name(name: &OsStr, suffix: &str) -> Option<u32> {
    let (pid, number) = name.to_str()?.strip_prefix(PREFIX)?.strip_suffix(suffix)?.split_once('.')?;
    let decimal = |text: &str| text.parse().ok().filter(|value: &u32| value.to_string() == text);
    decimal(number).and(decimal(pid))
}

/// Returns the files in `directory` with the name of published counters and `suffix`, each with the process id in its name.
fn named(directory: &Path, suffix: &str) -> Result<Vec<(PathBuf, u32)>, StatsError> {
    let failed = |source| StatsError::Io { path: directory.into(), source };
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if let Some(pid) = pid_of_name(&entry.file_name(), suffix) {
            paths.push((entry.path(), pid));
        }
    }
    Ok(paths)
}

/// A file of published counters, and what it holds.
pub type StatsFile = (PathBuf, Result<CardStats, StatsError>);

/// Reads all files of published counters in `directory`, in the order of their names. One with the counters of another process than its
/// name says is [`StatsError::Invalid`].
///
/// # Errors
/// [`StatsError::Io`] if the directory cannot be read. A file that vanishes meanwhile is left out.
pub fn list_stats(directory: &Path) -> Result<Vec<StatsFile>, StatsError> {
    let mut paths = named(directory, "")?;
    // By process and number, which may have any number of digits.
    paths.sort_by_key(|(path, _)| (path.as_os_str().len(), path.clone()));
    let read = |(path, pid): (PathBuf, u32)| {
        let found = read_stats(&path).and_then(|card| match card.pid {
            own if own == pid => Ok(card),
            other => {
                let what = format!("it has the counters of process {other}");
                Err(StatsError::Invalid { path: path.clone(), what })
            }
        });
        let vanished = matches!(&found, Err(StatsError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound);
        (!vanished).then_some((path, found))
    };
    Ok(paths.into_iter().filter_map(read).collect())
}

/// Removes the files in `directory` whose owners are gone, also unfinished ones and those that [`read_stats`] refuses, as far as
/// this process may, and returns their number.
///
/// # Errors
/// As [`list_stats`].
pub fn remove_gone_stats(directory: &Path) -> Result<usize, StatsError> {
    let (finished, unfinished) = (named(directory, "")?, named(directory, UNFINISHED)?);
    let gone = finished.into_iter().chain(unfinished).filter(|(path, pid)| is_left(path, *pid));
    Ok(gone.filter(|(path, _)| fs::remove_file(path).is_ok()).count())
}

/// Whether the process `pid`, by the name of the file, is gone. A file without its first words does not tell when that process
/// started: then another process with its id counts as that process.
fn is_left(path: &Path, pid: u32) -> bool {
    let words = read_words(path, W_START + 1).unwrap_or_default();
    let start = match words[..] {
        // In any version.
        [MAGIC, _, process, start] if process as u32 == pid => Some(start),
        _ => None,
    };
    match process::find(pid) {
        Ok(Some(process)) => start.is_some_and(|start| start != process.start),
        Ok(None) => true,
        Err(_) => false,
    }
}

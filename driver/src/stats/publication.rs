//! The writer of a card's published counters. On the path of an instruction it only counts and stores.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::SystemTime;
use std::{fmt, io};

use cmdseq::text::printable;
use cmdseq::{Completion, Status};
use fpga_hal::memory::PublishedWords;

use super::{
    FLAG_MOCK, MAGIC, PREFIX, VERSION, W_BYTES, W_COMMAND, W_COMPLETED, W_DEPTH, W_FAILED, W_LINK_FAILURES, W_LINKS,
    W_NAME, W_PROCESS, W_RESTARTS, W_SINCE, W_START, W_STATE, W_SUBMITTED, W_VERSION, WORDS, process,
};
use crate::ledger::state::State;

/// Files that this process has created.
static CREATED: AtomicU32 = AtomicU32::new(0);

/// What stays as it is while a card is published.
pub(crate) struct Identity<'a> {
    pub(crate) name: &'a str,
    pub(crate) node: u32,
    pub(crate) is_mock: bool,
    pub(crate) depth: u32,
    pub(crate) links: u32,
}

/// A card's file, and its counts.
pub(crate) struct Publication {
    words: Arc<PublishedWords>,
    submitted: u64,
    completed: u64,
    failed: u64,
    bytes: u64,
    restarts: u64,
    link_failures: u64,
}

impl Publication {
    /// Creates a file in `directory`.
    pub(crate) fn create(directory: &Path, card: &Identity<'_>, state: State) -> io::Result<Self> {
        let pid = std::process::id();
        let process = process::find(pid)?.ok_or_else(|| io::Error::other("/proc does not have this process"))?;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let halves = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let mut words = vec![0; WORDS];
        words[0] = MAGIC;
        words[W_VERSION] = halves(VERSION, WORDS as u32);
        words[W_PROCESS] = halves(pid, card.node);
        words[W_START] = process.start;
        words[W_SINCE] = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        words[W_DEPTH] = halves(card.depth, if card.is_mock { FLAG_MOCK } else { 0 });
        words[W_LINKS] = u64::from(card.links);
        words[W_STATE] = code(state);
        put_text(&mut words[W_NAME], card.name);
        put_text(&mut words[W_COMMAND], &process.command);
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let words = PublishedWords::create(&directory.join(format!("{PREFIX}{pid}.{number}")), &words)?.into();
        Ok(Publication { words, submitted: 0, completed: 0, failed: 0, bytes: 0, restarts: 0, link_failures: 0 })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.words.path().into()
    }

    /// Returns the words, for the sensors of the card. They are gone with the publication.
    pub(crate) fn words(&self) -> Weak<PublishedWords> {
        Arc::downgrade(&self.words)
    }

    /// Counts instructions that the card was told of.
    #[inline]
    pub(crate) fn submitted(&mut self, count: u32) {
        self.submitted += u64::from(count);
        self.words.store(W_SUBMITTED, self.submitted);
    }

    /// Counts a completion.
    #[inline]
    pub(crate) fn completed(&mut self, completion: &Completion) {
        self.completed += 1;
        self.bytes = self.bytes.wrapping_add(completion.bytes);
        self.words.store(W_COMPLETED, self.completed);
        self.words.store(W_BYTES, self.bytes);
        if completion.status != Status::Done {
            self.failed += 1;
            self.words.store(W_FAILED, self.failed);
            if completion.status == Status::LinkDown {
                self.link_failures += 1;
                self.words.store(W_LINK_FAILURES, self.link_failures);
            }
        }
    }

    /// Notes the state of the queue. A forked child, which drops its copy of a card, changes nothing.
    pub(crate) fn state(&mut self, state: State) {
        if self.words.is_here() {
            self.words.store(W_STATE, code(state));
        }
    }

    /// Counts a start of the queue after an abort or a reset.
    pub(crate) fn restarted(&mut self) {
        self.restarts += 1;
        self.words.store(W_RESTARTS, self.restarts);
    }
}

impl fmt::Debug for Publication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Publication").field(&self.words.path()).finish()
    }
}

/// The number of a state in the file.
fn code(state: State) -> u64 {
    match state {
        State::Running => 1,
        State::Stopped => 2,
        State::Poisoned => 3,
        State::Gone => 4,
    }
}

/// Puts as much of `text` into `words` as fits, in whole characters. Those that readers refuse are replaced.
pub(super) fn put_text(words: &mut [u64], text: &str) {
    let text = printable(text);
    let mut end = text.len().min(words.len() * 8);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (word, bytes) in words.iter_mut().zip(text.as_bytes()[..end].chunks(8)) {
        let mut all = [0; 8];
        all[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(all);
    }
}

//! What this process has logged: warnings, and what tokens say.

use std::sync::{Mutex, OnceLock};
use std::thread::{self, ThreadId};

struct Lines(Mutex<Vec<(ThreadId, String)>>);

impl log::Log for Lines {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn || metadata.target().ends_with("::token")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            self.0.lock().unwrap().push((thread::current().id(), record.args().to_string()));
        }
    }

    fn flush(&self) {}
}

/// Logs from now on.
pub(crate) fn begin() {
    lines();
}

/// Whether there is a line with all of `words`.
pub(crate) fn logged(words: &[&str]) -> bool {
    lines().0.lock().unwrap().iter().any(|(_, line)| words.iter().all(|word| line.contains(word)))
}

/// Number of lines of this thread, which is the test's own.
pub(crate) fn logged_here() -> usize {
    let own = thread::current().id();
    lines().0.lock().unwrap().iter().filter(|(thread, _)| *thread == own).count()
}

fn lines() -> &'static Lines {
    static LINES: OnceLock<&Lines> = OnceLock::new();
    LINES.get_or_init(|| {
        let lines: &Lines = Box::leak(Box::new(Lines(Mutex::default())));
        log::set_logger(lines).expect("no other logger");
        log::set_max_level(log::LevelFilter::Debug);
        lines
    })
}

//! What this process has logged.

use std::sync::{Mutex, OnceLock};
use std::thread::{self, ThreadId};

/// Lines of the log, with the thread of each.
pub(crate) struct Lines {
    is_kept: fn(&log::Metadata<'_>) -> bool,
    lines: Mutex<Vec<(ThreadId, String)>>,
}

impl log::Log for Lines {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        (self.is_kept)(metadata)
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            self.lines.lock().unwrap().push((thread::current().id(), record.args().to_string()));
        }
    }

    fn flush(&self) {}
}

impl Lines {
    /// Removes and returns the lines that `which` selects.
    pub(crate) fn take(&self, which: impl Fn(ThreadId, &str) -> bool) -> Vec<String> {
        let mut lines = self.lines.lock().unwrap();
        lines.extract_if(.., |(thread, line)| which(*thread, line)).map(|(_, line)| line).collect()
    }
}

/// Returns the lines logged since the first call. That call's `is_kept` decides which lines are kept.
pub(crate) fn lines(is_kept: fn(&log::Metadata<'_>) -> bool) -> &'static Lines {
    static LINES: OnceLock<&Lines> = OnceLock::new();
    LINES.get_or_init(|| {
        let lines: &Lines = Box::leak(Box::new(Lines { is_kept, lines: Mutex::default() }));
        log::set_logger(lines).expect("no other logger");
        log::set_max_level(log::LevelFilter::Debug);
        lines
    })
}

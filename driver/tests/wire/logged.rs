//! What tests look for in the log: warnings, and what tokens say.

#[path = "../../../hal/tests/vfio_user/logged.rs"]
mod lines;

use std::thread;

use lines::Lines;

/// Logs from now on.
pub(crate) fn begin() -> &'static Lines {
    lines::lines(|one| one.level() <= log::Level::Warn || one.target().ends_with("::token"))
}

/// Whether there is a line with all of `words`; it is removed.
pub(crate) fn logged(words: &[&str]) -> bool {
    !begin().take(|_, line| words.iter().all(|word| line.contains(word))).is_empty()
}

/// Number of lines of this thread, which is the test's own, since the last call.
pub(crate) fn logged_here() -> usize {
    let own = thread::current().id();
    begin().take(|thread, _| thread == own).len()
}

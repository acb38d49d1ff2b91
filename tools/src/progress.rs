//! Progress bars on stderr, if stderr is a terminal.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};

const BYTES: &str = "{msg} [{bar:30}] {bytes} of {total_bytes}, {binary_bytes_per_sec}";
const COUNT: &str = "[{bar:30}] {pos} of {len} {msg}";

fn bar(total: u64, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style.progress_chars("=> "))
}

/// Returns a bar that counts bytes.
pub(crate) fn bytes(total: u64, what: &'static str) -> ProgressBar {
    bar(total, BYTES).with_message(what)
}

/// Returns a bar that counts steps and names the current one.
pub(crate) fn count(total: u64) -> ProgressBar {
    bar(total, COUNT)
}

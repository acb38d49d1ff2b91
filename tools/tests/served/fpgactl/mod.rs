//! The command as the tests of servers run it.

use std::process::{Command, Stdio};

/// `fpgactl` with `words`, all streams piped or empty, and nothing set in its environment.
pub(crate) fn fpgactl(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    for name in ["FPGACTL_CARDS", "FPGACTL_CALIBRATION", "RUST_LOG"] {
        command.env_remove(name);
    }
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

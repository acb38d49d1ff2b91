//! Writes results to stdout: in one piece, after everything that can fail, or line by line as they come.

use std::io::{ErrorKind, Write as _};
use std::ops::ControlFlow;

use cmdseq::text::printable_lines;
use nix::errno::Errno;
pub(crate) use nix::libc::PIPE_BUF;
use nix::poll::PollFlags;
use serde::Serialize;

use crate::exit::{Exit, Failure, Result};
use crate::interrupt::{PAUSE, is_ready};

/// Prints one JSON object.
pub(crate) fn json(object: &impl Serialize) -> Result<()> {
    write(json_text(object)?.as_bytes())
}

/// Formats one JSON object, as [`json`] prints it.
pub(crate) fn json_text(object: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(object)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot serialize the result: {error}")))?;
    Ok(text + "\n")
}

/// Formats one JSON object as a line, for NDJSON.
pub(crate) fn json_line(object: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string(object)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot serialize the result: {error}")))?;
    Ok(text + "\n")
}

/// Prints one JSON object if `as_json`, else lines for people.
pub(crate) fn print(as_json: bool, object: &impl Serialize, lines: impl FnOnce() -> String) -> Result<()> {
    if as_json { json(object) } else { text(&lines()) }
}

/// Prints lines for people. What would steer their terminal, as a name of a file can, is replaced.
pub(crate) fn text(lines: &str) -> Result<()> {
    write(printable_lines(lines).as_bytes())
}

/// Prints bytes. A closed pipe, as after `head`, is not an error.
pub(crate) fn write(bytes: &[u8]) -> Result<()> {
    stream(bytes).map(|_| ())
}

/// Prints a part of an output that comes over time. Breaks once the reader has left, so that the command can end.
pub(crate) fn stream(bytes: &[u8]) -> Result<ControlFlow<()>> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(failed(&error)),
    }
}

/// Prints bytes as soon as stdout takes some, at most `most` at once, unless `check` fails before. Returns whether somebody still reads.
/// `most` bytes must fit into a stdout that is ready: into a pipe, [`PIPE_BUF`].
pub(crate) fn write_when_ready(mut bytes: &[u8], most: usize, check: impl Fn() -> Result<()>) -> Result<bool> {
    // Without a buffer, which would be written whether stdout is ready or not.
    let stdout = std::io::stdout();
    while !bytes.is_empty() {
        check()?;
        if !is_ready(&stdout, PollFlags::POLLOUT, PAUSE).map_err(|error| failed(&error))? {
            continue;
        }
        match nix::unistd::write(&stdout, &bytes[..bytes.len().min(most)]) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            // As with any pipe, who reads the output has had enough.
            Err(Errno::EPIPE) => return Ok(false),
            Err(error) => return Err(failed(&error.into())),
        }
    }
    Ok(true)
}

/// The failure to print.
pub(crate) fn failed(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("stdout: {error}"))
}

/// Returns how many columns of a terminal `text` takes: wide characters take two.
pub(crate) fn width(text: &str) -> usize {
    ratatui::text::Span::raw(text).width()
}

/// Formats a count with its noun.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Formats a table with a heading.
pub(crate) fn headed<const N: usize>(heads: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let heads = heads.map(String::from);
    table(&std::iter::once(heads).chain(rows).map(Vec::from).collect::<Vec<_>>())
}

/// Formats a table; each column is as wide as its widest cell.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(widest).collect();
    let line = |row: &Vec<String>| {
        // Format widths are limited to 65535.
        let padding = |cell: &String, widest: &usize| " ".repeat(widest - width(cell) + 2);
        let cells: String =
            row.iter().zip(&widths).map(|(cell, widest)| cell.clone() + &padding(cell, widest)).collect();
        cells.trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_line_up() {
        let row = |cells: [&str; 2]| cells.map(String::from).to_vec();
        assert_eq!(super::table(&[row(["a", "bc"]), row(["def", ""])]), "a    bc\ndef\n");
        // A wide character takes two columns.
        assert_eq!(super::table(&[row(["卡片", "bc"]), row(["def", "g"])]), "卡片  bc\ndef   g\n");
        let wide = "x".repeat(1 << 17);
        assert_eq!(super::table(&[row(["a", &wide]), row([&wide, ""])]).len(), 2 * (1 << 17) + 1 + (1 << 17) + 3);
    }
}

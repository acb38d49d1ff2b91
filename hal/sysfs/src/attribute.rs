//! Attributes: small files, links and directories, read with bounds.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use crate::error::{Error, Result};

/// More than any attribute has; a page is what the kernel gives.
const MOST_BYTES: u64 = 64 << 10;
/// More than any directory here has.
const MOST_NAMES: usize = 1 << 16;
/// Of what a malformed attribute holds, so much is shown.
const SHOWN_CHARS: usize = 80;

/// Whether an error says that the thing is not there, rather than that it cannot be read.
pub(crate) fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn absent_or<T>(path: &Path, source: io::Error) -> Result<Option<T>> {
    if is_absence(&source) { Ok(None) } else { Err(Error::Unreadable { path: path.to_owned(), source }) }
}

/// The bytes of a file, at most as many as any attribute has; `None` if it is not there.
pub(crate) fn bytes(path: &Path) -> Result<Option<Vec<u8>>> {
    let read = || {
        let mut bytes = Vec::new();
        fs::File::open(path)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map(Some).or_else(|source| absent_or(path, source))
}

/// The text of a file without the white space around it; `None` if it is not there.
///
/// Processes choose their names: what would move the cursor of a terminal does not get through.
pub(crate) fn text(path: &Path) -> Result<Option<String>> {
    let printable = |letter: char| match letter {
        '\n' | '\t' => letter,
        letter if letter.is_control() => char::REPLACEMENT_CHARACTER,
        letter => letter,
    };
    Ok(bytes(path)?.map(|bytes| String::from_utf8_lossy(&bytes).trim().chars().map(printable).collect()))
}

/// A file's text, parsed; `None` if it is not there.
pub(crate) fn parsed<T>(path: &Path, expected: &'static str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
    let Some(text) = text(path)? else { return Ok(None) };
    parse(&text).map(Some).ok_or_else(|| malformed(path, &text, expected))
}

pub(crate) fn malformed(path: &Path, content: &str, expected: &'static str) -> Error {
    Error::Malformed { path: path.to_owned(), content: content.chars().take(SHOWN_CHARS).collect(), expected }
}

/// The last part of what a link points to; `None` if there is no link.
pub(crate) fn link_name(path: &Path) -> Result<Option<String>> {
    match fs::read_link(path) {
        Ok(target) => Ok(target.file_name().map(|name| name.to_string_lossy().into_owned())),
        // It is there and not a link.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(malformed(path, "no link", "a symbolic link")),
        Err(error) => absent_or(path, error),
    }
}

/// Names in a directory, in order; `None` if it is not there.
pub(crate) fn names(path: &Path) -> Result<Option<Vec<String>>> {
    let read = || {
        let entries = fs::read_dir(path)?.take(MOST_NAMES);
        let mut names: Vec<String> =
            entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<io::Result<_>>()?;
        names.sort_unstable();
        Ok(names)
    };
    read().map(Some).or_else(|source| absent_or(path, source))
}

/// What was read, and why the rest was not.
#[derive(Debug, Default)]
pub(crate) struct Notes(pub(crate) Vec<Error>);

impl Notes {
    /// The value, or `None` and a note.
    pub(crate) fn keep<T>(&mut self, read: Result<Option<T>>) -> Option<T> {
        read.unwrap_or_else(|error| {
            self.0.push(error);
            None
        })
    }
}

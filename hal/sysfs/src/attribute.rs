//! Attributes: small files, links and directories, read with bounds.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use crate::error::{Error, Result};

/// Limit on the length of a file. The kernel returns at most a page.
const MOST_BYTES: u64 = 64 << 10;
/// Limit on the entries of a directory.
const MOST_NAMES: usize = 1 << 16;
/// Characters of a malformed attribute in an error.
const SHOWN_CHARS: usize = 80;

/// Returns whether an error means that the entry does not exist.
pub(crate) fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn absent_or<T>(path: &Path, source: io::Error) -> Result<Option<T>> {
    if is_absence(&source) { Ok(None) } else { Err(Error::Unreadable { path: path.to_owned(), source }) }
}

/// Reads a file, up to a limit. `None`: it does not exist.
pub(crate) fn bytes(path: &Path) -> Result<Option<Vec<u8>>> {
    let read = || {
        let mut bytes = Vec::new();
        fs::File::open(path)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map(Some).or_else(|source| absent_or(path, source))
}

/// Reads the text of a file, without white space around it. `None`: it does not exist.
///
/// Processes choose their own names, so control characters, which could change a terminal, are replaced.
pub(crate) fn text(path: &Path) -> Result<Option<String>> {
    let printable = |letter: char| match letter {
        '\n' | '\t' => letter,
        letter if letter.is_control() => char::REPLACEMENT_CHARACTER,
        letter => letter,
    };
    Ok(bytes(path)?.map(|bytes| String::from_utf8_lossy(&bytes).trim().chars().map(printable).collect()))
}

/// Reads and parses the text of a file. `None`: it does not exist.
pub(crate) fn parsed<T>(path: &Path, expected: &'static str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
    let Some(text) = text(path)? else { return Ok(None) };
    parse(&text).map(Some).ok_or_else(|| malformed(path, &text, expected))
}

pub(crate) fn malformed(path: &Path, content: &str, expected: &'static str) -> Error {
    Error::Malformed { path: path.to_owned(), content: content.chars().take(SHOWN_CHARS).collect(), expected }
}

/// Returns the last part of a link's target. `None`: it does not exist.
pub(crate) fn link_name(path: &Path) -> Result<Option<String>> {
    match fs::read_link(path) {
        Ok(target) => Ok(target.file_name().map(|name| name.to_string_lossy().into_owned())),
        // It exists, but is not a link.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(malformed(path, "no link", "a symbolic link")),
        Err(error) => absent_or(path, error),
    }
}

/// Returns the names in a directory, sorted. `None`: it does not exist.
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

/// Errors of values that could not be read.
#[derive(Debug, Default)]
pub(crate) struct Notes(pub(crate) Vec<Error>);

impl Notes {
    /// Returns the value, or records the error and returns `None`.
    pub(crate) fn keep<T>(&mut self, read: Result<Option<T>>) -> Option<T> {
        read.unwrap_or_else(|error| {
            self.0.push(error);
            None
        })
    }
}

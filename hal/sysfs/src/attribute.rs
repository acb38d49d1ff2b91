//! Attributes: small files, links and directories, read with bounds.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use crate::error::{Error, Result};

/// Limit on the length of a file, in bytes. An attribute of sysfs has at most a page; a list of 100,000 mounts, the kernel's default
/// limit, fits.
const MOST_BYTES: u64 = 64 << 20;
/// Limit on the entries of a directory. `/proc` has up to 4 Mi processes.
const MOST_NAMES: usize = 8 << 20;
/// Characters of a malformed attribute in an error.
const SHOWN_CHARS: usize = 80;

/// Returns whether an error means that the entry does not exist.
pub(crate) fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Returns the error of a file or directory over a limit. It is not cut: the part left out might hold what the caller looks for.
pub(crate) fn exceeds(limit: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {limit}"))
}

fn absent_or<T>(path: &Path, source: io::Error) -> Result<Option<T>> {
    if is_absence(&source) { Ok(None) } else { Err(Error::Unreadable { path: path.to_owned(), source }) }
}

/// Reads a file. `None`: it does not exist.
pub(crate) fn bytes(path: &Path) -> Result<Option<Vec<u8>>> {
    let read = || {
        let mut bytes = Vec::new();
        let length = fs::File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
        if length as u64 > MOST_BYTES { Err(exceeds(format_args!("{MOST_BYTES} bytes"))) } else { Ok(bytes) }
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
    names_up_to(path, MOST_NAMES).map(Some).or_else(|source| absent_or(path, source))
}

fn names_up_to(path: &Path, most: usize) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
        if names.len() > most {
            return Err(exceeds(format_args!("{most} entries")));
        }
    }
    names.sort_unstable();
    Ok(names)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_are_returned_or_none() {
        let directory = tempfile::tempdir().unwrap();
        ["b", "c", "a"].iter().for_each(|name| fs::write(directory.path().join(name), "").unwrap());
        assert_eq!(names_up_to(directory.path(), 3).unwrap(), ["a", "b", "c"]);
        let error = names_up_to(directory.path(), 2).unwrap_err();
        assert_eq!(error.to_string(), "more than 2 entries");
    }
}

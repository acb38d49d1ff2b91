//! Where a source comes from, and which files it may include.

/// Gives the text of a file. `path` is relative to the root folder, normal (no `.`, `..` or empty parts) and never leaves it.
pub trait Sources {
    /// Reads the file.
    ///
    /// # Errors
    /// A sentence that says why it cannot be read.
    fn read(&mut self, path: &str) -> Result<String, String>;
}

impl<F: FnMut(&str) -> Result<String, String>> Sources for F {
    fn read(&mut self, path: &str) -> Result<String, String> {
        self(path)
    }
}

/// The path that `included` means in file `from`, below the root folder.
pub(super) fn resolve(from: &str, included: &str) -> Result<String, String> {
    if included.is_empty() {
        return Err("the path is empty; it should name a file".into());
    }
    if included.starts_with('/') {
        return Err("the path is absolute; it should be relative to this file".into());
    }
    if included.contains(['\\', '\0']) {
        return Err("the path has a character that it may not have; parts are separated by `/`".into());
    }
    let mut parts: Vec<&str> = from.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    parts.pop();
    for part in included.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if parts.pop().is_none() {
                    return Err("the path leaves the root folder; only files below it can be included".into());
                }
            }
            _ => parts.push(part),
        }
    }
    if parts.is_empty() {
        return Err("the path names the root folder; it should name a file".into());
    }
    Ok(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::resolve;

    #[test]
    fn paths_stay_below_the_root() {
        assert_eq!(resolve("a/b.seq", "c.seq").unwrap(), "a/c.seq");
        assert_eq!(resolve("a/b.seq", "../c/./d.seq").unwrap(), "c/d.seq");
        assert_eq!(resolve("b.seq", "x//y.seq").unwrap(), "x/y.seq");
        for wrong in ["../c.seq", "x/../../c.seq", "/etc/passwd", "", "..", ".", "a\\b"] {
            assert!(resolve("b.seq", wrong).is_err(), "{wrong}");
        }
    }
}

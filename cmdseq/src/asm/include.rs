//! The origin of sources, and the files they may include.

/// Reads a file of a source, or returns why it is unreadable. Paths are relative to the root folder, without `.`, `..` and empty
/// parts.
pub type Sources<'a> = dyn FnMut(&str) -> Result<String, String> + 'a;

/// Returns the path below the root folder of `included` in file `from`.
pub(super) fn resolve(from: &str, included: &str) -> Result<String, String> {
    if included.is_empty() {
        return Err("empty path: expected a file".into());
    }
    if included.starts_with('/') {
        return Err("absolute path: expected one relative to this file".into());
    }
    if included.contains(['\\', '\0']) {
        return Err("invalid character in the path: separate its parts by `/`".into());
    }
    let mut parts: Vec<&str> = from.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    parts.pop();
    for part in included.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if parts.pop().is_none() {
                    return Err("the path leaves the root folder: include only files below it".into());
                }
            }
            _ => parts.push(part),
        }
    }
    if parts.is_empty() {
        return Err("the path is the root folder: expected a file".into());
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

//! Opens input files, and refuses outputs that would replace an input.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use cmdseq::text::printable;

use crate::exit::{Exit, Failure, Result};

/// Opens a regular file. Refuses pipes and devices before opening: opening a pipe waits for its other end.
pub(crate) fn open(path: &Path) -> Result<(File, Metadata)> {
    let failed = |error: std::io::Error| Failure::file(path, &error);
    if !path.metadata().map_err(failed)?.is_file() {
        return Err(Failure::refused(format!("{}: not a regular file", path.display())));
    }
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    Ok((file, metadata))
}

/// Reads a regular file: `what` of at most `most` bytes.
pub(crate) fn read(path: &Path, (what, most): (&str, u64)) -> Result<Vec<u8>> {
    let (file, metadata) = open(path)?;
    let mut bytes = Vec::new();
    // Files that the kernel makes up say that they have no bytes.
    if metadata.len() <= most {
        file.take(most + 1).read_to_end(&mut bytes).map_err(|error| Failure::file(path, &error))?;
    }
    if metadata.len().max(bytes.len() as u64) > most {
        let path = printable(&path.to_string_lossy());
        return Err(Failure::refused(format!("{path}: file too large: {what} has at most {most} B")));
    }
    Ok(bytes)
}

/// Fails if a file has more than the `bytes` that it had when it was opened. Files that the kernel makes up say that they have none.
pub(crate) fn check_end(file: &File, bytes: u64, path: &Path) -> Result<()> {
    if file.read_at(&mut [0], bytes).map_err(|error| Failure::file(path, &error))? == 0 {
        return Ok(());
    }
    let what = format!("{}: has more than {bytes} bytes, its length when it was opened", path.display());
    Err(Failure::new(Exit::Failed, what))
}

/// Identifies a file by any of its names.
#[derive(PartialEq, Eq)]
enum Identity {
    /// Device and inode, the same for all links.
    Existing(u64, u64),
    /// Canonical path of a new file, without links.
    New(PathBuf),
}

impl Identity {
    /// Returns `None` for pipes and devices, which an output never replaces.
    fn of(path: &Path) -> Option<Identity> {
        match path.metadata() {
            Ok(found) if found.is_file() => Some(Identity::Existing(found.dev(), found.ino())),
            Ok(_) => None,
            Err(_) => {
                let (target, _) = followed(path);
                let folder = folder(&target).canonicalize().ok()?;
                Some(Identity::New(folder.join(target.file_name()?)))
            }
        }
    }
}

/// Returns the directory of a file.
pub(crate) fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Follows symbolic links to a path that is none, which may not exist yet, or to an open descriptor of a process, as `/dev/stderr`
/// and `/dev/fd/3` lead to. Also returns whether it is a descriptor.
pub(crate) fn followed(path: &Path) -> (PathBuf, bool) {
    let mut path = path.to_owned();
    // The kernel follows no more links.
    for _ in 0..40 {
        let Ok(folder) = folder(&path).canonicalize() else { break };
        if folder.starts_with("/proc") && folder.ends_with("fd") {
            return (path, true);
        }
        let Ok(target) = path.read_link() else { break };
        path = folder.join(target);
    }
    (path, false)
}

/// Refuses an output that is stdout.
pub(crate) fn refuse_stdout(path: &Path) -> Result<()> {
    if !is_stdout(path) {
        return Ok(());
    }
    let what = format!("output {} is stdout, where the result is printed: expected another file", path.display());
    Err(Failure::refused(what))
}

/// Whether `path` names stdout, and that is a file, a pipe or a socket.
pub(crate) fn is_stdout(path: &Path) -> bool {
    let stdout = || File::from(std::io::stdout().as_fd().try_clone_to_owned()?).metadata();
    let (Ok(named), Ok(stdout)) = (path.metadata(), stdout()) else { return false };
    !named.file_type().is_char_device() && (named.dev(), named.ino()) == (stdout.dev(), stdout.ino())
}

/// Refuses outputs that are not writable, that are stdout, that would replace an input under any name or link, or that would
/// replace each other. Call this before any work.
pub(crate) fn check_outputs<I: AsRef<Path>, O: AsRef<Path>>(inputs: &[I], outputs: &[O]) -> Result<()> {
    let inputs: Vec<(&Path, Option<Identity>)> =
        inputs.iter().map(|path| (path.as_ref(), Identity::of(path.as_ref()))).collect();
    let mut seen: Vec<(&Path, Identity)> = Vec::new();
    for path in outputs.iter().map(AsRef::as_ref) {
        let shown = path.display();
        if path.is_dir() || path.file_name().is_none() {
            return Err(Failure::refused(format!("output {shown} is a directory: expected a file")));
        }
        let found = folder(path).metadata().map_err(|error| Failure::file(folder(path), &error))?;
        if !found.is_dir() {
            return Err(Failure::file(folder(path), &std::io::ErrorKind::NotADirectory.into()));
        }
        refuse_stdout(path)?;
        let Some(identity) = Identity::of(path) else { continue };
        if let Some((input, _)) = inputs.iter().find(|(_, one)| one.as_ref() == Some(&identity)) {
            let same = if *input == path { String::new() } else { format!(" ({})", input.display()) };
            return Err(Failure::refused(format!("output {shown} is also an input{same}")));
        }
        if let Some((other, _)) = seen.iter().find(|(_, one)| *one == identity) {
            return Err(Failure::refused(format!("outputs {} and {shown} are one file", other.display())));
        }
        seen.push((path, identity));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn an_output_is_no_input_under_any_name() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("in"), "data").unwrap();
        fs::write(at("other"), "data").unwrap();
        symlink("in", at("link")).unwrap();
        fs::hard_link(at("in"), at("hard")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        let inputs = [at("in")];
        for same in [at("in"), at("link"), at("hard"), at("folder").join("../in")] {
            let refused = check_outputs(&inputs, &[&same]).unwrap_err();
            assert_eq!(refused.exit(), Exit::Refused);
            assert!(refused.message().contains("is also an input"), "{}", refused.message());
        }
        check_outputs(&inputs, &[at("other"), at("new"), "/dev/null".into(), "/dev/null".into()]).unwrap();
        symlink("new", at("dangling")).unwrap();
        symlink("dangling", at("folder").join("../again")).unwrap();
        for twice in [
            [at("new"), at("folder").join("../new")],
            [at("other"), at("other")],
            [at("new"), at("dangling")],
            [at("again"), at("dangling")],
        ] {
            assert!(check_outputs(&inputs, &twice).unwrap_err().message().contains("one file"));
        }
        assert_eq!(check_outputs(&inputs, &[at("none/new")]).unwrap_err().exit(), Exit::NoFile);
        assert_eq!(check_outputs(&inputs, &[at("in/new")]).unwrap_err().exit(), Exit::NoFile);
        assert_eq!(check_outputs(&inputs, &[at("folder")]).unwrap_err().exit(), Exit::Refused);
    }

    #[test]
    fn only_regular_files_are_opened() {
        assert_eq!(open(Path::new("/dev/zero")).unwrap_err().exit(), Exit::Refused);
        assert_eq!(open(Path::new("/")).unwrap_err().exit(), Exit::Refused);
        assert_eq!(open(Path::new("/nowhere/x")).unwrap_err().exit(), Exit::NoFile);
    }

    #[test]
    fn no_more_is_read_than_a_file_may_have() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, ("a test", 5)).unwrap(), b"12345");
        for (path, most) in [(&*path, 4), (Path::new("/proc/self/status"), 100)] {
            let refused = read(path, ("a test", most)).unwrap_err();
            let expected = format!("{}: file too large: a test has at most {most} B", path.display());
            assert_eq!((refused.exit(), refused.message()), (Exit::Refused, &*expected));
        }
    }
}

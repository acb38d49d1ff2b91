//! Output files that appear under their names only when complete.

use std::ffi::OsString;
use std::fs::{File, Metadata, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::exit::{Failure, Result};
use crate::{input_file, interrupt, left_over};

/// How names of temporary files end.
const UNFINISHED: &str = ".part";
/// Characters of such a name that are drawn.
const DRAWN: usize = 6;
/// Most bytes of a file name in Linux.
const NAME_MAX: usize = 255;

/// An output, written to a temporary file in the same directory. Dropping it without [`commit`](Self::commit) leaves no file.
pub(crate) struct AtomicFile {
    path: PathBuf,
    writer: BufWriter<File>,
    /// `None` for a pipe, a device or an open descriptor: these are written directly, and never replaced.
    temporary: Option<TempPath>,
}

/// A complete temporary file on disk, before it gets its name.
pub(crate) struct Finished {
    path: PathBuf,
    temporary: Option<TempPath>,
}

/// Whether `name` is that of a temporary file for an output `of`.
pub(crate) fn is_unfinished(name: &str, of: &str) -> bool {
    let rest = name.as_bytes().strip_prefix(beginning(of.as_bytes()));
    let drawn = rest.and_then(|rest| rest.strip_prefix(b".")?.strip_suffix(UNFINISHED.as_bytes()));
    drawn.is_some_and(|drawn| !drawn.is_empty())
}

/// Returns what names of temporary files for an output `name` begin with: as many of its characters as leave room for the rest.
fn beginning(name: &[u8]) -> &[u8] {
    let mut end = name.len().min(NAME_MAX - ".".len() - DRAWN - UNFINISHED.len());
    let is_within_character = |end: usize| name.get(end).is_some_and(|byte| byte & 0xc0 == 0x80);
    while end > 0 && is_within_character(end) {
        end -= 1;
    }
    &name[..end]
}

/// Writes `data` to a file.
pub(crate) fn write(path: &Path, data: &[u8]) -> Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.append(data)?;
    file.commit()
}

impl AtomicFile {
    /// Creates the temporary file, with the owner and the mode of the file that it replaces. Call this before the work, to detect
    /// an unwritable path early.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return Err(Failure::refused(format!("output {} is a directory: expected a file", path.display())));
        }
        input_file::refuse_stdout(path)?;
        if let Some(file) = open_unreplaced(path)? {
            return Ok(AtomicFile { path: path.into(), writer: BufWriter::new(file), temporary: None });
        }
        if let Err(error) = path.metadata()
            && error.kind() == ErrorKind::PermissionDenied
        {
            // Also where the kernel follows no link of another user (protected_symlinks), which the next line would follow.
            return Err(Failure::file(path, &error));
        }
        // Links stay.
        let (path, _) = input_file::followed(path);
        let name = path.file_name().unwrap_or_default().as_bytes();
        let prefix = OsString::from_vec([beginning(name), b"."].concat());
        let folder = input_file::folder(&path);
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).rand_bytes(DRAWN).suffix(UNFINISHED);
        let replaced = path.metadata().ok();
        let mut options = File::options();
        // The library would create the file with mode 0600; a new file has the mode of the umask. One that replaces another is
        // private until it has its owner: whoever opens it before could read what is written later.
        options.write(true).create_new(true).mode(if replaced.is_some() { 0o600 } else { 0o666 });
        let temporary = left_over::make(|| builder.make_in(folder, |path| options.open(path)));
        let (file, temporary) = temporary.map_err(|error| Failure::file(&path, &error))?.into_parts();
        if let Some(replaced) = &replaced {
            keep_access(&file, replaced).map_err(|error| Failure::file(&path, &error))?;
        }
        Ok(AtomicFile { path, writer: BufWriter::new(file), temporary: Some(temporary) })
    }

    pub(crate) fn append(&mut self, data: &[u8]) -> Result<()> {
        self.writer.write_all(data).map_err(|error| Failure::file(&self.path, &error))
    }

    /// Writes `data`, the first of the file. If the disk has no room for all of it, keeps as much of what was written as `whole`
    /// says. Returns the bytes kept, and the error.
    pub(crate) fn append_what_fits(&mut self, data: &[u8], whole: fn(&[u8]) -> usize) -> (usize, io::Result<()>) {
        let file = self.writer.get_mut();
        let mut written = 0;
        let outcome = loop {
            if written == data.len() {
                break Ok(());
            }
            match file.write(&data[written..]) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        if outcome.is_ok() {
            return (written, outcome);
        }
        let kept = whole(&data[..written]);
        // A pipe or a device keeps what it got.
        let cut = self.temporary.as_ref().map(|_| file.set_len(kept as u64));
        (kept, outcome.or_else(|error| cut.transpose().and(Err(error))))
    }

    /// Flushes the data to disk.
    pub(crate) fn finish(mut self) -> Result<Finished> {
        self.writer.flush().map_err(|error| Failure::file(&self.path, &error))?;
        if self.temporary.is_some() {
            self.writer.get_ref().sync_all().map_err(|error| Failure::file(&self.path, &error))?;
        }
        Ok(Finished { path: self.path, temporary: self.temporary })
    }

    /// Flushes the data to disk and renames the file.
    pub(crate) fn commit(self) -> Result<()> {
        self.finish()?.commit()
    }
}

impl Finished {
    /// Renames the temporary file.
    pub(crate) fn commit(self) -> Result<()> {
        let _kept = left_over::files();
        match self.temporary {
            Some(temporary) => temporary.persist(&self.path).map_err(|error| Failure::file(&self.path, &error.error)),
            None => Ok(()),
        }
    }
}

impl Write for AtomicFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.writer.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Opens a pipe, a device or an open descriptor, which an output never replaces. Returns `None` for a file, or if there is none yet.
pub(crate) fn open_unreplaced(path: &Path) -> Result<Option<File>> {
    let (_, is_descriptor) = input_file::followed(path);
    if !path.exists() || (!is_descriptor && path.is_file()) {
        return Ok(None);
    }
    // A pipe that nobody reads is waited for. A file that the shell has opened keeps what it holds.
    let open = || File::options().write(true).append(is_descriptor).open(path);
    interrupt::ending_at_once(open).map(Some).map_err(|error| Failure::file(path, &error))
}

/// Gives `file` the owner, the group and the mode of the file that it replaces.
fn keep_access(file: &File, replaced: &Metadata) -> io::Result<()> {
    let created = file.metadata()?;
    // Only root may give a file to another user, and only root or a member of a group to that group.
    let has_group = created.gid() == replaced.gid() || fchown(file, None, Some(replaced.gid())).is_ok();
    if created.uid() != replaced.uid() {
        let _ = fchown(file, Some(replaced.uid()), None);
    }
    let mode = replaced.permissions().mode() & 0o777;
    // Another group may do no more than everybody.
    let of_group = if has_group { 0o070 } else { (mode & 0o007) << 3 };
    file.set_permissions(Permissions::from_mode(mode & (0o707 | of_group)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_and_what_they_name_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (link, target) in [("first", "second"), ("second", "file")] {
            std::os::unix::fs::symlink(target, at(link)).unwrap();
        }
        for data in [b"new", b"old"] {
            write(&at("first"), data).unwrap();
            assert_eq!(std::fs::read(at("file")).unwrap(), data);
        }
        assert!(at("first").is_symlink() && at("second").is_symlink());
        std::os::unix::fs::symlink("round", at("round")).unwrap();
        std::os::unix::fs::symlink("missing/file", at("lost")).unwrap();
        assert!(write(&at("lost"), b"none").is_err());
    }

    #[test]
    fn names_of_any_length_have_temporary_files() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a".repeat(243), "a".repeat(244), "a".repeat(255), "\u{20ac}".repeat(85)] {
            let path = folder.path().join(&name);
            let file = AtomicFile::create(&path).unwrap();
            let temporary = file.temporary.as_ref().unwrap().file_name().unwrap().to_str().unwrap();
            assert!(is_unfinished(temporary, &name), "{temporary}");
            file.commit().unwrap();
            assert!(path.exists());
        }
    }

    /// In a folder where all may make links, as `/tmp`, a link of another user leads nowhere.
    #[test]
    fn links_are_followed_where_the_kernel_follows_them() {
        let all = tempfile::tempdir().unwrap();
        std::fs::set_permissions(all.path(), Permissions::from_mode(0o1777)).unwrap();
        let own = tempfile::tempdir().unwrap();
        let (link, target) = (all.path().join("link"), own.path().join("file"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        // Only root can.
        let _ = std::os::unix::fs::lchown(&link, Some(1000), Some(1000));
        for exists in [false, true] {
            if exists {
                std::fs::write(&target, "old").unwrap();
            }
            let is_written = write(&link, b"new").is_ok();
            assert_eq!(is_written, File::options().append(true).create(true).open(&link).is_ok());
            assert_eq!(is_written, std::fs::read(&target).is_ok_and(|data| data == b"new"));
        }
    }

    /// Only root can give it to the owner of the file that it replaces.
    #[test]
    fn what_replaces_a_file_is_its_owners() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for (owner, group, mode) in [(None, None, 0o751), (Some(1000), Some(1001), 0o640), (Some(1000), None, 0o600)] {
            std::fs::write(&path, "old").unwrap();
            if std::os::unix::fs::chown(&path, owner, group).is_err() {
                continue;
            }
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let access = || path.metadata().map(|found| (found.uid(), found.gid(), found.mode())).unwrap();
            let before = access();
            write(&path, b"new").unwrap();
            assert_eq!((std::fs::read(&path).unwrap(), access()), (b"new".to_vec(), before));
        }
    }
}

//! Output files that appear under their names only when complete.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::exit::{Failure, Result};
use crate::{input_file, interrupt, left_over};

/// An output, written to a temporary file in the same directory. Dropping it without [`commit`](Self::commit) leaves no file.
pub(crate) struct AtomicFile {
    path: PathBuf,
    writer: BufWriter<File>,
    /// `None` for a pipe or a device: these are written directly, and never replaced.
    temporary: Option<TempPath>,
}

/// A complete temporary file on disk, before it gets its name.
pub(crate) struct Finished {
    path: PathBuf,
    temporary: Option<TempPath>,
}

/// Writes `data` to a file.
pub(crate) fn write(path: &Path, data: &[u8]) -> Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.append(data)?;
    file.commit()
}

impl AtomicFile {
    /// Creates the temporary file. Call this before the work, to detect an unwritable path early.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return Err(Failure::refused(format!("output {} is a directory: expected a file", path.display())));
        }
        if path.exists() && !path.is_file() {
            // A pipe that nobody reads is waited for.
            let file = interrupt::ending_at_once(|| File::options().write(true).open(path));
            let file = file.map_err(|error| failed(path, &error))?;
            return Ok(AtomicFile { path: path.into(), writer: BufWriter::new(file), temporary: None });
        }
        // Write the target of a symbolic link and keep the link.
        let path = path.canonicalize().unwrap_or_else(|_| path.into());
        let mut prefix = path.file_name().unwrap_or_default().to_os_string();
        prefix.push(".");
        let folder = input_file::folder(&path);
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).suffix(".part");
        // The library would create the file with mode 0600; this uses the umask.
        let temporary = left_over::make(|| builder.make_in(folder, |path| File::create_new(path)));
        let (file, temporary) = temporary.map_err(|error| failed(&path, &error))?.into_parts();
        Ok(AtomicFile { path, writer: BufWriter::new(file), temporary: Some(temporary) })
    }

    pub(crate) fn append(&mut self, data: &[u8]) -> Result<()> {
        self.writer.write_all(data).map_err(|error| failed(&self.path, &error))
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
        self.writer.flush().map_err(|error| failed(&self.path, &error))?;
        if self.temporary.is_some() {
            self.writer.get_ref().sync_all().map_err(|error| failed(&self.path, &error))?;
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
            Some(temporary) => temporary.persist(&self.path).map_err(|error| failed(&self.path, &error.error)),
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

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::file(path, error)
}

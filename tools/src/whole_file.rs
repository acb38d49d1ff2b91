//! Files that appear under their names only when they are whole.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::exit::{Failure, Result};
use crate::input_file;

/// A file that is being written beside the place where it will be. If it is dropped before it is kept, there is none.
pub(crate) struct WholeFile {
    path: PathBuf,
    writer: BufWriter<File>,
    /// None for a pipe or a device, which no other file may replace: what is written is there at once.
    beside: Option<TempPath>,
}

/// A file that is on the disk, and has not got its name yet.
pub(crate) struct Finished {
    path: PathBuf,
    beside: Option<TempPath>,
}

/// Writes a file of `data`.
pub(crate) fn write(path: &Path, data: &[u8]) -> Result<()> {
    let mut file = WholeFile::create(path)?;
    file.append(data)?;
    file.keep()
}

impl WholeFile {
    /// Fails where the file could not be, before the work is done that it is to hold.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return Err(Failure::refused(format!("output {} is a directory: expected a file", path.display())));
        }
        if path.exists() && !path.is_file() {
            let file = File::options().write(true).open(path).map_err(|error| failed(path, &error))?;
            return Ok(WholeFile { path: path.into(), writer: BufWriter::new(file), beside: None });
        }
        // What a link leads to is written, and the link stays.
        let path = path.canonicalize().unwrap_or_else(|_| path.into());
        let mut prefix = path.file_name().unwrap_or_default().to_os_string();
        prefix.push(".");
        let folder = input_file::folder(&path);
        let beside = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(".part")
            // By a call of ours: the library's files are their user's alone.
            .make_in(folder, |path| File::create_new(path));
        let (file, beside) = beside.map_err(|error| failed(&path, &error))?.into_parts();
        Ok(WholeFile { path, writer: BufWriter::new(file), beside: Some(beside) })
    }

    pub(crate) fn append(&mut self, data: &[u8]) -> Result<()> {
        self.writer.write_all(data).map_err(|error| failed(&self.path, &error))
    }

    /// Brings what was written to the disk.
    pub(crate) fn finish(mut self) -> Result<Finished> {
        self.writer.flush().map_err(|error| failed(&self.path, &error))?;
        if self.beside.is_some() {
            self.writer.get_ref().sync_all().map_err(|error| failed(&self.path, &error))?;
        }
        Ok(Finished { path: self.path, beside: self.beside })
    }

    /// Finishes the file and gives it its name.
    pub(crate) fn keep(self) -> Result<()> {
        self.finish()?.keep()
    }
}

impl Finished {
    /// Gives the file its name.
    pub(crate) fn keep(self) -> Result<()> {
        match self.beside {
            Some(beside) => beside.persist(&self.path).map_err(|error| failed(&self.path, &error.error)),
            None => Ok(()),
        }
    }
}

impl Write for WholeFile {
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

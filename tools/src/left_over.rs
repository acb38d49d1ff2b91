//! Files that must not outlive the command, for a signal that ends it at once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Files that were made. Some may be gone, or have another name now.
static FILES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// While this is held, no signal removes a file.
pub(crate) fn files() -> MutexGuard<'static, Vec<PathBuf>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a file that is removed if a signal ends the command at once.
pub(crate) fn make<F: AsRef<Path>>(make: impl FnOnce() -> io::Result<F>) -> io::Result<F> {
    let mut files = files();
    let file = make()?;
    files.push(file.as_ref().to_owned());
    Ok(file)
}

/// Removes the files. None is made or renamed while what this returns is held.
pub(crate) fn remove() -> MutexGuard<'static, Vec<PathBuf>> {
    let files = files();
    for file in &*files {
        // It may be gone: names of temporary files are not used again.
        let _ = fs::remove_file(file);
    }
    files
}

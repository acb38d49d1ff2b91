//! Writing attributes.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

/// Writes attributes of the kernel.
pub trait AttributeWriter: Send + Sync {
    /// Writes `value` to the attribute at `path` in one call.
    ///
    /// # Errors
    /// The error of the kernel.
    fn write(&self, path: &Path, value: &str) -> io::Result<()>;
}

/// Writes attributes as files. It never creates a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct DirectWriter;

impl AttributeWriter for DirectWriter {
    fn write(&self, path: &Path, value: &str) -> io::Result<()> {
        let mut attribute = OpenOptions::new().write(true).truncate(true).open(path)?;
        // The kernel accepts a whole value or nothing.
        match attribute.write(value.as_bytes())? {
            written if written == value.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

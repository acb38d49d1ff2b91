//! The limit on memory that this process may pin for DMA.
//!
//! The kernel counts every page of a mapping against `RLIMIT_MEMLOCK`, huge or not, unless the process has `CAP_IPC_LOCK` in the
//! initial user namespace. A mapping over the limit fails as if memory had run out, so the limit is checked before.

use std::io;

use fpga_sysfs::{LockedMemory, Sysfs};

use crate::{Error, Result};

/// Returns what this process has locked. `None`: it cannot be read.
fn locked() -> Option<LockedMemory> {
    Sysfs::new("/").locked_memory().ok().flatten()
}

/// Fails if `bytes` more bytes exceed the limit.
pub(super) fn check(bytes: u64) -> Result<()> {
    match locked() {
        Some(memory) if !memory.admits(bytes) => Err(error(bytes, Some(memory), None)),
        _ => Ok(()),
    }
}

/// Returns the error of a mapping that the kernel refused for lack of memory.
pub(super) fn refused(bytes: u64, source: io::Error) -> Error {
    error(bytes, locked(), Some(source))
}

/// The error has the limit even if this process seems exempt: the kernel decides.
fn error(bytes: u64, memory: Option<LockedMemory>, source: Option<io::Error>) -> Error {
    let (locked, limit) = memory.map_or((0, None), |memory| (memory.bytes, memory.soft));
    Error::Memlock { bytes, locked, limit, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_says_how_much_and_what_to_do() {
        check(0).unwrap();
        let memory = LockedMemory { bytes: 3 << 10, soft: Some(65536), hard: None, is_exempt: true };
        let text = error(1 << 20, Some(memory), None).to_string();
        for part in ["1048576", "3072", "65536", "LimitMEMLOCK", "ulimit -l"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

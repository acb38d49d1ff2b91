//! The process that owns a resource.
//!
//! A forked child does not inherit DMA memory (`MADV_DONTFORK`), and must not reset functions of its parent. It inherits the
//! objects, though, so each object records its process. `getpid` would be a system call on every access. A page that the
//! kernel clears in a forked child (`MADV_WIPEONFORK`) needs one load instead.

use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::{MmapMut, MmapRaw};
use nix::sys::mman::{MmapAdvise, madvise};

use crate::{Error, Result};

/// The process that created a resource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pid: u32,
    /// The process id. Zero in a forked child, until it creates a resource.
    guard: &'static AtomicU32,
}

impl Owner {
    /// Returns this process.
    pub(crate) fn current() -> Self {
        static GUARD: OnceLock<&'static AtomicU32> = OnceLock::new();
        // Before Linux 4.14, which has no such page, children are not noticed.
        static UNGUARDED: AtomicU32 = AtomicU32::new(0);
        let pid = process::id();
        let guard = *GUARD.get_or_init(|| guard_word().unwrap_or(&UNGUARDED));
        guard.store(pid, Ordering::Relaxed);
        Owner { pid, guard }
    }

    /// Returns whether this process created the resource.
    #[inline]
    pub(crate) fn is_here(self) -> bool {
        self.guard.load(Ordering::Relaxed) == self.pid
    }

    /// Fails in any other process, which is a forked child.
    #[inline]
    pub(crate) fn check(self) -> Result<()> {
        if self.is_here() { Ok(()) } else { Err(self.forked()) }
    }

    #[cold]
    fn forked(self) -> Error {
        Error::Forked { owner: self.pid }
    }
}

/// Maps a word that is zero in a forked child.
fn guard_word() -> Option<&'static AtomicU32> {
    let map = MmapRaw::from(MmapMut::map_anon(std::mem::size_of::<AtomicU32>()).ok()?);
    let start = std::ptr::NonNull::new(map.as_mut_ptr())?;
    // SAFETY: the range is the mapping `map`. Nothing else uses its content.
    unsafe { madvise(start.cast(), map.len(), MmapAdvise::MADV_WIPEONFORK) }.ok()?;
    std::mem::forget(map);
    // SAFETY: the mapping is page-aligned, large enough and zeroed. `forget` keeps it mapped for ever.
    Some(unsafe { AtomicU32::from_ptr(start.as_ptr().cast()) })
}

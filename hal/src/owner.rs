//! Which process a resource belongs to.
//!
//! DMA memory is not inherited by a forked child (`MADV_DONTFORK`), and a function must not be reset by one. The child
//! still has the objects, so each remembers its process. Asking the kernel for the process id at every access would be
//! a system call on the hot path; a page the kernel wipes at fork (`MADV_WIPEONFORK`) tells it with one load.

use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::{MmapMut, MmapRaw};
use nix::sys::mman::{MmapAdvise, madvise};

use crate::{Error, Result};

/// The process that made a resource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pid: u32,
    /// Holds the process id; zero in a forked child until it makes resources of its own. `None` on kernels before 4.14.
    guard: Option<&'static AtomicU32>,
}

impl Owner {
    /// This process.
    pub(crate) fn current() -> Self {
        static GUARD: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();
        let pid = process::id();
        let guard = *GUARD.get_or_init(guard_word);
        if let Some(guard) = guard {
            guard.store(pid, Ordering::Relaxed);
        }
        Owner { pid, guard }
    }

    /// Whether this is the process that made the resource.
    #[inline]
    pub(crate) fn is_here(self) -> bool {
        match self.guard {
            Some(guard) => guard.load(Ordering::Relaxed) == self.pid,
            None => process::id() == self.pid,
        }
    }

    /// Fails in a process forked from the one that made the resource.
    #[inline]
    pub(crate) fn check(self) -> Result<()> {
        if self.is_here() { Ok(()) } else { Err(Error::Forked { owner: self.pid }) }
    }
}

/// A word on a page of its own that a forked child finds zero.
fn guard_word() -> Option<&'static AtomicU32> {
    let map = MmapRaw::from(MmapMut::map_anon(std::mem::size_of::<AtomicU32>()).ok()?);
    let start = std::ptr::NonNull::new(map.as_mut_ptr())?;
    // SAFETY: `start` and the length are those of the mapping made above, whose content nothing else uses.
    unsafe { madvise(start.cast(), map.len(), MmapAdvise::MADV_WIPEONFORK) }.ok()?;
    std::mem::forget(map);
    // SAFETY: the mapping is page-aligned, large enough, zeroed, and never unmapped: it was forgotten above.
    Some(unsafe { AtomicU32::from_ptr(start.as_ptr().cast()) })
}

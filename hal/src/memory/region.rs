//! Regions: host memory that stays in place.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MmapAdvise, madvise};
use nix::unistd::{SysconfVar, ftruncate, sysconf};

use super::{barrier, copy};
use crate::owner::Owner;
use crate::{Error, Result};

/// Returns the page size of this machine in bytes: 4 KiB, or up to 64 KiB on aarch64.
pub(crate) fn page_size() -> usize {
    static PAGE_SIZE: OnceLock<usize> = OnceLock::new();
    *PAGE_SIZE.get_or_init(|| {
        let asked = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        asked.and_then(|bytes| usize::try_from(bytes).ok()).filter(|bytes| bytes.is_power_of_two()).unwrap_or(4096)
    })
}

/// Host memory that stays in place, with access by copy only.
///
/// It is a mapped file, which forked children do not inherit; or memory that its owner keeps in place.
#[derive(Debug)]
pub(crate) struct Region {
    start: *mut u8,
    len: usize,
    // Not unmapped in a forked child: there, other memory may lie at this address by now.
    map: ManuallyDrop<Option<MmapRaw>>,
    file: Option<OwnedFd>,
    owner: Owner,
    what: &'static str,
}

// SAFETY: `start` points to memory that stays valid as long as the region, from any thread: `map`, or the memory that the
// caller of `Region::over` vouches for. Accesses are volatile or atomic copies (`copy`), which may race as a device's may.
unsafe impl Send for Region {}
// SAFETY: a shared region allows no more than an owned one: copies by `copy`, which may race.
unsafe impl Sync for Region {}

impl Region {
    /// Creates and maps a zeroed memory file of `bytes` bytes, a multiple of its page size. `flags` choose huge pages.
    pub(crate) fn new(what: &'static str, name: &str, bytes: usize, flags: MFdFlags) -> io::Result<Self> {
        let file = memfd_create(name, flags | MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        ftruncate(&file, libc_offset(bytes)?)?;
        // A process that gets the descriptor must not be able to shrink the file: the next access would raise SIGBUS.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        let mut region = Region::map(what, &file, bytes)?;
        region.file = Some(file);
        Ok(region)
    }

    /// Maps the first `len` bytes of `file`. If the file can shrink, an access to the region can raise SIGBUS.
    pub(crate) fn map(what: &'static str, file: &OwnedFd, len: usize) -> io::Result<Self> {
        let map = MmapOptions::new().len(len).map_raw(file)?;
        map.advise(Advice::DontFork)?;
        let (start, map) = (map.as_mut_ptr(), ManuallyDrop::new(Some(map)));
        Ok(Region { start, len, map, file: None, owner: Owner::current(), what })
    }

    /// Wraps memory that another value owns. `file`, if there is one, has the same bytes from its beginning.
    ///
    /// # Safety
    /// As long as the region lives, the `len` bytes at `start` are valid for reads and writes and stay in place. No reference
    /// into them is used for accesses.
    pub(crate) unsafe fn over(what: &'static str, start: *mut u8, len: usize, file: Option<OwnedFd>) -> Self {
        Region { start, len, map: ManuallyDrop::new(None), file, owner: Owner::current(), what }
    }

    /// Asks for transparent huge pages.
    pub(crate) fn ask_for_huge_pages(&self) -> io::Result<()> {
        self.advise(MmapAdvise::MADV_HUGEPAGE)
    }

    /// Makes all pages present and writable. A lack of memory is an error now, and would be a SIGBUS later.
    pub(crate) fn populate(&self) -> io::Result<()> {
        match (self.advise(MmapAdvise::MADV_POPULATE_WRITE), &self.file) {
            // Before Linux 5.14.
            (Err(error), Some(file)) if error.raw_os_error() == Some(Errno::EINVAL as i32) => {
                Ok(fallocate(file, FallocateFlags::empty(), 0, libc_offset(self.len)?)?)
            }
            (Err(error), None) if error.raw_os_error() == Some(Errno::EINVAL as i32) => {
                self.touch_pages();
                Ok(())
            }
            (other, _) => other,
        }
    }

    /// Writes to each page, without changing its content.
    fn touch_pages(&self) {
        for offset in (0..self.len).step_by(page_size()) {
            // SAFETY: `offset` is less than `len`.
            let byte = unsafe { self.start.add(offset) };
            // SAFETY: the byte is valid for reads and writes, and always aligned.
            unsafe { AtomicU8::from_ptr(byte) }.fetch_or(0, Ordering::Relaxed);
        }
    }

    fn advise(&self, advice: MmapAdvise) -> io::Result<()> {
        let start = NonNull::new(self.start.cast()).ok_or(Errno::EINVAL)?;
        // SAFETY: the range is this region's memory. The two kinds of advice that are given change no content.
        Ok(unsafe { madvise(start, self.len, advice) }?)
    }

    /// Returns the length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the start of the memory: valid for `len` bytes until the region is dropped.
    pub(crate) fn base(&self) -> *mut u8 {
        self.start
    }

    /// Returns the process that the memory belongs to.
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// Returns the file that has the same bytes, if there is one.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Returns the address of `bytes` bytes at `offset`, if they lie in the first `limit` bytes, and this process owns them.
    #[inline]
    fn at(&self, limit: usize, offset: usize, bytes: usize) -> Result<*mut u8> {
        let limit = limit.min(self.len());
        if bytes > limit || offset > limit - bytes {
            return Err(self.out_of_bounds(limit, offset, bytes));
        }
        self.owner.check()?;
        // SAFETY: `offset + bytes` is at most `self.len` (checked above), and the memory is valid as long as `self`.
        Ok(unsafe { self.start.add(offset) })
    }

    #[cold]
    fn out_of_bounds(&self, limit: usize, offset: usize, bytes: usize) -> Error {
        Error::OutOfBounds { what: self.what, offset: offset as u64, bytes: bytes as u64, len: limit as u64 }
    }

    #[cold]
    fn misaligned(&self, offset: usize, bytes: usize) -> Error {
        Error::Misaligned { what: self.what, offset: offset as u64, bytes: bytes as u64 }
    }

    /// Copies bytes out of the first `limit` bytes.
    #[inline]
    pub(crate) fn read(&self, limit: usize, offset: usize, data: &mut [u8]) -> Result<()> {
        let at = self.at(limit, offset, data.len())?;
        // SAFETY: `self.at` checked the range. `data` is a reference, and no reference points into a region.
        unsafe { copy::copy_out(at, data) };
        Ok(())
    }

    /// Copies bytes into the first `limit` bytes.
    #[inline]
    pub(crate) fn write(&self, limit: usize, offset: usize, data: &[u8]) -> Result<()> {
        let at = self.at(limit, offset, data.len())?;
        // SAFETY: `self.at` checked the range. `data` is a reference, and no reference points into a region.
        unsafe { copy::copy_in(at, data) };
        Ok(())
    }

    /// Sets bytes of the first `limit` bytes to `value`.
    pub(crate) fn fill(&self, limit: usize, offset: usize, bytes: usize, value: u8) -> Result<()> {
        let at = self.at(limit, offset, bytes)?;
        // SAFETY: `self.at` checked the range.
        unsafe { copy::fill(at, bytes, value) };
        Ok(())
    }

    /// Loads an aligned 64-bit word with acquire order.
    #[inline]
    pub(crate) fn load_acquire(&self, limit: usize, offset: usize) -> Result<u64> {
        let at = self.at(limit, offset, 8)?;
        if !offset.is_multiple_of(8) {
            return Err(self.misaligned(offset, 8));
        }
        // SAFETY: `self.at` checked the range. The word is aligned: `offset` is, and a region starts on a page.
        let word = u64::from_le(unsafe { copy::load_u64(at) });
        // An acquire load orders accesses of processors only. A device may be in another shareability domain.
        barrier::device_word_before_data();
        Ok(word)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.owner.is_here() {
            // SAFETY: `map` is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.map) }
        }
    }
}

/// Converts a size to the type of file offsets.
fn libc_offset(bytes: usize) -> io::Result<i64> {
    i64::try_from(bytes).map_err(|_| io::Error::from(Errno::EFBIG))
}

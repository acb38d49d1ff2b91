//! A memory file and its mapping: what shared memory and DMA buffers are made of.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{SysconfVar, ftruncate, sysconf};

use super::{barrier, copy};
use crate::owner::Owner;
use crate::{Error, Result};

/// Bytes of this machine's pages: 4 KiB, or up to 64 KiB on aarch64.
pub(crate) fn page_size() -> usize {
    static PAGE_SIZE: OnceLock<usize> = OnceLock::new();
    *PAGE_SIZE.get_or_init(|| {
        let asked = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        asked.and_then(|bytes| usize::try_from(bytes).ok()).filter(|bytes| bytes.is_power_of_two()).unwrap_or(4096)
    })
}

/// A memory file of fixed size, mapped for as long as this lives and not inherited by forked children.
#[derive(Debug)]
pub(crate) struct Region {
    // Not unmapped in a forked child: there, other memory may lie at this address by now.
    map: ManuallyDrop<MmapRaw>,
    file: OwnedFd,
    owner: Owner,
    what: &'static str,
}

impl Region {
    /// Makes and maps a zeroed memory file of `bytes` bytes, a multiple of its page size. `flags` choose huge pages.
    pub(crate) fn new(what: &'static str, name: &str, bytes: usize, flags: MFdFlags) -> io::Result<Self> {
        let owner = Owner::current();
        let file = memfd_create(name, flags | MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        ftruncate(&file, libc_offset(bytes)?)?;
        // Whoever is given the descriptor must not be able to pull pages from under us: that would be a SIGBUS.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        let map = MmapOptions::new().len(bytes).map_raw(&file)?;
        map.advise(Advice::DontFork)?;
        Ok(Region { map: ManuallyDrop::new(map), file, owner, what })
    }

    /// Asks for transparent huge pages.
    pub(crate) fn ask_for_huge_pages(&self) -> io::Result<()> {
        self.map.advise(Advice::HugePage)
    }

    /// Takes all pages now: later, a lack of them would be a SIGBUS.
    pub(crate) fn populate(&self) -> io::Result<()> {
        match self.map.advise(Advice::PopulateWrite) {
            // Before Linux 5.14.
            Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => {
                Ok(fallocate(&self.file, FallocateFlags::empty(), 0, libc_offset(self.len())?)?)
            }
            other => other,
        }
    }

    /// Bytes mapped.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Start of the mapping: page-aligned, and valid for `len` bytes until this is dropped.
    pub(crate) fn base(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// The process it belongs to.
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// Address of `bytes` bytes at `offset`, if they lie inside of the first `limit` bytes and of this process.
    #[inline]
    fn at(&self, limit: usize, offset: usize, bytes: usize) -> Result<*mut u8> {
        let limit = limit.min(self.len());
        if bytes > limit || offset > limit - bytes {
            return Err(self.out_of_bounds(limit, offset, bytes));
        }
        self.owner.check()?;
        // SAFETY: `offset + bytes` is at most the length of the mapping, as just checked, and the mapping lives as long
        // as `self`.
        Ok(unsafe { self.map.as_mut_ptr().add(offset) })
    }

    #[cold]
    fn out_of_bounds(&self, limit: usize, offset: usize, bytes: usize) -> Error {
        Error::OutOfBounds { what: self.what, offset: offset as u64, bytes: bytes as u64, len: limit as u64 }
    }

    #[cold]
    fn misaligned(&self, offset: usize, bytes: usize) -> Error {
        Error::Misaligned { what: self.what, offset: offset as u64, bytes: bytes as u64 }
    }

    /// Copies out of the first `limit` bytes.
    #[inline]
    pub(crate) fn read(&self, limit: usize, offset: usize, data: &mut [u8]) -> Result<()> {
        let at = self.at(limit, offset, data.len())?;
        // SAFETY: `at` checked the range; `data` is the caller's own memory, which no mapping lends.
        unsafe { copy::copy_out(at, data) };
        Ok(())
    }

    /// Copies into the first `limit` bytes.
    #[inline]
    pub(crate) fn write(&self, limit: usize, offset: usize, data: &[u8]) -> Result<()> {
        let at = self.at(limit, offset, data.len())?;
        // SAFETY: `at` checked the range; `data` is the caller's own memory, which no mapping lends.
        unsafe { copy::copy_in(at, data) };
        Ok(())
    }

    /// Sets bytes of the first `limit`.
    pub(crate) fn fill(&self, limit: usize, offset: usize, bytes: usize, value: u8) -> Result<()> {
        let at = self.at(limit, offset, bytes)?;
        // SAFETY: `at` checked the range.
        unsafe { copy::fill(at, bytes, value) };
        Ok(())
    }

    /// Stores a ring's word: eight 64-bit stores, the last with release order.
    #[inline]
    pub(crate) fn write_word64(&self, limit: usize, offset: usize, word: &[u8; 64]) -> Result<()> {
        let at = self.at(limit, offset, 64)?;
        if !offset.is_multiple_of(64) {
            return Err(self.misaligned(offset, 64));
        }
        let (parts, _) = word.as_chunks::<8>();
        for (index, part) in parts.iter().enumerate() {
            let order = if index == 7 { Ordering::Release } else { Ordering::Relaxed };
            // SAFETY: `at` checked that 64 bytes lie inside, and `index * 8` is at most 56.
            let target = unsafe { at.add(index * 8) };
            // SAFETY: as above; aligned because `offset` is and the mapping begins on a page.
            unsafe { copy::store_u64(target, u64::from_ne_bytes(*part), order) };
        }
        Ok(())
    }

    /// Loads an aligned 64-bit word with acquire order.
    #[inline]
    pub(crate) fn load_acquire(&self, limit: usize, offset: usize) -> Result<u64> {
        let at = self.at(limit, offset, 8)?;
        if !offset.is_multiple_of(8) {
            return Err(self.misaligned(offset, 8));
        }
        // SAFETY: `at` checked the range; aligned because `offset` is and the mapping begins on a page.
        let word = u64::from_le(unsafe { copy::load_u64(at) });
        // An acquiring load orders for processors; a card may be further away.
        barrier::device_word_before_data();
        Ok(word)
    }
}

impl AsFd for Region {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.owner.is_here() {
            // SAFETY: dropped here once, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.map) }
        }
    }
}

/// A size as the file calls take it.
fn libc_offset(bytes: usize) -> io::Result<i64> {
    i64::try_from(bytes).map_err(|_| io::Error::from(Errno::EFBIG))
}

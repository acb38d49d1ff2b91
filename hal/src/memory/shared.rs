//! Memory that two sides share.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::memfd::MFdFlags;

use super::region::{Region, page_size};
use crate::{Error, Result};

/// Memory backed by a descriptor that can be passed on: all access is by copy.
///
/// Its size is sealed, so that whoever is given the descriptor cannot take pages away. A forked child does not inherit
/// the mapping, and gets [`Error::Forked`].
#[derive(Debug)]
pub struct SharedMemory {
    region: Region,
    len: usize,
}

impl SharedMemory {
    /// Zeroed memory of `bytes` bytes; it costs only what is touched. `name` is shown in `/proc`.
    pub fn new(name: &str, bytes: u64) -> Result<Self> {
        let len = usize::try_from(bytes).map_err(|_| Error::BufferSize { bytes })?;
        let mapped = len.max(1).checked_next_multiple_of(page_size()).ok_or(Error::BufferSize { bytes })?;
        let failed = |source: io::Error| Error::Memory { what: "shared memory", bytes, source };
        let region = Region::new("shared memory", name, mapped, MFdFlags::empty()).map_err(failed)?;
        Ok(SharedMemory { region, len })
    }

    /// Length in bytes. The descriptor's is a multiple of the page size.
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Whether it has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies out of the memory.
    #[inline]
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<()> {
        self.region.read(self.len, saturated(offset), data)
    }

    /// Copies into the memory; the last aligned eight bytes are stored last, with release order.
    #[inline]
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.region.write(self.len, saturated(offset), data)
    }

    /// Sets `bytes` bytes from `offset` on to `value`.
    pub fn fill(&self, offset: u64, bytes: u64, value: u8) -> Result<()> {
        self.region.fill(self.len, saturated(offset), saturated(bytes), value)
    }

    /// What it is made of, for mapped windows.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.region.as_fd()
    }
}

/// An offset as the address space counts: what does not fit lies outside of any memory anyway.
#[inline]
fn saturated(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    use nix::sys::stat::fstat;
    use nix::unistd::ftruncate;

    #[test]
    fn it_begins_zeroed_and_keeps_what_is_written() {
        let memory = SharedMemory::new("test", 5000).unwrap();
        let mut data = [0xff; 16];
        memory.read(4984, &mut data).unwrap();
        assert_eq!(data, [0; 16]);
        memory.write(4095, b"across a page").unwrap();
        memory.read(4094, &mut data).unwrap();
        assert_eq!(&data, b"\0across a page\0\0");
        memory.fill(4096, 5, b'.').unwrap();
        memory.read(4094, &mut data).unwrap();
        assert_eq!(&data, b"\0a..... a page\0\0");
    }

    #[test]
    fn nothing_outside_is_touched() {
        let memory = SharedMemory::new("test", 100).unwrap();
        assert!(memory.read(0, &mut [0; 100]).is_ok());
        for (offset, bytes) in [(0, 101), (100, 1), (93, 8), (u64::MAX, 1), (u64::MAX, 8)] {
            let mut data = vec![7; bytes];
            match memory.read(offset, &mut data) {
                Err(Error::OutOfBounds { offset: at, bytes: n, len: 100, .. }) => {
                    assert_eq!((at, n), (offset, bytes as u64));
                }
                other => panic!("{other:?}"),
            }
            assert!(data.iter().all(|&b| b == 7));
            assert!(memory.write(offset, &data).is_err());
            assert!(memory.fill(offset, bytes as u64, 1).is_err());
        }
        assert!(memory.write(100, &[]).is_ok());
    }

    #[test]
    fn its_descriptor_is_sealed_and_closes_on_exec() {
        let memory = SharedMemory::new("test", 100).unwrap();
        let size = fstat(memory.as_fd()).unwrap().st_size;
        assert_eq!(size as usize % page_size(), 0);
        assert!(ftruncate(memory.as_fd(), 0).is_err(), "it can be shrunk");
        assert!(ftruncate(memory.as_fd(), size * 2).is_err(), "it can be grown");
        let flags = FdFlag::from_bits_retain(fcntl(memory.as_fd(), FcntlArg::F_GETFD).unwrap());
        assert!(flags.contains(FdFlag::FD_CLOEXEC));
    }

    #[test]
    fn a_large_one_costs_only_what_is_touched() {
        let memory = SharedMemory::new("test", 1 << 40).unwrap();
        memory.write((1 << 40) - 4, &[1, 2, 3, 4]).unwrap();
        let blocks = fstat(memory.as_fd()).unwrap().st_blocks;
        assert!(blocks * 512 <= 4 << 20, "{blocks} blocks");
        assert!(SharedMemory::new("test", u64::MAX).is_err());
    }
}

//! Memory that two processes share.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::sys::memfd::MFdFlags;

use super::region::{Region, page_size};
use crate::{Error, Result};

/// A memory file that other processes can map. Access is by copy, never by reference.
///
/// Its size is sealed, so a process that gets the descriptor cannot shrink it. A forked child does not inherit the mapping
/// and gets [`Error::Forked`].
#[derive(Debug)]
pub struct SharedMemory {
    region: Arc<Region>,
    len: usize,
}

impl SharedMemory {
    /// Creates zeroed memory of `bytes` bytes. Pages are allocated when they are written. `name` is shown in `/proc`.
    pub fn new(name: &str, bytes: u64) -> Result<Self> {
        let len = usize::try_from(bytes).map_err(|_| Error::BufferSize { bytes })?;
        let mapped = len.max(1).checked_next_multiple_of(page_size()).ok_or(Error::BufferSize { bytes })?;
        let failed = |source: io::Error| Error::Memory { what: "shared memory", bytes, source };
        let region = Region::new("shared memory", name, mapped, MFdFlags::empty()).map_err(failed)?;
        Ok(SharedMemory { region: Arc::new(region), len })
    }

    /// Returns the length in bytes. The file is as long, rounded up to whole pages.
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes out. Fails outside of the memory.
    #[inline]
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<()> {
        self.region.read(self.len, saturated(offset), data)
    }

    /// Copies bytes in. The last aligned eight bytes are stored last, with release order. Fails outside of the memory.
    #[inline]
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.region.write(self.len, saturated(offset), data)
    }

    /// Sets `bytes` bytes at `offset` to `value`. Fails outside of the memory.
    pub fn fill(&self, offset: u64, bytes: u64, value: u8) -> Result<()> {
        self.region.fill(self.len, saturated(offset), saturated(bytes), value)
    }

    /// Returns the region, for mapped windows and for DMA.
    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // `new` made the region from a memory file.
        self.region.file().expect("shared memory has a file")
    }
}

/// Converts an offset to `usize`. A larger offset lies outside of any memory.
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

//! Host memory that cards reach.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::ladder::MIB;
use crate::region::Region;
use crate::{Domain, Iova, Result};

/// What pages a buffer can be made of, from the fewest IOMMU and TLB entries to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Reserved huge pages of 1 GiB.
    Gigantic,
    /// Reserved huge pages of 2 MiB.
    Huge,
    /// Ordinary pages that the kernel may join into huge ones.
    Transparent,
    /// Ordinary pages.
    Base,
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pages::Gigantic => "1 GiB huge pages",
            Pages::Huge => "2 MiB huge pages",
            Pages::Transparent => "transparent huge pages",
            Pages::Base => "ordinary pages",
        })
    }
}

/// Why a buffer did not get the pages that were tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PagesRefused {
    /// The kernel's error number.
    Errno(i32),
    /// The kernel would not refuse, but its policy (`shmem_enabled`) is to join no pages of shared memory.
    Policy,
}

impl fmt::Display for PagesRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PagesRefused::Errno(number) => io::Error::from_raw_os_error(*number).fmt(f),
            PagesRefused::Policy => f.write_str("the kernel's policy for shared memory is never"),
        }
    }
}

/// One kind of pages that was tried, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagesTried {
    /// The kind.
    pub pages: Pages,
    /// Whether it was had.
    pub outcome: std::result::Result<(), PagesRefused>,
}

/// What pages a buffer got, and what was tried before. Displays as a sentence.
///
/// Huge pages are tried only for buffers that fill them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backing {
    /// What was had.
    pub pages: Pages,
    /// Bytes of one such page.
    pub page_bytes: usize,
    /// What was tried, in order; the last entry is what was had.
    pub tried: Vec<PagesTried>,
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The buffer is made of {}", self.pages)?;
        match self.page_bytes {
            bytes if bytes >= MIB => write!(f, " ({} MiB)", bytes / MIB)?,
            bytes => write!(f, " ({} KiB)", bytes / 1024)?,
        }
        for tried in &self.tried {
            if let Err(refused) = &tried.outcome {
                write!(f, "; {} were tried: {refused}", tried.pages)?;
            }
        }
        f.write_str(".")
    }
}

/// Host memory mapped for the cards of a domain. Unmapped when dropped; never lent as a reference, only copied.
///
/// Cards write to it at any time, so what is read may be torn unless a word that [`load_acquire`](Self::load_acquire)
/// saw says that it is complete. A forked child does not inherit the memory, and gets
/// [`Error::Forked`](crate::Error::Forked).
#[derive(Debug)]
pub struct DmaBuffer {
    region: Arc<Region>,
    len: usize,
    iova: Iova,
    backing: Backing,
    domain: Domain,
}

impl DmaBuffer {
    /// A buffer over `region`, which `domain` has mapped at `iova`.
    pub(crate) fn new(region: Arc<Region>, len: usize, iova: Iova, backing: Backing, domain: Domain) -> Self {
        DmaBuffer { region, len, iova, backing, domain }
    }

    /// Address the cards use.
    #[inline]
    pub fn iova(&self) -> Iova {
        self.iova
    }

    /// Length in bytes: what was asked for. The cards reach up to the end of its last page.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes: never.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What pages it is made of.
    pub fn backing(&self) -> &Backing {
        &self.backing
    }

    /// The domain it is mapped in.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Copies out. Fails outside of the buffer.
    #[inline]
    pub fn read(&self, offset: usize, data: &mut [u8]) -> Result<()> {
        self.region.read(self.len, offset, data)
    }

    /// Copies in; the last aligned eight bytes are stored last, with release order. Fails outside of the buffer.
    #[inline]
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<()> {
        self.region.write(self.len, offset, data)
    }

    /// Sets `bytes` bytes from `offset` on to `value`. Fails outside of the buffer.
    pub fn fill(&self, offset: usize, bytes: usize, value: u8) -> Result<()> {
        self.region.fill(self.len, offset, bytes, value)
    }

    /// Stores one 64-byte word of a ring as eight 64-bit stores, the last with release order. `offset` is a multiple of
    /// 64.
    #[inline]
    pub fn write_word64(&self, offset: usize, word: &[u8; 64]) -> Result<()> {
        self.region.write_word64(self.len, offset, word)
    }

    /// Loads the aligned 64-bit word (little-endian) at `offset` with acquire order: what the device wrote before it is
    /// then visible.
    #[inline]
    pub fn load_acquire(&self, offset: usize) -> Result<u64> {
        self.region.load_acquire(self.len, offset)
    }
}

impl AsFd for DmaBuffer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.region.as_fd()
    }
}

impl Drop for DmaBuffer {
    fn drop(&mut self) {
        // The mapping goes before the memory: fields are dropped after this.
        self.domain.release(self.iova, &self.region);
    }
}

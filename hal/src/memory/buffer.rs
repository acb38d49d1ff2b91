//! DMA buffers: memory that a domain allocates and maps.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::direction::Direction;
use super::domain::Domain;
use super::iova::Iova;
use super::pages::Needs;
use super::region::Region;
use super::{numa, pages};
use crate::{Error, Result};

pub use super::pages::{Backing, Pages, PagesRefused, PagesTried};

impl Domain {
    /// Allocates and maps zeroed memory of `bytes` bytes. `alignment` is that of its IOVA, a power of two.
    ///
    /// All pages are present and as large as available ([`Backing`] reports them); for devices of this process, ordinary pages
    /// come with their first access. The buffer takes one of the domain's
    /// entries and whole pages of its addresses. The error of a refusal names the limit: [`Error::DmaMask`],
    /// [`Error::IovaSpace`], [`Error::EntryLimit`], [`Error::Memlock`]. A buffer of 64 MiB or more is refused with
    /// [`Error::Memory`] if its pages must be present and exceed the available memory.
    ///
    /// Memory of a [private handle](crate::Function::private_domain) is on the NUMA node of its function, if the kernel has it there.
    pub fn allocate(&self, bytes: usize, alignment: usize) -> Result<Arc<DmaBuffer>> {
        if let Some(node) = self.node() {
            match self.allocate_with(bytes, alignment, Some(node)) {
                // This process may not use it, or there is none.
                Err(Error::NumaNode { node, source }) => {
                    log::info!("Cannot allocate on NUMA node {node}, so anywhere: {source}");
                }
                other => return other,
            }
        }
        self.allocate_with(bytes, alignment, None)
    }

    /// Allocates as [`allocate`](Self::allocate), on NUMA node `node`.
    ///
    /// If the node has no free memory, the kernel uses other nodes. [`DmaBuffer::numa_node`] reports the result.
    ///
    /// # Errors
    /// [`Error::NumaNode`] if the machine has no such node. A kernel without NUMA is no error.
    pub fn allocate_on(&self, bytes: usize, alignment: usize, node: u32) -> Result<Arc<DmaBuffer>> {
        self.allocate_with(bytes, alignment, Some(node))
    }

    fn allocate_with(&self, bytes: usize, alignment: usize, node: Option<u32>) -> Result<Arc<DmaBuffer>> {
        if !alignment.is_power_of_two() {
            return Err(Error::Alignment { alignment: alignment as u64 });
        }
        let room = self.check_room(bytes as u64, alignment as u64)?;
        let len = usize::try_from(room.bytes).map_err(|_| Error::BufferSize { bytes: room.bytes })?;
        let needs = Needs { is_shared: self.shares_memory(), is_present: self.needs_pages(), node };
        let (region, backing) = pages::allocate(len, needs)?;
        let region = Arc::new(region);
        // An IOMMU can use large pages of its own only where both addresses are aligned to them.
        let iova = self.map(&region, &room, backing.page_bytes as u64, Direction::Both)?;
        Ok(Arc::new(DmaBuffer { region, len: bytes, iova, backing, domain: self.clone() }))
    }
}

/// Host memory mapped for the devices of a domain. Unmapped when dropped. Access is by copy, never by reference.
///
/// Devices may write it at any time. Data that [`read`](Self::read) returns may be torn, unless a word that
/// [`load_acquire`](Self::load_acquire) returned announced the data. A forked child does not inherit the memory and gets
/// [`Error::Forked`].
#[derive(Debug)]
pub struct DmaBuffer {
    region: Arc<Region>,
    len: usize,
    iova: Iova,
    backing: Backing,
    domain: Domain,
}

impl DmaBuffer {
    /// Returns the address that devices use.
    #[inline]
    pub fn iova(&self) -> Iova {
        self.iova
    }

    /// Returns the requested length in bytes. Devices reach up to the end of the last page.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `false`: a buffer has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the pages of the buffer.
    pub fn backing(&self) -> &Backing {
        &self.backing
    }

    /// Returns the NUMA node of the first page, if the kernel reports it.
    pub fn numa_node(&self) -> Option<u32> {
        self.region.owner().is_here().then(|| numa::node_of(&self.region)).flatten()
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Returns the domain of the buffer.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Copies bytes out. Fails outside of the buffer.
    #[inline]
    pub fn read(&self, offset: usize, data: &mut [u8]) -> Result<()> {
        self.region.read(self.len, offset, data)
    }

    /// Copies bytes in. The last aligned eight bytes are stored last, with release order. Fails outside of the buffer.
    #[inline]
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<()> {
        self.region.write(self.len, offset, data)
    }

    /// Sets `bytes` bytes at `offset` to `value`. Fails outside of the buffer.
    pub fn fill(&self, offset: usize, bytes: usize, value: u8) -> Result<()> {
        self.region.fill(self.len, offset, bytes, value)
    }

    /// Loads the aligned little-endian 64-bit word at `offset` with acquire order: data that the device wrote before the
    /// word is then visible.
    #[inline]
    pub fn load_acquire(&self, offset: usize) -> Result<u64> {
        self.region.load_acquire(self.len, offset)
    }
}

impl AsFd for DmaBuffer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // `allocate` made the region from a memory file.
        self.region.file().expect("DMA buffers have a file")
    }
}

impl Drop for DmaBuffer {
    fn drop(&mut self) {
        // Before the memory is freed: fields are dropped after this.
        self.domain.release(self.iova, &self.region);
    }
}

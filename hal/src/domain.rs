//! What DMA mappings belong to.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::IovaRanges;
use crate::iommu::InProcessIommu;
use crate::iova::IovaAllocator;
use crate::owner::Owner;
use crate::region::{Region, page_size};
use crate::{DmaBuffer, Error, Iova, Result, ladder};

/// Mappings a domain allows unless told otherwise: what the kernel's VFIO driver does (`dma_entry_limit`).
pub const DEFAULT_ENTRY_LIMIT: usize = 65535;

/// Address ranges of a domain unless told otherwise: 48 bits, without the first page and without the window where x86
/// machines take interrupt messages.
pub const DEFAULT_RANGES: [RangeInclusive<u64>; 2] = [0x1000..=0xfedf_ffff, 0xfef0_0000..=(1 << 48) - 1];

/// A set of mappings shared by the functions attached to it: IOVA ranges, entry limit, allocation.
///
/// Clones are handles to the same domain. Buffers are placed where *all* attached functions reach them, so attach the
/// functions first: one that is attached later may not reach buffers that exist already.
#[derive(Clone)]
pub struct Domain {
    inner: Arc<Inner>,
}

struct Inner {
    backend: Backend,
    owner: Owner,
    book: Mutex<Book>,
}

/// Who translates.
enum Backend {
    InProcess(InProcessIommu),
}

impl Backend {
    fn map(&self, iova: Iova, bytes: u64, region: Arc<Region>) -> Result<()> {
        match self {
            Backend::InProcess(iommu) => {
                iommu.map(iova, bytes, region);
                Ok(())
            }
        }
    }

    fn unmap(&self, iova: Iova) {
        match self {
            Backend::InProcess(iommu) => iommu.unmap(iova),
        }
    }
}

/// What is placed where, and who limits it.
struct Book {
    addresses: IovaAllocator,
    entry_limit: usize,
    reaches: Vec<Reach>,
    next_id: u64,
}

/// How far an attached function reaches.
struct Reach {
    id: u64,
    function: String,
    bits: u8,
}

impl Book {
    fn narrowest(&self) -> Option<&Reach> {
        self.reaches.iter().min_by_key(|reach| reach.bits)
    }

    /// Last address that all functions reach.
    fn highest(&self) -> u64 {
        self.narrowest().map_or(u64::MAX, |reach| u64::MAX >> (64 - u32::from(reach.bits)))
    }

    /// Where one more mapping has room, or who limits.
    fn room(&self, bytes: u64, alignment: u64) -> Result<Iova> {
        if self.addresses.blocks() >= self.entry_limit {
            return Err(Error::EntryLimit { limit: self.entry_limit });
        }
        if let Some(iova) = self.addresses.find(bytes, alignment, self.highest()) {
            return Ok(iova);
        }
        match self.narrowest() {
            Some(reach) if self.addresses.find(bytes, alignment, u64::MAX).is_some() => {
                Err(Error::DmaMask { bytes, alignment, function: reach.function.clone(), bits: reach.bits })
            }
            _ => Err(self.no_space(bytes, alignment)),
        }
    }

    /// Takes addresses, aligned to `preferred` as well if that can be had.
    fn take(&mut self, bytes: u64, alignment: u64, preferred: u64) -> Result<Iova> {
        self.room(bytes, alignment)?;
        let highest = self.highest();
        self.addresses
            .allocate(bytes, alignment.max(preferred), highest)
            .or_else(|| self.addresses.allocate(bytes, alignment, highest))
            .ok_or_else(|| self.no_space(bytes, alignment))
    }

    fn no_space(&self, bytes: u64, alignment: u64) -> Error {
        Error::IovaSpace { bytes, alignment, ranges: IovaRanges(self.addresses.ranges().to_vec()) }
    }
}

impl Domain {
    /// A domain whose IOMMU is a table in this process, with [`DEFAULT_RANGES`] and [`DEFAULT_ENTRY_LIMIT`].
    pub fn in_process() -> Self {
        Self::in_process_with(&DEFAULT_RANGES, DEFAULT_ENTRY_LIMIT)
    }

    /// A domain whose IOMMU is a table in this process: it maps addresses of `ranges` (ends inclusive), and at most
    /// `entry_limit` buffers at a time.
    pub fn in_process_with(ranges: &[RangeInclusive<u64>], entry_limit: usize) -> Self {
        let book = Book { addresses: IovaAllocator::new(ranges), entry_limit, reaches: Vec::new(), next_id: 0 };
        let backend = Backend::InProcess(InProcessIommu::default());
        Domain { inner: Arc::new(Inner { backend, owner: Owner::current(), book: Mutex::new(book) }) }
    }

    /// Allocates, maps and returns zeroed memory of `bytes` bytes, `alignment` (of its IOVA) a power of two.
    ///
    /// All its pages are present, the largest that can be had ([`Backing`](crate::Backing) tells). It takes one of the
    /// domain's entries and whole pages of its addresses. A refusal names who limits: [`Error::DmaMask`],
    /// [`Error::IovaSpace`], [`Error::EntryLimit`].
    pub fn allocate(&self, bytes: usize, alignment: usize) -> Result<Arc<DmaBuffer>> {
        self.inner.owner.check()?;
        if !alignment.is_power_of_two() {
            return Err(Error::Alignment { alignment: alignment as u64 });
        }
        let page = page_size();
        let mapped = match bytes.checked_next_multiple_of(page) {
            Some(mapped) if mapped > 0 => mapped as u64,
            _ => return Err(Error::BufferSize { bytes: bytes as u64 }),
        };
        let alignment = alignment.max(page) as u64;
        // Asked before memory is spent on a buffer that cannot be placed.
        self.book().room(mapped, alignment)?;
        let (region, backing) = ladder::allocate(bytes)?;
        let region = Arc::new(region);
        // An IOMMU can use large pages of its own only where both addresses are aligned to them.
        let iova = self.book().take(mapped, alignment, backing.page_bytes as u64)?;
        if let Err(error) = self.inner.backend.map(iova, mapped, Arc::clone(&region)) {
            self.book().addresses.free(iova);
            return Err(error);
        }
        Ok(Arc::new(DmaBuffer::new(region, bytes, iova, backing, self.clone())))
    }

    /// Mappings that exist.
    pub fn mappings(&self) -> usize {
        self.book().addresses.blocks()
    }

    /// Mappings that may exist at a time.
    pub fn entry_limit(&self) -> usize {
        self.book().entry_limit
    }

    /// Address ranges that can be mapped, ascending, ends inclusive.
    pub fn ranges(&self) -> Vec<RangeInclusive<u64>> {
        self.book().addresses.ranges().to_vec()
    }

    /// Name and address bits of the attached function that reaches least.
    pub fn narrowest(&self) -> Option<(String, u8)> {
        self.book().narrowest().map(|reach| (reach.function.clone(), reach.bits))
    }

    /// Whether both are handles to one domain.
    pub fn is_same(&self, other: &Domain) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Unmaps a buffer; its addresses can be handed out again only after that.
    pub(crate) fn release(&self, iova: Iova) {
        // A forked child has no mappings, and a thread that it did not inherit may hold its copy of the lock.
        if !self.inner.owner.is_here() {
            return;
        }
        self.inner.backend.unmap(iova);
        self.book().addresses.free(iova);
    }

    /// Counts a function among those that must reach every buffer, until the attachment is dropped.
    pub(crate) fn attach(&self, function: &str, bits: u8) -> Attachment {
        let mut book = self.book();
        let id = book.next_id;
        book.next_id += 1;
        book.reaches.push(Reach { id, function: function.to_owned(), bits });
        drop(book);
        Attachment { domain: self.clone(), id }
    }

    /// The table in this process, for ports of endpoints.
    #[inline]
    pub(crate) fn iommu(&self) -> &InProcessIommu {
        match &self.inner.backend {
            Backend::InProcess(iommu) => iommu,
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.inner.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = match self.inner.backend {
            Backend::InProcess(_) => "in process",
        };
        let book = self.book();
        f.debug_struct("Domain")
            .field("backend", &backend)
            .field("mappings", &book.addresses.blocks())
            .field("functions", &book.reaches.len())
            .finish_non_exhaustive()
    }
}

/// A function's place in a domain.
#[derive(Debug)]
pub(crate) struct Attachment {
    domain: Domain,
    id: u64,
}

impl Attachment {
    pub(crate) fn domain(&self) -> &Domain {
        &self.domain
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // As for buffers: nothing to do in a forked child.
        if self.domain.inner.owner.is_here() {
            self.domain.book().reaches.retain(|reach| reach.id != self.id);
        }
    }
}

//! What DMA mappings belong to.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::bus::BusKind;
use crate::error::IovaRanges;
use crate::iommu::InProcessIommu;
use crate::iova::IovaAllocator;
use crate::owner::Owner;
use crate::region::{Region, page_size};
use crate::vfio::Container;
use crate::vfio_user::Maps;
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
    InProcess(Arc<InProcessIommu>),
    Vfio(Arc<Container>),
    VfioUser(Arc<Maps>),
}

impl Backend {
    /// Whether `bytes` bytes could be mapped, as far as can be told before there is memory.
    fn admit(&self, bytes: u64) -> Result<()> {
        match self {
            Backend::InProcess(_) | Backend::VfioUser(_) => Ok(()),
            Backend::Vfio(container) => container.admit(bytes),
        }
    }

    /// Maps the first `bytes` bytes of a region. `entry_limit` is for the error.
    fn map(&self, iova: Iova, bytes: u64, region: &Arc<Region>, entry_limit: usize) -> Result<()> {
        match self {
            Backend::InProcess(iommu) => {
                iommu.map(iova, bytes, Arc::clone(region));
                Ok(())
            }
            // SAFETY: `allocate` made the region at least as long, it lends no reference, and `release` lets go of it
            // only after it was unmapped.
            Backend::Vfio(container) => unsafe { container.map(iova, bytes, region.base(), entry_limit) },
            Backend::VfioUser(maps) => maps.map(iova, bytes, region),
        }
    }

    /// Whether other processes are passed the memory.
    fn lends(&self) -> bool {
        matches!(self, Backend::VfioUser(_))
    }

    fn unmap(&self, iova: Iova, bytes: u64) -> Result<()> {
        match self {
            Backend::InProcess(iommu) => {
                iommu.unmap(iova);
                Ok(())
            }
            Backend::Vfio(container) => container.unmap(iova, bytes),
            Backend::VfioUser(maps) => maps.unmap(iova, bytes),
        }
    }
}

/// What is placed where, and who limits it.
struct Book {
    addresses: IovaAllocator,
    /// Bytes that addresses and lengths of mappings are multiples of.
    granule: u64,
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
        Self::new(Backend::InProcess(Arc::default()), ranges, entry_limit)
    }

    /// A domain of functions in the hands of the kernel's VFIO driver: a container. What it can map is known when the
    /// first function has been opened in it ([`vfio::open`](crate::vfio::open)), and nothing can be allocated before.
    ///
    /// Fails if the kernel has no VFIO, or this user may not use it.
    pub fn vfio() -> Result<Self> {
        Ok(Self::new(Backend::Vfio(Arc::new(Container::new()?)), &[], DEFAULT_ENTRY_LIMIT))
    }

    /// A domain of functions behind vfio-user sockets, with [`DEFAULT_RANGES`] and [`DEFAULT_ENTRY_LIMIT`]. Their
    /// servers are passed its buffers ([`vfio_user::connect`](crate::vfio_user::connect)), which therefore have no reserved
    /// huge pages: a server could take those away.
    pub fn vfio_user() -> Self {
        Self::new(Backend::VfioUser(Arc::default()), &DEFAULT_RANGES, DEFAULT_ENTRY_LIMIT)
    }

    fn new(backend: Backend, ranges: &[RangeInclusive<u64>], entry_limit: usize) -> Self {
        let addresses = IovaAllocator::new(ranges);
        let book = Book { addresses, granule: page_size() as u64, entry_limit, reaches: Vec::new(), next_id: 0 };
        Domain { inner: Arc::new(Inner { backend, owner: Owner::current(), book: Mutex::new(book) }) }
    }

    /// Allocates, maps and returns zeroed memory of `bytes` bytes, `alignment` (of its IOVA) a power of two.
    ///
    /// All its pages are present, the largest that can be had ([`Backing`](crate::Backing) tells). It takes one of the
    /// domain's entries and whole pages of its addresses. A refusal names who limits: [`Error::DmaMask`],
    /// [`Error::IovaSpace`], [`Error::EntryLimit`], [`Error::Memlock`].
    pub fn allocate(&self, bytes: usize, alignment: usize) -> Result<Arc<DmaBuffer>> {
        self.inner.owner.check()?;
        if !alignment.is_power_of_two() {
            return Err(Error::Alignment { alignment: alignment as u64 });
        }
        let granule = self.book().granule;
        let mapped = match (bytes as u64).checked_next_multiple_of(granule) {
            Some(mapped) if mapped > 0 => mapped,
            _ => return Err(Error::BufferSize { bytes: bytes as u64 }),
        };
        let alignment = (alignment as u64).max(granule);
        // Asked before memory is spent on a buffer that cannot be mapped or placed.
        self.inner.backend.admit(mapped)?;
        self.book().room(mapped, alignment)?;
        let len = usize::try_from(mapped).map_err(|_| Error::BufferSize { bytes: mapped })?;
        let (region, backing) = ladder::allocate(len, self.inner.backend.lends())?;
        let region = Arc::new(region);
        // An IOMMU can use large pages of its own only where both addresses are aligned to them.
        let iova = self.book().take(mapped, alignment, backing.page_bytes as u64)?;
        if let Err(error) = self.inner.backend.map(iova, mapped, &region, self.entry_limit()) {
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
    pub(crate) fn release(&self, iova: Iova, region: &Arc<Region>) {
        // A forked child has no mappings, and a thread that it did not inherit may hold its copy of the lock.
        if !self.inner.owner.is_here() {
            return;
        }
        let Some(bytes) = self.book().addresses.block_bytes(iova) else { return };
        if let Err(error) = self.inner.backend.unmap(iova, bytes) {
            // Cards may still reach it: neither the memory nor its addresses may serve anything else.
            log::error!("Cannot unmap {bytes:#x} bytes at IOVA {iova}, so they are kept: {error}");
            std::mem::forget(Arc::clone(region));
            return;
        }
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

    /// How its functions are reached.
    pub fn kind(&self) -> BusKind {
        match &self.inner.backend {
            Backend::InProcess(_) => BusKind::InProcess,
            Backend::Vfio(_) => BusKind::Vfio,
            Backend::VfioUser(_) => BusKind::VfioUser,
        }
    }

    /// The table in this process, for ports of endpoints.
    pub(crate) fn in_process_iommu(&self) -> Option<Arc<InProcessIommu>> {
        match &self.inner.backend {
            Backend::InProcess(iommu) => Some(Arc::clone(iommu)),
            _ => None,
        }
    }

    /// The kernel's container.
    pub(crate) fn vfio_container(&self) -> Option<Arc<Container>> {
        match &self.inner.backend {
            Backend::Vfio(container) => Some(Arc::clone(container)),
            _ => None,
        }
    }

    /// Takes over what an IOMMU says of itself, as far as it does: its smallest page, its ranges, and the mappings that it
    /// can make beside those that exist. Begins anew if it `is_first`; otherwise it narrows what the others can do.
    pub(crate) fn adopt(
        &self,
        smallest_page: Option<u64>,
        ranges: Option<&[RangeInclusive<u64>]>,
        available: Option<u32>,
        is_first: bool,
    ) {
        let ranges = ranges.unwrap_or(&DEFAULT_RANGES);
        let mut book = self.book();
        if is_first && book.addresses.blocks() == 0 {
            book.addresses = IovaAllocator::new(ranges);
            book.granule = page_size() as u64;
        } else {
            book.addresses.restrict(ranges);
        }
        book.granule = book.granule.max(smallest_page.unwrap_or(0));
        book.entry_limit = available.map_or(DEFAULT_ENTRY_LIMIT, |more| book.addresses.blocks() + more as usize);
    }

    /// What servers are told, for functions to attach to.
    pub(crate) fn vfio_user_maps(&self) -> Option<Arc<Maps>> {
        match &self.inner.backend {
            Backend::VfioUser(maps) => Some(Arc::clone(maps)),
            _ => None,
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.inner.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let book = self.book();
        f.debug_struct("Domain")
            .field("kind", &self.kind())
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

    /// Says that the function reaches only `bits` address bits.
    pub(crate) fn limit(&self, bits: u8) {
        if let Some(reach) = self.domain.book().reaches.iter_mut().find(|reach| reach.id == self.id) {
            reach.bits = reach.bits.min(bits);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dma::{Pages, PagesTried};

    const FIRST: [RangeInclusive<u64>; 2] = [0..=0xfedf_ffff, 0xfef0_0000..=u64::MAX];

    #[test]
    fn it_does_as_the_first_iommu_says_and_then_what_all_can() {
        let domain = Domain::in_process();
        domain.adopt(Some(0x1_0000), Some(&FIRST), Some(5), true);
        assert_eq!(domain.ranges(), [1..=0xfedf_ffff, 0xfef0_0000..=u64::MAX], "0 is never handed out");
        assert_eq!(domain.entry_limit(), 5);
        let buffers = [(); 2].map(|()| domain.allocate(100, 1).unwrap());
        assert_eq!(buffers.each_ref().map(|buffer| buffer.iova()), [Iova(0x1_0000), Iova(0x2_0000)], "whole granules");
        // Of another group, which can do less; what is mapped stays, and counts.
        domain.adopt(Some(0x1000), Some(&[0x1_0000..=0x4_ffff]), Some(2), false);
        assert_eq!((domain.ranges(), domain.entry_limit()), (Vec::from([0x1_0000..=0x4_ffff]), 4));
        let more = [(); 2].map(|()| domain.allocate(0x1_0000, 1).unwrap());
        assert_eq!(more.each_ref().map(|buffer| buffer.iova()), [Iova(0x3_0000), Iova(0x4_0000)]);
        assert!(matches!(domain.allocate(1, 1), Err(Error::EntryLimit { limit: 4 })));
        drop((buffers, more));
        assert_eq!(domain.mappings(), 0);
        assert!(matches!(domain.allocate(0x5_0000, 1), Err(Error::IovaSpace { .. })), "the ranges stay narrow");
        // All have left, and another is the first again.
        domain.adopt(None, None, None, true);
        assert_eq!((domain.ranges(), domain.entry_limit()), (DEFAULT_RANGES.to_vec(), DEFAULT_ENTRY_LIMIT));
        assert!(domain.allocate(0x5_0000, 1).is_ok());
    }

    #[test]
    fn what_others_are_passed_has_no_reserved_huge_pages() {
        let is_reserved = |tried: &PagesTried| matches!(tried.pages, Pages::Gigantic | Pages::Huge);
        for (domain, is_lent) in [(Domain::in_process(), false), (Domain::vfio_user(), true)] {
            let buffer = domain.allocate(4 << 20, 1).unwrap();
            assert_eq!(buffer.backing().tried.iter().any(is_reserved), !is_lent, "{}", buffer.backing());
        }
    }
}

//! Domains: sets of mappings that functions share.

use std::any::Any;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::backend::{DomainBackend, Mapping, NotMapped};
use super::direction::Direction;
use super::iova::{Iova, IovaAllocator};
use super::member::Member;
use super::region::{Region, page_size};
use crate::error::IovaRanges;
use crate::owner::Owner;
use crate::{BusKind, Error, Result};

/// Default limit of mappings: that of the kernel's VFIO driver (`dma_entry_limit`).
pub const DEFAULT_ENTRY_LIMIT: usize = 65535;

/// Default address ranges: 48 bits, without the first page and the window where x86 machines receive interrupt messages.
pub const DEFAULT_RANGES: [RangeInclusive<u64>; 2] = [0x1000..=0xfedf_ffff, 0xfef0_0000..=(1 << 48) - 1];

/// A set of mappings that all attached functions share, with its IOVA ranges and entry limit.
///
/// Clones are handles to the same domain. Buffers are placed where *all* attached functions reach them. Attach the
/// functions first: a function that is attached later may not reach existing buffers.
#[derive(Clone)]
pub struct Domain {
    inner: Arc<Inner>,
    /// The function that uses what is mapped by this handle, if no other does.
    only: Option<Member>,
    /// NUMA node where that function is, if it is known.
    node: Option<u32>,
}

struct Inner {
    backend: Arc<dyn DomainBackend>,
    owner: Owner,
    plan: Mutex<Plan>,
}

/// Memory that a mapping needs: whole granules.
pub(crate) struct Room {
    pub(crate) bytes: u64,
    pub(crate) alignment: u64,
}

/// Allocated addresses, and their limits.
struct Plan {
    addresses: IovaAllocator,
    /// Bytes that addresses and lengths of mappings are multiples of.
    granule: u64,
    entry_limit: usize,
    reaches: Vec<Reach>,
    next: u64,
}

/// Reach of an attached function.
struct Reach {
    member: Member,
    function: String,
    bits: u8,
}

impl Plan {
    fn narrowest(&self) -> Option<&Reach> {
        self.reaches.iter().min_by_key(|reach| reach.bits)
    }

    /// Returns the last address that all functions reach.
    fn highest(&self) -> u64 {
        self.narrowest().map_or(u64::MAX, |reach| u64::MAX >> (64 - u32::from(reach.bits)))
    }

    /// Returns where one more mapping fits. The error names the limit.
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

    /// Allocates addresses, aligned to `preferred` too where possible.
    fn take(&mut self, bytes: u64, alignment: u64, preferred: u64) -> Result<Iova> {
        // With room, the allocation below succeeds at `alignment`.
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
    /// Creates a domain whose memory `backend` maps at addresses of `ranges`, with at most `entry_limit` mappings.
    pub(crate) fn with_backend(
        backend: Arc<dyn DomainBackend>,
        ranges: &[RangeInclusive<u64>],
        entry_limit: usize,
    ) -> Self {
        let addresses = IovaAllocator::new(ranges);
        let plan = Plan { addresses, granule: page_size() as u64, entry_limit, reaches: Vec::new(), next: 0 };
        Domain {
            inner: Arc::new(Inner { backend, owner: Owner::current(), plan: Mutex::new(plan) }),
            only: None,
            node: None,
        }
    }

    /// Returns the number of mappings.
    pub fn mappings(&self) -> usize {
        self.plan().addresses.blocks()
    }

    /// Returns the largest number of mappings.
    pub fn entry_limit(&self) -> usize {
        self.plan().entry_limit
    }

    /// Returns the address ranges that can be mapped, ascending, ends inclusive.
    pub fn ranges(&self) -> Vec<RangeInclusive<u64>> {
        self.plan().addresses.ranges().to_vec()
    }

    /// Returns name and address bits of the attached function with the shortest reach.
    pub fn narrowest(&self) -> Option<(String, u8)> {
        self.plan().narrowest().map(|reach| (reach.function.clone(), reach.bits))
    }

    /// Returns the NUMA node that is best for buffers of this handle.
    pub(crate) fn node(&self) -> Option<u32> {
        self.node
    }

    /// Returns how the functions of the domain are reached.
    pub fn kind(&self) -> BusKind {
        self.inner.backend.kind()
    }

    /// Returns the backend, if it is a `B`.
    pub(crate) fn backend<B: DomainBackend>(&self) -> Option<Arc<B>> {
        let backend = Arc::clone(&self.inner.backend);
        (backend as Arc<dyn Any + Send + Sync>).downcast().ok()
    }

    /// Returns whether other processes get descriptors of the domain's memory.
    pub(crate) fn shares_memory(&self) -> bool {
        self.inner.backend.shares_memory()
    }

    /// Returns whether all pages must be present before memory is mapped.
    pub(crate) fn needs_pages(&self) -> bool {
        self.inner.backend.needs_pages()
    }

    /// Returns the bytes that addresses and lengths of mappings are multiples of.
    pub(crate) fn granule(&self) -> Result<u64> {
        self.inner.owner.check()?;
        Ok(self.plan().granule)
    }

    /// Checks that `bytes` bytes can be mapped at an IOVA aligned to `alignment`, before memory is spent on them.
    pub(crate) fn check_room(&self, bytes: u64, alignment: u64) -> Result<Room> {
        let granule = self.granule()?;
        let mapped = match bytes.checked_next_multiple_of(granule) {
            Some(mapped) if mapped > 0 => mapped,
            _ => return Err(Error::BufferSize { bytes }),
        };
        let room = Room { bytes: mapped, alignment: alignment.max(granule) };
        self.inner.backend.admit(room.bytes)?;
        self.plan().room(room.bytes, room.alignment)?;
        Ok(room)
    }

    /// Maps the first bytes of `region`, at an IOVA aligned to `preferred` too where possible. Undone by
    /// [`release`](Self::release).
    pub(crate) fn map(&self, region: &Arc<Region>, room: &Room, preferred: u64, direction: Direction) -> Result<Iova> {
        let iova = self.plan().take(room.bytes, room.alignment, preferred)?;
        let mapping = Mapping { iova, bytes: room.bytes, direction, region: Arc::clone(region), only: self.only };
        let Err(NotMapped { error, not_undone }) = self.inner.backend.map(mapping, self.entry_limit()) else {
            return Ok(iova);
        };
        match not_undone {
            Some(not_undone) => keep(iova, room.bytes, region, &not_undone),
            None => drop(self.plan().addresses.free(iova)),
        }
        Err(error)
    }

    /// Unmaps memory, and then frees its addresses. Returns whether devices no longer reach the memory.
    pub(crate) fn release(&self, iova: Iova, region: &Arc<Region>) -> bool {
        // A forked child has no mappings, and its copy of the lock may be held by a thread that it did not inherit.
        if !self.inner.owner.is_here() {
            return true;
        }
        let Some(bytes) = self.plan().addresses.block_bytes(iova) else { return true };
        if let Err(error) = self.inner.backend.unmap(iova, bytes) {
            keep(iova, bytes, region, &error);
            return false;
        }
        self.plan().addresses.free(iova);
        true
    }

    /// Adds a function, until the attachment is dropped. All buffers are placed where it reaches them.
    pub(crate) fn attach(&self, function: &str, bits: u8) -> Attachment {
        let mut plan = self.plan();
        let member = Member(plan.next);
        plan.next += 1;
        plan.reaches.push(Reach { member, function: function.to_owned(), bits });
        drop(plan);
        Attachment { domain: Domain { inner: Arc::clone(&self.inner), only: None, node: None }, member, node: None }
    }

    /// Adopts the limits that an IOMMU reports: its smallest page, its ranges, and how many more mappings it allows. The
    /// first IOMMU replaces the present limits (`is_first`), others restrict them. `None`: the IOMMU does not report it.
    pub(crate) fn adopt(
        &self,
        smallest_page: Option<u64>,
        ranges: Option<&[RangeInclusive<u64>]>,
        available: Option<u32>,
        is_first: bool,
    ) {
        let ranges = ranges.unwrap_or(&DEFAULT_RANGES);
        let mut plan = self.plan();
        if is_first && plan.addresses.blocks() == 0 {
            plan.addresses = IovaAllocator::new(ranges);
            plan.granule = page_size() as u64;
        } else {
            plan.addresses.restrict(ranges);
        }
        plan.granule = plan.granule.max(smallest_page.unwrap_or(0));
        plan.entry_limit = available.map_or(DEFAULT_ENTRY_LIMIT, |more| plan.addresses.blocks() + more as usize);
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.inner.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps memory that devices may still reach until the process ends. Its addresses stay taken.
fn keep(iova: Iova, bytes: u64, region: &Arc<Region>, error: &Error) {
    log::error!("Cannot unmap {bytes:#x} bytes at IOVA {iova}, so they are kept: {error}");
    std::mem::forget(Arc::clone(region));
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.plan();
        f.debug_struct("Domain")
            .field("kind", &self.kind())
            .field("mappings", &plan.addresses.blocks())
            .field("functions", &plan.reaches.len())
            .finish_non_exhaustive()
    }
}

/// Membership of a function in a domain.
#[derive(Debug)]
pub(crate) struct Attachment {
    domain: Domain,
    member: Member,
    /// NUMA node of the function, if it is known.
    node: Option<u32>,
}

impl Attachment {
    /// Notes where the function is: its private buffers go there.
    pub(crate) fn on_node(mut self, node: Option<u32>) -> Self {
        self.node = node;
        self
    }

    pub(crate) fn domain(&self) -> &Domain {
        &self.domain
    }

    pub(crate) fn member(&self) -> Member {
        self.member
    }

    /// Returns whether the function reaches memory that is mapped by the handle `domain`.
    pub(crate) fn reaches(&self, domain: &Domain) -> bool {
        Arc::ptr_eq(&self.domain.inner, &domain.inner) && self.member.uses(domain.only)
    }

    /// Returns a handle to the domain whose buffers no other function uses.
    pub(crate) fn private_domain(&self) -> Domain {
        Domain { inner: Arc::clone(&self.domain.inner), only: Some(self.member), node: self.node }
    }

    /// Lowers the address bits that the function reaches to `bits`.
    pub(crate) fn limit(&self, bits: u8) {
        if let Some(reach) = self.domain.plan().reaches.iter_mut().find(|reach| reach.member == self.member) {
            reach.bits = reach.bits.min(bits);
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that it did not inherit.
        if self.domain.inner.owner.is_here() {
            self.domain.plan().reaches.retain(|reach| reach.member != self.member);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::buffer::{Pages, PagesTried};

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
    fn private_buffers_are_on_the_functions_node_if_there_is_one() {
        let domain = Domain::in_process();
        // No kernel is built for node 1024.
        for node in [0, 1024] {
            let card = domain.attach("card", 64).on_node(Some(node));
            let buffer = card.private_domain().allocate(4096, 1).unwrap();
            assert_eq!((buffer.domain().node(), domain.node()), (Some(node), None));
        }
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

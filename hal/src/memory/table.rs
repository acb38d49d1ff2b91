//! An IOMMU in this process: a table of mappings.

use std::sync::{Arc, PoisonError, RwLock};

use super::backend;
use super::direction::Direction;
use super::iova::Iova;
use super::member::Member;
use super::region::Region;
use crate::Result;
use crate::endpoint::DmaFault;

/// One mapping: addresses `first..=last` are the first bytes of `region`.
#[derive(Debug)]
struct Mapping {
    first: u64,
    last: u64,
    direction: Direction,
    region: Arc<Region>,
    /// The function that reaches it, if no other does.
    only: Option<Member>,
}

/// Mappings, ascending and disjoint.
///
/// Copies hold the lock for reading. After [`unmap`](Self::unmap) returned, no device accesses the memory.
#[derive(Debug, Default)]
pub(crate) struct InProcessIommu {
    table: RwLock<Vec<Mapping>>,
}

impl InProcessIommu {
    /// Adds a mapping at an IOVA that the domain's allocator has allocated.
    pub(crate) fn map(&self, mapping: backend::Mapping) {
        let backend::Mapping { iova, bytes, direction, region, only } = mapping;
        let mapping = Mapping { first: iova.0, last: iova.0 + (bytes - 1), direction, region, only };
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let index = table.partition_point(|other| other.first < mapping.first);
        table.insert(index, mapping);
    }

    /// Removes the mapping that starts at `iova`.
    pub(crate) fn unmap(&self, iova: Iova) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let removed =
            table.binary_search_by_key(&iova.0, |mapping| mapping.first).ok().map(|index| table.remove(index));
        drop(table);
        // The mapping may be the last handle to the memory. Freeing it takes time, so it happens outside of the lock.
        drop(removed);
    }
}

/// The table as one function sees it.
#[derive(Debug)]
pub(crate) struct FunctionIommu {
    pub(crate) table: Arc<InProcessIommu>,
    pub(crate) member: Member,
}

impl FunctionIommu {
    /// Copies host memory at `iova` into `data`. On a fault, nothing was copied.
    pub(crate) fn read(&self, iova: Iova, data: &mut [u8]) -> std::result::Result<(), DmaFault> {
        let mut rest = data;
        self.pieces(iova, rest.len(), Direction::lets_devices_read, |region, offset, bytes| {
            let (piece, more) = std::mem::take(&mut rest).split_at_mut(bytes);
            rest = more;
            region.read(region.len(), offset, piece)
        })
    }

    /// Copies `data` to host memory at `iova`. On a fault, nothing was copied.
    pub(crate) fn write(&self, iova: Iova, data: &[u8]) -> std::result::Result<(), DmaFault> {
        let mut rest = data;
        self.pieces(iova, rest.len(), Direction::lets_devices_write, |region, offset, bytes| {
            let (piece, more) = rest.split_at(bytes);
            rest = more;
            region.write(region.len(), offset, piece)
        })
    }

    /// Fails if a part of the range is not mapped.
    pub(crate) fn check(&self, iova: Iova, bytes: u64) -> std::result::Result<(), DmaFault> {
        let table = self.table.table.read().unwrap_or_else(PoisonError::into_inner);
        cover(&table, iova, bytes, |mapping| self.member.uses(mapping.only)).map(|_| ())
    }

    /// Calls `copy(region, offset, bytes)` for each piece of the range, in ascending order, if all of it is mapped and
    /// allowed.
    #[inline]
    fn pieces(
        &self,
        iova: Iova,
        bytes: usize,
        is_allowed: impl Fn(Direction) -> bool,
        mut copy: impl FnMut(&Region, usize, usize) -> Result<()>,
    ) -> std::result::Result<(), DmaFault> {
        let table = self.table.table.read().unwrap_or_else(PoisonError::into_inner);
        let is_allowed = |mapping: &Mapping| is_allowed(mapping.direction) && self.member.uses(mapping.only);
        let mut next = iova.0;
        let mut left = bytes;
        for mapping in cover(&table, iova, bytes as u64, is_allowed)? {
            let offset = (next - mapping.first) as usize;
            let here = usize::try_from(mapping.last - next).unwrap_or(usize::MAX).saturating_add(1).min(left);
            // Regions are as long as their mapping, so only a forked child fails here: it has no host memory.
            copy(&mapping.region, offset, here).map_err(|_| DmaFault::HostGone)?;
            left -= here;
            next = next.wrapping_add(here as u64);
        }
        Ok(())
    }
}

/// Returns the mappings that cover the range, or the first address without a mapping that allows the access. Mostly one
/// mapping covers the range.
#[inline]
fn cover(
    table: &[Mapping],
    iova: Iova,
    bytes: u64,
    is_allowed: impl Fn(&Mapping) -> bool,
) -> std::result::Result<&[Mapping], DmaFault> {
    if bytes == 0 {
        return Ok(&[]);
    }
    let index = table.partition_point(|mapping| mapping.last < iova.0);
    let mut next = iova.0;
    let mut left = bytes;
    for (count, mapping) in table[index..].iter().enumerate() {
        if mapping.first > next || !is_allowed(mapping) {
            break;
        }
        let here = mapping.last - next;
        if here >= left - 1 {
            return Ok(&table[index..=index + count]);
        }
        left -= here + 1;
        // Nothing lies past the last address. `next` is then 0, which is never mapped.
        next = mapping.last.wrapping_add(1);
        if next == 0 {
            break;
        }
    }
    Err(DmaFault::Unmapped { iova: Iova(next) })
}

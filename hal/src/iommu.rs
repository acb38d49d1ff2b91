//! The IOMMU of the in-process bus: a table of what is mapped where.

use std::sync::{Arc, PoisonError, RwLock};

use crate::endpoint::DmaFault;
use crate::region::Region;
use crate::{Iova, Result};

/// One mapping: `first..=last` is the beginning of `region`.
#[derive(Debug)]
struct Mapping {
    first: u64,
    last: u64,
    region: Arc<Region>,
}

/// What is mapped, ascending and disjoint.
///
/// Copies hold the lock for reading, so once [`unmap`](Self::unmap) returned no device touches the memory any more.
#[derive(Debug, Default)]
pub(crate) struct InProcessIommu {
    table: RwLock<Vec<Mapping>>,
}

impl InProcessIommu {
    /// Maps the first `bytes` bytes of `region` at `iova`, which the domain's allocator has handed out.
    pub(crate) fn map(&self, iova: Iova, bytes: u64, region: Arc<Region>) {
        let mapping = Mapping { first: iova.0, last: iova.0 + (bytes - 1), region };
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let index = table.partition_point(|other| other.first < mapping.first);
        table.insert(index, mapping);
    }

    /// Removes the mapping that begins at `iova`.
    pub(crate) fn unmap(&self, iova: Iova) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let removed =
            table.binary_search_by_key(&iova.0, |mapping| mapping.first).ok().map(|index| table.remove(index));
        drop(table);
        // It may be the last holder of the memory: it need not go while others wait for the table.
        drop(removed);
    }

    /// Copies host memory at `iova` into `data`, or touches nothing.
    pub(crate) fn read(&self, iova: Iova, data: &mut [u8]) -> std::result::Result<(), DmaFault> {
        let mut rest = data;
        self.pieces(iova, rest.len(), |region, offset, bytes| {
            let (piece, more) = std::mem::take(&mut rest).split_at_mut(bytes);
            rest = more;
            region.read(region.len(), offset, piece)
        })
    }

    /// Copies `data` to host memory at `iova`, or touches nothing.
    pub(crate) fn write(&self, iova: Iova, data: &[u8]) -> std::result::Result<(), DmaFault> {
        let mut rest = data;
        self.pieces(iova, rest.len(), |region, offset, bytes| {
            let (piece, more) = rest.split_at(bytes);
            rest = more;
            region.write(region.len(), offset, piece)
        })
    }

    /// Whether all of the range is mapped.
    pub(crate) fn check(&self, iova: Iova, bytes: u64) -> std::result::Result<(), DmaFault> {
        cover(&self.table.read().unwrap_or_else(PoisonError::into_inner), iova, bytes).map(|_| ())
    }

    /// Calls `copy(region, offset, bytes)` for each piece of the range, in ascending order, if all of it is mapped.
    #[inline]
    fn pieces(
        &self,
        iova: Iova,
        bytes: usize,
        mut copy: impl FnMut(&Region, usize, usize) -> Result<()>,
    ) -> std::result::Result<(), DmaFault> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let mut next = iova.0;
        let mut left = bytes;
        for mapping in cover(&table, iova, bytes as u64)? {
            let offset = (next - mapping.first) as usize;
            let here = usize::try_from(mapping.last - next).unwrap_or(usize::MAX).saturating_add(1).min(left);
            // Regions are as long as their mapping. What is left to fail is a forked child, which has no host memory.
            copy(&mapping.region, offset, here).map_err(|_| DmaFault::HostGone)?;
            left -= here;
            next = next.wrapping_add(here as u64);
        }
        Ok(())
    }
}

/// The mappings of `table` that the range lies in, or the first address that lies in none. Mostly it is one mapping.
#[inline]
fn cover(table: &[Mapping], iova: Iova, bytes: u64) -> std::result::Result<&[Mapping], DmaFault> {
    if bytes == 0 {
        return Ok(&[]);
    }
    let index = table.partition_point(|mapping| mapping.last < iova.0);
    let mut next = iova.0;
    let mut left = bytes;
    for (count, mapping) in table[index..].iter().enumerate() {
        if mapping.first > next {
            break;
        }
        let here = mapping.last - next;
        if here >= left - 1 {
            return Ok(&table[index..=index + count]);
        }
        left -= here + 1;
        // Past the last address there is nothing. Address 0, which is never mapped, stands for that.
        next = mapping.last.wrapping_add(1);
        if next == 0 {
            break;
        }
    }
    Err(DmaFault::Unmapped { iova: Iova(next) })
}

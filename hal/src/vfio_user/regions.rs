//! Regions of a served endpoint: BARs and configuration space.
//!
//! Accesses reach the endpoint as they would reach a function: in words of 1, 2, 4 or 8 bytes that are naturally aligned.
//! The MSI-X table and the message control word are the server's to write, as they are the kernel's for VFIO: what a
//! client writes there is dropped, and what it reads is what the function has.

use std::ops::Range;
use std::sync::Arc;

use nix::errno::Errno;

use super::codec::{Area, CONFIG_REGION, REGIONS, RegionAccess, RegionInfo};
use crate::config;
use crate::endpoint::{Endpoint, Layout};
use crate::msix::Msix;
use crate::region::page_size;
use crate::{BarIndex, SharedMemory};

/// The regions of one endpoint.
pub(crate) struct Regions {
    endpoint: Arc<dyn Endpoint>,
    layout: Layout,
    msix: Option<Msix>,
}

/// What a region is.
pub(crate) struct Described {
    /// Without capabilities.
    pub(crate) info: RegionInfo,
    /// The memory that may be mapped.
    pub(crate) memory: Option<Arc<SharedMemory>>,
    /// The stretches of it that may be; none mean all of it.
    pub(crate) areas: Vec<Area>,
}

/// What an access is to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Config,
    Bar(BarIndex),
}

impl Regions {
    pub(crate) fn new(endpoint: Arc<dyn Endpoint>, layout: Layout, msix: Option<Msix>) -> Self {
        Regions { endpoint, layout, msix }
    }

    fn bytes(&self, region: u32) -> u64 {
        match region {
            CONFIG_REGION => u64::from(config::BYTES),
            _ => bar(region).and_then(|bar| self.layout.bars[bar.index()]).map_or(0, |layout| layout.bytes),
        }
    }

    /// The reply to section "`VFIO_USER_DEVICE_GET_REGION_INFO`".
    pub(crate) fn info(&self, index: u32) -> Result<Described, Errno> {
        if index >= REGIONS {
            return Err(Errno::EINVAL);
        }
        let size = self.bytes(index);
        let mut info = RegionInfo { argsz: RegionInfo::BYTES as u32, flags: 0, index, cap_offset: 0, size, offset: 0 };
        if size > 0 {
            info.flags = RegionInfo::READ | RegionInfo::WRITE;
        }
        let memory = bar(index).and_then(|bar| self.endpoint.bar_memory(bar));
        let Some(memory) = memory.filter(|memory| memory.len() == size && size.is_multiple_of(page_size() as u64))
        else {
            return Ok(Described { info, memory: None, areas: Vec::new() });
        };
        let areas = match self.table_in(index) {
            None => Vec::new(),
            Some(table) => {
                let areas = around(size, table, page_size() as u64);
                if areas.is_empty() {
                    return Ok(Described { info, memory: None, areas });
                }
                areas
            }
        };
        info.flags |= RegionInfo::MMAP;
        Ok(Described { info, memory: Some(memory), areas })
    }

    /// Checks an access of sections "`VFIO_USER_REGION_READ`" and "`VFIO_USER_REGION_WRITE`".
    pub(crate) fn place(&self, access: &RegionAccess, most: u64) -> Result<Place, Errno> {
        let bytes = self.bytes(access.region);
        let count = u64::from(access.count);
        if count > most || count > bytes || access.offset > bytes - count {
            return Err(Errno::EINVAL);
        }
        match access.region {
            CONFIG_REGION => Ok(Place::Config),
            region => bar(region).map(Place::Bar).ok_or(Errno::EINVAL),
        }
    }

    /// Reads what [`place`](Self::place) has checked; what nobody answers is all-ones.
    pub(crate) fn read(&self, place: Place, offset: u64, data: &mut [u8]) {
        data.fill(0xff);
        for words in words(offset, data.len(), place) {
            let at = offset + words.start as u64;
            let word = &mut data[words];
            match place {
                Place::Config => self.endpoint.config_read(at as u16, word),
                Place::Bar(bar) => match self.endpoint.bar_memory(bar) {
                    Some(memory) => drop(memory.read(at, word)),
                    None => self.endpoint.bar_read(bar, at, word),
                },
            }
        }
    }

    /// Writes what [`place`](Self::place) has checked.
    pub(crate) fn write(&self, place: Place, offset: u64, data: &[u8]) {
        let kept = match (place, &self.msix) {
            (Place::Config, Some(msix)) => {
                let control = msix.control_bytes();
                u64::from(control.start)..u64::from(control.end)
            }
            (Place::Bar(bar), Some(_)) => self.table_in(bar.index() as u32).unwrap_or(0..0),
            (_, None) => 0..0,
        };
        // What lies before what is kept, and what lies behind it.
        let end = offset + data.len() as u64;
        let parts = if kept.start >= end || kept.end <= offset || kept.is_empty() {
            [offset..end, end..end]
        } else {
            [offset..kept.start.max(offset), kept.end.min(end)..end]
        };
        for part in parts {
            let data = &data[(part.start - offset) as usize..(part.end - offset) as usize];
            for words in words(part.start, data.len(), place) {
                let at = part.start + words.start as u64;
                let word = &data[words];
                match place {
                    Place::Config => self.endpoint.config_write(at as u16, word),
                    Place::Bar(bar) => match self.endpoint.bar_memory(bar) {
                        Some(memory) => drop(memory.write(at, word)),
                        None => self.endpoint.bar_write(bar, at, word),
                    },
                }
            }
        }
    }

    /// Where the MSI-X table lies in a region, if it does.
    fn table_in(&self, region: u32) -> Option<Range<u64>> {
        let (bar, table) = self.msix?.table();
        (bar.index() == region as usize).then_some(table)
    }
}

fn bar(region: u32) -> Option<BarIndex> {
    u8::try_from(region).ok().and_then(BarIndex::new)
}

/// The pages of `size` bytes that hold nothing of `hole`.
fn around(size: u64, hole: Range<u64>, page: u64) -> Vec<Area> {
    let below = Area { offset: 0, size: hole.start / page * page };
    let above = hole.end.next_multiple_of(page).min(size);
    [below, Area { offset: above, size: size - above }].into_iter().filter(|area| area.size > 0).collect()
}

/// Cuts `bytes` bytes from `offset` on into naturally aligned words, the largest that fit: up to eight bytes, or four in
/// configuration space.
fn words(offset: u64, bytes: usize, place: Place) -> impl Iterator<Item = Range<usize>> {
    let widest = if place == Place::Config { 4 } else { 8 };
    let mut done = 0;
    std::iter::from_fn(move || {
        let left = bytes - done;
        if left == 0 {
            return None;
        }
        let aligned = 1 << (offset + done as u64).trailing_zeros().min(3);
        let width = (1 << left.ilog2().min(3)).min(aligned).min(widest);
        done += width;
        Some(done - width..done)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(offset: u64, bytes: usize, place: Place) -> Vec<usize> {
        words(offset, bytes, place).map(|word| word.len()).collect()
    }

    #[test]
    fn accesses_are_cut_where_a_bus_would() {
        let bar = Place::Bar(BarIndex::new(0).unwrap());
        assert_eq!(cut(0, 4, bar), [4]);
        assert_eq!(cut(8, 8, bar), [8]);
        assert_eq!(cut(4, 8, bar), [4, 4]);
        assert_eq!(cut(1, 15, bar), [1, 2, 4, 8]);
        assert_eq!(cut(8, 15, bar), [8, 4, 2, 1]);
        assert_eq!(cut(0, 8, Place::Config), [4, 4]);
        assert!(cut(3, 0, bar).is_empty());
    }

    #[test]
    fn a_hole_costs_whole_pages() {
        let areas = |size, hole| around(size, hole, 4096).iter().map(|a| (a.offset, a.size)).collect::<Vec<_>>();
        assert_eq!(areas(0x4000, 0x1800..0x1840), [(0, 0x1000), (0x2000, 0x2000)]);
        assert_eq!(areas(0x4000, 0..0x10), [(0x1000, 0x3000)]);
        assert_eq!(areas(0x4000, 0x3ff0..0x4000), [(0, 0x3000)]);
        assert_eq!(areas(0x1000, 0x800..0x810), []);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn words_are_aligned_and_leave_nothing_out(offset in 0..5000u64, bytes in 0..100usize, config in any::<bool>()) {
            let place = if config { Place::Config } else { Place::Bar(BarIndex::new(0).unwrap()) };
            let mut next = 0;
            for word in words(offset, bytes, place) {
                prop_assert_eq!(word.start, next);
                next = word.end;
                let widest = if config { 4 } else { 8 };
                prop_assert!(word.len().is_power_of_two() && word.len() <= widest);
                prop_assert_eq!((offset + word.start as u64) % word.len() as u64, 0);
            }
            prop_assert_eq!(next, bytes);
        }
    }
}

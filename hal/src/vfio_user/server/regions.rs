//! Regions of a served endpoint: BARs and configuration space.
//!
//! Accesses reach the endpoint as they would reach a function: in naturally aligned words of 1, 2, 4 or, in BARs, 8 bytes. Only the
//! server writes the MSI-X table and the message control word, as only the kernel does with VFIO: a client's writes to them
//! are dropped, and its reads return the function's values.

use std::ops::Range;
use std::sync::Arc;

use nix::errno::Errno;

use crate::config;
use crate::endpoint::msix::Msix;
use crate::endpoint::{Endpoint, Layout};
use crate::memory::region::page_size;
use crate::vfio_user::wire::region::{Area, CONFIG_REGION, REGIONS, RegionAccess, RegionInfo};
use crate::vfio_user::wire::version::DEFAULT_TRANSFER_BYTES;
use crate::{BarIndex, SharedMemory};

/// The regions of one endpoint.
pub(crate) struct Regions {
    endpoint: Arc<dyn Endpoint>,
    layout: Layout,
    msix: Option<Msix>,
}

/// What a region is.
pub(crate) struct Described {
    /// The description without capabilities.
    pub(crate) info: RegionInfo,
    /// The memory that can be mapped.
    pub(crate) memory: Option<Arc<SharedMemory>>,
    /// The areas of the memory that can be mapped. Empty: all of it.
    pub(crate) areas: Vec<Area>,
}

/// The target of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
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

    /// Describes a region (section "`VFIO_USER_DEVICE_GET_REGION_INFO`").
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

    /// Checks an access (sections "`VFIO_USER_REGION_READ`" and "`VFIO_USER_REGION_WRITE`").
    pub(crate) fn locate(&self, access: &RegionAccess) -> Result<Location, Errno> {
        let bytes = self.bytes(access.region);
        let count = u64::from(access.count);
        if count > DEFAULT_TRANSFER_BYTES || count > bytes || access.offset > bytes - count {
            return Err(Errno::EINVAL);
        }
        match access.region {
            CONFIG_REGION => Ok(Location::Config),
            region => bar(region).map(Location::Bar).ok_or(Errno::EINVAL),
        }
    }

    /// Reads a range that [`locate`](Self::locate) has checked. Bytes that the endpoint does not set are all-ones.
    pub(crate) fn read(&self, location: Location, offset: u64, data: &mut [u8]) {
        data.fill(0xff);
        let memory = self.memory(location);
        for words in words(offset, data.len(), location) {
            let at = offset + words.start as u64;
            let word = &mut data[words];
            match location {
                Location::Config => self.endpoint.config_read(at as u16, word),
                Location::Bar(bar) => match &memory {
                    Some(memory) => drop(memory.read(at, word)),
                    None => self.endpoint.bar_read(bar, at, word),
                },
            }
        }
    }

    /// Writes a range that [`locate`](Self::locate) has checked.
    pub(crate) fn write(&self, location: Location, offset: u64, data: &[u8]) {
        let kept = match (location, &self.msix) {
            (Location::Config, Some(msix)) => {
                let control = msix.control_bytes();
                u64::from(control.start)..u64::from(control.end)
            }
            (Location::Bar(bar), Some(_)) => self.table_in(bar.index() as u32).unwrap_or(0..0),
            (_, None) => 0..0,
        };
        // The parts before and after the bytes that only the server writes.
        let end = offset + data.len() as u64;
        let parts = if kept.start >= end || kept.end <= offset || kept.is_empty() {
            [offset..end, end..end]
        } else {
            [offset..kept.start.max(offset), kept.end.min(end)..end]
        };
        let memory = self.memory(location);
        for part in parts {
            let data = &data[(part.start - offset) as usize..(part.end - offset) as usize];
            for words in words(part.start, data.len(), location) {
                let at = part.start + words.start as u64;
                let word = &data[words];
                match location {
                    Location::Config => self.endpoint.config_write(at as u16, word),
                    Location::Bar(bar) => match &memory {
                        Some(memory) => drop(memory.write(at, word)),
                        None => self.endpoint.bar_write(bar, at, word),
                    },
                }
            }
        }
    }

    /// Returns the memory that a BAR is, if it is.
    fn memory(&self, location: Location) -> Option<Arc<SharedMemory>> {
        match location {
            Location::Config => None,
            Location::Bar(bar) => self.endpoint.bar_memory(bar),
        }
    }

    /// Returns the range of the MSI-X table, if it is in this region.
    fn table_in(&self, region: u32) -> Option<Range<u64>> {
        let (bar, table) = self.msix?.table();
        (bar.index() == region as usize).then_some(table)
    }
}

fn bar(region: u32) -> Option<BarIndex> {
    u8::try_from(region).ok().and_then(BarIndex::new)
}

/// Returns the pages of `size` bytes that have no byte of `hole`.
fn around(size: u64, hole: Range<u64>, page: u64) -> Vec<Area> {
    let below = Area { offset: 0, size: hole.start / page * page };
    let above = hole.end.next_multiple_of(page).min(size);
    [below, Area { offset: above, size: size - above }].into_iter().filter(|area| area.size > 0).collect()
}

/// Splits `bytes` bytes from `offset` on into the largest naturally aligned words: up to eight bytes, or four in
/// configuration space.
fn words(offset: u64, bytes: usize, location: Location) -> impl Iterator<Item = Range<usize>> {
    let widest = if location == Location::Config { 4 } else { 8 };
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
pub(crate) mod tests {
    use super::*;
    use crate::endpoint::{BarLayout, DmaFault, DmaPort, DmaTag, InterruptPort, ResetKind};
    use proptest::prelude::*;
    use std::sync::Mutex;

    /// An endpoint that keeps what is written: configuration space, two BARs without memory, two with.
    pub(crate) struct Kept {
        pub(crate) config: Mutex<Vec<u8>>,
        bars: [Mutex<Vec<u8>>; 2],
        memory: [Arc<SharedMemory>; 2],
        /// Bytes of each access.
        pub(crate) widths: Mutex<Vec<usize>>,
    }

    const BAR0: u64 = 2 << 20;
    const BAR1: u64 = 2048;
    const BAR2: u64 = 0x4000;
    /// The MSI-X table, of 20 vectors, in BAR 2.
    const TABLE: Range<u64> = 0x1800..0x1940;
    const CONTROL: u64 = 0x42;

    impl Kept {
        pub(crate) fn new() -> Arc<Self> {
            let mut config = vec![0; 4096];
            config[6] = 0x10;
            config[0x34] = 0x40;
            config[0x40..0x44].copy_from_slice(&[0x11, 0, 19, 0]);
            config[0x44..0x48].copy_from_slice(&(TABLE.start as u32 | 2).to_le_bytes());
            let memory = [("two", BAR2), ("three", BAR2)];
            Arc::new(Kept {
                config: Mutex::new(config),
                bars: [BAR0, BAR1].map(|bytes| Mutex::new(vec![0; bytes as usize])),
                memory: memory.map(|(name, bytes)| Arc::new(SharedMemory::new(name, bytes).unwrap())),
                widths: Mutex::default(),
            })
        }

        fn at(&self, bytes: &Mutex<Vec<u8>>, offset: u64, width: usize, access: impl FnOnce(&mut [u8])) {
            self.widths.lock().unwrap().push(width);
            access(&mut bytes.lock().unwrap()[offset as usize..][..width]);
        }
    }

    impl Endpoint for Kept {
        fn layout(&self) -> Layout {
            let bar = |bytes| Some(BarLayout { bytes, is_64_bit: false, prefetchable: false });
            // BAR 3 is larger than its memory.
            Layout { bars: [bar(BAR0), bar(BAR1), bar(BAR2), bar(2 * BAR2), None, None], dma_bits: 64 }
        }
        fn attach(&self, _: Arc<dyn DmaPort>, _: Arc<dyn InterruptPort>) {}
        fn config_read(&self, offset: u16, data: &mut [u8]) {
            self.at(&self.config, offset.into(), data.len(), |bytes| data.copy_from_slice(bytes));
        }
        fn config_write(&self, offset: u16, data: &[u8]) {
            self.at(&self.config, offset.into(), data.len(), |bytes| bytes.copy_from_slice(data));
        }
        fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
            self.at(&self.bars[bar.index()], offset, data.len(), |bytes| data.copy_from_slice(bytes));
        }
        fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
            self.at(&self.bars[bar.index()], offset, data.len(), |bytes| bytes.copy_from_slice(data));
        }
        fn reset(&self, _: ResetKind) {}
        fn dma_complete(&self, _: DmaTag, _: Result<&[u8], DmaFault>) {}
        fn bar_memory(&self, bar: BarIndex) -> Option<Arc<SharedMemory>> {
            [2, 3].into_iter().position(|index| index == bar.index()).map(|at| Arc::clone(&self.memory[at]))
        }
    }

    fn regions() -> (Arc<Kept>, Regions) {
        let kept = Kept::new();
        let msix = Msix::find(&*kept).unwrap();
        assert!(msix.is_some());
        let regions = Regions::new(kept.clone(), kept.layout(), msix);
        kept.widths.lock().unwrap().clear();
        (kept, regions)
    }

    #[test]
    fn regions_are_described() {
        let (_, regions) = regions();
        let sizes = [BAR0, BAR1, BAR2, 2 * BAR2, 0, 0, 0, 4096, 0];
        for (index, size) in (0..).zip(sizes) {
            let Described { info, memory, areas } = regions.info(index).unwrap();
            let flags = if index == 2 { 7 } else { 3 * u32::from(size > 0) };
            assert_eq!(info, RegionInfo { argsz: 32, flags, index, cap_offset: 0, size, offset: 0 });
            assert_eq!(memory.is_some(), index == 2, "{index}");
            let around = [Area { offset: 0, size: 0x1000 }, Area { offset: 0x2000, size: 0x2000 }];
            assert_eq!(areas, if index == 2 { around.to_vec() } else { Vec::new() });
        }
        for index in [9, 10, 0x100, u32::MAX] {
            assert_eq!(regions.info(index).err(), Some(Errno::EINVAL));
        }
    }

    #[test]
    fn an_access_lies_in_its_region() {
        let (_, regions) = regions();
        let (most, bar) = (1 << 20, |index| Ok(Location::Bar(BarIndex::new(index).unwrap())));
        let wrong = Err(Errno::EINVAL);
        for (region, offset, count, location) in [
            (0, 0, most, bar(0)),
            (0, BAR0 - most, most, bar(0)),
            (0, BAR0 - most + 1, most, wrong),
            (0, 0, most + 1, wrong),
            (0, BAR0, 0, bar(0)),
            (0, BAR0 + 1, 0, wrong),
            (1, 0, BAR1, bar(1)),
            (1, 0, BAR1 + 1, wrong),
            (1, 1, BAR1, wrong),
            (1, u64::MAX, 1, wrong),
            (4, 0, 0, bar(4)),
            (4, 0, 1, wrong),
            (6, 0, 0, wrong),
            (7, 0, 4096, Ok(Location::Config)),
            (7, 4095, 1, Ok(Location::Config)),
            (7, 4095, 2, wrong),
            (8, 0, 0, wrong),
            (0x100, 0, 0, wrong),
        ] {
            let access = RegionAccess { offset, region, count: count as u32 };
            assert_eq!(regions.locate(&access), location, "{access:?}");
        }
    }

    #[test]
    fn writes_are_read_back_except_what_only_the_server_writes() {
        let (kept, regions) = regions();
        let bar = |index| Location::Bar(BarIndex::new(index).unwrap());
        for (location, bytes, kept_out) in [
            (bar(0), BAR1, 0..0),
            (bar(1), BAR1, 0..0),
            (bar(2), BAR2, TABLE),
            (bar(3), BAR2, 0..0),
            (Location::Config, 4096, CONTROL..CONTROL + 2),
        ] {
            let mut model = vec![0; bytes as usize];
            regions.read(location, 0, &mut model);
            let (start, end) = (kept_out.start, kept_out.end);
            let parts = [
                (0, bytes),
                (1, bytes - 1),
                (start, end),
                (start.saturating_sub(3), start),
                (start.saturating_sub(3), start + 1),
                (end, end + 5),
                (end.saturating_sub(1), end + 5),
                (start, start + 1),
                (start.saturating_sub(1), end + 1),
                (7, 7),
            ];
            for (seed, (first, last)) in (1u8..).zip(parts) {
                let data: Vec<u8> = (first..last).map(|at| (at as u8).wrapping_mul(7).wrapping_add(seed)).collect();
                regions.write(location, first, &data);
                for (at, byte) in (first..).zip(data).filter(|(at, _)| !kept_out.contains(at)) {
                    model[at as usize] = byte;
                }
                let mut all = vec![0; bytes as usize];
                regions.read(location, 0, &mut all);
                assert!(all == model, "{location:?} {first:#x}..{last:#x}");
                let mut part = vec![0; (last - first) as usize];
                regions.read(location, first, &mut part);
                assert!(part == model[first as usize..last as usize], "{location:?} {first:#x}..{last:#x}");
            }
        }
        kept.widths.lock().unwrap().clear();
        regions.read(bar(0), 1, &mut [0; 15]);
        regions.write(Location::Config, 0x84, &[0; 12]);
        assert_eq!(*kept.widths.lock().unwrap(), [1, 2, 4, 8, 4, 4, 4]);
    }

    fn cut(offset: u64, bytes: usize, location: Location) -> Vec<usize> {
        words(offset, bytes, location).map(|word| word.len()).collect()
    }

    #[test]
    fn accesses_are_split_as_on_a_bus() {
        let bar = Location::Bar(BarIndex::new(0).unwrap());
        assert_eq!(cut(0, 4, bar), [4]);
        assert_eq!(cut(8, 8, bar), [8]);
        assert_eq!(cut(4, 8, bar), [4, 4]);
        assert_eq!(cut(1, 15, bar), [1, 2, 4, 8]);
        assert_eq!(cut(8, 15, bar), [8, 4, 2, 1]);
        assert_eq!(cut(0, 8, Location::Config), [4, 4]);
        assert!(cut(3, 0, bar).is_empty());
    }

    #[test]
    fn areas_are_whole_pages_around_the_table() {
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
            let location = if config { Location::Config } else { Location::Bar(BarIndex::new(0).unwrap()) };
            let mut next = 0;
            for word in words(offset, bytes, location) {
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

//! Parses the kernel's descriptions of regions and IOMMUs: structures of growing size, followed by a list of capabilities.
//!
//! Layouts and numbers are those of `linux/vfio.h`, from vfio-bindings. The bytes may be anything: an offset outside or an
//! endless list is an error.

use std::mem::{offset_of, size_of};
use std::ops::{Range, RangeInclusive};

use vfio_bindings::bindings::vfio::{
    VFIO_IOMMU_INFO_CAPS, VFIO_IOMMU_INFO_PGSIZES, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE,
    VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL, VFIO_REGION_INFO_CAP_MSIX_MAPPABLE, VFIO_REGION_INFO_CAP_SPARSE_MMAP,
    VFIO_REGION_INFO_FLAG_CAPS, VFIO_REGION_INFO_FLAG_MMAP, vfio_info_cap_header, vfio_iommu_type1_info,
    vfio_iommu_type1_info_cap_iova_range, vfio_iommu_type1_info_dma_avail, vfio_iova_range, vfio_region_info,
    vfio_region_info_cap_sparse_mmap, vfio_region_sparse_mmap_area,
};

/// The description is invalid at this offset, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) at: usize,
}

type Parsed<T> = Result<T, Broken>;

/// Description of a region of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RegionInfo {
    /// Length in bytes; zero: no such region.
    pub(super) size: u64,
    /// Offset in the device's file.
    pub(super) offset: u64,
    pub(super) mappable: bool,
    /// Areas that may be mapped, if not the whole region: offsets and ends in bytes, from the kernel.
    pub(super) sparse: Option<Vec<Range<u64>>>,
    /// Whether the MSI-X table may be mapped too.
    pub(super) msix_mappable: bool,
}

impl RegionInfo {
    /// Parses the answer of `VFIO_DEVICE_GET_REGION_INFO`, with its capabilities. Unknown capabilities are skipped.
    pub(super) fn parse(bytes: &[u8]) -> Parsed<Self> {
        let flags = u32_at(bytes, offset_of!(vfio_region_info, flags))?;
        let mut info = RegionInfo {
            size: u64_at(bytes, offset_of!(vfio_region_info, size))?,
            offset: u64_at(bytes, offset_of!(vfio_region_info, offset))?,
            mappable: flags & VFIO_REGION_INFO_FLAG_MMAP != 0,
            ..RegionInfo::default()
        };
        if info.offset.checked_add(info.size).is_none() {
            return Err(Broken { at: offset_of!(vfio_region_info, offset) });
        }
        if flags & VFIO_REGION_INFO_FLAG_CAPS == 0 {
            return Ok(info);
        }
        let first = offset_of!(vfio_region_info, cap_offset);
        for capability in capabilities(bytes, first, size_of::<vfio_region_info>())? {
            match u32::from(capability.id) {
                VFIO_REGION_INFO_CAP_SPARSE_MMAP => {
                    let count = offset_of!(vfio_region_info_cap_sparse_mmap, nr_areas);
                    let areas = size_of::<vfio_region_info_cap_sparse_mmap>();
                    let each = size_of::<vfio_region_sparse_mmap_area>();
                    let areas = array(bytes, capability.at, count, areas, each, |at| {
                        let start = u64_at(bytes, at + offset_of!(vfio_region_sparse_mmap_area, offset))?;
                        let size = u64_at(bytes, at + offset_of!(vfio_region_sparse_mmap_area, size))?;
                        Ok(start..start.checked_add(size).ok_or(Broken { at })?)
                    })?;
                    info.sparse.get_or_insert_default().extend(areas);
                }
                VFIO_REGION_INFO_CAP_MSIX_MAPPABLE => info.msix_mappable = true,
                _ => {}
            }
        }
        Ok(info)
    }

    /// Returns the ranges that may be mapped in whole pages of `page` bytes: ascending, disjoint, not adjacent.
    ///
    /// `msix` is the range of the MSI-X table, if the region has it. Its pages are excluded, unless the kernel allows to map
    /// them. Pages that lie only partly in an area or in the region are excluded too.
    pub(super) fn mappable_stretches(&self, msix: Option<Range<u64>>, page: u64) -> Vec<Range<u64>> {
        if !self.mappable {
            return Vec::new();
        }
        let mut areas = self.sparse.clone().unwrap_or_else(|| Vec::from([Range { start: 0, end: self.size }]));
        for area in &mut areas {
            let last = area.end.min(self.size);
            *area = area.start.checked_next_multiple_of(page).unwrap_or(last)..last - last % page;
        }
        areas.retain(|area| area.start < area.end);
        areas.sort_unstable_by_key(|area| area.start);
        let hole = msix.filter(|table| !self.msix_mappable && !table.is_empty());
        let hole = hole.map(|table| {
            table.start - table.start % page..table.end.checked_next_multiple_of(page).unwrap_or(u64::MAX)
        });
        let mut stretches: Vec<Range<u64>> = Vec::new();
        let mut add = |stretch: Range<u64>| match stretches.last_mut() {
            _ if stretch.is_empty() => {}
            Some(before) if stretch.start <= before.end => before.end = before.end.max(stretch.end),
            _ => stretches.push(stretch),
        };
        for area in areas {
            match &hole {
                Some(hole) => {
                    add(area.start..area.end.min(hole.start));
                    add(area.start.max(hole.end)..area.end);
                }
                None => add(area),
            }
        }
        stretches
    }
}

/// Description of a container's IOMMU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct IommuInfo {
    /// Smallest page in bytes, if reported.
    pub(super) smallest_page: Option<u64>,
    /// Addresses that can be mapped, ends inclusive, if reported (Linux 5.4 and later).
    pub(super) ranges: Option<Vec<RangeInclusive<u64>>>,
    /// Number of mappings that are still available, if reported (Linux 5.10 and later).
    pub(super) available: Option<u32>,
}

impl IommuInfo {
    /// Parses the answer of `VFIO_IOMMU_GET_INFO`, with its capabilities. Unknown capabilities are skipped.
    pub(super) fn parse(bytes: &[u8]) -> Parsed<Self> {
        let flags = u32_at(bytes, offset_of!(vfio_iommu_type1_info, flags))?;
        let mut info = IommuInfo::default();
        if flags & VFIO_IOMMU_INFO_PGSIZES != 0 {
            let sizes = u64_at(bytes, offset_of!(vfio_iommu_type1_info, iova_pgsizes))?;
            info.smallest_page = (sizes != 0).then(|| sizes & sizes.wrapping_neg());
        }
        if flags & VFIO_IOMMU_INFO_CAPS == 0 {
            return Ok(info);
        }
        let first = offset_of!(vfio_iommu_type1_info, cap_offset);
        // Later kernels add padding. With or without it, capabilities follow the structure.
        for capability in capabilities(bytes, first, first + size_of::<u32>())? {
            match u32::from(capability.id) {
                VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE => {
                    let count = offset_of!(vfio_iommu_type1_info_cap_iova_range, nr_iovas);
                    let ranges = size_of::<vfio_iommu_type1_info_cap_iova_range>();
                    let each = size_of::<vfio_iova_range>();
                    let ranges = array(bytes, capability.at, count, ranges, each, |at| {
                        let start = u64_at(bytes, at + offset_of!(vfio_iova_range, start))?;
                        let end = u64_at(bytes, at + offset_of!(vfio_iova_range, end))?;
                        if start <= end { Ok(start..=end) } else { Err(Broken { at }) }
                    })?;
                    info.ranges = Some(ranges);
                }
                VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL => {
                    let at = capability.at + offset_of!(vfio_iommu_type1_info_dma_avail, avail);
                    info.available = Some(u32_at(bytes, at)?);
                }
                _ => {}
            }
        }
        Ok(info)
    }
}

/// A capability: its id, and the offset of its header.
struct Capability {
    id: u16,
    at: usize,
}

/// Returns the list whose first offset is stored at `first`. Entries must lie at `behind` or later, and inside of `bytes`.
fn capabilities(bytes: &[u8], first: usize, behind: usize) -> Parsed<Vec<Capability>> {
    let mut found = Vec::new();
    let mut from = first;
    // A list with more entries than fit is a loop.
    for _ in 0..=bytes.len() / size_of::<vfio_info_cap_header>() {
        let at = u32_at(bytes, from)? as usize;
        if at == 0 {
            return Ok(found);
        }
        if at < behind {
            return Err(Broken { at: from });
        }
        let id = u16_at(bytes, at + offset_of!(vfio_info_cap_header, id))?;
        from = at + offset_of!(vfio_info_cap_header, next);
        found.push(Capability { id, at });
    }
    Err(Broken { at: from })
}

/// The array of a capability at `at` that has its `count` and its first entry at these offsets, `each` entry as long.
fn array<T>(
    bytes: &[u8],
    at: usize,
    count: usize,
    first: usize,
    each: usize,
    entry: impl Fn(usize) -> Parsed<T>,
) -> Parsed<Vec<T>> {
    let count = u32_at(bytes, at + count)? as usize;
    let room = bytes.len().saturating_sub(at + first) / each;
    if count > room {
        return Err(Broken { at });
    }
    (0..count).map(|index| entry(at + first + index * each)).collect()
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Parsed<[u8; N]> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(Broken { at })
}

fn u16_at(bytes: &[u8], at: usize) -> Parsed<u16> {
    bytes_at(bytes, at).map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Parsed<u32> {
    bytes_at(bytes, at).map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Parsed<u64> {
    bytes_at(bytes, at).map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = 16;

    /// Bytes as the kernel lays them out, written down by hand from linux/vfio.h.
    fn region(flags: u32, size: u64, capabilities: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = vec![0; 32];
        bytes[4..8].copy_from_slice(&flags.to_ne_bytes());
        bytes[16..24].copy_from_slice(&size.to_ne_bytes());
        bytes[24..32].copy_from_slice(&0x200_0000u64.to_ne_bytes());
        append(&mut bytes, 12, capabilities);
        bytes
    }

    fn append(bytes: &mut Vec<u8>, mut from: usize, capabilities: &[(u16, Vec<u8>)]) {
        for (id, body) in capabilities {
            let at = bytes.len();
            bytes[from..from + 4].copy_from_slice(&(at as u32).to_ne_bytes());
            bytes.extend_from_slice(&id.to_ne_bytes());
            bytes.extend_from_slice(&1u16.to_ne_bytes());
            bytes.extend_from_slice(&0u32.to_ne_bytes());
            bytes.extend_from_slice(body);
            from = at + 4;
        }
    }

    fn pairs(count: u32, pairs: &[(u64, u64)]) -> Vec<u8> {
        let mut body = Vec::from(count.to_ne_bytes());
        body.extend_from_slice(&[0; 4]);
        for (first, second) in pairs {
            body.extend_from_slice(&first.to_ne_bytes());
            body.extend_from_slice(&second.to_ne_bytes());
        }
        body
    }

    fn iommu(flags: u32, sizes: u64, capabilities: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = vec![0; 24];
        bytes[4..8].copy_from_slice(&flags.to_ne_bytes());
        bytes[8..16].copy_from_slice(&sizes.to_ne_bytes());
        append(&mut bytes, 16, capabilities);
        bytes
    }

    #[test]
    fn a_region_with_all_there_is() {
        let unknown = (77, vec![1, 2, 3, 4]);
        let sparse = (1, pairs(2, &[(0x1000, 0x2000), (0x8000, 0x1000)]));
        let bytes = region(0b1111, 0x1_0000, &[unknown, sparse, (3, Vec::new())]);
        let info = RegionInfo::parse(&bytes).unwrap();
        assert_eq!((info.size, info.offset), (0x1_0000, 0x200_0000));
        assert!(info.mappable && info.msix_mappable);
        assert_eq!(info.sparse, Some(vec![0x1000..0x3000, 0x8000..0x9000]));
        assert_eq!(info.mappable_stretches(None, 0x1000), [0x1000..0x3000, 0x8000..0x9000]);
        // The same bytes without the flag have no capabilities.
        let info = RegionInfo::parse(&region(0b0001, 0x1_0000, &[(3, Vec::new())])).unwrap();
        assert!(!info.msix_mappable && !info.mappable);
        assert_eq!(info.mappable_stretches(None, 0x1000), []);
    }

    #[test]
    fn broken_region_lists_are_refused() {
        let at = |at, bytes: &[u8]| assert_eq!(RegionInfo::parse(bytes), Err(Broken { at }));
        let mut bytes = region(0b1000, 0, &[(9, Vec::new()), (9, Vec::new())]);
        bytes[44..48].copy_from_slice(&32u32.to_ne_bytes());
        assert!(RegionInfo::parse(&bytes).is_err(), "a circle");
        bytes[44..48].copy_from_slice(&31u32.to_ne_bytes());
        at(44, &bytes);
        bytes[44..48].copy_from_slice(&41u32.to_ne_bytes());
        at(45, &bytes);
        at(32, &region(0b1000, 0, &[(1, pairs(2, &[(0, 1)]))]));
        at(32, &region(0b1000, 0, &[(1, pairs(u32::MAX, &[(0, 1)]))]));
        at(48, &region(0b1000, 0, &[(1, pairs(1, &[(2, u64::MAX)]))]));
        at(24, &region(0, u64::MAX, &[]));
        at(4, &[0; 7]);
    }

    #[test]
    fn the_msix_tables_pages_are_left_out() {
        let info = RegionInfo { size: 0x6000, mappable: true, ..RegionInfo::default() };
        let one = |start, end| Vec::from([Range { start, end }]);
        assert_eq!(info.mappable_stretches(None, 0x1000), one(0, 0x6000));
        assert_eq!(info.mappable_stretches(Some(0x2ff0..0x3010), 0x1000), [0..0x2000, 0x4000..0x6000]);
        assert_eq!(info.mappable_stretches(Some(0..0x10), 0x1000), one(0x1000, 0x6000));
        assert_eq!(info.mappable_stretches(Some(0..0x6000), 0x1000), []);
        let mappable = RegionInfo { msix_mappable: true, ..info.clone() };
        assert_eq!(mappable.mappable_stretches(Some(0x2ff0..0x3010), 0x1000), one(0, 0x6000));
        let small = RegionInfo { size: 0x800, ..info };
        assert_eq!(small.mappable_stretches(None, 0x1000), [], "less than a page is trapped");
    }

    #[test]
    fn an_iommu_with_all_there_is() {
        let ranges = (1, pairs(2, &[(0, 0xfedf_ffff), (0xfef0_0000, u64::MAX)]));
        let bytes = iommu(0b11, 0x4020_1000, &[(2, vec![0; 24]), ranges, (3, Vec::from(65535u32.to_ne_bytes()))]);
        let info = IommuInfo::parse(&bytes).unwrap();
        assert_eq!(info.smallest_page, Some(0x1000));
        assert_eq!(info.ranges, Some(vec![0..=0xfedf_ffff, 0xfef0_0000..=u64::MAX]));
        assert_eq!(info.available, Some(65535));
        assert_eq!(IommuInfo::parse(&iommu(0, 0, &[])).unwrap(), IommuInfo::default());
        assert_eq!(IommuInfo::parse(&iommu(1, 0, &[])).unwrap().smallest_page, None);
    }

    #[test]
    fn broken_iommu_lists_are_refused() {
        assert_eq!(IommuInfo::parse(&iommu(2, 0, &[(1, pairs(1, &[(5, 4)]))])), Err(Broken { at: 40 }));
        assert_eq!(IommuInfo::parse(&iommu(2, 0, &[(3, vec![1, 2])])), Err(Broken { at: 32 }));
        assert_eq!(IommuInfo::parse(&[]), Err(Broken { at: 4 }));
    }

    fn areas() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0u64..300, 0u64..120), 0..5)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_parsed_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200), low in any::<bool>()) {
            // Small numbers, so that offsets often lead somewhere.
            if low {
                bytes.iter_mut().for_each(|byte| *byte &= if *byte > 127 { 0x3c } else { 0 });
                bytes.iter_mut().skip(4).take(1).for_each(|byte| *byte = 0xf);
            }
            if let Ok(info) = RegionInfo::parse(&bytes) {
                prop_assert!(info.sparse.as_ref().is_none_or(|areas| areas.len() * 16 <= bytes.len() * bytes.len()));
                let _ = info.mappable_stretches(Some(3..40), 4096);
            }
            let _ = IommuInfo::parse(&bytes);
        }

        /// Page by page: it is mapped if all of it lies in the region and in the areas, and none of it in the table.
        #[test]
        fn stretches_are_the_pages_that_may_be_mapped(
            size in 0u64..300,
            sparse in prop::option::of(areas()),
            msix_mappable: bool,
            table in prop::option::of((0u64..300, 1u64..40)),
        ) {
            let table = table.map(|(start, len)| start..start + len);
            let sparse: Option<Vec<_>> = sparse.map(|areas| areas.iter().map(|&(at, len)| at..at + len).collect());
            let info = RegionInfo { size, mappable: true, sparse, msix_mappable, ..RegionInfo::default() };
            let stretches = info.mappable_stretches(table.clone(), PAGE);
            for page in 0..40 {
                let bytes = page * PAGE..(page + 1) * PAGE;
                let holds = |area: &Range<u64>| area.start <= bytes.start && bytes.end <= area.end;
                let in_area = info.sparse.as_ref().is_none_or(|areas| areas.iter().any(holds));
                let in_table = table.as_ref().is_some_and(|table| table.start < bytes.end && bytes.start < table.end);
                let expected = bytes.end <= size && in_area && (msix_mappable || !in_table);
                prop_assert_eq!(stretches.iter().any(holds), expected, "page {}: {:?}", page, stretches);
            }
            prop_assert!(stretches.iter().all(|stretch| stretch.start % PAGE == 0 && stretch.end % PAGE == 0));
            prop_assert!(stretches.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}

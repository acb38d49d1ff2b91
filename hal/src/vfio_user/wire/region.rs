//! Regions of a device: `VFIO_USER_DEVICE_GET_REGION_*` and `VFIO_USER_REGION_*`.

use vfio_bindings::bindings::vfio as kernel;

use super::fields::{Body, Fields};

/// Regions of a PCI device.
pub(crate) const REGIONS: u32 = kernel::VFIO_PCI_NUM_REGIONS;
/// The region of the configuration space. The regions below are the six BARs and the ROM.
pub(crate) const CONFIG_REGION: u32 = kernel::VFIO_PCI_CONFIG_REGION_INDEX;

/// What a region is (section "`VFIO_USER_DEVICE_GET_REGION_INFO`"), without capabilities. Command and reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegionInfo {
    /// argsz: in a command, the largest reply that the client accepts; in a reply, the bytes of a full one.
    pub(crate) argsz: u32,
    /// flags: [`READ`](Self::READ), [`WRITE`](Self::WRITE), [`MMAP`](Self::MMAP) and [`CAPS`](Self::CAPS).
    pub(crate) flags: u32,
    /// index: the region. The only field of a command beside argsz.
    pub(crate) index: u32,
    /// cap_offset: where the first capability begins, from the start of this structure.
    pub(crate) cap_offset: u32,
    /// size: bytes of the region.
    pub(crate) size: u64,
    /// offset: where the region begins in the passed file, if a file is passed.
    pub(crate) offset: u64,
}

impl RegionInfo {
    pub(crate) const BYTES: usize = 32;
    pub(crate) const READ: u32 = kernel::VFIO_REGION_INFO_FLAG_READ;
    pub(crate) const WRITE: u32 = kernel::VFIO_REGION_INFO_FLAG_WRITE;
    pub(crate) const MMAP: u32 = kernel::VFIO_REGION_INFO_FLAG_MMAP;
    pub(crate) const CAPS: u32 = kernel::VFIO_REGION_INFO_FLAG_CAPS;

    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let (argsz, flags, index, cap_offset) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        Some(RegionInfo { argsz, flags, index, cap_offset, size: fields.u64()?, offset: fields.u64()? })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let body = Body::default().u32(self.argsz).u32(self.flags).u32(self.index).u32(self.cap_offset);
        body.u64(self.size).u64(self.offset).0
    }
}

/// The id of the capability "VFIO region info cap sparse mmap".
const SPARSE_MMAP: u16 = kernel::VFIO_REGION_INFO_CAP_SPARSE_MMAP as u16;
/// Areas of one region that a client accepts: more than a sane server has.
const MOST_AREAS: u32 = 1024;

/// A part of a region that can be mapped ("VFIO region info cap sparse mmap": "areas").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Area {
    /// offset: from the start of the region.
    pub(crate) offset: u64,
    /// size: bytes.
    pub(crate) size: u64,
}

/// Encodes the capability "VFIO region info cap sparse mmap" with its header (id, version, next), as the last of a list.
pub(crate) fn encode_areas(areas: &[Area]) -> Vec<u8> {
    let header = Body::default().u16(SPARSE_MMAP).u16(1).u32(0);
    let body = header.u32(areas.len() as u32).u32(0);
    areas.iter().fold(body, |body, area| body.u64(area.offset).u64(area.size)).0
}

/// Decodes the areas of a region from the whole body of a reply, whose first capability begins at `cap_offset`. `Some(None)`:
/// no capability lists areas. `None`: the list of capabilities is broken.
pub(crate) fn decode_areas(body: &[u8], cap_offset: u32) -> Option<Option<Vec<Area>>> {
    let mut next = cap_offset as usize;
    let mut end = RegionInfo::BYTES;
    while next != 0 {
        // Each capability begins after the one before, so the list ends.
        if next < end {
            return None;
        }
        let mut fields = Fields(body.get(next..)?);
        end = next + 8;
        let (id, _version) = (fields.u16()?, fields.u16()?);
        next = fields.u32()? as usize;
        if id == SPARSE_MMAP {
            let (count, _reserved) = (fields.u32()?, fields.u32()?);
            if count > MOST_AREAS {
                return None;
            }
            let area = |fields: &mut Fields<'_>| Some(Area { offset: fields.u64()?, size: fields.u64()? });
            return (0..count).map(|_| area(&mut fields)).collect::<Option<Vec<_>>>().map(Some);
        }
    }
    Some(None)
}

/// An access to a region (sections "`VFIO_USER_REGION_READ`" and "`VFIO_USER_REGION_WRITE`"). Command and reply; the data
/// follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegionAccess {
    /// offset: from the start of the region.
    pub(crate) offset: u64,
    /// region: its index.
    pub(crate) region: u32,
    /// count: bytes of data.
    pub(crate) count: u32,
}

impl RegionAccess {
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn decode(body: &[u8]) -> Option<(Self, &[u8])> {
        let mut fields = Fields(body);
        let access = RegionAccess { offset: fields.u64()?, region: fields.u32()?, count: fields.u32()? };
        Some((access, fields.rest()))
    }

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..8].copy_from_slice(&self.offset.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.region.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.count.to_ne_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_has_so_many_areas_at_most() {
        let areas = |count: u64| (0..count).map(|at| Area { offset: at << 13, size: 1 << 12 }).collect::<Vec<_>>();
        let decoded = |count| decode_areas(&[vec![0; 32], encode_areas(&areas(count))].concat(), 32);
        for count in [0, 1, 1024] {
            assert_eq!(decoded(count), Some(Some(areas(count))));
        }
        assert_eq!(decoded(1025), None);
        assert_eq!(decoded(3000), None);
        // One area less than it says.
        let mut body = [vec![0; 32], encode_areas(&areas(3))].concat();
        body.truncate(body.len() - 1);
        assert_eq!(decode_areas(&body, 32), None);
        // A list may leave room, may not overlap itself, and ends with what has no next.
        let mut list = vec![0; 32];
        list.extend(Body::default().u16(3).u16(1).u32(48).u64(0).0);
        list.extend(Body::default().u16(4).u16(1).u32(0).0);
        assert_eq!(decode_areas(&list, 32), Some(None));
        assert_eq!(decode_areas(&list, 40), Some(None), "what lies there ends it");
        list[36..40].copy_from_slice(&40u32.to_ne_bytes());
        list[40..48].fill(0);
        assert_eq!(decode_areas(&list, 32), Some(None), "the next begins where this ends");
        list[36..40].copy_from_slice(&39u32.to_ne_bytes());
        assert_eq!(decode_areas(&list, 32), None);
    }

    #[test]
    fn lists_of_capabilities_end() {
        let areas = [Area { offset: 0, size: 0x1000 }];
        let mut body = vec![0; 32];
        assert_eq!(decode_areas(&body, 0), Some(None));
        assert_eq!(decode_areas(&body, 32), None, "outside");
        assert_eq!(decode_areas(&body, 16), None, "inside of the structure");
        body.extend(encode_areas(&areas));
        assert_eq!(decode_areas(&body, 32), Some(Some(areas.to_vec())));
        // Another capability first.
        let mut two = vec![0; 32];
        two.extend(Body::default().u16(3).u16(1).u32(40).0);
        two.extend(encode_areas(&areas));
        assert_eq!(decode_areas(&two, 32), Some(Some(areas.to_vec())));
        // A loop.
        two[36..40].copy_from_slice(&32u32.to_ne_bytes());
        assert_eq!(decode_areas(&two, 32), None);
        // More areas than there are bytes.
        body[40..44].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(decode_areas(&body, 32), None);
    }
}

//! Messages about the client's memory: `VFIO_USER_DMA_*`.

use vfio_bindings::bindings::vfio as kernel;

use super::fields::{Body, Fields};

/// Maps a range of the client's memory (section "`VFIO_USER_DMA_MAP`").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DmaMap {
    /// argsz: bytes of this structure.
    pub(crate) argsz: u32,
    /// flags: [`READABLE`](Self::READABLE) and [`WRITEABLE`](Self::WRITEABLE).
    pub(crate) flags: u32,
    /// offset: where the memory begins in the passed file, if a file is passed.
    pub(crate) offset: u64,
    /// address: the first DMA address.
    pub(crate) address: u64,
    /// size: bytes.
    pub(crate) size: u64,
}

impl DmaMap {
    pub(crate) const BYTES: usize = 32;
    pub(crate) const READABLE: u32 = kernel::VFIO_DMA_MAP_FLAG_READ;
    pub(crate) const WRITEABLE: u32 = kernel::VFIO_DMA_MAP_FLAG_WRITE;

    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let (argsz, flags, offset) = (fields.u32()?, fields.u32()?, fields.u64()?);
        Some(DmaMap { argsz, flags, offset, address: fields.u64()?, size: fields.u64()? })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        Body::default().u32(self.argsz).u32(self.flags).u64(self.offset).u64(self.address).u64(self.size).0
    }
}

/// Unmaps a range of the client's memory (section "`VFIO_USER_DMA_UNMAP`"). Command and reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DmaUnmap {
    /// argsz: in a command, the largest reply that the client accepts.
    pub(crate) argsz: u32,
    /// flags: [`GET_DIRTY`](Self::GET_DIRTY) or [`ALL`](Self::ALL).
    pub(crate) flags: u32,
    /// address: the first DMA address, or 0 with [`ALL`](Self::ALL).
    pub(crate) address: u64,
    /// size: bytes, or 0 with [`ALL`](Self::ALL).
    pub(crate) size: u64,
}

impl DmaUnmap {
    pub(crate) const BYTES: usize = 24;
    pub(crate) const GET_DIRTY: u32 = kernel::VFIO_DMA_UNMAP_FLAG_GET_DIRTY_BITMAP;
    pub(crate) const ALL: u32 = kernel::VFIO_DMA_UNMAP_FLAG_ALL;

    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let (argsz, flags) = (fields.u32()?, fields.u32()?);
        Some(DmaUnmap { argsz, flags, address: fields.u64()?, size: fields.u64()? })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        Body::default().u32(self.argsz).u32(self.flags).u64(self.address).u64(self.size).0
    }
}

/// Reads or writes the client's memory (sections "`VFIO_USER_DMA_READ`" and "`VFIO_USER_DMA_WRITE`"). Command and reply; the
/// data follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DmaAccess {
    /// address: the first DMA address.
    pub(crate) address: u64,
    /// count: bytes of data.
    pub(crate) count: u64,
}

impl DmaAccess {
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn decode(body: &[u8]) -> Option<(Self, &[u8])> {
        let mut fields = Fields(body);
        let access = DmaAccess { address: fields.u64()?, count: fields.u64()? };
        Some((access, fields.rest()))
    }

    /// Decodes the reply to a write. The count has four bytes in the section, and eight in QEMU.
    pub(crate) fn decode_written(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let address = fields.u64()?;
        let count = match fields.0.len() {
            4 => u64::from(fields.u32()?),
            8 => fields.u64()?,
            _ => return None,
        };
        Some(DmaAccess { address, count })
    }

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..8].copy_from_slice(&self.address.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.count.to_ne_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_a_write_has_four_bytes_or_eight() {
        let expected = Some(DmaAccess { address: 0x18, count: 4 });
        assert_eq!(DmaAccess::decode_written(&Body::default().u64(0x18).u32(4).0), expected);
        assert_eq!(DmaAccess::decode_written(&Body::default().u64(0x18).u64(4).0), expected);
        for bytes in (0..30).filter(|bytes| ![12, 16].contains(bytes)) {
            assert_eq!(DmaAccess::decode_written(&vec![0; bytes]), None, "{bytes} bytes");
        }
    }
}

//! Messages as bytes.
//!
//! Layouts, numbers and flags are those of the "vfio-user Protocol Specification" (`docs/interop/vfio-user.rst` of QEMU),
//! named by its sections; what it takes over from `<linux/vfio.h>` comes from there. "All data is in the
//! endianness of the host system", says the section "Protocol Specification". Decoding takes nothing for granted: a
//! body that is too short, or of the wrong size where the size is fixed, is `None`.

use nix::errno::Errno;
use vfio_bindings::bindings::vfio as kernel;

/// Bytes of a message's header (section "Header").
pub(crate) const HEADER_BYTES: usize = 16;
/// Bytes that one data transfer moves at most unless told otherwise (section "`VFIO_USER_VERSION`").
pub(crate) const DEFAULT_TRANSFER_BYTES: u64 = 1 << 20;
/// Mappings that may exist at a time unless told otherwise (same section).
pub(crate) const DEFAULT_MAPS: u64 = 65535;
/// Descriptors that one message carries at most unless told otherwise (same section).
pub(crate) const DEFAULT_DESCRIPTORS: u64 = 1;
/// Descriptors that one message carries at most here. More than QEMU takes for sane it refuses to be told.
pub(crate) const DESCRIPTORS: usize = 16;

/// Regions of a PCI device.
pub(crate) const REGIONS: u32 = kernel::VFIO_PCI_NUM_REGIONS;
/// Configuration space; below it are six BARs and the ROM.
pub(crate) const CONFIG_REGION: u32 = kernel::VFIO_PCI_CONFIG_REGION_INDEX;
/// Interrupt indices of a PCI device.
pub(crate) const INTERRUPT_INDICES: u32 = kernel::VFIO_PCI_NUM_IRQS;
pub(crate) const INTX: u32 = kernel::VFIO_PCI_INTX_IRQ_INDEX;
pub(crate) const MSI: u32 = kernel::VFIO_PCI_MSI_IRQ_INDEX;
pub(crate) const MSIX: u32 = kernel::VFIO_PCI_MSIX_IRQ_INDEX;
pub(crate) const ERROR: u32 = kernel::VFIO_PCI_ERR_IRQ_INDEX;
pub(crate) const REQUEST: u32 = kernel::VFIO_PCI_REQ_IRQ_INDEX;

/// What a message asks for (section "Commands").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Command {
    Version = 1,
    DmaMap = 2,
    DmaUnmap = 3,
    GetInfo = 4,
    GetRegionInfo = 5,
    GetRegionIoDescriptors = 6,
    GetInterruptInfo = 7,
    SetInterrupts = 8,
    RegionRead = 9,
    RegionWrite = 10,
    DmaRead = 11,
    DmaWrite = 12,
    Reset = 13,
}

impl Command {
    pub(crate) const ALL: [Command; 13] = [
        Command::Version,
        Command::DmaMap,
        Command::DmaUnmap,
        Command::GetInfo,
        Command::GetRegionInfo,
        Command::GetRegionIoDescriptors,
        Command::GetInterruptInfo,
        Command::SetInterrupts,
        Command::RegionRead,
        Command::RegionWrite,
        Command::DmaRead,
        Command::DmaWrite,
        Command::Reset,
    ];

    pub(crate) fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|command| *command as u16 == number)
    }
}

/// What kind of message it is (section "Header", the low four bits of the flags).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Command,
    Reply,
}

/// The header of every message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The sender's; a reply carries that of its command.
    pub(crate) id: u16,
    /// Not checked: unknown ones are answered too.
    pub(crate) command: u16,
    /// Bytes of the message, with the header.
    pub(crate) size: u32,
    /// Kind, No_reply and Error.
    pub(crate) flags: u32,
    /// An errno, if the Error flag says so.
    pub(crate) error: u32,
}

impl Header {
    const KIND: u32 = 0xf;
    const REPLY: u32 = 1;
    const NO_REPLY: u32 = 1 << 4;
    const ERROR: u32 = 1 << 5;

    /// Of a command with a body of `bytes` bytes.
    pub(crate) fn command(id: u16, command: Command, bytes: usize) -> Self {
        Header { id, command: command as u16, size: (HEADER_BYTES + bytes) as u32, flags: 0, error: 0 }
    }

    /// Has the receiver not reply.
    pub(crate) fn silence(&mut self) {
        self.flags |= Self::NO_REPLY;
    }

    /// Of the reply to `self` with a body of `bytes` bytes.
    pub(crate) fn reply(&self, bytes: usize) -> Self {
        Header { size: (HEADER_BYTES + bytes) as u32, flags: Self::REPLY, error: 0, ..*self }
    }

    /// The whole reply to `self` that says why it failed ("If an error occurs, the reply message must only include the
    /// reply header").
    pub(crate) fn failure(&self, errno: Errno) -> Self {
        Header { size: HEADER_BYTES as u32, flags: Self::REPLY | Self::ERROR, error: errno as u32, ..*self }
    }

    /// `None`: of neither kind.
    pub(crate) fn kind(&self) -> Option<Kind> {
        match self.flags & Self::KIND {
            0 => Some(Kind::Command),
            Self::REPLY => Some(Kind::Reply),
            _ => None,
        }
    }

    /// Whether the sender wants no reply.
    pub(crate) fn is_silent(&self) -> bool {
        self.flags & Self::NO_REPLY != 0
    }

    /// The errno of a reply that says that its command failed. The section allows zero there, which is no errno.
    pub(crate) fn failed(&self) -> Option<Errno> {
        let known = |error| match Errno::from_raw(error) {
            Errno::UnknownErrno => Errno::EIO,
            errno => errno,
        };
        (self.flags & Self::ERROR != 0).then(|| i32::try_from(self.error).map_or(Errno::EIO, known))
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..2].copy_from_slice(&self.id.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.command.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.size.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.error.to_ne_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        let mut fields = Fields(bytes);
        let mut read = || {
            let (id, command) = (fields.u16()?, fields.u16()?);
            Some(Header { id, command, size: fields.u32()?, flags: fields.u32()?, error: fields.u32()? })
        };
        read().expect("sixteen bytes hold the five fields")
    }
}

/// Fields in the order they lie.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Fields written one after another.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn u16(mut self, value: u16) -> Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }
}

/// Version proposed or agreed on, with its optional JSON (section "`VFIO_USER_VERSION`").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version<'a> {
    pub(crate) major: u16,
    pub(crate) minor: u16,
    /// As sent; it should end with a NUL.
    pub(crate) data: &'a [u8],
}

impl<'a> Version<'a> {
    /// The major version spoken here.
    pub(crate) const MAJOR: u16 = 0;
    /// The highest minor version spoken here.
    pub(crate) const MINOR: u16 = 1;

    pub(crate) fn decode(body: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(body);
        Some(Version { major: fields.u16()?, minor: fields.u16()?, data: fields.rest() })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Body::default().u16(self.major).u16(self.minor).0;
        bytes.extend_from_slice(self.data);
        bytes
    }
}

/// A range of the client's memory (section "`VFIO_USER_DMA_MAP`").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DmaMap {
    pub(crate) argsz: u32,
    pub(crate) flags: u32,
    /// In the file passed along, if one is.
    pub(crate) offset: u64,
    pub(crate) address: u64,
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

/// A range that is memory of the client no longer (section "`VFIO_USER_DMA_UNMAP`"), command and reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DmaUnmap {
    pub(crate) argsz: u32,
    pub(crate) flags: u32,
    pub(crate) address: u64,
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

/// What a device has (section "`VFIO_USER_DEVICE_GET_INFO`"), command and reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceInfo {
    pub(crate) argsz: u32,
    pub(crate) flags: u32,
    pub(crate) regions: u32,
    pub(crate) interrupts: u32,
}

impl DeviceInfo {
    pub(crate) const BYTES: usize = 16;
    pub(crate) const RESET: u32 = kernel::VFIO_DEVICE_FLAGS_RESET;
    pub(crate) const PCI: u32 = kernel::VFIO_DEVICE_FLAGS_PCI;

    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let (argsz, flags) = (fields.u32()?, fields.u32()?);
        Some(DeviceInfo { argsz, flags, regions: fields.u32()?, interrupts: fields.u32()? })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        Body::default().u32(self.argsz).u32(self.flags).u32(self.regions).u32(self.interrupts).0
    }
}

/// What a region is (section "`VFIO_USER_DEVICE_GET_REGION_INFO`"), command and reply, without capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegionInfo {
    pub(crate) argsz: u32,
    pub(crate) flags: u32,
    pub(crate) index: u32,
    /// Where the first capability lies, counted from the start of this structure.
    pub(crate) cap_offset: u32,
    pub(crate) size: u64,
    /// In the file passed along, if one is.
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

const SPARSE_MMAP: u16 = kernel::VFIO_REGION_INFO_CAP_SPARSE_MMAP as u16;
/// Stretches that a client takes of one region: more than a sane server has.
const MOST_AREAS: u32 = 1024;

/// A stretch of a region that can be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

/// The one capability a region has here, "VFIO region info cap sparse mmap" with its header, the last of the list.
pub(crate) fn encode_areas(areas: &[Area]) -> Vec<u8> {
    let header = Body::default().u16(SPARSE_MMAP).u16(1).u32(0);
    let body = header.u32(areas.len() as u32).u32(0);
    areas.iter().fold(body, |body, area| body.u64(area.offset).u64(area.size)).0
}

/// The stretches that can be mapped, of a reply's whole body whose first capability lies at `cap_offset`. `Some(None)`:
/// no capability says so. `None`: the list is broken.
pub(crate) fn decode_areas(body: &[u8], cap_offset: u32) -> Option<Option<Vec<Area>>> {
    let mut next = cap_offset as usize;
    let mut end = RegionInfo::BYTES;
    while next != 0 {
        // A list that goes on ends, since it never turns back.
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

/// Descriptors that stand for accesses (section "`VFIO_USER_DEVICE_GET_REGION_IO_FDS`"), command and reply, without
/// sub-regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegionIoDescriptors {
    pub(crate) argsz: u32,
    pub(crate) flags: u32,
    pub(crate) index: u32,
    pub(crate) count: u32,
}

impl RegionIoDescriptors {
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let (argsz, flags) = (fields.u32()?, fields.u32()?);
        Some(RegionIoDescriptors { argsz, flags, index: fields.u32()?, count: fields.u32()? })
    }

    #[cfg(test)]
    pub(crate) fn encode(&self) -> Vec<u8> {
        Body::default().u32(self.argsz).u32(self.flags).u32(self.index).u32(self.count).0
    }
}

/// Interrupts of one index (section "`VFIO_USER_DEVICE_GET_IRQ_INFO`"), command and reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InterruptInfo {
    pub(crate) argsz: u32,
    pub(crate) flags: u32,
    pub(crate) index: u32,
    pub(crate) count: u32,
}

impl InterruptInfo {
    pub(crate) const BYTES: usize = 16;
    pub(crate) const EVENTFD: u32 = kernel::VFIO_IRQ_INFO_EVENTFD;
    pub(crate) const MASKABLE: u32 = kernel::VFIO_IRQ_INFO_MASKABLE;
    pub(crate) const AUTOMASKED: u32 = kernel::VFIO_IRQ_INFO_AUTOMASKED;

    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let (argsz, flags) = (fields.u32()?, fields.u32()?);
        Some(InterruptInfo { argsz, flags, index: fields.u32()?, count: fields.u32()? })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        Body::default().u32(self.argsz).u32(self.flags).u32(self.index).u32(self.count).0
    }
}

/// What is to be done with interrupts of one index (section "`VFIO_USER_DEVICE_SET_IRQS`").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetInterrupts<'a> {
    pub(crate) argsz: u32,
    pub(crate) flags: u32,
    pub(crate) index: u32,
    pub(crate) start: u32,
    pub(crate) count: u32,
    /// One boolean byte an interrupt, if the flags say so.
    pub(crate) data: &'a [u8],
}

impl<'a> SetInterrupts<'a> {
    pub(crate) const BYTES: usize = 20;
    /// All flags that say what data there is, and all that say what is to be done.
    pub(crate) const DATA: u32 = kernel::VFIO_IRQ_SET_DATA_TYPE_MASK;
    pub(crate) const ACTION: u32 = kernel::VFIO_IRQ_SET_ACTION_TYPE_MASK;
    pub(crate) const DATA_NONE: u32 = kernel::VFIO_IRQ_SET_DATA_NONE;
    pub(crate) const DATA_BOOL: u32 = kernel::VFIO_IRQ_SET_DATA_BOOL;
    pub(crate) const DATA_EVENTFD: u32 = kernel::VFIO_IRQ_SET_DATA_EVENTFD;
    pub(crate) const MASK: u32 = kernel::VFIO_IRQ_SET_ACTION_MASK;
    pub(crate) const UNMASK: u32 = kernel::VFIO_IRQ_SET_ACTION_UNMASK;
    pub(crate) const TRIGGER: u32 = kernel::VFIO_IRQ_SET_ACTION_TRIGGER;

    pub(crate) fn decode(body: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let (argsz, flags, index) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let (start, count) = (fields.u32()?, fields.u32()?);
        Some(SetInterrupts { argsz, flags, index, start, count, data: fields.rest() })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let body = Body::default().u32(self.argsz).u32(self.flags).u32(self.index);
        let mut bytes = body.u32(self.start).u32(self.count).0;
        bytes.extend_from_slice(self.data);
        bytes
    }
}

/// An access to a region (sections "`VFIO_USER_REGION_READ`" and "`VFIO_USER_REGION_WRITE`"), command and reply; the data
/// follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegionAccess {
    pub(crate) offset: u64,
    pub(crate) region: u32,
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

/// An access to the client's memory (sections "`VFIO_USER_DMA_READ`" and "`VFIO_USER_DMA_WRITE`"), command and reply; the
/// data follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DmaAccess {
    pub(crate) address: u64,
    pub(crate) count: u64,
}

impl DmaAccess {
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn decode(body: &[u8]) -> Option<(Self, &[u8])> {
        let mut fields = Fields(body);
        let access = DmaAccess { address: fields.u64()?, count: fields.u64()? };
        Some((access, fields.rest()))
    }

    /// The reply to a write. The section says that its count has four bytes; QEMU sends eight, as elsewhere.
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
    use proptest::prelude::*;

    /// Little-endian words, as they lie on the machines this is tested on.
    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn bodies_lie_as_specified() {
        let map = DmaMap { argsz: 32, flags: 3, offset: 0x1000, address: 0x2000, size: 0x3000 };
        if cfg!(target_endian = "little") {
            assert_eq!(map.encode(), words(&[32, 3, 0x1000, 0, 0x2000, 0, 0x3000, 0]));
            let unmap = DmaUnmap { argsz: 24, flags: 2, address: 0x2000, size: 0x3000 };
            assert_eq!(unmap.encode(), words(&[24, 2, 0x2000, 0, 0x3000, 0]));
            let region = RegionInfo { argsz: 64, flags: 15, index: 2, cap_offset: 32, size: 1 << 33, offset: 5 };
            assert_eq!(region.encode(), words(&[64, 15, 2, 32, 0, 2, 5, 0]));
            let areas = [Area { offset: 0x1000, size: 0x2000 }, Area { offset: 0x8000, size: 0x1000 }];
            let expected = words(&[1 | 1 << 16, 0, 2, 0, 0x1000, 0, 0x2000, 0, 0x8000, 0, 0x1000, 0]);
            assert_eq!(encode_areas(&areas), expected);
            let access = RegionAccess { offset: 0x18, region: 7, count: 4 };
            assert_eq!(access.encode().to_vec(), words(&[0x18, 0, 7, 4]));
            let dma = DmaAccess { address: 0x18, count: 4 };
            assert_eq!(dma.encode().to_vec(), words(&[0x18, 0, 4, 0]));
            let header = Header::command(0x1234, Command::Reset, 0);
            assert_eq!(header.encode().to_vec(), words(&[0x000d_1234, 16, 0, 0]));
            assert_eq!(header.failure(Errno::EINVAL).encode().to_vec(), words(&[0x000d_1234, 16, 0x21, 22]));
        }
    }

    #[test]
    fn headers_lie_as_specified() {
        let command = Header { id: 0x1234, command: 9, size: 32, flags: 0, error: 7 };
        assert_eq!(Header::command(0x1234, Command::RegionRead, 16), Header { error: 0, ..command });
        // What a command has in place of an errno is not sent back.
        let reply = Header { id: 0x1234, command: 9, size: 21, flags: 1, error: 0 };
        assert_eq!(command.reply(5), reply);
        assert_eq!(Header { flags: 0x10, ..command }.reply(5), reply);
        assert_eq!(command.failure(Errno::EBUSY), Header { size: 16, flags: 0x21, error: 16, ..reply });
        let mut silent = command;
        silent.silence();
        assert_eq!(silent, Header { flags: 0x10, ..command });
        for (flags, kind, is_silent, has_failed) in [
            (0, Some(Kind::Command), false, false),
            (1, Some(Kind::Reply), false, false),
            (2, None, false, false),
            (3, None, false, false),
            (15, None, false, false),
            (0x10, Some(Kind::Command), true, false),
            (0x21, Some(Kind::Reply), false, true),
            (0xffff_ffc0, Some(Kind::Command), false, false),
            (0xffff_ffff, None, true, true),
        ] {
            let header = Header { flags, ..command };
            assert_eq!((header.kind(), header.is_silent()), (kind, is_silent), "{flags:#x}");
            assert_eq!(header.failed().is_some(), has_failed, "{flags:#x}");
        }
    }

    #[test]
    fn numbers_are_those_of_the_specification() {
        let numbers: Vec<_> = Command::ALL.iter().map(|command| *command as u16).collect();
        assert_eq!(numbers, (1..=13).collect::<Vec<_>>());
        for number in 0..=20 {
            let expected = (1..=13).contains(&number).then_some(number);
            assert_eq!(Command::from_number(number).map(|command| command as u16), expected);
        }
        let flags = [SetInterrupts::DATA_NONE, SetInterrupts::DATA_BOOL, SetInterrupts::DATA_EVENTFD];
        assert_eq!((flags, SetInterrupts::DATA), ([1, 2, 4], 7));
        let actions = [SetInterrupts::MASK, SetInterrupts::UNMASK, SetInterrupts::TRIGGER];
        assert_eq!((actions, SetInterrupts::ACTION), ([8, 16, 32], 56));
        assert_eq!(DEFAULT_TRANSFER_BYTES, 1_048_576);
    }

    #[test]
    fn the_count_of_a_write_has_four_bytes_or_eight() {
        let expected = Some(DmaAccess { address: 0x18, count: 4 });
        assert_eq!(DmaAccess::decode_written(&Body::default().u64(0x18).u32(4).0), expected);
        assert_eq!(DmaAccess::decode_written(&Body::default().u64(0x18).u64(4).0), expected);
        for bytes in (0..30).filter(|bytes| ![12, 16].contains(bytes)) {
            assert_eq!(DmaAccess::decode_written(&vec![0; bytes]), None, "{bytes} bytes");
        }
    }

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
    fn a_failure_always_has_an_errno() {
        let header = |error| Header { id: 0, command: 1, size: 16, flags: 0x21, error };
        assert_eq!(header(0).failed(), Some(Errno::EIO));
        assert_eq!(header(u32::MAX).failed(), Some(Errno::EIO));
        assert_eq!(header(16).failed(), Some(Errno::EBUSY));
        assert_eq!(Header { flags: 1, ..header(16) }.failed(), None);
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

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Any bytes decode to nothing or to what encodes to the same bytes again.
        #[test]
        fn any_bytes_are_nothing_or_themselves(bytes in prop::collection::vec(any::<u8>(), 0..80), offset in 0..100u32) {
            let prefix = |size: usize| bytes.get(..size).map(<[u8]>::to_vec);
            prop_assert_eq!(DmaMap::decode(&bytes).map(|it| it.encode()), prefix(DmaMap::BYTES));
            prop_assert_eq!(DmaUnmap::decode(&bytes).map(|it| it.encode()), prefix(DmaUnmap::BYTES));
            prop_assert_eq!(DeviceInfo::decode(&bytes).map(|it| it.encode()), prefix(DeviceInfo::BYTES));
            prop_assert_eq!(RegionInfo::decode(&bytes).map(|it| it.encode()), prefix(RegionInfo::BYTES));
            prop_assert_eq!(RegionIoDescriptors::decode(&bytes).map(|it| it.encode()), prefix(16));
            prop_assert_eq!(InterruptInfo::decode(&bytes).map(|it| it.encode()), prefix(InterruptInfo::BYTES));
            prop_assert_eq!(RegionAccess::decode(&bytes).map(|it| it.0.encode().to_vec()), prefix(16));
            prop_assert_eq!(DmaAccess::decode(&bytes).map(|it| it.0.encode().to_vec()), prefix(16));
            let whole = |size: usize| (bytes.len() >= size).then(|| bytes.clone());
            prop_assert_eq!(SetInterrupts::decode(&bytes).map(|it| it.encode()), whole(SetInterrupts::BYTES));
            prop_assert_eq!(Version::decode(&bytes).map(|it| it.encode()), whole(4));
            if let Some(header) = bytes.first_chunk() {
                prop_assert_eq!(&Header::decode(header).encode(), header);
            }
            let _ = decode_areas(&bytes, offset);
            let _ = DmaAccess::decode_written(&bytes);
        }
    }
}

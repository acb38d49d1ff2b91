//! The version message (section "`VFIO_USER_VERSION`"), and what holds unless it says otherwise.

use super::fields::{Body, Fields};

/// Bytes that one data transfer moves at most by default (`max_data_xfer_size`).
pub(crate) const DEFAULT_TRANSFER_BYTES: u64 = 1 << 20;
/// Mappings that may exist at a time by default (`max_dma_maps`).
pub(crate) const DEFAULT_MAPS: u64 = 65535;
/// Descriptors that one message carries at most by default (`max_msg_fds`).
pub(crate) const DEFAULT_DESCRIPTORS: u64 = 1;
/// Descriptors that one message carries at most here: QEMU rejects a larger offer.
pub(crate) const DESCRIPTORS: usize = 16;

/// The version that a client proposes or a server agrees to, with the fields of the section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version<'a> {
    /// version major
    pub(crate) major: u16,
    /// version minor
    pub(crate) minor: u16,
    /// version data: JSON that should end with a NUL, or nothing. See [`capabilities`](super::capabilities).
    pub(crate) data: &'a [u8],
}

impl<'a> Version<'a> {
    /// The major version implemented here.
    pub(crate) const MAJOR: u16 = 0;
    /// The highest minor version implemented here.
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

//! Headers of feature lists.

use fpga_regs::feature_list::{Header, TYPE_AFU};

/// Bytes of a feature header with its GUID.
pub(crate) const FEATURE_BYTES: usize = 24;

/// Returns a feature header with its GUID, as registers hold it.
pub(crate) fn feature_bytes(header: Header, guid: u128) -> [u8; FEATURE_BYTES] {
    let mut bytes = [0; FEATURE_BYTES];
    bytes[..8].copy_from_slice(&header.encode().to_le_bytes());
    bytes[8..].copy_from_slice(&guid.to_le_bytes());
    bytes
}

/// Reads a feature list that ends with its first header, an accelerator's with this GUID; behind it, zeros.
pub(crate) fn read_only_header(guid: u128, offset: u64, data: &mut [u8]) {
    let header = Header { id: 0, revision: 0, next: 0, end_of_list: true, version: 0, kind: TYPE_AFU };
    let list = feature_bytes(header, guid);
    for (at, byte) in (offset..).zip(data) {
        *byte = list.get(at as usize).copied().unwrap_or(0);
    }
}

//! Feature lists of accelerators without registers that a model has.

use fpga_regs::feature_list::{Header, TYPE_AFU};

/// Reads a feature list that ends with its first header, an accelerator's with this GUID; behind it, zeros.
pub(crate) fn read_only_header(guid: u128, offset: u64, data: &mut [u8]) {
    let header = Header { id: 0, revision: 0, next: 0, end_of_list: true, version: 0, kind: TYPE_AFU };
    let mut list = [0; 24];
    list[..8].copy_from_slice(&header.encode().to_le_bytes());
    list[8..].copy_from_slice(&guid.to_le_bytes());
    for (at, byte) in (offset..).zip(data) {
        *byte = list.get(at as usize).copied().unwrap_or(0);
    }
}

//! The entry of the feature list that leads to the engine.

use fpga_regs::feature_list::{GUID as GUID_AT, Header, REGISTERS, REGISTERS_BYTES, TYPE_BBB};
use fpga_regs::msgdma::{
    BLOCK_BYTES, FEATURE_ID, FIRST_PARAMETER, GUID, HEADER_VERSION, LAST_PARAMETER, MSIX_PARAMETER, PARAMETERS,
};

/// Vector of the engine's interrupt. The sequencer's is 0, the shell's 6.
pub(super) const VECTOR: u32 = 1;

/// Reads the word of 8 bytes at `offset` of the entry, which is the last of its list.
pub(super) fn word(offset: u32) -> u64 {
    let header =
        Header { id: FEATURE_ID, revision: 0, next: 0, end_of_list: true, version: HEADER_VERSION, kind: TYPE_BBB };
    match u64::from(offset) {
        0 => header.encode(),
        GUID_AT => GUID as u64,
        at if at == GUID_AT + 8 => (GUID >> 64) as u64,
        // The registers begin with the header.
        REGISTERS => 0,
        REGISTERS_BYTES => u64::from(BLOCK_BYTES) << 32 | PARAMETERS,
        FIRST_PARAMETER => MSIX_PARAMETER | LAST_PARAMETER,
        at if at == FIRST_PARAMETER + 8 => u64::from(VECTOR) | 1 << 32,
        _ => 0,
    }
}

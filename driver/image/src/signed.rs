//! Images that Intel's PACSign has signed.

/// What they begin with, as 32 bits, little-endian.
const MAGIC: u32 = 0xb6ea_fd19;

/// Returns whether PACSign made these bytes.
pub(crate) fn is_signed(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC.to_le_bytes())
}

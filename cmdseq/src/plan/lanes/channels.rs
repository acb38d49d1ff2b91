//! Pseudo channels for what runs at once.

use crate::Capabilities;

/// Whether the memory has `stripes` stripes of which each half has pseudo channels of its own.
pub(super) fn have_channels(stripes: u32, capabilities: &Capabilities) -> bool {
    let channel = capabilities.memory_bytes / u64::from(capabilities.memory_channels.max(1));
    let held = capabilities.memory_bytes.checked_div(capabilities.stripe_bytes()).unwrap_or(0);
    capabilities.stripe_half_bytes >= channel && u64::from(stripes) <= held
}

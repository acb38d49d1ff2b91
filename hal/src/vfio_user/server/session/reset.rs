//! Waiting for the end of a reset.

use std::thread;
use std::time::{Duration, Instant};

use crate::config;
use crate::endpoint::Endpoint;

/// Time limit for an endpoint to answer after a reset, as for a function: see `OpenFunction::reset`.
const READY: Duration = Duration::from_secs(1);
const READY_POLL: Duration = Duration::from_millis(1);

/// Does what resets the endpoint, or may, and waits until it answers again, as the kernel's VFIO does. An endpoint that was
/// silent before is not waited for.
pub(super) fn through_reset(endpoint: &dyn Endpoint, begin: impl FnOnce()) {
    let answered = answers(endpoint);
    begin();
    let start = Instant::now();
    while answered && !answers(endpoint) && start.elapsed() < READY {
        thread::sleep(READY_POLL);
    }
}

/// Returns whether the vendor id is one.
fn answers(endpoint: &dyn Endpoint) -> bool {
    let mut vendor = [0; 2];
    endpoint.config_read(config::VENDOR, &mut vendor);
    u16::from_le_bytes(vendor) != u16::MAX
}

//! Waiting for the end of a reset.

use std::thread;
use std::time::{Duration, Instant};

use crate::config;
use crate::endpoint::Endpoint;

/// Time limit for an endpoint to answer after a reset, as for a function: see `OpenFunction::reset`.
const READY: Duration = Duration::from_secs(1);
const READY_POLL: Duration = Duration::from_millis(1);

/// Does what resets the endpoint, or may, and waits until it answers again, as the kernel's VFIO does. An endpoint that was
/// silent before is not waited for. Returns how long it was waited for.
pub(super) fn through_reset(endpoint: &dyn Endpoint, begin: impl FnOnce()) -> Duration {
    let answered = answers(endpoint);
    begin();
    let start = Instant::now();
    while answered && !answers(endpoint) && start.elapsed() < READY {
        thread::sleep(READY_POLL);
    }
    start.elapsed()
}

/// Returns whether the vendor id is one.
fn answers(endpoint: &dyn Endpoint) -> bool {
    let mut vendor = [0; 2];
    endpoint.config_read(config::VENDOR, &mut vendor);
    u16::from_le_bytes(vendor) != u16::MAX
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::endpoint::{DmaFault, DmaPort, DmaTag, InterruptPort, Layout, ResetKind};
    use crate::{BarIndex, SharedMemory};

    /// An endpoint that counts reads of its vendor id, and answers none of these.
    struct Silent {
        reads: AtomicU32,
        while_reads: Range<u32>,
    }

    impl Endpoint for Silent {
        fn layout(&self) -> Layout {
            Layout { bars: [None; BarIndex::COUNT], dma_bits: 64 }
        }
        fn attach(&self, _: Arc<dyn DmaPort>, _: Arc<dyn InterruptPort>) {}
        fn config_read(&self, offset: u16, data: &mut [u8]) {
            assert_eq!((offset, data.len()), (config::VENDOR, 2));
            let is_silent = self.while_reads.contains(&self.reads.fetch_add(1, Ordering::Relaxed));
            data.copy_from_slice(if is_silent { &[0xff; 2] } else { &[0xff, 0x10] });
        }
        fn config_write(&self, _: u16, _: &[u8]) {}
        fn bar_read(&self, _: BarIndex, _: u64, _: &mut [u8]) {}
        fn bar_write(&self, _: BarIndex, _: u64, _: &[u8]) {}
        fn reset(&self, _: ResetKind) {}
        fn dma_complete(&self, _: DmaTag, _: Result<&[u8], DmaFault>) {}
        fn bar_memory(&self, _: BarIndex) -> Option<Arc<SharedMemory>> {
            None
        }
    }

    #[test]
    fn an_endpoint_is_waited_for_if_it_answered_before() {
        // It answers at once, after some reads, and not before either.
        for (while_reads, reads) in [(0..0, 2), (1..5, 6), (0..9, 1)] {
            let endpoint = Silent { reads: AtomicU32::new(0), while_reads };
            let mut has_begun = false;
            through_reset(&endpoint, || {
                assert_eq!(endpoint.reads.load(Ordering::Relaxed), 1);
                has_begun = true;
            });
            assert!(has_begun);
            assert_eq!(endpoint.reads.load(Ordering::Relaxed), reads);
        }
    }

    #[test]
    fn an_endpoint_that_stays_silent_is_not_waited_for_for_ever() {
        let endpoint = Silent { reads: AtomicU32::new(0), while_reads: 1..u32::MAX };
        let start = Instant::now();
        through_reset(&endpoint, || ());
        assert!(start.elapsed() >= READY && endpoint.reads.load(Ordering::Relaxed) >= 2);
    }
}

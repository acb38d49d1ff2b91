//! The ports of an endpoint that has no client.

use crate::Iova;
use crate::endpoint::{DmaFault, DmaPort, DmaProgress, DmaTag, InterruptPort};

/// Fails all DMA, and drops all interrupts.
pub(crate) struct NoHost;

impl DmaPort for NoHost {
    fn read(&self, _tag: DmaTag, _iova: Iova, _data: &mut [u8]) -> DmaProgress {
        DmaProgress::Done(Err(DmaFault::HostGone))
    }

    fn write(&self, _tag: DmaTag, _iova: Iova, _data: &[u8]) -> DmaProgress {
        DmaProgress::Done(Err(DmaFault::HostGone))
    }
}

impl InterruptPort for NoHost {
    fn raise(&self, _vector: u16) {}

    fn set_intx(&self, _asserted: bool) {}
}

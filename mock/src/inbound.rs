//! Arrived on a link and not used yet: control signals, and bursts in the receive buffer.

use std::collections::VecDeque;
use std::sync::Arc;

/// Data on its way or in a receive buffer.
#[derive(Debug, Clone)]
pub(crate) struct Burst {
    /// Id of the burst, unique in the fabric.
    pub(crate) id: u64,
    /// Bytes of data.
    pub(crate) bytes: u64,
    /// The data, read from the source's memory when it left.
    pub(crate) data: Arc<[u8]>,
    /// Whether the last beat has reached the receive buffer.
    pub(crate) is_whole: bool,
    /// Whether the bytes that arrived were written to memory.
    pub(crate) is_drained: bool,
    /// Whether the count of its end is scheduled.
    pub(crate) is_counted: bool,
}

/// The receiving end of one link.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// Control signals not consumed yet. A burst without data is a control signal; all are alike.
    pub(crate) controls: u32,
    /// Bursts in the receive buffer, oldest first.
    pub(crate) bursts: VecDeque<Burst>,
}

impl Inbound {
    /// Returns the bytes in the receive buffer.
    pub(crate) fn buffered_bytes(&self) -> u64 {
        self.bursts.iter().map(|burst| burst.bytes).sum()
    }

    pub(crate) fn burst_mut(&mut self, id: u64) -> Option<&mut Burst> {
        self.bursts.iter_mut().find(|burst| burst.id == id)
    }

    pub(crate) fn take_control(&mut self) -> bool {
        let taken = self.controls > 0;
        self.controls -= u32::from(taken);
        taken
    }
}

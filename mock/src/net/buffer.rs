//! Arrived on a link and not used yet: control signals, and bursts in the receive buffer.

use std::collections::VecDeque;
use std::sync::Arc;

/// Data on its way or in a receive buffer.
#[derive(Debug, Clone)]
pub(crate) struct Burst {
    /// Id of the burst, unique in the fabric.
    pub(crate) id: u64,
    /// Lane of the exchange that sent it, and of the one that receives it.
    pub(crate) lane: usize,
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

/// The receiving end of one link. All lanes share its receive buffer.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// Control signals not consumed yet, by lane. A burst without data is a control signal; all of a lane are alike.
    controls: Box<[u32]>,
    /// Bursts in the receive buffer, oldest first.
    bursts: VecDeque<Burst>,
}

impl Inbound {
    pub(crate) fn new(lanes: usize) -> Self {
        Inbound { controls: vec![0; lanes].into_boxed_slice(), bursts: VecDeque::new() }
    }

    /// Drops all that arrived.
    pub(crate) fn clear(&mut self) {
        self.controls.fill(0);
        self.bursts = VecDeque::new();
    }

    /// Returns the bytes in the receive buffer.
    pub(crate) fn buffered_bytes(&self) -> u64 {
        self.bursts.iter().map(|burst| burst.bytes).sum()
    }

    /// Returns the number of bursts in the receive buffer.
    pub(crate) fn bursts(&self) -> usize {
        self.bursts.len()
    }

    pub(crate) fn push(&mut self, burst: Burst) {
        self.bursts.push_back(burst);
    }

    pub(crate) fn burst_mut(&mut self, id: u64) -> Option<&mut Burst> {
        self.bursts.iter_mut().find(|burst| burst.id == id)
    }

    /// Returns the oldest burst of a lane.
    pub(crate) fn first(&self, lane: usize) -> Option<&Burst> {
        self.bursts.iter().find(|burst| burst.lane == lane)
    }

    pub(crate) fn first_mut(&mut self, lane: usize) -> Option<&mut Burst> {
        self.bursts.iter_mut().find(|burst| burst.lane == lane)
    }

    /// Removes and returns the oldest burst of a lane.
    pub(crate) fn take_first(&mut self, lane: usize) -> Option<Burst> {
        let place = self.bursts.iter().position(|burst| burst.lane == lane)?;
        self.bursts.remove(place)
    }

    pub(crate) fn add_control(&mut self, lane: usize) {
        self.controls[lane] = self.controls[lane].saturating_add(1);
    }

    pub(crate) fn take_control(&mut self, lane: usize) -> bool {
        let taken = self.controls[lane] > 0;
        self.controls[lane] -= u32::from(taken);
        taken
    }
}

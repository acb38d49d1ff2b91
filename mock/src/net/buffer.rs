//! Arrived on a link and not used yet: control signals, and bursts in the receive buffer.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::engine::streams::ResourceId;

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

/// What a stream passes behind a link: the destination's part of it.
///
/// On a card, data finds its way through the switch by what the destination has set there. Here the signal that the
/// destination is ready brings it to the source, which starts the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Way(pub(crate) [Option<ResourceId>; 2]);

/// Control signals of one lane.
#[derive(Debug, Clone, Copy, Default)]
struct Controls {
    count: u32,
    /// Of the last one. No exchange of two cards leaves more than one unused.
    way: Way,
}

/// Returns the beats of `beat` bytes that `bytes` take. A burst without data still takes one.
pub(crate) fn beats(bytes: u64, beat: u64) -> u64 {
    bytes.div_ceil(beat).max(1)
}

/// The receiving end of one link. All lanes share its receive buffer.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// Control signals not consumed yet, by lane. A burst without data is a control signal; all of a lane are alike.
    controls: Box<[Controls]>,
    /// Bursts in the receive buffer, oldest first.
    bursts: VecDeque<Burst>,
}

impl Inbound {
    pub(crate) fn new(lanes: usize) -> Self {
        Inbound { controls: vec![Controls::default(); lanes].into_boxed_slice(), bursts: VecDeque::new() }
    }

    /// Drops all that arrived.
    pub(crate) fn clear(&mut self) {
        self.controls.fill(Controls::default());
        self.bursts = VecDeque::new();
    }

    /// Returns the beats of `beat` bytes that are occupied in the receive buffer.
    pub(crate) fn buffered_beats(&self, beat: u64) -> u64 {
        self.bursts.iter().map(|burst| beats(burst.bytes, beat)).sum()
    }

    /// Returns the number of bursts in the receive buffer.
    #[cfg(test)]
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

    pub(crate) fn add_control(&mut self, lane: usize, way: Way) {
        let controls = &mut self.controls[lane];
        *controls = Controls { count: controls.count.saturating_add(1), way };
    }

    pub(crate) fn take_control(&mut self, lane: usize) -> Option<Way> {
        let controls = &mut self.controls[lane];
        controls.count = controls.count.checked_sub(1)?;
        Some(controls.way)
    }
}

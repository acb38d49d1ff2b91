//! Streams that share links and memory channels: the rate and the end of each.
//!
//! A stream goes at the lowest of the equal shares it has of the resources it passes; what it leaves unused of a share is
//! not given to others, as with a round-robin arbiter that does not look ahead. Rates are worked out once per instant,
//! after everything that happens in it, so the cost of an instant is the number of streams it touches.

use crate::engine::Time;

/// One resource: a link in one direction, a pseudo channel, a card's own path through its switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ResourceId(pub(crate) u32);

/// One stream, until it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StreamId {
    slot: u32,
    /// Distinguishes a stream from a later one in the same slot, and an end from the one it replaced.
    generation: u64,
}

#[derive(Debug)]
struct Resource {
    /// Megabits per second. Zero where the link is down: streams stand still.
    rate: u64,
    /// Slots of the passing streams; a stream that passes twice is listed twice.
    streams: Vec<u32>,
    dirty: bool,
}

#[derive(Debug)]
struct Stream<T> {
    generation: u64,
    passes: Vec<ResourceId>,
    /// Megabit-picoseconds per microsecond, that is bits x 10^6, still to go as of `since`.
    work: u128,
    rate: u64,
    since: Time,
    visited: u32,
    /// Purpose of the stream; `None` in a free slot.
    purpose: Option<T>,
}

/// All streams of a fabric. `T` is the purpose of a stream.
#[derive(Debug)]
pub(crate) struct Rates<T> {
    resources: Vec<Resource>,
    streams: Vec<Stream<T>>,
    free: Vec<u32>,
    dirty: Vec<ResourceId>,
    pass: u32,
}

/// Time at which a stream may end.
pub(crate) type End = (Time, StreamId);

impl<T> Rates<T> {
    pub(crate) fn new() -> Self {
        Rates { resources: Vec::new(), streams: Vec::new(), free: Vec::new(), dirty: Vec::new(), pass: 0 }
    }

    pub(crate) fn add_resource(&mut self, rate: u64) -> ResourceId {
        self.resources.push(Resource { rate, streams: Vec::new(), dirty: false });
        ResourceId((self.resources.len() - 1) as u32)
    }

    /// Sets the rate of `resource` from `now` on.
    pub(crate) fn set_rate(&mut self, resource: ResourceId, rate: u64) {
        self.resources[resource.0 as usize].rate = rate;
        self.touch(resource);
    }

    /// Starts a stream of `bytes` at `now`.
    pub(crate) fn start(&mut self, now: Time, bytes: u64, passes: Vec<ResourceId>, purpose: T) -> StreamId {
        let slot = self.free.pop().unwrap_or_else(|| {
            let (passes, purpose) = (Vec::new(), None);
            self.streams.push(Stream { generation: 0, passes, work: 0, rate: 0, since: 0, visited: 0, purpose });
            (self.streams.len() - 1) as u32
        });
        for resource in &passes {
            self.resources[resource.0 as usize].streams.push(slot);
            self.touch(*resource);
        }
        let stream = &mut self.streams[slot as usize];
        stream.work = u128::from(bytes) * 8_000_000;
        stream.rate = 0;
        stream.since = now;
        stream.passes = passes;
        stream.purpose = Some(purpose);
        StreamId { slot, generation: stream.generation }
    }

    /// Ends the stream `id`, and returns its purpose; `None` if its rate changed or it was stopped since.
    pub(crate) fn finish(&mut self, id: StreamId) -> Option<T> {
        if self.streams[id.slot as usize].generation != id.generation {
            return None;
        }
        self.remove(id.slot)
    }

    /// Stops every stream whose purpose satisfies `chosen`.
    pub(crate) fn stop(&mut self, mut chosen: impl FnMut(&T) -> bool) {
        for slot in 0..self.streams.len() as u32 {
            if self.streams[slot as usize].purpose.as_ref().is_some_and(&mut chosen) {
                self.remove(slot);
            }
        }
    }

    fn remove(&mut self, slot: u32) -> Option<T> {
        let stream = &mut self.streams[slot as usize];
        stream.generation = stream.generation.wrapping_add(1);
        let purpose = stream.purpose.take();
        for resource in std::mem::take(&mut stream.passes) {
            let streams = &mut self.resources[resource.0 as usize].streams;
            if let Some(place) = streams.iter().position(|other| *other == slot) {
                streams.swap_remove(place);
            }
            self.touch(resource);
        }
        self.free.push(slot);
        purpose
    }

    fn touch(&mut self, id: ResourceId) {
        let resource = &mut self.resources[id.0 as usize];
        if !std::mem::replace(&mut resource.dirty, true) {
            self.dirty.push(id);
        }
    }

    /// Returns whether rates must be updated before the clock advances.
    pub(crate) fn is_unsettled(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Updates the rates of all affected streams at `now`, and returns their new ends.
    pub(crate) fn settle(&mut self, now: Time, ends: &mut Vec<End>) {
        self.pass = self.pass.wrapping_add(1);
        for id in std::mem::take(&mut self.dirty) {
            self.resources[id.0 as usize].dirty = false;
            for place in 0..self.resources[id.0 as usize].streams.len() {
                let slot = self.resources[id.0 as usize].streams[place];
                if std::mem::replace(&mut self.streams[slot as usize].visited, self.pass) != self.pass {
                    ends.extend(self.adjust(slot, now));
                }
            }
        }
    }

    fn adjust(&mut self, slot: u32, now: Time) -> Option<End> {
        let share = |id: &ResourceId| {
            let resource = &self.resources[id.0 as usize];
            resource.rate / resource.streams.len().max(1) as u64
        };
        let rate = self.streams[slot as usize].passes.iter().map(share).min().unwrap_or(0);
        let stream = &mut self.streams[slot as usize];
        if rate == stream.rate {
            return None;
        }
        stream.work =
            stream.work.saturating_sub(u128::from(stream.rate).saturating_mul(now.saturating_sub(stream.since)));
        stream.rate = rate;
        stream.since = now;
        stream.generation = stream.generation.wrapping_add(1);
        let left = stream.work.div_ceil(u128::from(rate.max(1)));
        let id = StreamId { slot, generation: stream.generation };
        (rate > 0).then(|| (now + left, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs all streams to their ends and gives the times in order of the purposes.
    fn run(rates: &mut Rates<usize>, starts: &mut [(Time, u64, Vec<ResourceId>)]) -> Vec<Time> {
        let mut ended = vec![0; starts.len()];
        let mut pending: Vec<End> = Vec::new();
        let mut waiting: Vec<(Time, usize)> = starts.iter().enumerate().map(|(i, start)| (start.0, i)).collect();
        loop {
            let next_start = waiting.iter().min().copied();
            let next_end = pending.iter().min_by_key(|end| end.0).copied();
            let now = match (next_start, next_end) {
                (None, None) => return ended,
                (Some((at, index)), end) if end.is_none_or(|end| at <= end.0) => {
                    waiting.retain(|start| start.1 != index);
                    rates.start(at, starts[index].1, std::mem::take(&mut starts[index].2), index);
                    at
                }
                (_, Some((at, id))) => {
                    pending.retain(|end| end.1 != id);
                    if let Some(index) = rates.finish(id) {
                        ended[index] = at;
                    }
                    at
                }
                _ => unreachable!(),
            };
            rates.settle(now, &mut pending);
        }
    }

    #[test]
    fn one_stream_goes_at_the_slowest_resource() {
        let mut rates = Rates::new();
        let (link, channel) = (rates.add_resource(45_000), rates.add_resource(51_200));
        // 4500 bytes are 36 000 bits: 0.8 us at 45 Gb/s.
        assert_eq!(run(&mut rates, &mut [(0, 4500, vec![channel, link])]), [800_000]);
    }

    #[test]
    fn two_streams_share_and_the_rest_goes_faster() {
        let mut rates = Rates::new();
        let channel = rates.add_resource(40_000);
        // Both start at 0; 1000 and 3000 bytes at 20 Gb/s each: the short one ends at 0.4 us, then 2000 bytes are left at 40.
        let ends = run(&mut rates, &mut [(0, 1000, vec![channel]), (0, 3000, vec![channel])]);
        assert_eq!(ends, [400_000, 800_000]);
    }

    #[test]
    fn a_late_stream_slows_the_first() {
        let mut rates = Rates::new();
        let channel = rates.add_resource(8_000);
        // 1000 bytes at 8 Gb/s take 1 us. After 0.5 us a second stream halves it: 1.5 us. The second has 500 left then.
        let ends = run(&mut rates, &mut [(0, 1000, vec![channel]), (500_000, 1000, vec![channel])]);
        assert_eq!(ends, [1_500_000, 2_000_000]);
    }

    #[test]
    fn a_stream_through_one_channel_twice_has_half_of_it() {
        let mut rates = Rates::new();
        let channel = rates.add_resource(8_000);
        assert_eq!(run(&mut rates, &mut [(0, 1000, vec![channel, channel])]), [2_000_000]);
    }

    #[test]
    fn stopped_streams_do_not_end() {
        let mut rates = Rates::new();
        let channel = rates.add_resource(8_000);
        let mut ends = Vec::new();
        rates.start(0, 1000, vec![channel], 0);
        rates.settle(0, &mut ends);
        rates.stop(|purpose| *purpose == 0);
        assert_eq!(rates.finish(ends[0].1), None);
    }
}

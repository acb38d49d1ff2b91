//! Streams that share links and memory channels: the rate and the end of each.
//!
//! Each resource serves its streams in turn and skips those that have nothing ready, so its streams share it equally, and
//! what a stream cannot use because it is slower elsewhere goes to the others: max-min fairness. Each resource has a *level*,
//! the rate of the streams that it limits. The rate of a stream is the lowest level on its way.
//!
//! Levels are worked out once per instant, after everything that happens in it. A level follows from those of the other
//! resources its streams pass, so a change goes on from resource to resource until no level changes: usually after one step,
//! and in the end always, because the lowest level depends on no other one, the next on the lowest only, and so on.

use std::collections::VecDeque;

use crate::engine::Time;

/// Binary places of a rate in megabits per second: streams that share a resource have no whole megabits.
const FINE: u32 = 20;
/// Level of a resource that limits no stream.
const UNLIMITED: u64 = u64::MAX;

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
    /// 2^-[`FINE`] megabits per second, as all rates and levels here. Zero where the link is down: streams stand still.
    rate: u64,
    /// Slots of the passing streams, and how many times each passes.
    streams: Vec<(u32, u32)>,
    /// Rate of the streams that it limits, or [`UNLIMITED`].
    level: u64,
    /// Whether it is in [`Rates::dirty`]: its level may be out of date.
    dirty: bool,
}

/// The lowest levels on the way of a stream. They are kept, because resources ask for them at each change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slowest {
    level: u64,
    /// The resource of that level.
    at: ResourceId,
    /// The lowest level of the other resources.
    next: u64,
}

impl Slowest {
    const NONE: Slowest = Slowest { level: UNLIMITED, at: ResourceId(u32::MAX), next: UNLIMITED };

    /// These, and one more resource of `level`.
    fn and(self, at: ResourceId, level: u64) -> Self {
        if level < self.level {
            return Slowest { level, at, next: self.level };
        }
        Slowest { next: self.next.min(level), ..self }
    }

    /// What the stream can take elsewhere than at resource `id`.
    fn elsewhere(self, id: ResourceId) -> u64 {
        if self.at == id { self.next } else { self.level }
    }
}

#[derive(Debug)]
struct Stream<T> {
    generation: u64,
    /// Each once.
    passes: Vec<ResourceId>,
    slowest: Slowest,
    /// Bits x 10^6 x 2^[`FINE`] still to go as of `since`: a rate times picoseconds.
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
    dirty: VecDeque<ResourceId>,
    /// Slots of streams whose rate may be out of date.
    changed: Vec<u32>,
    pass: u32,
    /// What streams can take elsewhere, and how many times each passes, while a level is worked out.
    offers: Vec<(u64, u32)>,
}

/// Time at which a stream may end.
pub(crate) type End = (Time, StreamId);

impl<T> Rates<T> {
    pub(crate) fn new() -> Self {
        Rates {
            resources: Vec::new(),
            streams: Vec::new(),
            free: Vec::new(),
            dirty: VecDeque::new(),
            changed: Vec::new(),
            pass: 0,
            offers: Vec::new(),
        }
    }

    /// Adds a resource of `mbps` megabits per second.
    pub(crate) fn add_resource(&mut self, mbps: u64) -> ResourceId {
        self.resources.push(Resource { rate: fine(mbps), streams: Vec::new(), level: UNLIMITED, dirty: false });
        ResourceId((self.resources.len() - 1) as u32)
    }

    /// Sets the rate of `resource` from now on, in megabits per second.
    pub(crate) fn set_rate(&mut self, resource: ResourceId, mbps: u64) {
        self.resources[resource.0 as usize].rate = fine(mbps);
        self.touch(resource);
    }

    /// Starts a stream of `bytes` at `now`.
    pub(crate) fn start(&mut self, now: Time, bytes: u64, mut passes: Vec<ResourceId>, purpose: T) {
        let slot = self.free.pop().unwrap_or_else(|| {
            let (passes, slowest, purpose) = (Vec::new(), Slowest::NONE, None);
            self.streams.push(Stream {
                generation: 0,
                passes,
                slowest,
                work: 0,
                rate: 0,
                since: 0,
                visited: 0,
                purpose,
            });
            (self.streams.len() - 1) as u32
        });
        passes.retain(|id| match self.resources[id.0 as usize].streams.last_mut() {
            Some((last, times)) if *last == slot => {
                *times += 1;
                false
            }
            _ => {
                self.resources[id.0 as usize].streams.push((slot, 1));
                self.touch(*id);
                true
            }
        });
        let stream = &mut self.streams[slot as usize];
        stream.work = (u128::from(bytes) * 8_000_000) << FINE;
        stream.rate = 0;
        stream.since = now;
        stream.passes = passes;
        stream.purpose = Some(purpose);
        self.streams[slot as usize].slowest = self.slowest(slot);
        self.changed.push(slot);
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
        // A reset asks once for each port, usually while nothing moves.
        if self.free.len() == self.streams.len() {
            return;
        }
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
            if let Some(place) = streams.iter().position(|(other, _)| *other == slot) {
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
            self.dirty.push_back(id);
        }
    }

    /// Returns whether rates must be updated before the clock advances.
    pub(crate) fn is_unsettled(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Updates the rates of all affected streams at `now`, and returns their new ends.
    pub(crate) fn settle(&mut self, now: Time, ends: &mut Vec<End>) {
        while let Some(id) = self.dirty.pop_front() {
            self.resources[id.0 as usize].dirty = false;
            self.update(id);
        }
        self.pass = self.pass.wrapping_add(1);
        let mut changed = std::mem::take(&mut self.changed);
        for slot in changed.drain(..) {
            if std::mem::replace(&mut self.streams[slot as usize].visited, self.pass) != self.pass {
                ends.extend(self.adjust(slot, now));
            }
        }
        self.changed = changed;
    }

    /// Updates the level of a resource, and marks what depends on it if it changed.
    fn update(&mut self, id: ResourceId) {
        let level = self.level(id);
        let old = std::mem::replace(&mut self.resources[id.0 as usize].level, level);
        if level == old {
            return;
        }
        for place in 0..self.resources[id.0 as usize].streams.len() {
            let (slot, _) = self.resources[id.0 as usize].streams[place];
            let before = self.streams[slot as usize].slowest;
            // Slower elsewhere, before and after: none of the others sees a change.
            if before.at != id && level.min(old) > before.next {
                continue;
            }
            let after = self.slowest(slot);
            self.streams[slot as usize].slowest = after;
            if before.level != after.level {
                self.changed.push(slot);
            }
            self.touch_others(slot, before, after);
        }
    }

    /// Marks the resources for which the change of a stream from `before` to `after` matters: a resource counts what a stream
    /// can take elsewhere only below its own level.
    fn touch_others(&mut self, slot: u32, before: Slowest, after: Slowest) {
        let touches = |rates: &mut Self, id: ResourceId| {
            let (before, after) = (before.elsewhere(id), after.elsewhere(id));
            if before != after && before.min(after) < rates.resources[id.0 as usize].level {
                rates.touch(id);
            }
        };
        if (before.level, before.at) == (after.level, after.at) {
            touches(self, after.at);
            return;
        }
        for place in 0..self.streams[slot as usize].passes.len() {
            touches(self, self.streams[slot as usize].passes[place]);
        }
    }

    /// Returns the lowest levels on the way of a stream.
    fn slowest(&self, slot: u32) -> Slowest {
        let passes = self.streams[slot as usize].passes.iter();
        passes.fold(Slowest::NONE, |slowest, id| slowest.and(*id, self.resources[id.0 as usize].level))
    }

    /// Returns the level of a resource, given the levels of the others.
    fn level(&mut self, id: ResourceId) -> u64 {
        let resource = &self.resources[id.0 as usize];
        let offer = |(slot, times): &(u32, u32)| (self.streams[*slot as usize].slowest.elsewhere(id), *times);
        let offers = &mut self.offers;
        offers.clear();
        offers.extend(resource.streams.iter().map(offer));
        let mut left = resource.rate;
        let mut sharing: u64 = offers.iter().map(|(_, times)| u64::from(*times)).sum();
        while sharing > 0 {
            let (level, before) = (left / sharing, sharing);
            offers.retain(|(offer, times)| {
                let is_limited_here = *offer >= level;
                if !is_limited_here {
                    left -= offer * u64::from(*times);
                    sharing -= u64::from(*times);
                }
                is_limited_here
            });
            if sharing == before {
                return level;
            }
        }
        UNLIMITED
    }

    fn adjust(&mut self, slot: u32, now: Time) -> Option<End> {
        let stream = &mut self.streams[slot as usize];
        let rate = if stream.passes.is_empty() { 0 } else { stream.slowest.level };
        if rate == stream.rate || stream.purpose.is_none() {
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

/// Returns a rate in megabits per second as rates are kept.
fn fine(mbps: u64) -> u64 {
    mbps.saturating_mul(1 << FINE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
    fn what_a_stream_leaves_goes_to_the_others() {
        let mut rates = Rates::new();
        let (channel, link) = (rates.add_resource(51_200), rates.add_resource(10_000));
        let mut ends = Vec::new();
        rates.start(0, 1000, vec![channel, link], 0);
        rates.start(0, 1000, vec![channel], 1);
        rates.start(0, 1000, vec![channel], 2);
        rates.settle(0, &mut ends);
        assert_eq!(
            rates.streams.iter().map(|stream| stream.rate).collect::<Vec<_>>(),
            [10_000, 20_600, 20_600].map(fine)
        );
    }

    #[test]
    fn streams_share_less_than_a_megabit_each() {
        let mut rates = Rates::new();
        let channel = rates.add_resource(1);
        // Three streams of 125 bytes are 3000 bits: 3 ms at 1 Mb/s, whatever the share of each.
        let mut starts: Vec<_> = (0..3).map(|_| (0, 125, vec![channel])).collect();
        let ends = run(&mut rates, &mut starts);
        assert!(ends.iter().all(|end| end.abs_diff(3_000_000_000) < 10_000), "{ends:?} ps");
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

    /// Rates by filling: all grow together; what passes the resources with the least to give each is done first.
    fn filled(rates: &Rates<usize>) -> Vec<u64> {
        let mut done: Vec<Option<u64>> =
            rates.streams.iter().map(|stream| stream.purpose.is_none().then_some(stream.rate)).collect();
        loop {
            let share = |resource: &Resource| {
                let is_done = |slot: u32| done[slot as usize].is_some();
                let taken =
                    resource.streams.iter().filter_map(|(slot, times)| Some(done[*slot as usize]? * u64::from(*times)));
                let left = resource.rate - taken.sum::<u64>();
                let growing = resource.streams.iter().filter(|(slot, _)| !is_done(*slot));
                let sharing = growing.clone().map(|(_, times)| u64::from(*times)).sum();
                Some((left.checked_div(sharing)?, growing.map(|(slot, _)| *slot).collect()))
            };
            let shares: Vec<(u64, Vec<u32>)> = rates.resources.iter().filter_map(share).collect();
            let Some(level) = shares.iter().map(|(level, _)| *level).min() else {
                return done.into_iter().flatten().collect();
            };
            let full = shares.into_iter().filter(|(share, _)| *share == level).flat_map(|(_, growing)| growing);
            full.for_each(|slot| done[slot as usize] = Some(level));
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Start(Vec<usize>),
        Stop(usize),
        Rate(usize, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => prop::collection::vec(0..12_usize, 1..5).prop_map(Step::Start),
            2 => (0..40_usize).prop_map(Step::Stop),
            1 => (0..12_usize, 0..100_u64).prop_map(|(resource, rate)| Step::Rate(resource, rate)),
        ]
    }

    proptest! {
        #[test]
        fn rates_are_those_of_filling(
            capacities in prop::collection::vec(0..100_u64, 12),
            instants in prop::collection::vec(prop::collection::vec(step(), 1..4), 1..20),
        ) {
            let mut rates = Rates::new();
            let resources: Vec<ResourceId> = capacities.iter().map(|rate| rates.add_resource(*rate)).collect();
            let mut ends = Vec::new();
            let mut started = 0;
            for (now, steps) in instants.into_iter().enumerate() {
                for step in steps {
                    match step {
                        Step::Start(passes) => {
                            rates.start(now as Time, 1 << 40, passes.iter().map(|place| resources[*place]).collect(), started);
                            started += 1;
                        }
                        Step::Stop(which) => rates.stop(|purpose| *purpose == which),
                        Step::Rate(resource, rate) => rates.set_rate(resources[resource], rate),
                    }
                }
                rates.settle(now as Time, &mut ends);
                let seen: Vec<u64> = rates.streams.iter().map(|stream| stream.rate).collect();
                prop_assert_eq!(seen, filled(&rates));
            }
        }
    }
}

//! Streams that share links, pseudo channels and reduction units: when each ends.
//!
//! Streams share a resource equally, and what one cannot use because it is slower elsewhere goes to the others: max-min
//! fairness. The *level* of a resource is the rate of those that it limits; each stream goes at the lowest level on its way.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use crate::cost::{Bound, Moment};

/// What streams share.
#[derive(Debug)]
struct Resource {
    mbps: u64,
    bound: Bound,
    /// Streams that pass, and how many times each does.
    streams: Vec<(u32, u32)>,
    /// Rate of the streams that it limits; [`u64::MAX`] if it limits none.
    level: u64,
    is_touched: bool,
}

/// The lowest levels on the way of a stream. Resources ask for them at each change: they are kept, not looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slowest {
    level: u64,
    /// The resource of that level.
    at: u32,
    /// The lowest level of the other resources.
    next: u64,
}

impl Slowest {
    const NONE: Slowest = Slowest { level: u64::MAX, at: u32::MAX, next: u64::MAX };

    /// These, and one more resource of `level`.
    fn and(self, at: u32, level: u64) -> Self {
        if level < self.level {
            return Slowest { level, at, next: self.level };
        }
        Slowest { next: self.next.min(level), ..self }
    }

    /// What the stream can have elsewhere than at resource `id`.
    fn elsewhere(self, id: u32) -> u64 {
        if self.at == id { self.next } else { self.level }
    }
}

#[derive(Debug)]
struct Stream {
    start: Moment,
    /// Resources that it passes: a range of [`Flows::passes`]. Each once, when it has begun.
    passes: (u32, u32),
    slowest: Slowest,
    /// Bits times 10^6 still to go as of `since`: what one Mb/s moves in a picosecond is one.
    work: u128,
    rate: u64,
    limit: Bound,
    since: u64,
    visited: u32,
    /// When it will have ended if nothing changes.
    expected: u64,
    end: Option<Moment>,
}

/// Streams. More may be added while they move.
#[derive(Debug, Default)]
pub(super) struct Flows {
    resources: Vec<Resource>,
    used: usize,
    streams: Vec<Stream>,
    passes: Vec<u32>,
    /// Resources whose level may be out of date.
    touched: VecDeque<u32>,
    /// Streams whose rate may be.
    changed: Vec<u32>,
    /// What streams can have elsewhere, and how many times each passes, while a level is worked out.
    offers: Vec<(u64, u32)>,
    pass: u32,
    now: u64,
    starts: BinaryHeap<Reverse<(u64, u32)>>,
    /// The streams that move, by when they will have ended if nothing changes.
    ends: BTreeSet<(u64, u32)>,
    /// Streams that have ended and were not taken.
    ended: Vec<u32>,
}

impl Flows {
    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.streams.clear();
        self.passes.clear();
        self.touched.clear();
        self.changed.clear();
        self.now = 0;
        self.starts.clear();
        self.ends.clear();
        self.ended.clear();
        self.pass = 0;
    }

    /// A resource of `mbps`, time at which counts as spent on `bound`.
    pub(super) fn resource(&mut self, mbps: u64, bound: Bound) -> u32 {
        let number = self.used;
        self.used += 1;
        match self.resources.get_mut(number) {
            Some(resource) => {
                (resource.mbps, resource.bound, resource.is_touched) = (mbps, bound, false);
                resource.level = u64::MAX;
                resource.streams.clear();
            }
            None => {
                let (streams, level) = (Vec::new(), u64::MAX);
                self.resources.push(Resource { mbps, bound, streams, level, is_touched: false });
            }
        }
        number as u32
    }

    /// A stream of `bytes` over all of `passes`, from `start` on or from now on if that is past; its number.
    pub(super) fn stream(&mut self, start: Moment, bytes: u64, passes: impl IntoIterator<Item = u32>) -> usize {
        let start = start.later(self.now.saturating_sub(start.ps));
        let (from, number) = (self.passes.len() as u32, self.streams.len() as u32);
        self.passes.extend(passes);
        self.starts.push(Reverse((start.ps, number)));
        self.streams.push(Stream {
            start,
            passes: (from, self.passes.len() as u32),
            slowest: Slowest::NONE,
            work: u128::from(bytes) * 8_000_000,
            rate: 0,
            limit: Bound::Latency,
            since: start.ps,
            visited: 0,
            expected: u64::MAX,
            end: None,
        });
        number as usize
    }

    /// When stream `number` has ended. Before that, and over what has no rate, the end of time; also of a number that is
    /// none yet.
    pub(super) fn end(&self, number: usize) -> Moment {
        let never = Moment { ps: u64::MAX, ..Moment::default() };
        self.streams.get(number).and_then(|stream| stream.end).unwrap_or(never)
    }

    /// Returns the streams that have ended since the last call.
    pub(super) fn take_ended(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.ended)
    }

    /// Runs all streams to their ends.
    pub(super) fn run(&mut self) {
        while self.advance() {}
    }

    /// Advances to the next start or end of a stream; false if there is none.
    pub(super) fn advance(&mut self) -> bool {
        let next_start = self.starts.peek().map(|Reverse((at, _))| *at);
        let next_end = self.ends.first().map(|(at, _)| *at);
        let Some(now) = next_start.into_iter().chain(next_end).min() else { return false };
        self.now = now;
        while let Some(Reverse((_, number))) = self.starts.peek().filter(|start| start.0.0 == now).copied() {
            self.starts.pop();
            self.begin(number);
        }
        while let Some((_, number)) = self.ends.first().filter(|(at, _)| *at == now).copied() {
            self.ends.pop_first();
            self.finish(number, now);
            self.ended.push(number);
        }
        self.settle(now);
        true
    }

    fn passes(&self, number: u32) -> std::ops::Range<usize> {
        let (from, to) = self.streams[number as usize].passes;
        from as usize..to as usize
    }

    fn touch(&mut self, id: u32) {
        if !std::mem::replace(&mut self.resources[id as usize].is_touched, true) {
            self.touched.push_back(id);
        }
    }

    fn begin(&mut self, number: u32) {
        let passes = self.passes(number);
        let mut end = passes.start;
        for place in passes {
            let id = self.passes[place];
            match self.resources[id as usize].streams.last_mut() {
                Some((last, times)) if *last == number => *times += 1,
                _ => {
                    self.resources[id as usize].streams.push((number, 1));
                    self.touch(id);
                    self.passes[end] = id;
                    end += 1;
                }
            }
        }
        self.streams[number as usize].passes.1 = end as u32;
        self.streams[number as usize].slowest = self.slowest(number);
        self.changed.push(number);
    }

    fn finish(&mut self, number: u32, now: u64) {
        self.account(number, now);
        let stream = &mut self.streams[number as usize];
        stream.end = Some(stream.start);
        for place in self.passes(number) {
            let id = self.passes[place];
            let streams = &mut self.resources[id as usize].streams;
            if let Some(place) = streams.iter().position(|(other, _)| *other == number) {
                streams.swap_remove(place);
            }
            self.touch(id);
        }
    }

    /// Counts what was moved since the rate last changed. `start` goes with it: it becomes the end.
    fn account(&mut self, number: u32, now: u64) {
        let stream = &mut self.streams[number as usize];
        let took = now - stream.since;
        stream.work = stream.work.saturating_sub(u128::from(stream.rate) * u128::from(took));
        stream.start = stream.start.after(stream.limit, took);
        stream.since = now;
    }

    /// Works out levels until none changes, then the rates of the streams concerned. It ends: the lowest level depends on no
    /// other one, the next on the lowest only, and so on.
    fn settle(&mut self, now: u64) {
        while let Some(id) = self.touched.pop_front() {
            self.resources[id as usize].is_touched = false;
            self.update(id);
        }
        self.pass += 1;
        let mut changed = std::mem::take(&mut self.changed);
        for number in changed.drain(..) {
            if std::mem::replace(&mut self.streams[number as usize].visited, self.pass) != self.pass {
                self.adjust(number, now);
            }
        }
        self.changed = changed;
    }

    fn update(&mut self, id: u32) {
        let level = self.level(id);
        let old = std::mem::replace(&mut self.resources[id as usize].level, level);
        if level == old {
            return;
        }
        for index in 0..self.resources[id as usize].streams.len() {
            let (number, _) = self.resources[id as usize].streams[index];
            let before = self.streams[number as usize].slowest;
            // Slower elsewhere, before and after: none of the others sees a change.
            if before.at != id && level.min(old) > before.next {
                continue;
            }
            let after = self.slowest(number);
            self.streams[number as usize].slowest = after;
            if before.level != after.level {
                self.changed.push(number);
            }
            self.touch_others(number, before, after);
        }
    }

    /// Touches the resources for which the change from `before` to `after` matters: above its own level, none cares what a
    /// stream can have elsewhere.
    fn touch_others(&mut self, number: u32, before: Slowest, after: Slowest) {
        let touches = |flows: &mut Self, id: u32| {
            let (before, after) = (before.elsewhere(id), after.elsewhere(id));
            if before != after && before.min(after) < flows.resources[id as usize].level {
                flows.touch(id);
            }
        };
        if (before.level, before.at) == (after.level, after.at) {
            touches(self, after.at);
            return;
        }
        for place in self.passes(number) {
            touches(self, self.passes[place]);
        }
    }

    /// The lowest levels on the way of stream `number`.
    fn slowest(&self, number: u32) -> Slowest {
        let passes = self.passes[self.passes(number)].iter();
        passes.fold(Slowest::NONE, |slowest, id| slowest.and(*id, self.resources[*id as usize].level))
    }

    /// The level of resource `id` while the others keep theirs: the equal share of what is left by streams that are slower
    /// elsewhere.
    fn level(&mut self, id: u32) -> u64 {
        let mut offers = std::mem::take(&mut self.offers);
        let Resource { mbps, streams, .. } = &self.resources[id as usize];
        offers.clear();
        offers.extend(
            streams.iter().map(|(number, times)| (self.streams[*number as usize].slowest.elsewhere(id), *times)),
        );
        let (mut left, mut level) = (*mbps, u64::MAX);
        let mut sharing: u64 = offers.iter().map(|(_, times)| u64::from(*times)).sum();
        while sharing > 0 {
            let (share, before) = (left / sharing, sharing);
            offers.retain(|(offer, times)| {
                let is_slower = *offer < share;
                if is_slower {
                    left -= offer * u64::from(*times);
                    sharing -= u64::from(*times);
                }
                !is_slower
            });
            if sharing == before {
                level = share;
                break;
            }
        }
        self.offers = offers;
        level
    }

    fn adjust(&mut self, number: u32, now: u64) {
        let Slowest { level, at, .. } = self.streams[number as usize].slowest;
        let slowest = self.resources.get(at as usize).map(|resource| (level, resource.bound));
        let (rate, limit) = slowest.unwrap_or((0, Bound::Latency));
        if self.streams[number as usize].rate == rate || self.streams[number as usize].end.is_some() {
            return;
        }
        self.account(number, now);
        let stream = &mut self.streams[number as usize];
        (stream.rate, stream.limit) = (rate, limit);
        self.ends.remove(&(stream.expected, number));
        if rate == 0 {
            return;
        }
        let left = u64::try_from(stream.work.div_ceil(u128::from(rate))).unwrap_or(u64::MAX);
        stream.expected = now.saturating_add(left);
        self.ends.insert((stream.expected, number));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Ends of streams of these starts and bytes over one pseudo channel of 8 Gb/s and a link of 6.
    fn ends(streams: &[(u64, u64, &[usize])]) -> Vec<(u64, Bound)> {
        let mut flows = Flows::default();
        let resources = [flows.resource(8_000, Bound::Channel), flows.resource(6_000, Bound::Link)];
        let numbers: Vec<usize> = streams
            .iter()
            .map(|(start, bytes, passes)| {
                let start = Moment::default().later(*start);
                flows.stream(start, *bytes, passes.iter().map(|place| resources[*place]))
            })
            .collect();
        flows.run();
        numbers.into_iter().map(|number| (flows.end(number).ps, flows.end(number).terms.dominant())).collect()
    }

    #[test]
    fn one_stream_goes_at_the_slowest_and_two_share() {
        assert_eq!(ends(&[(0, 6000, &[0, 1])]), [(8_000_000, Bound::Link)]);
        assert_eq!(ends(&[(0, 1000, &[0, 0])]), [(2_000_000, Bound::Channel)], "twice over one");
        let both = ends(&[(0, 1000, &[0]), (500_000, 1000, &[0])]);
        assert_eq!(both, [(1_500_000, Bound::Channel), (2_000_000, Bound::Channel)]);
        // The link holds the second stream at 3 Gb/s, so the first has 5 of the channel's 8.
        let unused = ends(&[(0, 5000, &[0]), (0, 6000, &[0, 1, 1])]);
        assert_eq!(unused, [(8_000_000, Bound::Channel), (16_000_000, Bound::Link)]);
    }

    #[test]
    fn what_has_no_rate_never_ends_and_empty_streams_end_at_once() {
        let mut flows = Flows::default();
        let none = flows.resource(0, Bound::Link);
        let some = flows.resource(1, Bound::Link);
        let (never, at_once) = (flows.stream(Moment::default(), 1, [none]), flows.stream(Moment::default(), 0, [some]));
        flows.run();
        assert_eq!((flows.end(never).ps, flows.end(at_once).ps), (u64::MAX, 0));
    }

    /// Start, bytes and passes of a stream.
    type Shared = (u64, u64, Vec<usize>);

    fn shared() -> impl Strategy<Value = (Vec<u64>, Vec<Shared>)> {
        (1..7usize).prop_flat_map(|count| {
            let passes = vec(0..count, 1..6);
            (vec(1..50u64, count), vec((0..40_000_000u64, 0..5000u64, passes), 1..9))
        })
    }

    /// Rates of streams over `passes`: the resources that give least stop their streams, then the next ones of those that are left.
    fn filled(mbps: &[u64], passes: &[&[usize]]) -> Vec<u64> {
        let mut rates = vec![None; passes.len()];
        loop {
            let share = |resource: usize| {
                let times = |stream: usize| passes[stream].iter().filter(|pass| **pass == resource).count() as u64;
                let taken = |stream: usize| rates[stream].map(|rate: u64| rate * times(stream));
                let left = mbps[resource] - (0..passes.len()).filter_map(taken).sum::<u64>();
                let moving = (0..passes.len()).filter(|stream| rates[*stream].is_none()).map(times).sum::<u64>();
                left.checked_div(moving)
            };
            let shares: Vec<Option<u64>> = (0..mbps.len()).map(share).collect();
            let Some(least) = shares.iter().copied().flatten().min() else { break };
            for (rate, passes) in rates.iter_mut().zip(passes) {
                if rate.is_none() && passes.iter().any(|pass| shares[*pass] == Some(least)) {
                    *rate = Some(least);
                }
            }
        }
        rates.into_iter().flatten().collect()
    }

    /// When each stream ends: all rates are worked out anew whenever a stream starts or ends.
    fn stepped(mbps: &[u64], streams: &[Shared]) -> Vec<u64> {
        let mut left: Vec<u64> = streams.iter().map(|(_, bytes, _)| bytes * 8_000_000).collect();
        let mut ends = vec![None; streams.len()];
        let mut now = streams.iter().map(|(start, ..)| *start).min().unwrap();
        loop {
            let moving: Vec<usize> =
                (0..streams.len()).filter(|stream| streams[*stream].0 <= now && ends[*stream].is_none()).collect();
            let passes: Vec<&[usize]> = moving.iter().map(|stream| &streams[*stream].2[..]).collect();
            let rates = filled(mbps, &passes);
            let stops = moving.iter().zip(&rates).filter(|(_, rate)| **rate > 0);
            let stops = stops.map(|(stream, rate)| now + left[*stream].div_ceil(*rate));
            let later = streams.iter().map(|(start, ..)| *start).filter(|start| *start > now);
            let Some(next) = stops.chain(later).min() else { break };
            for (stream, rate) in moving.into_iter().zip(rates) {
                left[stream] = left[stream].saturating_sub(rate * (next - now));
                if left[stream] == 0 && rate > 0 {
                    ends[stream] = Some(next);
                }
            }
            now = next;
        }
        ends.into_iter().map(|end| end.unwrap_or(u64::MAX)).collect()
    }

    proptest! {
        #[test]
        fn streams_end_as_if_all_rates_were_worked_out_anew((mbps, streams) in shared()) {
            let mut flows = Flows::default();
            let resources: Vec<u32> = mbps.iter().map(|mbps| flows.resource(*mbps, Bound::Link)).collect();
            let add = |(start, bytes, passes): &Shared| {
                flows.stream(Moment::default().later(*start), *bytes, passes.iter().map(|pass| resources[*pass]))
            };
            let numbers: Vec<usize> = streams.iter().map(add).collect();
            flows.run();
            let ends: Vec<u64> = numbers.into_iter().map(|number| flows.end(number).ps).collect();
            prop_assert_eq!(ends, stepped(&mbps, &streams));
        }
    }
}

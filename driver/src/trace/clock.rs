//! Correlates a card's cycle counter with the host's clock, from bounds alone. No I/O.
//!
//! A doorbell bounds from one side: the card issued the instruction after the host began to ring. The completion bounds from the
//! other side: the instruction had ended before the host saw it. Between host and counter is a line, of unknown offset and of a
//! rate that is off by up to [`TOLERANCE_PPM`]. Each bound cuts the plane of offsets and rates; what all bounds leave is a convex
//! polygon that contains the true line. The estimate is the line through the middle of the polygon at both ends of the recording,
//! and its error is half of the polygon's extent there: a difference of two lines is largest at an end.

/// How far the rate of a counter against the host's clock may be from what the card says, in millionths: REFCLK of PCIe is off
/// by up to 300 (PCI Express Base Specification, section 8.6), and the kernel may slew the host's clock by 500 (adjtimex(2)).
pub const TOLERANCE_PPM: f64 = 1000.0;

/// A counter: its unit, and where it wraps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counter {
    /// Nanoseconds of one count, as the card says.
    pub period_ns: f64,
    /// Bits of the counter, 1 to 64.
    pub bits: u32,
    /// Whether it counts time that does not pass as the host's does: that of a mock fabric, which stands still between accesses.
    pub is_virtual: bool,
}

impl Counter {
    /// The cycle counter of a card whose clock has `clock_khz`.
    pub fn cycles(clock_khz: u32, is_mock: bool) -> Self {
        Counter { period_ns: 1e6 / f64::from(clock_khz.max(1)), bits: 48, is_virtual: is_mock }
    }

    /// The time of a mock fabric, in picoseconds.
    pub const FABRIC: Counter = Counter { period_ns: 1e-3, bits: 64, is_virtual: true };

    /// Counts from `from` to `to`, negative if `to` is before.
    fn distance(&self, from: u64, to: u64) -> i64 {
        let shift = 64 - self.bits.clamp(1, 64);
        (to.wrapping_sub(from) << shift).cast_signed() >> shift
    }

    /// Nanoseconds from count `from` to count `to`, by the period.
    fn between(&self, from: u64, to: u64) -> f64 {
        self.distance(from, to) as f64 * self.period_ns
    }
}

/// An instruction on both clocks. Host times are nanoseconds since any moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// The counter when the instruction was issued.
    pub begin: u64,
    /// The counter when the instruction had ended.
    pub end: u64,
    /// Before the host rang the doorbell.
    pub after_ns: u64,
    /// After the host saw the completion.
    pub before_ns: u64,
}

/// Consecutive intervals that one line places on the host's clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Piece {
    counter: Counter,
    /// Index of the first interval.
    pub first: usize,
    /// Number of intervals.
    pub count: usize,
    /// The counter at the beginning of the first interval.
    pub origin: u64,
    /// The host's time there, in nanoseconds.
    pub origin_ns: f64,
    /// The drift: how much longer a count is than its nominal period, in millionths.
    pub ppm: f64,
    /// No place of these intervals is further from the truth than this. If the time is virtual, the truth is the moment at which
    /// the fabric handled the event.
    pub error_ns: f64,
    /// Whether bounds contradict each other even alone: the card counted more time than passed on the host, as only virtual time
    /// does. Then `error_ns` is how late the last end is.
    pub is_longer_than_host: bool,
}

impl Piece {
    /// The host's time at which the counter had this value.
    pub fn host_ns(&self, count: u64) -> f64 {
        self.origin_ns + self.counter.between(self.origin, count) * (1.0 + self.ppm * 1e-6)
    }
}

/// Places `intervals`, which are ordered by their beginning, on the host's clock. A piece ends where bounds contradict each other:
/// the counter was reset, or its time is virtual. Pieces follow each other on the host's clock.
pub fn correlate(counter: Counter, intervals: &[Interval]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut open: Option<Open> = None;
    for burst in bursts(counter, intervals) {
        if let Some(open) = &mut open
            && open.extend(intervals, &burst)
        {
            continue;
        }
        let earliest = open.take().map(|open| {
            let piece = open.close(intervals);
            let end = piece.host_ns(open.last);
            pieces.push(piece);
            end
        });
        open = Some(Open::begin(counter, intervals, burst, earliest));
    }
    pieces.extend(open.map(|open| open.close(intervals)));
    pieces
}

/// Ranges of intervals that overlap each other, and not those of the next range.
fn bursts(counter: Counter, intervals: &[Interval]) -> Vec<std::ops::Range<usize>> {
    let mut all: Vec<std::ops::Range<usize>> = Vec::new();
    let mut end = 0;
    for (index, one) in intervals.iter().enumerate() {
        match all.last_mut() {
            // A count that goes back is a reset: nothing overlaps it.
            Some(last)
                if counter.distance(one.begin, end) > 0
                    && counter.distance(intervals[last.start].begin, one.begin) >= 0 =>
            {
                last.end = index + 1;
                if counter.distance(end, one.end) > 0 {
                    end = one.end;
                }
            }
            _ => {
                all.push(index..index + 1);
                end = one.end;
            }
        }
    }
    all
}

/// Bounds, relative to the origin: nanoseconds by the period, nanoseconds of the host.
#[derive(Debug, Clone, Copy)]
enum Bound {
    After(f64, f64),
    Before(f64, f64),
}

/// A piece to which intervals are still added.
struct Open {
    counter: Counter,
    range: std::ops::Range<usize>,
    origin: u64,
    /// The host's time that offsets are relative to.
    host: u64,
    /// Latest end, as a count.
    last: u64,
    /// Offsets and rates that no bound excludes. If the bounds of the first burst contradict each other, the only offset that keeps
    /// all those from before.
    polygon: Vec<Line>,
    is_longer: bool,
}

/// A line: the host's time at the origin in nanoseconds, and the part by which a nanosecond of the counter is longer.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    offset: f64,
    rate: f64,
}

/// Longest time between a doorbell and its completion that is understood, in nanoseconds: about a day.
const FAR: f64 = 1e14;

impl Open {
    fn begin(
        counter: Counter,
        intervals: &[Interval],
        range: std::ops::Range<usize>,
        earliest_ns: Option<f64>,
    ) -> Self {
        let first = &intervals[range.start];
        let host = first.after_ns;
        let earliest = earliest_ns.map_or(-FAR, |ns| ns - host as f64);
        let most = if counter.is_virtual { 0.0 } else { TOLERANCE_PPM * 1e-6 };
        let corner = |offset, rate| Line { offset, rate };
        let mut polygon = vec![corner(earliest, -most), corner(FAR, -most), corner(FAR, most), corner(earliest, most)];
        let mut open = Open {
            counter,
            range: range.start..range.start,
            origin: first.begin,
            host,
            last: first.end,
            polygon: Vec::new(),
            is_longer: false,
        };
        let bounds = open.bounds(intervals, &range);
        bounds.iter().for_each(|bound| cut(&mut polygon, *bound));
        if polygon.is_empty() {
            open.is_longer = true;
            let offset = |bound: &Bound| match *bound {
                Bound::After(x, y) => y - x,
                Bound::Before(..) => earliest,
            };
            let offset = bounds.iter().map(offset).fold(earliest, f64::max);
            polygon = vec![corner(offset, 0.0)];
        }
        open.polygon = polygon;
        open.take(intervals, range);
        open
    }

    /// Adds a burst, unless its bounds contradict those before.
    fn extend(&mut self, intervals: &[Interval], burst: &std::ops::Range<usize>) -> bool {
        if self.is_longer || self.counter.distance(self.last, intervals[burst.start].begin) < 0 {
            return false;
        }
        let mut polygon = self.polygon.clone();
        self.bounds(intervals, burst).iter().for_each(|bound| cut(&mut polygon, *bound));
        if polygon.is_empty() {
            return false;
        }
        self.polygon = polygon;
        self.take(intervals, burst.clone());
        true
    }

    fn take(&mut self, intervals: &[Interval], range: std::ops::Range<usize>) {
        self.range.end = range.end;
        for one in &intervals[range] {
            if self.counter.distance(self.last, one.end) > 0 {
                self.last = one.end;
            }
        }
    }

    /// An event at count n came between n and n + 1: bounds are a period wider, and a nanosecond of the host. Virtual time is not
    /// measured, but placed: where its bounds say.
    fn bounds(&self, intervals: &[Interval], range: &std::ops::Range<usize>) -> Vec<Bound> {
        let each = |one: &Interval| {
            let host = |ns: u64| ns.wrapping_sub(self.host).cast_signed() as f64;
            let at = |count| self.counter.between(self.origin, count);
            let slack =
                if self.counter.is_virtual { 0.0 } else { self.counter.period_ns * (1.0 + TOLERANCE_PPM * 1e-6) + 1.0 };
            [
                Bound::After(at(one.begin), host(one.after_ns) - slack),
                Bound::Before(at(one.end), host(one.before_ns) + slack),
            ]
        };
        intervals[range.clone()].iter().flat_map(each).collect()
    }

    fn close(&self, intervals: &[Interval]) -> Piece {
        let length = self.counter.between(self.origin, self.last);
        let extent = |x: f64| {
            let values = self.polygon.iter().map(|line| line.offset + x * line.rate);
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), one| (low.min(one), high.max(one)))
        };
        let ((low, high), (last_low, last_high)) = (extent(0.0), extent(length));
        // Events of virtual time follow the doorbell at once: the earliest place.
        let (offset, last) = match self.counter.is_virtual {
            true => (low, last_low),
            false => (f64::midpoint(low, high), f64::midpoint(last_low, last_high)),
        };
        let rate = if length > 0.0 { (last - offset) / length } else { 0.0 };
        let mut piece = Piece {
            counter: self.counter,
            first: self.range.start,
            count: self.range.len(),
            origin: self.origin,
            origin_ns: self.host as f64 + offset,
            ppm: rate * 1e6,
            error_ns: (high - low).max(last_high - last_low) / 2.0,
            is_longer_than_host: self.is_longer,
        };
        if self.counter.is_virtual {
            piece.error_ns = self.virtual_error(&piece, intervals);
        }
        piece
    }

    /// Every event lies between its own bounds: the farther one is the error.
    fn virtual_error(&self, piece: &Piece, intervals: &[Interval]) -> f64 {
        let far = |one: &Interval| {
            let (after, before) = (one.after_ns as f64, one.before_ns as f64);
            let of = |count| {
                let ns = piece.host_ns(count);
                (ns - after).abs().max((ns - before).abs())
            };
            of(one.begin).max(of(one.end))
        };
        intervals[self.range.clone()].iter().map(far).fold(0.0, f64::max)
    }
}

/// Removes from a convex polygon what `bound` excludes.
fn cut(polygon: &mut Vec<Line>, bound: Bound) {
    let inside = |line: &Line| match bound {
        Bound::After(x, y) => line.offset + x + x * line.rate - y,
        Bound::Before(x, y) => y - (line.offset + x + x * line.rate),
    };
    let values: Vec<f64> = polygon.iter().map(inside).collect();
    if values.iter().all(|value| *value >= 0.0) {
        return;
    }
    let mut left = Vec::with_capacity(polygon.len() + 1);
    for (index, line) in polygon.iter().enumerate() {
        let next = (index + 1) % polygon.len();
        let (here, there) = (values[index], values[next]);
        if here >= 0.0 {
            left.push(*line);
        }
        if (here > 0.0 && there < 0.0) || (here < 0.0 && there > 0.0) {
            let (part, other) = (here / (here - there), polygon[next]);
            left.push(Line {
                offset: line.offset + (other.offset - line.offset) * part,
                rate: line.rate + (other.rate - line.rate) * part,
            });
        }
    }
    *polygon = left;
}

#[cfg(test)]
mod tests;

use proptest::prelude::*;

use super::*;

/// A counter that runs evenly, and a host that rings and sees at its own times.
#[derive(Debug, Clone)]
struct Simulated {
    khz: u32,
    ppm: f64,
    /// The host's time at which the counter was 0, in nanoseconds, and the count that it began with.
    zero_ns: f64,
    first: u64,
    /// For each instruction: idle before the doorbell, from the doorbell to the issue, the duration, from the end until it is seen.
    instructions: Vec<[u32; 4]>,
}

impl Simulated {
    /// The intervals, and the true host times of their ends.
    fn intervals(&self) -> (Vec<Interval>, Vec<(f64, f64)>) {
        let period = 1e6 / f64::from(self.khz) * (1.0 + self.ppm * 1e-6);
        let count = |ns: f64| {
            let cycles = ((ns - self.zero_ns) / period).floor() as u64;
            cycles.wrapping_add(self.first) & ((1 << 48) - 1)
        };
        let mut now = self.zero_ns + 5e9;
        let each = |[idle, latency, duration, seen]: &[u32; 4]| {
            let rung = now + f64::from(*idle);
            let issued = rung + f64::from(*latency);
            let ended = issued + f64::from(*duration);
            now = ended + f64::from(*seen);
            let interval = Interval {
                begin: count(issued),
                end: count(ended),
                after_ns: rung as u64,
                before_ns: now.ceil() as u64,
            };
            (interval, (issued, ended))
        };
        self.instructions.iter().map(each).unzip()
    }
}

fn simulated(most_ppm: f64) -> impl Strategy<Value = Simulated> {
    let instruction = (0..100_000_000_u32, 0..20_000_u32, 1..5_000_000_u32, 0..1_000_000_u32);
    let instructions = prop::collection::vec(instruction.prop_map(|(a, b, c, d)| [a, b, c, d]), 1..40);
    let first = prop_oneof![Just(0), (1_u64 << 48) - 4_000_000_000..1 << 48, 0..1_u64 << 48];
    (50_000..500_000_u32, -most_ppm..most_ppm, 1e9..1e12_f64, first, instructions)
        .prop_map(|(khz, ppm, zero_ns, first, instructions)| Simulated { khz, ppm, zero_ns, first, instructions })
}

/// A quarter of a nanosecond: what rounding of the arithmetic adds.
const ROUNDING: f64 = 0.25;

proptest! {
    #[test]
    fn the_truth_is_inside_the_stated_error(of in simulated(TOLERANCE_PPM * 0.99)) {
        let (intervals, truth) = of.intervals();
        let pieces = correlate(Counter::cycles(of.khz, false), &intervals);
        prop_assert_eq!(pieces.len(), 1, "one clock, one line");
        let piece = &pieces[0];
        prop_assert_eq!((piece.first, piece.count), (0, intervals.len()));
        prop_assert!(!piece.is_longer_than_host);
        let period = 1e6 / f64::from(of.khz) * 1.001;
        for (one, (issued, ended)) in intervals.iter().zip(&truth) {
            for (count, exact) in [(one.begin, issued), (one.end, ended)] {
                let off = (piece.host_ns(count) - exact).abs();
                // A count says when to a period.
                prop_assert!(off <= piece.error_ns + period + ROUNDING, "{off} ns off, {} stated", piece.error_ns);
            }
        }
        // No wider than the narrowest pair of bounds allows at either end, with the drift over the whole time.
        let widest = intervals.iter().map(|one| one.before_ns - one.after_ns).max().unwrap_or(0) as f64;
        let length = truth.last().map_or(0.0, |last| last.1 - truth[0].0);
        prop_assert!(piece.error_ns <= widest + 2.0 * TOLERANCE_PPM * 1e-6 * length + 3.0 * period);
    }

    /// Against the parts of a graph in which overlapping intervals are neighbours.
    #[test]
    fn bursts_are_the_connected_parts(
        spans in prop::collection::vec((0..3000_u64, 1..60_u64), 0..40),
        first in prop_oneof![Just(0), (1_u64 << 48) - 2000..1 << 48],
    ) {
        let mut spans: Vec<(u64, u64)> = spans.into_iter().map(|(begin, length)| (begin, begin + length)).collect();
        spans.sort_by_key(|(begin, _)| *begin);
        let mut parts: Vec<Vec<usize>> = Vec::new();
        for (index, (begin, end)) in spans.iter().enumerate() {
            let overlaps = |part: &Vec<usize>| part.iter().any(|one| spans[*one].0 < *end && *begin < spans[*one].1);
            let (with, apart): (Vec<_>, Vec<_>) = parts.into_iter().partition(overlaps);
            parts = apart;
            parts.push(with.into_iter().flatten().chain([index]).collect());
        }
        let mut expected: Vec<_> =
            parts.iter().map(|part| *part.iter().min().unwrap()..part.iter().max().unwrap() + 1).collect();
        expected.sort_by_key(|range| range.start);
        let count = |value: u64| value.wrapping_add(first) & ((1 << 48) - 1);
        let intervals: Vec<_> = spans.iter().map(|(begin, end)| interval(count(*begin), count(*end), 0, 0)).collect();
        prop_assert_eq!(bursts(CARD, &intervals), expected);
    }

    #[test]
    fn more_instructions_never_make_the_error_larger_at_the_same_moment(of in simulated(100.0)) {
        let (intervals, _) = of.intervals();
        let counter = Counter::cycles(of.khz, false);
        let fewer = Simulated { instructions: of.instructions[..of.instructions.len().div_ceil(2)].to_vec(), ..of.clone() };
        let (half, _) = fewer.intervals();
        let (all, half) = (correlate(counter, &intervals)[0], correlate(counter, &half)[0]);
        // Half of the polygon's extent: the lines of all bounds are among those of half of them.
        let (few, many) = (half.host_ns(half.origin), all.host_ns(half.origin));
        prop_assert!((few - many).abs() <= half.error_ns + ROUNDING);
    }

    #[test]
    fn virtual_time_is_placed_between_its_bounds(of in simulated(1e-9), stops in prop::collection::vec(0..1000_u64, 40)) {
        // The fabric's time goes on only while an instruction runs, and stands still before each.
        let (mut intervals, _) = of.intervals();
        let mut fabric = 0;
        for (one, stop) in intervals.iter_mut().zip(stops) {
            let duration = one.end.wrapping_sub(one.begin) & ((1 << 48) - 1);
            (one.begin, one.end) = (fabric + stop, fabric + stop + duration);
            fabric = one.end;
        }
        let pieces = correlate(Counter::cycles(of.khz, true), &intervals);
        let mut last = 0.0;
        for piece in &pieces {
            prop_assert!(!piece.is_longer_than_host);
            for one in &intervals[piece.first..piece.first + piece.count] {
                let (begin, end) = (piece.host_ns(one.begin), piece.host_ns(one.end));
                let slack = 2e6 / f64::from(of.khz) + 2.0;
                prop_assert!(begin >= one.after_ns as f64 - slack && end <= one.before_ns as f64 + slack);
                prop_assert!(begin >= last - ROUNDING && end >= begin, "pieces follow each other");
                prop_assert!(begin - one.after_ns as f64 <= piece.error_ns + slack);
                last = end;
            }
        }
        prop_assert_eq!(pieces.iter().map(|piece| piece.count).sum::<usize>(), intervals.len());
    }
}

/// Cycles of 5 ns.
const CARD: Counter = Counter { period_ns: 5.0, bits: 48, is_virtual: false };

fn interval(begin: u64, end: u64, after_ns: u64, before_ns: u64) -> Interval {
    Interval { begin, end, after_ns, before_ns }
}

#[test]
fn a_reset_begins_a_new_piece() {
    let before = interval(1_000_000, 1_000_200, 10_000, 12_000);
    let after = interval(40, 240, 500_000, 502_000);
    let pieces = correlate(CARD, &[before, after]);
    assert_eq!(pieces.iter().map(|piece| (piece.first, piece.count)).collect::<Vec<_>>(), [(0, 1), (1, 1)]);
    for (piece, one) in pieces.iter().zip([before, after]) {
        assert!((piece.host_ns(one.begin) - (one.after_ns + 500) as f64).abs() < 1.0, "in the middle: {piece:?}");
        assert!((500.0..520.0).contains(&piece.error_ns), "half of what is open: {piece:?}");
    }
}

#[test]
fn time_that_did_not_pass_on_the_host_is_shown_late_and_said() {
    // 50 us of virtual time in 2 us of the host's, twice.
    let fabric = Counter { is_virtual: true, ..CARD };
    let pieces = correlate(fabric, &[interval(0, 10_000, 1000, 3000), interval(10_000, 20_000, 4000, 6000)]);
    assert!(pieces.iter().all(|piece| piece.is_longer_than_host), "{pieces:?}");
    assert!(pieces[1].host_ns(10_000) >= pieces[0].host_ns(10_000));
    assert!(pieces[0].error_ns >= 48_000.0 && pieces[1].error_ns >= 95_000.0, "{pieces:?}");
}

#[test]
fn nothing_is_placed_nowhere() {
    assert_eq!(correlate(CARD, &[]), []);
}

//! What an FFT did, or where it stalled.

use std::collections::BTreeMap;
use std::fmt;

use cmdseq::routing::{FftAxis, FftMapping, FftPlace};
use rustfft::num_complex::Complex32;

use super::card::{Card, Span, Work};
use crate::proto::novog::network::Outcome;

const PICOSECONDS: u128 = 1_000_000_000_000;

/// A phase: all lines along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FftPhase {
    /// The axis.
    pub axis: FftAxis,
    /// When the first core took the first point, in picoseconds.
    pub begin_ps: u64,
    /// When the last core had given the last result.
    pub end_ps: u64,
}

/// A corner turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FftTurn {
    /// The axis of the lines before it.
    pub after: FftAxis,
    /// When the first packet entered the network, in picoseconds.
    pub begin_ps: u64,
    /// When the last one left it.
    pub end_ps: u64,
    /// Packets that each card gets.
    pub expected: Vec<u32>,
    /// Packets that each card got.
    pub seen: Vec<u32>,
}

/// A finished FFT.
#[derive(Debug, Clone, PartialEq)]
pub struct FftOutcome {
    /// The result; the point (x, y, z) is at `x + side (y + side z)`.
    pub output: Vec<Complex32>,
    /// From the first point taken to the last result, in picoseconds.
    pub time_ps: u64,
    /// The phases, in their order.
    pub phases: [FftPhase; 3],
    /// The corner turns, in their order.
    pub turns: [FftTurn; 2],
    /// Packets on links.
    pub hops: u64,
    /// The most packets that waited in one buffer of a link.
    pub depth_max: usize,
}

/// A card that lacks points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FftMissing {
    /// The card.
    pub node: u32,
    /// Packets of the corner turn that it got.
    pub seen: u32,
    /// Packets that it gets.
    pub expected: u32,
    /// Points that it lacks, by the card that has them.
    pub points: BTreeMap<u32, u32>,
    /// One of them, as (x, y, z).
    pub first: [u32; 3],
}

/// An FFT that came to a stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FftStall {
    /// The axis of the lines before the corner turn that is not complete. Nothing is lost before it.
    pub after: FftAxis,
    /// When the last result came, in picoseconds.
    pub at_ps: u64,
    /// The cards that lack points of this corner turn.
    pub cards: Vec<FftMissing>,
    /// Packets that links dropped because of bit errors.
    pub garbled: u64,
    /// Packets that found a buffer full.
    pub lost: u64,
}

impl std::error::Error for FftStall {}

impl fmt::Display for FftStall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let turn = turn_name(self.after);
        write!(f, "the FFT stalled {:.2} us after its start, in the {turn} corner turn", self.at_ps as f64 / 1e6)?;
        let Some(FftMissing { node, seen, expected, points, first: [x, y, z] }) = self.cards.first() else {
            return Ok(());
        };
        let from = |(card, points): (&u32, &u32)| format!("{points} of card {card}");
        let from: Vec<String> = points.iter().map(from).collect();
        write!(
            f,
            ": card {node} got {seen} of {expected} packets, and lacks points: {}, such as ({x}, {y}, {z})",
            from.join(", ")
        )?;
        match self.cards.len() - 1 {
            0 => {}
            1 => write!(f, "; another card lacks points")?,
            others => write!(f, "; {others} other cards lack points")?,
        }
        write!(f, " (dropped by links for bit errors: {}, by full buffers: {})", self.garbled, self.lost)
    }
}

/// Returns the name of the corner turn after lines along an axis.
const fn turn_name(after: FftAxis) -> &'static str {
    match after {
        FftAxis::X => "XY",
        FftAxis::Y | FftAxis::Z => "YZ",
    }
}

impl FftTurn {
    /// Returns the name: XY or YZ.
    pub fn name(&self) -> &'static str {
        turn_name(self.after)
    }
}

/// Gathers what the cards did. `expected` has the packets that each card gets, by corner turn.
pub(super) fn gather(
    work: &Work<'_>,
    expected: [Vec<u32>; 2],
    cards: &[Card],
    network: Outcome,
) -> Result<FftOutcome, Box<FftStall>> {
    let span = |spans: &mut dyn Iterator<Item = Span>, hertz, end| {
        let all = spans.flatten().reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        all.map_or((0, 0), |(first, last)| (picoseconds(first, hertz), picoseconds(last + end, hertz)))
    };
    // A result is there at the end of its cycle.
    let phases = FftAxis::ALL.map(|axis| {
        let mut spans = cards.iter().map(|card| card.phases[axis as usize]);
        let (begin_ps, end_ps) = span(&mut spans, work.core_hertz, 1);
        FftPhase { axis, begin_ps, end_ps }
    });
    let [first, second] = expected;
    let turns = [(FftAxis::X, first), (FftAxis::Y, second)].map(|(after, expected)| {
        let turn = after as usize;
        let (begin_ps, end_ps) = span(&mut cards.iter().map(|card| card.turns[turn]), work.router_hertz, 0);
        FftTurn { after, begin_ps, end_ps, expected, seen: cards.iter().map(|card| card.seen[turn]).collect() }
    });
    let time_ps = phases.iter().map(|phase| phase.end_ps).max().unwrap_or(0);
    let Outcome { hops, depth_max, garbled, lost, .. } = network;
    for turn in &turns {
        let cards = missing(work.mapping, turn, cards);
        if !cards.is_empty() {
            return Err(Box::new(FftStall { after: turn.after, at_ps: time_ps, cards, garbled, lost }));
        }
    }
    Ok(FftOutcome { output: output(work.mapping, cards), time_ps, phases, turns, hops, depth_max })
}

/// Returns the cards that lack points after a corner turn.
fn missing(mapping: FftMapping, turn: &FftTurn, cards: &[Card]) -> Vec<FftMissing> {
    let side = mapping.side();
    let Some(axis) = turn.after.next() else { return Vec::new() };
    let of_card = |(node, card): (u32, &Card)| {
        let point = |address| mapping.point(axis, FftPlace { node, line: address / side, slot: address % side });
        let mut points = BTreeMap::new();
        let mut first = None;
        for point in card.memories[axis as usize].missing().map(point) {
            *points.entry(mapping.place(turn.after, point).node).or_default() += 1;
            first.get_or_insert(point);
        }
        let (seen, expected) = (turn.seen[node as usize], turn.expected[node as usize]);
        first.map(|first| FftMissing { node, seen, expected, points, first })
    };
    (0..).zip(cards).filter_map(of_card).collect()
}

/// Collects the lines of the last phase.
fn output(mapping: FftMapping, cards: &[Card]) -> Vec<Complex32> {
    let side = mapping.side() as usize;
    let mut output = vec![Complex32::default(); side.pow(3)];
    for (node, card) in (0..).zip(cards) {
        for (address, value) in (0..).zip(&card.result) {
            let place = FftPlace { node, line: address / mapping.side(), slot: address % mapping.side() };
            let [x, y, z] = mapping.point(FftAxis::Z, place).map(|one| one as usize);
            output[x + side * (y + side * z)] = *value;
        }
    }
    output
}

/// Returns when a cycle begins.
fn picoseconds(cycle: u64, hertz: u64) -> u64 {
    (u128::from(cycle) * PICOSECONDS / u128::from(hertz)) as u64
}

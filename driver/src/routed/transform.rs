//! Three-dimensional FFTs: points to the cards, corner turns as tables, start, result.

use std::time::Duration;

use cmdseq::routing::{
    Capacity, FftAxis, FftMapping, FftMappingError, FftPlace, RoutedTables, RoutingReport, TreeAlgorithm, VerifyError,
    compile, verify,
};

use crate::card::Card;
use crate::cluster::Cluster;
use crate::deadline::Deadline;
use crate::routed::error::{Error, Missing, Result, Stall};
use crate::routed::fft::{Settings, Unit};
use crate::routed::network::Network;

/// Bytes of a point: two single-precision numbers.
const POINT_BYTES: usize = 8;
/// The result is behind the points, in pages of its own.
const ALIGNMENT: u64 = 4096;
const PICOSECONDS: u128 = 1_000_000_000_000;
const TURNS: [&str; 2] = ["XY", "YZ"];
/// Time between two looks at the cards.
const POLL: Duration = Duration::from_micros(200);

/// A three-dimensional FFT: forward, and not scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transform {
    /// Points of a side.
    pub side: u32,
    /// Cores of each card that transform lines.
    pub cores: u32,
    /// Time limit for the cards: for copies of all points to them and back, and for the transform.
    pub timeout: Duration,
}

/// From the first to the last event, in picoseconds after the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The first.
    pub begin_ps: u64,
    /// The last.
    pub end_ps: u64,
}

/// A corner turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Its name: XY or YZ.
    pub name: &'static str,
    /// From the first packet sent to the last one received.
    pub span: Span,
    /// Packets that each card gets.
    pub expected: Vec<u32>,
    /// Packets that each card got.
    pub seen: Vec<u32>,
}

/// A finished transform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transformed {
    /// The result, in the order of the input.
    pub output: Vec<u8>,
    /// From the first point taken to the last result, in picoseconds.
    pub time_ps: u64,
    /// Lines along X, Y and Z.
    pub phases: [Span; 3],
    /// The corner turns, in their order.
    pub turns: [Turn; 2],
    /// Packets on links.
    pub hops: u64,
    /// The most packets that waited in one buffer of a link.
    pub depth_max: u32,
    /// What the verifier found in the tables of the corner turns.
    pub report: RoutingReport,
}

impl Network {
    /// Loads the tables of the corner turns, and transforms an array on the cards of `cluster`: the one that this network was found
    /// in. The points have 8 bytes, two single-precision numbers, little-endian; the point (x, y, z) is at
    /// `8 (x + side (y + side z))`. Card memory from address 0 on is overwritten.
    ///
    /// # Errors
    /// [`Error::Mapping`], [`Error::Cores`] and [`Error::Tables`] for a transform that the cards cannot hold, before anything is
    /// written; the first has the sides that they hold. [`BadArgument`](crate::Error::BadArgument) for a cluster of other cards.
    /// [`Error::Stalled`] if the cards have not ended within the time limit; those of [`load`](Network::load); the cards', such as
    /// [`Timeout`](crate::Error::Timeout) of one that does not copy its points within the time limit.
    pub fn transform(&mut self, cluster: &mut Cluster, transform: &Transform, input: &[u8]) -> Result<Transformed> {
        let Transform { side, cores, timeout } = *transform;
        let mapping = FftMapping::new(side, self.torus()).map_err(|error| self.with_fitting(error))?;
        let expected = (side as usize).pow(3) * POINT_BYTES;
        if input.len() != expected {
            return Err(crate::error::Error::argument("bytes of an array", input.len(), expected.to_string()).into());
        }
        let (cards, nodes) = (cluster.cards(), self.torus().nodes());
        if cards.len() != nodes as usize || cards.iter().any(|card| card.node() >= nodes) {
            let expected = format!("{nodes}, those of the network");
            return Err(crate::error::Error::argument("number of cards", cards.len(), expected).into());
        }
        let units = cluster.cards().iter().map(Unit::open).collect::<Result<Vec<_>>>()?;
        for unit in &units {
            let most = unit.cores(side)?;
            if cores == 0 || cores > most {
                return Err(Error::Cores { side, cores, most });
            }
        }
        // A run that stalled before holds the tables.
        units.iter().try_for_each(Unit::disarm)?;
        let collectives = mapping.collectives(FftMapping::PACKET_POINTS);
        let tables = compile(self.torus(), &collectives, TreeAlgorithm::Ocr)?;
        let loaded = match self.load(&tables) {
            Err(Error::Tables(VerifyError::Overflow { .. })) => {
                return Err(self.too_many_packets(side, &tables)?.into());
            }
            loaded => loaded?,
        };
        let bytes = mapping.points() as usize * POINT_BYTES;
        let output_at = (bytes as u64).next_multiple_of(ALIGNMENT);
        let turns = [FftAxis::X, FftAxis::Y].map(|axis| expected_packets(mapping, axis));
        let run = loaded.generation;
        let deadline = Deadline::after(timeout);
        for (index, unit) in units.iter().enumerate() {
            let card = cluster.card_mut(index);
            let points = points(mapping, card.node(), input);
            within(deadline.left(), card, |card| card.write_memory(0, &points))?;
            let expected = [0, 1].map(|turn: usize| turns[turn][card.node() as usize]);
            unit.arm(&Settings { side, cores, input: 0, output: output_at, expected }, run)?;
        }
        // The time of this write is not the cards': a mock transforms before it returns, in the time of its host.
        let left = deadline.left();
        units[0].start(run)?;
        let deadline = Deadline::after(left);
        for unit in &units {
            if deadline.poll(Some(POLL), || unit.is_done().map(|is_done| is_done.then_some(())))?.is_none() {
                return Err(Error::Stalled(Box::new(self.stall(mapping, &units, &turns)?)));
            }
        }
        let mut output = vec![0; input.len()];
        let mut data = vec![0; bytes];
        for index in 0..units.len() {
            let card = cluster.card_mut(index);
            within(deadline.left(), card, |card| card.read_memory(output_at, &mut data))?;
            gather(mapping, card.node(), &data, &mut output);
        }
        let phase = |number| Ok::<_, Error>(self.span(&units, number)?.unwrap_or_default());
        let phases = [phase(0)?, phase(1)?, phase(2)?];
        let turn = |turn: usize| {
            let seen = units.iter().map(|unit| unit.seen(turn)).collect::<Result<_>>()?;
            let (name, span) = (TURNS[turn], phase(3 + turn as u32)?);
            Ok::<_, Error>(Turn { name, span, expected: turns[turn].clone(), seen })
        };
        let turns = [turn(0)?, turn(1)?];
        let counts = self.routers.iter().map(|router| router.counts()).collect::<Result<Vec<_>>>()?;
        Ok(Transformed {
            output,
            time_ps: phases.iter().map(|phase| phase.end_ps).max().unwrap_or(0),
            phases,
            turns,
            hops: counts.iter().map(|one| u64::from(one.sent)).sum(),
            depth_max: counts.iter().map(|one| one.depth_max).max().unwrap_or(0),
            report: loaded.report,
        })
    }

    /// Replaces the sides that have a line for each card by those that the cards' buffers and tables hold, too.
    fn with_fitting(&self, error: FftMappingError) -> FftMappingError {
        match error {
            FftMappingError::Side { side, cards, why, .. } => {
                let fitting = FftMapping::fitting(self.torus(), self.capacity());
                FftMappingError::Side { side, cards, why, fitting }
            }
            error => error,
        }
    }

    /// Returns the refusal of corner turns whose tables overflow a buffer.
    fn too_many_packets(&self, side: u32, tables: &RoutedTables) -> Result<FftMappingError> {
        let capacity = self.capacity();
        // The verifier names the first buffer that overflows; the fullest one says what is needed.
        let report = verify(tables, Capacity { depth: u64::MAX, ..capacity })?;
        let fitting = FftMapping::fitting(self.torus(), capacity);
        Ok(FftMappingError::Buffers { side, packets: report.link_packets_max, depth: capacity.depth, fitting })
    }

    /// Returns what every card has room for.
    fn capacity(&self) -> Capacity {
        let least = |one: Capacity, other: Capacity| Capacity {
            entries: one.entries.min(other.entries),
            depth: one.depth.min(other.depth),
        };
        self.routers.iter().map(|router| router.capacity).reduce(least).unwrap_or_default()
    }

    /// Returns when a phase (0 to 2) or a corner turn (3 and 4) began and ended on all cards; `None` if no card did anything in it.
    fn span(&self, units: &[Unit], number: u32) -> Result<Option<Span>> {
        let mut all: Option<Span> = None;
        for unit in units {
            let Some((begin, end)) = unit.span(number)? else { continue };
            // The last result is there at the end of its cycle.
            let (hertz, end) = match number {
                0..3 => (unit.core_hertz, u64::from(end) + 1),
                _ => (unit.router_hertz, u64::from(end)),
            };
            let (begin_ps, end_ps) = (picoseconds(begin.into(), hertz), picoseconds(end, hertz));
            let known = all.unwrap_or(Span { begin_ps, end_ps });
            all = Some(Span { begin_ps: known.begin_ps.min(begin_ps), end_ps: known.end_ps.max(end_ps) });
        }
        Ok(all)
    }

    /// Says where a transform came to a stand: by the first corner turn in which a card lacks points or packets.
    fn stall(&self, mapping: FftMapping, units: &[Unit], expected: &[Vec<u32>; 2]) -> Result<Stall> {
        let counts = self.routers.iter().map(|router| router.counts()).collect::<Result<Vec<_>>>()?;
        let sum = |of: fn(&super::router::Counts) -> u32| counts.iter().map(|one| u64::from(of(one))).sum();
        let mut stall = Stall {
            turn: TURNS[1],
            at_ps: 0,
            cards: Vec::new(),
            dropped: sum(|one| one.dropped),
            lost: sum(|one| one.lost),
            stray: sum(|one| one.stray),
        };
        for number in 0..5 {
            stall.at_ps = stall.at_ps.max(self.span(units, number)?.unwrap_or_default().end_ps);
        }
        for (turn, axis) in [FftAxis::X, FftAxis::Y].into_iter().enumerate() {
            for (router, unit) in self.routers.iter().zip(units) {
                let (seen, expected) = (unit.seen(turn)?, expected[turn][router.node as usize]);
                let (points, first) = unit.missing(turn)?;
                if points > 0 && first < mapping.points() {
                    stall.cards.push(missing(mapping, axis, (router.node, seen, expected), (points, first)));
                }
            }
            if !stall.cards.is_empty() {
                stall.turn = TURNS[turn];
                break;
            }
        }
        Ok(stall)
    }
}

/// Calls `act`, in which a call of the card that has no timeout of its own takes at most `timeout`.
fn within<T>(timeout: Duration, card: &mut Card, act: impl FnOnce(&mut Card) -> crate::error::Result<T>) -> Result<T> {
    let before = card.timeout();
    card.set_timeout(timeout);
    let outcome = act(card);
    card.set_timeout(before);
    Ok(outcome?)
}

/// Describes a card that lacks `points` points after the lines along `axis`, of which one is at the address `first`.
fn missing(
    mapping: FftMapping,
    axis: FftAxis,
    (node, seen, expected): (u32, u32, u32),
    (points, first): (u32, u32),
) -> Missing {
    let side = mapping.side();
    let place = FftPlace { node, line: first / side, slot: first % side };
    let first = mapping.point(axis.next().unwrap_or(axis), place);
    Missing { node, seen, expected, points, first, from: mapping.place(axis, first).node }
}

/// Returns the packets that each card gets in the corner turn after the lines along `axis`.
fn expected_packets(mapping: FftMapping, axis: FftAxis) -> Vec<u32> {
    let mut expected = vec![0; mapping.torus().nodes() as usize];
    for one in mapping.transfers(axis) {
        expected[one.to as usize] += one.points.div_ceil(FftMapping::PACKET_POINTS);
    }
    expected
}

/// Returns where the points of a card in a phase are in the array: the byte of each, by address.
fn places(mapping: FftMapping, axis: FftAxis, node: u32) -> impl Iterator<Item = usize> {
    let side = mapping.side();
    (0..mapping.points()).map(move |address| {
        let place = FftPlace { node, line: address / side, slot: address % side };
        let [x, y, z] = mapping.point(axis, place).map(|one| one as usize);
        POINT_BYTES * (x + side as usize * (y + side as usize * z))
    })
}

/// Returns the points of a card before the first phase.
fn points(mapping: FftMapping, node: u32, input: &[u8]) -> Vec<u8> {
    places(mapping, FftAxis::X, node).flat_map(|at| &input[at..at + POINT_BYTES]).copied().collect()
}

/// Puts the result of a card into the array.
fn gather(mapping: FftMapping, node: u32, data: &[u8], output: &mut [u8]) {
    for (at, point) in places(mapping, FftAxis::Z, node).zip(data.chunks_exact(POINT_BYTES)) {
        output[at..at + POINT_BYTES].copy_from_slice(point);
    }
}

/// Returns when a cycle begins.
fn picoseconds(cycle: u64, hertz: u64) -> u64 {
    (u128::from(cycle) * PICOSECONDS / u128::from(hertz)) as u64
}

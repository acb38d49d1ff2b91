//! Three-dimensional FFTs on the cards: lines are transformed by cores in the user logic, and corner turns are packets in the
//! statically scheduled network (sections 6.2 and 6.3).
//!
//! A core starts a line as soon as all its points are here, so phases overlap where the mapping lets them. Packets of a
//! corner turn are counted, as nothing else says that it is complete: links drop what is garbled, without notice.

mod card;
mod on_cards;
mod outcome;
mod packet;

use cmdseq::routing::{
    CompileError, FftAxis, FftMapping, FftPlace, FftTransfer, RoutedTables, RoutingReport, Torus3, TreeAlgorithm,
    compile,
};
use rustfft::FftPlanner;
use rustfft::num_complex::Complex32;

use super::network::{Garbled, LoadError, Network, UserLogic};
use super::router::{Delivery, Packet};
use crate::profile::novog::{FftCores, Profile};
pub(crate) use card::Span;
use card::{Card, Work};
pub(crate) use on_cards::{CardsTask, OnCard, run_on_cards};
pub use outcome::{FftMissing, FftOutcome, FftPhase, FftStall, FftTurn};
use packet::{Datum, POINTS};

/// Refusal or failure of an FFT.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FftError {
    /// A card has no cores, or more than fit it.
    #[error("{cores} cores for lines of {side} points in a card (expected 1 to {most})")]
    Cores {
        /// Points of a line.
        side: u32,
        /// Cores asked for.
        cores: u32,
        /// Cores that fit.
        most: u32,
    },
    /// A clock stands still.
    #[error("the cores or the routers have a clock of 0 Hz")]
    Clock,
    /// The corner turns cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The network refuses the tables of the corner turns.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The array has another size.
    #[error("an array of {points} points (expected {expected})")]
    Input {
        /// Points given.
        points: usize,
        /// Points of the FFT.
        expected: usize,
    },
    /// A card waits for packets that do not come.
    #[error(transparent)]
    Stalled(#[from] Box<FftStall>),
}

/// A 3-D FFT, loaded into a network of cards.
#[derive(Debug)]
pub struct Fft3d {
    mapping: FftMapping,
    cores: FftCores,
    profile: Profile,
    network: Network,
    report: RoutingReport,
    transfers: [Vec<FftTransfer>; 2],
    /// Where the packets of each transfer start, in the same order: index, and first port.
    starts: [Vec<(u16, usize)>; 2],
}

impl Fft3d {
    /// Compiles the corner turns, verifies their tables and loads them into all cards.
    ///
    /// # Errors
    /// [`FftError`] if the cores do not fit a card, or a buffer of the network could overflow. Nothing is loaded then.
    pub fn new(profile: Profile, cores: FftCores, mapping: FftMapping) -> Result<Self, FftError> {
        let (side, most) = (mapping.side(), FftCores::most(mapping.side()));
        if cores.count == 0 || cores.count > most {
            return Err(FftError::Cores { side, cores: cores.count, most });
        }
        if cores.hertz == 0 || profile.router_hertz == 0 {
            return Err(FftError::Clock);
        }
        let transfers = [FftAxis::X, FftAxis::Y].map(|axis| mapping.transfers(axis));
        let tables = compile(mapping.torus(), &mapping.collectives(POINTS as u32), TreeAlgorithm::Ocr)?;
        let all = starts(&tables);
        let (first, second) = all.split_at(transfers[0].len());
        let starts = [first.to_vec(), second.to_vec()];
        let mut network = Network::new(profile, mapping.torus());
        let report = network.stage(tables)?;
        network.commit()?;
        Ok(Fft3d { mapping, cores, profile, network, report, transfers, starts })
    }

    /// Plants a bit error in each run.
    pub fn garble(&mut self, garbled: Garbled) {
        self.network.garble(garbled);
    }

    /// Returns what the verifier found in the tables of the corner turns.
    pub fn report(&self) -> RoutingReport {
        self.report
    }

    /// Transforms an array; the point (x, y, z) is at `x + side (y + side z)`. It is forward and not scaled.
    ///
    /// # Errors
    /// [`FftError::Input`] if the array has another size, [`FftError::Stalled`] if a packet is lost.
    pub fn run(&self, input: &[Complex32]) -> Result<FftOutcome, FftError> {
        let Fft3d { mapping, cores, profile, .. } = self;
        let side = mapping.side();
        let expected = (side as usize).pow(3);
        if input.len() != expected {
            return Err(FftError::Input { points: input.len(), expected });
        }
        let transform = FftPlanner::new().plan_fft_forward(side as usize);
        let work = Work {
            mapping: *mapping,
            transform: &*transform,
            core_hertz: cores.hertz,
            router_hertz: profile.router_hertz,
        };
        let count = cores.count.min(mapping.lines());
        let point = |node, address: u32| {
            let place = FftPlace { node, line: address / side, slot: address % side };
            let [x, y, z] = mapping.point(FftAxis::X, place).map(|one| one as usize);
            input[x + side as usize * (y + side as usize * z)]
        };
        let cards = cards(*mapping, count, &self.transfers, &self.starts, point);
        let mut logic = Logic { cards, work, next_tick: 0 };
        let network = self.network.run_with(&mut logic).ok_or(LoadError::Nothing)?;
        let expected = [0, 1].map(|turn| self.expected(turn));
        Ok(outcome::gather(&logic.work, expected, &logic.cards, network)?)
    }

    /// Returns the packets that each card gets in a corner turn.
    fn expected(&self, turn: usize) -> Vec<u32> {
        let mut expected = vec![0; self.mapping.torus().nodes() as usize];
        for one in &self.transfers[turn] {
            expected[one.to as usize] += one.points.div_ceil(POINTS as u32);
        }
        expected
    }
}

/// Returns the cards before the first cycle, with `count` cores each. `starts` says where the packets of each transfer enter the
/// network: index, and input of the router. `point` gives the point of a node at an address of its memory.
fn cards(
    mapping: FftMapping,
    count: u32,
    transfers: &[Vec<FftTransfer>; 2],
    starts: &[Vec<(u16, usize)>; 2],
    point: impl Fn(u32, u32) -> Complex32,
) -> Vec<Card> {
    let mut cards: Vec<Card> = (0..mapping.torus().nodes()).map(|node| Card::new(mapping, node, count)).collect();
    for (turn, (transfers, starts)) in transfers.iter().zip(starts).enumerate() {
        for (one, (index, input)) in transfers.iter().zip(starts) {
            cards[one.from as usize].add_peer(turn, one.to, one.points, *index, *input);
        }
    }
    // Line by line, so that the cores start them in this order.
    for (node, card) in (0..).zip(&mut cards) {
        for address in 0..mapping.points() {
            card.store(mapping.side(), FftAxis::X, Datum { address, value: point(node, address) });
        }
    }
    cards
}

/// Returns where the packets of each collective start: index, and first port.
fn starts(tables: &RoutedTables) -> Vec<(u16, usize)> {
    let start = |one: &cmdseq::routing::ScheduledCollective| {
        let start = one.starts_of(0).first()?;
        let route = tables.nodes[start.node as usize].routes.get(usize::from(start.index))?;
        Some((start.index, usize::from(route.port)))
    };
    tables.collectives.iter().filter_map(start).collect()
}

/// The user logic of all cards, at the local ports of the routers. An input for each link takes what goes there first, so
/// that no link waits for another one.
struct Logic<'a> {
    cards: Vec<Card>,
    work: Work<'a>,
    next_tick: u64,
}

impl UserLogic for Logic<'_> {
    fn inputs(&self) -> usize {
        Torus3::LINKS
    }

    fn run(&mut self, cycle: u64, mut send: impl FnMut(u32, usize, Packet)) {
        let Work { core_hertz, router_hertz, .. } = self.work;
        let last = u128::from(cycle) * u128::from(core_hertz) / u128::from(router_hertz);
        for tick in self.next_tick..=last as u64 {
            for (node, card) in (0..).zip(&mut self.cards) {
                card.run(tick, &self.work, |input, packet| send(node, input, packet));
            }
        }
        self.next_tick = last as u64 + 1;
    }

    fn receive(&mut self, delivery: Delivery) {
        self.cards[delivery.node as usize].receive(delivery);
    }

    fn is_busy(&self) -> bool {
        self.cards.iter().any(Card::is_busy)
    }
}

//! A transform on cards whose tables, sources and points a host loaded: nothing of it is known to be right.

use cmdseq::routing::{FftAxis, FftMapping, NodeTables};
use rustfft::FftPlanner;
use rustfft::num_complex::Complex32;

use super::card::{Card, Span, Work};
use super::packet::POINTS;
use super::{Logic, cards};
use crate::profile::novog::{FftCores, Profile};
use crate::proto::novog::network::{Counts, Garbled, run_on};

/// What the cards of a torus are to transform.
pub(crate) struct CardsTask<'a> {
    pub(crate) profile: Profile,
    pub(crate) cores: FftCores,
    pub(crate) mapping: FftMapping,
    /// Tables in force, by node.
    pub(crate) tables: Vec<&'a NodeTables>,
    /// Index and input of each source, by node.
    pub(crate) sources: Vec<Vec<(u16, u8)>>,
    /// Points before the first phase, by node: its lines along X.
    pub(crate) points: Vec<Vec<Complex32>>,
    /// A bit error to come.
    pub(crate) garbled: Option<Garbled>,
}

/// What a card of a transform did.
#[derive(Debug, Clone)]
pub(crate) struct OnCard {
    /// Packets received, by corner turn.
    pub(crate) seen: [u32; 2],
    /// Points that the card lacks, and the address of the first, by corner turn.
    pub(crate) missing: [(u32, u32); 2],
    /// Cycles of the cores, by phase.
    pub(crate) phases: [Span; 3],
    /// Cycles of the router, by corner turn.
    pub(crate) turns: [Span; 2],
    /// Lines along Z after their transform.
    pub(crate) result: Vec<Complex32>,
    pub(crate) counts: Counts,
}

/// Runs a transform until nothing is left to do. `Err` has the first node whose sources are not those of the transform; the
/// routers have a clock.
pub(crate) fn run_on_cards(task: CardsTask<'_>) -> Result<Vec<OnCard>, u32> {
    let CardsTask { profile, cores, mapping, tables, sources, points, garbled } = task;
    let transfers = [FftAxis::X, FftAxis::Y].map(|axis| mapping.transfers(axis));
    // A card's sources are those of its transfers after X, then of those after Y, in the order of the transfers.
    let mut left: Vec<_> = sources.iter().map(|sources| sources.iter()).collect();
    let mut starts = [Vec::new(), Vec::new()];
    for (turn, one) in transfers.iter().enumerate().flat_map(|(turn, all)| all.iter().map(move |one| (turn, one))) {
        let (index, input) = *left.get_mut(one.from as usize).and_then(Iterator::next).ok_or(one.from)?;
        starts[turn].push((index, usize::from(input)));
    }
    if let Some(node) = left.iter().position(|rest| rest.len() > 0) {
        return Err(node as u32);
    }
    let transform = FftPlanner::new().plan_fft_forward(mapping.side() as usize);
    let work = Work { mapping, transform: &*transform, core_hertz: cores.hertz, router_hertz: profile.router_hertz };
    let count = cores.count.min(mapping.lines());
    let point = |node: u32, address: u32| points[node as usize][address as usize];
    let mut logic = Logic { cards: cards(mapping, count, &transfers, &starts, point), work, next_tick: 0 };
    // Valid tables lead every packet over fewer links than there are nodes.
    let packets: u64 = transfers.iter().flatten().map(|one| u64::from(one.points.div_ceil(POINTS as u32))).sum();
    let hops_max = packets * u64::from(mapping.torus().nodes());
    let counts = run_on(profile, mapping.torus(), &tables, (garbled, hops_max), &mut logic).unwrap_or_default();
    Ok(logic.cards.into_iter().zip(counts).map(|(card, counts)| on_card(card, counts)).collect())
}

fn on_card(card: Card, counts: Counts) -> OnCard {
    let missing = [FftAxis::Y, FftAxis::Z].map(|axis| {
        let mut missing = card.memories[axis as usize].missing();
        let first = missing.next();
        (first.map_or(0, |_| 1 + missing.count() as u32), first.unwrap_or(0))
    });
    let Card { seen, phases, turns, result, .. } = card;
    OnCard { seen, missing, phases, turns, result, counts }
}

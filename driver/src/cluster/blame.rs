//! Finds the rank that the others wait for: by the state of each sequencer that is not done, read once after a timeout, and by
//! which cards can be aborted afterwards.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use cmdseq::Operation;
use fpga_regs::bits::Status;

use crate::card::Card;
use crate::error::{Error, Result};
use crate::ledger::state::State;
use crate::sequencer::state::SequencerState;

/// Most peers, and most ranks waiting for one peer, that a message names; the rest is counted.
const NAMED: usize = 8;

/// A rank that was not done in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfinished {
    /// Its rank in the group.
    pub rank: u32,
    /// Index of its card in [`Cluster::cards`](crate::Cluster::cards).
    pub card: usize,
    /// What is being done: a noun, such as `barrier` or `program`.
    pub phase: &'static str,
    /// Index of the instruction that is next to complete, in the program of the rank.
    pub instruction: Option<usize>,
    /// What it does.
    pub operation: Operation,
    /// Instructions completed: the rank with the fewest is the slowest.
    pub completed: u64,
}

/// An unfinished rank and the state of its sequencer.
struct Seen<'a> {
    unfinished: &'a Unfinished,
    state: SequencerState,
    last_seen: String,
    /// The rank, among those not done, that it waits for.
    waits_for: Option<u32>,
    /// How many wait for it.
    waiting: usize,
    /// Whether its card could not be aborted: it has stopped, whatever its registers say it was at.
    is_stuck: bool,
}

impl Seen<'_> {
    /// Whether it waits for no other card: it has stopped, or is at work.
    fn waits_for_nobody(&self) -> bool {
        self.state.waiting_peer.is_none() || self.state.status.contains(Status::HALTED)
    }
}

/// Ranks that were not done in time, at least one, and what their cards were at.
pub(crate) struct Late {
    unfinished: Vec<Unfinished>,
    /// Of each, its state and what to print of it: an abort changes both.
    states: Result<Vec<(SequencerState, String)>>,
    waited: Duration,
}

impl Late {
    /// Reads seven registers of each of the cards.
    pub(crate) fn observe(cards: &[Card], unfinished: Vec<Unfinished>, waited: Duration) -> Self {
        let read = |card: &Card| card.sequencer_state().map(|state| (state, card.queue().last_seen(&state)));
        let states = unfinished.iter().map(|one| read(&cards[one.card])).collect();
        Late { unfinished, states, waited }
    }

    /// Returns the error of the wait for ranks of a group of these nodes: it names the rank that the others wait for. If the
    /// cards were aborted since, that is one that could not be. `undefined` is what the timeout leaves undefined.
    pub(crate) fn error(self, cards: &[Card], group: &[u32], undefined: &str) -> Error {
        let Late { unfinished, states, waited } = self;
        let seen = match states {
            Ok(states) => see(cards, group, &unfinished, states),
            // A card that is gone is the one that the others wait for.
            Err(error) => return error,
        };
        let Some(blamed) = blamed(&seen) else { unreachable!("observed with a rank that is not done") };
        let Unfinished { rank, card, phase, instruction, operation, .. } = *blamed.unfinished;
        let card = &cards[card];
        let index = instruction.map_or(String::new(), |index| format!("instruction {index}, "));
        let what = format!(
            "rank {rank} ({}) to complete its {phase} ({index}{operation}), {} of {} ranks not being done{}{}; {undefined}",
            card.name(),
            unfinished.len(),
            group.len(),
            waiting(&seen, group),
            errors(&seen, rank),
        );
        let last_seen = blamed.last_seen.clone();
        Error::Timeout { what, node: Some(card.node()), rank: Some(rank), instruction, waited, last_seen }
    }
}

fn see<'a>(
    cards: &[Card],
    group: &[u32],
    unfinished: &'a [Unfinished],
    states: Vec<(SequencerState, String)>,
) -> Vec<Seen<'a>> {
    let rank_of: BTreeMap<u32, u32> = group.iter().copied().zip(0..).collect();
    let is_unfinished = |rank: &u32| unfinished.iter().any(|one| one.rank == *rank);
    let mut seen: Vec<Seen<'_>> = unfinished
        .iter()
        .zip(states)
        .map(|(unfinished, (state, last_seen))| {
            let peer = state.waiting_peer.and_then(|node| rank_of.get(&node)).copied();
            let is_stuck = cards[unfinished.card].state() != State::Running;
            Seen { unfinished, state, waits_for: peer.filter(is_unfinished), waiting: 0, is_stuck, last_seen }
        })
        .collect();
    let mut waiting: BTreeMap<u32, usize> = BTreeMap::new();
    seen.iter().filter_map(|one| one.waits_for).for_each(|rank| *waiting.entry(rank).or_default() += 1);
    seen.iter_mut().for_each(|one| one.waiting = waiting.get(&one.unfinished.rank).copied().unwrap_or(0));
    seen
}

/// Returns the rank that the others wait for in the end: one whose card is stuck; else a rank that waits for nobody; else one that waits for a card that is
/// done or outside of the group; else one of those that wait for each other in a circle. Of several, the one with most ranks
/// waiting for it, then with fewest completions, then with the lowest rank.
fn blamed<'s, 'a>(seen: &'s [Seen<'a>]) -> Option<&'s Seen<'a>> {
    let first = |of: &mut dyn Iterator<Item = &'s Seen<'a>>| {
        of.min_by_key(|one| (usize::MAX - one.waiting, one.unfinished.completed, one.unfinished.rank))
    };
    first(&mut seen.iter().filter(|one| one.is_stuck))
        .or_else(|| first(&mut seen.iter().filter(|one| one.waits_for_nobody())))
        .or_else(|| first(&mut seen.iter().filter(|one| one.waits_for.is_none())))
        .or_else(|| first(&mut circle(seen).into_iter()))
}

/// Returns the ranks that wait for each other in a circle.
fn circle<'s, 'a>(seen: &'s [Seen<'a>]) -> Vec<&'s Seen<'a>> {
    let seen_of: BTreeMap<u32, usize> = seen.iter().map(|one| one.unfinished.rank).zip(0..).collect();
    let next = |at: usize| seen[at].waits_for.and_then(|rank| seen_of.get(&rank).copied());
    let mut is_in = vec![false; seen.len()];
    for start in 0..seen.len() {
        // After as many steps as there are ranks, the walk is in the circle.
        if let Some(at) = (0..seen.len()).try_fold(start, |at, _| next(at)) {
            is_in[at] = true;
        }
    }
    seen.iter().zip(is_in).filter_map(|(one, is_in)| is_in.then_some(one)).collect()
}

/// Formats the errors that the cards of other ranks than the `blamed` one report: what a card lost is why others wait.
fn errors(seen: &[Seen<'_>], blamed: u32) -> String {
    let mut text = String::new();
    let others = seen.iter().filter(|one| one.unfinished.rank != blamed && !one.state.health.is_good());
    for Seen { unfinished, state, .. } in others.take(NAMED) {
        let _ = write!(text, "; rank {} reports {}", unfinished.rank, state.health);
    }
    text
}

/// Formats the waits: "; ranks 0, 1 wait for rank 2".
fn waiting(seen: &[Seen<'_>], group: &[u32]) -> String {
    let mut by_peer: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for one in seen {
        if let Some(node) = one.state.waiting_peer {
            by_peer.entry(node).or_default().push(one.unfinished.rank);
        }
    }
    let mut text = String::new();
    for (node, ranks) in by_peer.iter().take(NAMED) {
        let named: Vec<String> = ranks.iter().take(NAMED).map(u32::to_string).collect();
        let more = ranks.len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let (ranks, wait) = if ranks.len() == 1 { ("rank", "waits") } else { ("ranks", "wait") };
        let peer = match group.iter().position(|one| one == node) {
            Some(rank) => format!("rank {rank}"),
            None => format!("node {node}"),
        };
        let _ = write!(text, "; {ranks} {}{more} {wait} for {peer}", named.join(", "));
    }
    match by_peer.len().saturating_sub(NAMED) {
        0 => text,
        more => format!("{text}; others wait for {more} more"),
    }
}

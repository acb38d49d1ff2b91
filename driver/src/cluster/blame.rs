//! Finds the rank that the others wait for: by the state of each sequencer that is not done, read once after a timeout, and by
//! which cards can be aborted afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use cmdseq::Operation;
use fpga_regs::bits::Status;
use serde::{Deserialize, Serialize};

use crate::card::Card;
use crate::error::{Error, Result};
use crate::ledger::state::State;

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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    rank: u32,
    node: u32,
    /// Its card.
    name: String,
    phase: String,
    instruction: Option<usize>,
    operation: String,
    completed: u64,
    /// The node that its sequencer waits for.
    waiting_peer: Option<u32>,
    is_halted: bool,
    /// The errors that the card reports, if there are any.
    errors: Option<String>,
    last_seen: String,
    /// Whether its card could not be aborted: it has stopped, whatever its registers say it was at.
    is_stuck: bool,
    /// The rank, among those not done, that it waits for.
    #[serde(skip)]
    waits_for: Option<u32>,
    /// How many wait for it.
    #[serde(skip)]
    waiting: usize,
}

impl Seen {
    /// Reads seven registers of the card.
    fn read(cards: &[Card], unfinished: &Unfinished) -> Result<Seen> {
        let card = &cards[unfinished.card];
        let state = card.sequencer_state()?;
        Ok(Seen {
            rank: unfinished.rank,
            node: card.node(),
            name: card.name().to_owned(),
            phase: unfinished.phase.to_owned(),
            instruction: unfinished.instruction,
            operation: unfinished.operation.to_string(),
            completed: unfinished.completed,
            waiting_peer: state.waiting_peer,
            is_halted: state.status.contains(Status::HALTED),
            errors: (!state.health.is_good()).then(|| state.health.to_string()),
            last_seen: card.queue().last_seen(&state),
            is_stuck: card.state() != State::Running,
            waits_for: None,
            waiting: 0,
        })
    }

    /// Whether it waits for no other card: it has stopped, or is at work.
    fn waits_for_nobody(&self) -> bool {
        self.waiting_peer.is_none() || self.is_halted
    }
}

/// Ranks that were not done in time, at least one, and what their cards were at: an abort changes that.
#[derive(Debug)]
pub(crate) struct Late {
    seen: Result<Vec<Seen>>,
    waited: Duration,
}

impl Late {
    /// Reads seven registers of each of the cards.
    pub(crate) fn observe(cards: &[Card], unfinished: &[Unfinished], waited: Duration) -> Self {
        Late { seen: unfinished.iter().map(|one| Seen::read(cards, one)).collect(), waited }
    }

    /// Ranks seen by several processes.
    pub(crate) fn together(seen: Vec<Seen>, waited: Duration) -> Self {
        Late { seen: Ok(seen), waited }
    }

    /// Takes what was seen; the error of a card that is gone.
    pub(crate) fn into_seen(self) -> Result<Vec<Seen>> {
        self.seen
    }

    /// Notes which cards could not be aborted since.
    pub(crate) fn note_stuck(&mut self, is_stuck: impl Fn(u32) -> bool) {
        for seen in self.seen.iter_mut().flatten() {
            seen.is_stuck |= is_stuck(seen.node);
        }
    }

    /// Returns the error of the wait for ranks of a group of these nodes: it names the rank that the others wait for. If the
    /// cards were aborted since, that is one that could not be. `undefined` is what the timeout leaves undefined.
    pub(crate) fn error(self, group: &[u32], undefined: &str) -> Error {
        let seen = match self.seen {
            Ok(seen) => linked(seen, group),
            // A card that is gone is the one that the others wait for.
            Err(error) => return error,
        };
        let Some(blamed) = blamed(&seen) else { unreachable!("observed with a rank that is not done") };
        let Seen { rank, node, name, phase, instruction, operation, last_seen, .. } = blamed;
        let index = instruction.map_or(String::new(), |index| format!("instruction {index}, "));
        let what = format!(
            "rank {rank} ({name}) to complete its {phase} ({index}{operation}), {} of {} ranks not being done{}{}; {undefined}",
            seen.len(),
            group.len(),
            waiting(&seen, group),
            errors(&seen, *rank),
        );
        let (node, rank, instruction, last_seen) = (Some(*node), Some(*rank), *instruction, last_seen.clone());
        Error::Timeout { what, node, rank, instruction, waited: self.waited, last_seen }
    }
}

/// Finds out which of `seen` wait for which.
fn linked(mut seen: Vec<Seen>, group: &[u32]) -> Vec<Seen> {
    let rank_of: BTreeMap<u32, u32> = group.iter().copied().zip(0..).collect();
    let unfinished: BTreeSet<u32> = seen.iter().map(|one| one.rank).collect();
    let mut waiting: BTreeMap<u32, usize> = BTreeMap::new();
    for one in &mut seen {
        let peer = one.waiting_peer.and_then(|node| rank_of.get(&node)).copied();
        one.waits_for = peer.filter(|rank| unfinished.contains(rank));
        one.waits_for.into_iter().for_each(|rank| *waiting.entry(rank).or_default() += 1);
    }
    seen.iter_mut().for_each(|one| one.waiting = waiting.get(&one.rank).copied().unwrap_or(0));
    seen
}

/// Returns the rank that the others wait for in the end: one whose card is stuck; else a rank that waits for nobody; else one that
/// waits for a card that is done or outside of the group; else one of those that wait for each other in a circle. Of several, the one
/// with most ranks waiting for it, then with fewest completions, then with the lowest rank.
fn blamed(seen: &[Seen]) -> Option<&Seen> {
    fn first<'s>(of: &mut dyn Iterator<Item = &'s Seen>) -> Option<&'s Seen> {
        of.min_by_key(|one| (usize::MAX - one.waiting, one.completed, one.rank))
    }
    first(&mut seen.iter().filter(|one| one.is_stuck))
        .or_else(|| first(&mut seen.iter().filter(|one| one.waits_for_nobody())))
        .or_else(|| first(&mut seen.iter().filter(|one| one.waits_for.is_none())))
        .or_else(|| first(&mut circle(seen).into_iter()))
}

/// Returns the ranks that wait for each other in a circle.
fn circle(seen: &[Seen]) -> Vec<&Seen> {
    let seen_of: BTreeMap<u32, usize> = seen.iter().map(|one| one.rank).zip(0..).collect();
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
fn errors(seen: &[Seen], blamed: u32) -> String {
    let mut text = String::new();
    let others = seen.iter().filter(|one| one.rank != blamed).filter_map(|one| Some((one.rank, one.errors.as_ref()?)));
    for (rank, errors) in others.take(NAMED) {
        let _ = write!(text, "; rank {rank} reports {errors}");
    }
    text
}

/// Formats the waits: "; ranks 0, 1 wait for rank 2".
fn waiting(seen: &[Seen], group: &[u32]) -> String {
    let mut by_peer: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for one in seen {
        if let Some(node) = one.waiting_peer {
            by_peer.entry(node).or_default().push(one.rank);
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

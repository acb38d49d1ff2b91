//! The cards of one fabric, held together.

pub(crate) mod agreement;
pub(crate) mod blame;
pub(crate) mod calibrate;
pub(crate) mod claims;
pub(crate) mod communicators;
pub(crate) mod ending;
pub(crate) mod execute;
pub(crate) mod nonces;
pub(crate) mod persistent;
pub(crate) mod ranks;
pub(crate) mod registration;
pub(crate) mod run;
pub(crate) mod signal_tree;
pub(crate) mod synchronise;
mod tracing;
pub(crate) mod windows;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cmdseq::Capabilities;
use cmdseq::plan::{Piece, Program, ProgramSet};
use fpga_hal::{BusKind, ResetOutcome};

use crate::card::Card;
use crate::card::control::CardFunctions;
use crate::card::windows::Keys;
use crate::cluster::blame::{Late, Unfinished};
use crate::communicators::group::Group;
use crate::communicators::registry::Registry;
use crate::communicators::roster::{Member, difference};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::ledger::claims::Claim;
use crate::ledger::state::State;
use crate::trace::spans::Spans;

/// Cards of one fabric, all of them or some: a roster of members, and the cards that this process holds.
///
/// If other processes hold members too ([`join`](Cluster::join), [`register`](Cluster::register)), then *collective* calls are made by
/// all ranks with the same arguments, in the same order, and end alike: if one fails, all fail. A call acts on the cards held here.
#[derive(Debug)]
pub struct Cluster {
    cards: Vec<Card>,
    /// Whom collective calls are made with: all members, or those of the communicator that [`among`](Cluster::among) was called for.
    group: Group,
    /// Node and name of each card, as they were opened.
    order: Vec<(u32, Box<str>)>,
    pub(crate) registry: Registry,
    /// Of the windows to be opened.
    pub(crate) keys: Keys,
    /// Of launches in flight that need their cards for themselves.
    pub(crate) claims: Vec<Claim>,
    /// What the host does, if a trace is recorded.
    spans: Option<Box<Spans>>,
    /// The same in everything that is prepared on this cluster.
    pub(crate) identity: Arc<()>,
}

impl Drop for Cluster {
    /// Closes cards on the kernel's VFIO side by side: the kernel resets each, which takes tenths of a second. Those whose reset reaches
    /// others are closed one after the other.
    fn drop(&mut self) {
        let is_reset_alone = |card: &mut Card| {
            let function = card.function();
            function.bus() == BusKind::Vfio
                && matches!(function.opening_reset(), ResetOutcome::Function | ResetOutcome::Bus)
        };
        let apart: Vec<Card> = self.cards.extract_if(.., is_reset_alone).collect();
        if apart.len() > 1 {
            thread::scope(|scope| {
                for card in apart {
                    // Without a thread the card is closed here.
                    let _ = thread::Builder::new().name("closing".to_owned()).spawn_scoped(scope, move || drop(card));
                }
            });
        }
    }
}

/// What a timeout leaves undefined.
const UNDEFINED: &str = "destinations are undefined";

impl Cluster {
    /// Opens all `functions`, in any order, and compares the nodes and capabilities that the cards report. Cards of two fabrics
    /// that report the same capabilities are not told apart; [`join`](Cluster::join) does that.
    ///
    /// # Errors
    /// Those of [`Card::open`]; [`Error::Mismatch`] if two cards say they are the same node, or differ in what they can
    /// do; [`Error::BadArgument`] if there are none.
    pub fn open(functions: Vec<impl Into<CardFunctions>>) -> Result<Cluster> {
        let cards = functions.into_iter().map(|functions| Card::open(functions)).collect::<Result<Vec<_>>>()?;
        Cluster::of(cards)
    }

    /// Makes a cluster of cards that are open, all members of which this process holds.
    ///
    /// # Errors
    /// As [`open`](Cluster::open).
    pub fn of(mut cards: Vec<Card>) -> Result<Cluster> {
        cards.sort_by_key(Card::node);
        let [first, rest @ ..] = cards.as_slice() else {
            return Err(Error::argument("cards", "none", "at least one card"));
        };
        for (card, before) in rest.iter().zip(&cards) {
            if card.node() == before.node() {
                let what = format!("{} and {} both say they are it", before.name(), card.name());
                return Err(Error::Mismatch { node: before.node(), other: card.node(), what });
            }
            if let Some(what) = difference(first.capabilities(), card.capabilities()) {
                return Err(Error::Mismatch { node: first.node(), other: card.node(), what });
            }
        }
        let of = first.capabilities();
        let registry = Registry::new(of.nodes, of.communicators, of.communicator_generations);
        let order = cards.iter().map(|card| (card.node(), card.name().into())).collect();
        let member = |card: &Card| Member { node: card.node(), peer: 0, name: card.name().to_owned() };
        let group = Group::alone(cards.iter().map(member).collect());
        Ok(Cluster {
            cards,
            group,
            order,
            registry,
            keys: Keys::default(),
            claims: Vec::new(),
            spans: None,
            identity: Arc::default(),
        })
    }

    /// All members, by rank of the process that holds their card, then by node.
    pub fn roster(&self) -> &[Member] {
        &self.group.roster
    }

    /// Nodes of all members, in the order of the [`roster`](Cluster::roster).
    pub fn nodes(&self) -> Vec<u32> {
        self.group.roster.iter().map(|member| member.node).collect()
    }

    /// Whether this process holds the card of `node`.
    pub fn holds(&self, node: u32) -> bool {
        self.order.binary_search_by_key(&node, |(node, _)| *node).is_ok()
    }

    /// The cards held here, by node.
    pub fn cards(&self) -> &[Card] {
        &self.cards
    }

    /// The card at `index` in [`cards`](Cluster::cards). The order of the cards cannot be changed: a card that was swapped
    /// with another is refused by everything that looks for a node.
    ///
    /// # Panics
    /// If there are not as many cards, as an index does.
    pub fn card_mut(&mut self, index: usize) -> &mut Card {
        &mut self.cards[index]
    }

    /// Sets on every card how long one call may take that has no timeout of its own: see [`Card::set_timeout`].
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.cards.iter_mut().for_each(|card| card.set_timeout(timeout));
    }

    /// What every one of the cards can do.
    pub fn capabilities(&self) -> &Capabilities {
        self.cards[0].capabilities()
    }

    /// Sets the largest piece sent eagerly, on all cards. A [reset](Card::reset) card has its own limit again: it runs no programs
    /// with others before its limit is that of the cluster's first card ([`Error::Mismatch`]). A [prepared](Cluster::prepare) schedule
    /// is launched with the limit for which it was verified only.
    ///
    /// # Errors
    /// As [`Card::set_eager_limit`].
    pub fn set_eager_limit(&mut self, bytes: u64) -> Result<()> {
        self.cards.iter_mut().try_for_each(|card| card.set_eager_limit(bytes))
    }

    /// Puts `data` where the programs of `set` want bytes `offset` and on of rank `rank`'s input.
    ///
    /// # Errors
    /// [`Error::BadArgument`] if there is no such rank or its input is shorter; else those of [`Card::write_memory`].
    pub fn write_input(&mut self, set: &ProgramSet, rank: u32, offset: u64, data: &[u8]) -> Result<()> {
        let (node, program) = of_rank(set, rank)?;
        let begin = self.moment();
        let written = self.write_range(node, &program.input, "input", offset, data);
        self.end_span("copy in", begin);
        written.map_err(|error| in_phase(error, &set.nodes, "copy in"))
    }

    /// Fetches bytes `offset` and on of rank `rank`'s output from where the programs of `set` have left them.
    ///
    /// # Errors
    /// As [`write_input`](Cluster::write_input).
    pub fn read_output(&mut self, set: &ProgramSet, rank: u32, offset: u64, data: &mut [u8]) -> Result<()> {
        let (node, program) = of_rank(set, rank)?;
        let begin = self.moment();
        let read = self.read_range(node, &program.output, "output", offset, data);
        self.end_span("copy out", begin);
        read.map_err(|error| in_phase(error, &set.nodes, "copy out"))
    }

    /// Writes bytes `offset` and on of what lies in `pieces` of node `node`'s memory.
    pub(crate) fn write_range(
        &mut self,
        node: u32,
        pieces: &[Piece],
        what: &'static str,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let index = self.index_of(node)?;
        let ranges = clip(pieces, what, offset, data.len())?;
        let mut rest = data;
        let pieces = ranges.into_iter().map(|(address, bytes)| {
            let (now, later) = rest.split_at(bytes);
            rest = later;
            (address, now)
        });
        self.cards[index].write_pieces(pieces)
    }

    /// Reads bytes `offset` and on of what lies in `pieces` of node `node`'s memory.
    pub(crate) fn read_range(
        &mut self,
        node: u32,
        pieces: &[Piece],
        what: &'static str,
        offset: u64,
        data: &mut [u8],
    ) -> Result<()> {
        let index = self.index_of(node)?;
        let ranges = clip(pieces, what, offset, data.len())?;
        let mut rest = data;
        let pieces = ranges.into_iter().map(|(address, bytes)| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(bytes);
            rest = later;
            (address, now)
        });
        self.cards[index].read_pieces(pieces)
    }

    /// Places in `nodes` and indices of the cards held here, all of which run.
    ///
    /// # Errors
    /// [`Error::BadArgument`] if a node is no member. For the first card that does not run, [`Error::Removed`],
    /// [`Error::BadCompletion`] or [`Error::NotRunning`]. [`Error::Mismatch`] for the first whose eager limit is not the cluster's.
    pub(crate) fn running(&self, nodes: &[u32]) -> Result<Vec<(usize, usize)>> {
        let held = self.held(nodes)?;
        for (_, index) in &held {
            let queue = self.cards[*index].queue();
            if queue.state() != State::Running {
                return Err(queue.refusal());
            }
        }
        // Programs are verified for that of the first card.
        let limit = self.capabilities().eager_limit;
        match held.iter().map(|(_, index)| &self.cards[*index]).find(|card| card.eager_limit() != limit) {
            None => Ok(held),
            Some(other) => {
                let what = format!("their eager limits are {limit} and {} bytes; set one for all", other.eager_limit());
                Err(Error::Mismatch { node: self.cards[0].node(), other: other.node(), what })
            }
        }
    }

    /// Places in `nodes` and indices of the cards held here.
    pub(crate) fn held(&self, nodes: &[u32]) -> Result<Vec<(usize, usize)>> {
        let mut held = Vec::with_capacity(nodes.len());
        for (place, node) in nodes.iter().enumerate() {
            if self.is_alone() || self.holds(*node) {
                held.push((place, self.index_of(*node)?));
            } else {
                self.peer_of(*node)?;
            }
        }
        Ok(held)
    }

    /// Indices of the cards of `members` that are held here.
    pub(crate) fn here(&self, members: &[u32]) -> Result<Vec<usize>> {
        members.iter().filter(|node| self.holds(**node)).map(|node| self.index_of(*node)).collect()
    }

    /// The rank of the process that holds the card of a member.
    pub(crate) fn peer_of(&self, node: u32) -> Result<u32> {
        let member = self.group.roster.iter().find(|member| member.node == node);
        member.map(|member| member.peer).ok_or_else(|| {
            let nodes: Vec<_> = self.group.roster.iter().map(|member| member.node.to_string()).collect();
            Error::argument("node", node, format!("the members are nodes {}", nodes.join(", ")))
        })
    }

    /// The deadline of a call that begins now and has no timeout of its own: the shortest that the cards have.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.cards.iter().map(Card::timeout).min().unwrap_or_default())
    }

    /// The error of a wait for programs of which `unfinished` are not done, on a group of these nodes by rank: it names the
    /// rank that the others wait for. For callers that push to the queues themselves. Reads seven registers of each card that
    /// is not done.
    ///
    /// # Panics
    /// If there is no unfinished rank, or the index of a card is out of bounds.
    pub fn timeout(&self, group: &[u32], unfinished: &[Unfinished], waited: Duration) -> Error {
        Late::observe(&self.cards, unfinished, waited).error(group, UNDEFINED)
    }

    /// Index of the card that is node `node`.
    pub(crate) fn index_of(&self, node: u32) -> Result<usize> {
        let index = self.order.binary_search_by_key(&node, |(node, _)| *node).map_err(|_| {
            let held: Vec<_> = self.order.iter().map(|(node, _)| node.to_string()).collect();
            let elsewhere = self.group.roster.iter().find(|member| member.node == node);
            let elsewhere = elsewhere.map_or(String::new(), |member| format!("; rank {} holds it", member.peer));
            Error::argument("node", node, format!("the cards held are nodes {}{elsewhere}", held.join(", ")))
        })?;
        let (name, card) = (&self.order[index].1, &self.cards[index]);
        if card.node() != node || card.name() != &**name {
            let what = format!("{name} was opened as node {node}, and {} is in its place", card.name());
            return Err(Error::Mismatch { node, other: card.node(), what });
        }
        Ok(index)
    }
}

/// Returns `error` of a card of a group of these nodes by rank, with its rank and what was being done. For callers that work on the
/// cards of a [`Cluster`] themselves.
pub fn in_phase(error: Error, group: &[u32], phase: &str) -> Error {
    let rank_of = |node: u32| group.iter().zip(0..).find(|(one, _)| **one == node).map(|(_, rank)| rank);
    match error {
        Error::Timeout { what, node: Some(node), rank: None, instruction, waited, last_seen } => {
            let rank = rank_of(node);
            let whose = rank.map_or(String::new(), |rank| format!(" of rank {rank}"));
            let what = format!("{phase}{whose} on node {node}: {what}");
            Error::Timeout { what, node: Some(node), rank, instruction, waited, last_seen }
        }
        Error::Failed { node, rank: None, instruction, operation, status, detail } => {
            Error::Failed { node, rank: rank_of(node), instruction, operation, status, detail }
        }
        other => other,
    }
}

/// Refuses unless there is one program for each of `nodes`.
pub(crate) fn check_count(programs: usize, nodes: &[u32]) -> Result<()> {
    let ranks = nodes.len();
    let refusal = || Error::argument("programs", programs, format!("one for each of {ranks} ranks"));
    if programs == ranks { Ok(()) } else { Err(refusal()) }
}

/// The node and the program of a rank.
fn of_rank(set: &ProgramSet, rank: u32) -> Result<(u32, &Program)> {
    let mut ranks = set.nodes.iter().zip(&set.programs);
    let expected = || format!("the programs are of {} ranks", set.nodes.len());
    let (node, program) = ranks.nth(rank as usize).ok_or_else(|| Error::argument("rank", rank, expected()))?;
    Ok((*node, program))
}

/// Where `bytes` bytes of a rank's data from `offset` on lie in card memory, in order.
fn clip(pieces: &[Piece], what: &'static str, offset: u64, bytes: usize) -> Result<Vec<(u64, usize)>> {
    let total = pieces.iter().fold(0_u64, |total, piece| total.saturating_add(piece.bytes));
    let refuse =
        || Error::argument(what, format!("{bytes} bytes from {offset}"), format!("the rank has {total} bytes"));
    let end = offset.checked_add(bytes as u64).filter(|end| *end <= total).ok_or_else(refuse)?;
    let mut at = offset;
    let mut ranges = Vec::new();
    let first = pieces.partition_point(|piece| piece.offset.saturating_add(piece.bytes) <= offset);
    for piece in &pieces[first..] {
        if at == end {
            break;
        }
        if piece.bytes == 0 {
            continue;
        }
        let skip = at.checked_sub(piece.offset).ok_or_else(refuse)?;
        let length = piece.bytes.saturating_sub(skip).min(end - at);
        ranges.push((piece.address.checked_add(skip).ok_or_else(refuse)?, length as usize));
        at += length;
    }
    if at == end { Ok(ranges) } else { Err(refuse()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clips_over_pieces() {
        let piece = |offset, address, bytes| Piece { offset, address, bytes };
        let pieces = [piece(0, 1000, 10), piece(10, 5000, 10), piece(20, 200, 10)];
        assert_eq!(clip(&pieces, "input", 0, 30).unwrap(), [(1000, 10), (5000, 10), (200, 10)]);
        assert_eq!(clip(&pieces, "input", 5, 20).unwrap(), [(1005, 5), (5000, 10), (200, 5)]);
        assert_eq!(clip(&pieces, "input", 10, 3).unwrap(), [(5000, 3)]);
        assert_eq!(clip(&pieces, "input", 30, 0).unwrap(), []);
        assert!(clip(&pieces, "input", 25, 6).is_err());
        assert!(clip(&pieces, "input", 31, 0).is_err());
        assert!(clip(&pieces, "input", u64::MAX, 6).is_err());
        assert!(clip(&[], "input", 0, 1).is_err());
        let across_the_end = [piece(0, u64::MAX - 3, 8)];
        assert_eq!(clip(&across_the_end, "input", 3, 1).unwrap(), [(u64::MAX, 1)]);
        assert!(clip(&across_the_end, "input", 4, 4).is_err());
    }
}

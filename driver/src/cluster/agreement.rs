//! What the ranks of a cluster agree on: that all have succeeded so far, and that what must be alike is.

use std::time::Duration;

use cmdseq::plan::ProgramSet;

use crate::cluster::Cluster;
use crate::communicators::roster::{Term, alike, read_terms, write_terms};
use crate::deadline::Deadline;
use crate::error::{Error, PeerFailure, Result};
use crate::peers::message::{Message, Received};
use crate::peers::{Peers, PeersError};

/// Time for the other ranks to reach the same point, beyond what this rank's own call may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Most of an error's text that is sent.
const TEXT_MAX: usize = 4096;

/// How a rank failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failing {
    kind: PeerFailure,
    /// Whether it only gave up because another rank has failed.
    is_secondary: bool,
    message: String,
}

impl Failing {
    pub(crate) fn of(error: &Error) -> Self {
        let mut message = error.to_string();
        let mut next = std::error::Error::source(error);
        while let Some(cause) = next {
            let text = cause.to_string();
            if !message.contains(&text) {
                message += ": ";
                message += &text;
            }
            next = cause.source();
        }
        let end = (0..=TEXT_MAX.min(message.len())).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
        message.truncate(end);
        Failing { kind: error.kind(), is_secondary: matches!(error, Error::Peer { .. }), message }
    }

    /// Whether the rank failed by itself.
    pub(crate) fn is_primary(&self) -> bool {
        !self.is_secondary
    }

    pub(crate) fn write(&self, message: &mut Message) {
        let kind = match self.kind {
            PeerFailure::Failed => 0,
            PeerFailure::Refused => 1,
            PeerFailure::Timeout => 2,
            PeerFailure::Gone => 3,
        };
        message.u8(kind).u8(self.is_secondary.into()).text(&self.message);
    }

    pub(crate) fn read(received: &mut Received<'_>) -> Option<Self> {
        let kind = match received.u8()? {
            0 => PeerFailure::Failed,
            1 => PeerFailure::Refused,
            2 => PeerFailure::Timeout,
            3 => PeerFailure::Gone,
            _ => return None,
        };
        let is_secondary = match received.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Failing { kind, is_secondary, message: received.text()? })
    }
}

/// Returns the error of a call that failed on some ranks, if it did: the own one, unless this rank only gave up because another
/// has failed; else that of the lowest rank that failed by itself.
pub(crate) fn first_failing(own: Option<Error>, all: &[Option<Failing>]) -> Option<Error> {
    if let Some(error) = own
        && !matches!(error, Error::Peer { .. })
    {
        return Some(error);
    }
    let first = |secondary: bool| {
        let mut ranks = (0..).zip(all);
        let found = ranks
            .find_map(|(rank, one)| one.as_ref().filter(|one| one.is_secondary == secondary).map(|one| (rank, one)));
        found.map(|(rank, Failing { kind, message, .. })| Error::Peer { rank, kind: *kind, message: message.clone() })
    };
    first(false).or_else(|| first(true))
}

/// The error of data from `rank` that has another form than this rank's.
pub(crate) fn malformed(rank: usize, what: &str) -> Error {
    Error::Peers(PeersError::Malformed { rank: rank as u32, what: what.to_owned() })
}

/// Reads what each rank has sent.
pub(crate) fn read_all<T>(
    all: &[Vec<u8>],
    what: &str,
    mut read: impl FnMut(&mut Received<'_>) -> Option<T>,
) -> Result<Vec<T>> {
    let one = |(rank, data): (usize, &Vec<u8>)| {
        let mut received = Received(data);
        let value = read(&mut received).filter(|_| received.end().is_some());
        value.ok_or_else(|| malformed(rank, what))
    };
    all.iter().enumerate().map(one).collect()
}

/// Gathers `data` of all ranks, if none of them has failed before: else all ranks end with an error that names it. Returns this
/// rank's outcome, and the data by rank.
pub(crate) fn exchange<T>(
    peers: &mut dyn Peers,
    outcome: Result<T>,
    data: impl FnOnce(&T) -> Message,
    left: Duration,
) -> Result<(T, Vec<Vec<u8>>)> {
    let size = peers.size() as usize;
    let mut message = Message::default();
    match &outcome {
        Ok(value) => {
            message.u8(0).bytes(&data(value).into_bytes());
        }
        Err(error) => {
            peers.raise();
            message.u8(1);
            Failing::of(error).write(&mut message);
        }
    }
    let gathered = match peers.allgather(&message.into_bytes(), left.saturating_add(PATIENCE)) {
        Ok(gathered) if gathered.len() == size => gathered,
        Ok(gathered) => {
            let why = format!("data of {} ranks, expected {size}", gathered.len());
            return outcome.and(Err(malformed(peers.rank() as usize, &why)));
        }
        Err(error) => return outcome.and(Err(Error::Peers(error))),
    };
    let all = read_all(&gathered, "an outcome", |received| match received.u8()? {
        0 => Some(Ok(received.bytes()?.to_vec())),
        1 => Some(Err(Failing::read(received)?)),
        _ => None,
    })?;
    let failing: Vec<Option<Failing>> = all.iter().map(|one| one.as_ref().err().cloned()).collect();
    let (value, own) = match outcome {
        Ok(value) => (Some(value), None),
        Err(error) => (None, Some(error)),
    };
    match (first_failing(own, &failing), value) {
        (None, Some(value)) => Ok((value, all.into_iter().filter_map(std::result::Result::ok).collect())),
        (Some(error), _) => Err(error),
        (None, None) => unreachable!("a failure of this rank is among those of all"),
    }
}

impl Cluster {
    /// Whether this process holds all cards.
    pub(crate) fn is_alone(&self) -> bool {
        self.group.peers.size() == 1
    }

    /// As the free function, within `deadline`.
    pub(crate) fn exchange<T>(
        &mut self,
        outcome: Result<T>,
        data: impl FnOnce(&T) -> Message,
        deadline: Deadline,
    ) -> Result<(T, Vec<Vec<u8>>)> {
        exchange(&mut *self.group.peers, outcome, data, deadline.left())
    }

    /// What connects this process to the other ranks, for callers that have more to agree on.
    pub fn peers(&mut self) -> &mut dyn Peers {
        &mut *self.group.peers
    }

    /// Ends alike on all ranks: with `outcome` if all have succeeded, else with an error on each, [`Error::Peer`] on those that
    /// have not failed themselves. Collective.
    ///
    /// # Errors
    /// That of `outcome`, [`Error::Peer`], and [`Error::Peers`] if the ranks have lost each other.
    pub fn agree<T>(&mut self, outcome: Result<T>) -> Result<T> {
        let deadline = self.deadline();
        self.agree_until(outcome, deadline)
    }

    pub(crate) fn agree_until<T>(&mut self, outcome: Result<T>, deadline: Deadline) -> Result<T> {
        if self.is_alone() {
            return outcome;
        }
        self.exchange(outcome, |_| Message::default(), deadline).map(|(value, _)| value)
    }

    /// Refuses unless `terms`, names and values, are the same on all ranks. Collective.
    ///
    /// # Errors
    /// [`Error::Differs`], the same on all ranks; [`Error::Peers`].
    pub fn compare(&mut self, terms: &[(&str, String)]) -> Result<()> {
        let deadline = self.deadline();
        let terms: Vec<Term> = terms.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        self.compare_until(Ok(()), || terms, deadline)
    }

    /// Agrees on `outcome`, and compares `terms`, which are made only if there are other ranks.
    pub(crate) fn compare_until<T>(
        &mut self,
        outcome: Result<T>,
        terms: impl FnOnce() -> Vec<Term>,
        deadline: Deadline,
    ) -> Result<T> {
        if self.is_alone() {
            return outcome;
        }
        let data = |_: &T| {
            let mut message = Message::default();
            write_terms(&terms(), &mut message);
            message
        };
        let (value, all) = self.exchange(outcome, data, deadline)?;
        let all = read_all(&all, "terms", read_terms)?;
        alike(&all.iter().map(Vec::as_slice).collect::<Vec<_>>()).map(|()| value)
    }

    /// Closes the cards once all ranks are done with them: a card that closes is reset, and drops what its neighbours have sent.
    /// Collective. Dropping a cluster closes its cards at once.
    ///
    /// # Errors
    /// [`Error::Peers`]; the cards are closed then all the same.
    pub fn close(mut self) -> Result<()> {
        self.agree(Ok(()))
    }
}

/// Returns a digest of `set`, to [compare](Cluster::compare) what ranks have planned: of its nodes, instructions, tables,
/// communicators, and of where inputs and outputs are.
pub fn digest(set: &ProgramSet) -> String {
    let mut digest = Fnv::default();
    digest.list(&set.nodes, |digest, node| digest.u64(u64::from(*node)));
    digest.list(&set.communicators, |digest, one| {
        digest.u64(u64::from(one.id));
        digest.list(&one.members, |digest, node| digest.u64(u64::from(*node)));
    });
    digest.list(&set.programs, |digest, program| {
        digest.list(&program.instructions, |digest, one| digest.bytes(&one.with_tag(0).encode()));
        for pieces in [&program.input, &program.output] {
            digest.list(pieces, |digest, piece| {
                [piece.offset, piece.address, piece.bytes].into_iter().for_each(|one| digest.u64(one));
            });
        }
        for (slot, table) in &program.tables {
            digest.u64(u64::from(*slot));
            digest.bytes(&table.encode());
        }
    });
    format!("{:016x}", digest.0)
}

/// The hash FNV-1a of 64 bits (G. Fowler, L. C. Noll, K.-P. Vo): the same on every machine. It finds mistakes, not attacks.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    fn list<T>(&mut self, of: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.u64(of.len() as u64);
        of.iter().for_each(|one| each(self, one));
    }
}

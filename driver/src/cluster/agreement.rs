//! What the ranks of a cluster agree on: that all have succeeded so far, and that what must be alike is.

use std::time::Duration;

use cmdseq::plan::ProgramSet;
use cmdseq::text::with_causes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::communicators::roster::{Term, alike};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::peers::{Peers, PeersError, message};

/// Time for the other ranks to reach the same point, beyond what this rank's own call may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Most of an error's text that is sent.
const TEXT_MAX: usize = 4096;

/// How a rank failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failing {
    kind: ErrorKind,
    /// Whether it only gave up because another rank has failed.
    is_secondary: bool,
    message: String,
}

impl Failing {
    pub(crate) fn of(error: &Error) -> Self {
        let mut message = with_causes(error);
        let end = (0..=TEXT_MAX.min(message.len())).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
        message.truncate(end);
        Failing { kind: error.kind(), is_secondary: matches!(error, Error::Peer { .. }), message }
    }
}

/// Ends a call of all ranks with `own`, or if it failed on some, with its error: the own one, unless this rank only gave up because
/// another has failed; else that of the lowest rank that failed by itself.
pub(crate) fn agreed<T>(own: Result<T>, all: &[Option<Failing>]) -> Result<T> {
    let first = |secondary: bool| {
        let mut ranks = (0..).zip(all);
        let found = ranks
            .find_map(|(rank, one)| one.as_ref().filter(|one| one.is_secondary == secondary).map(|one| (rank, one)));
        found.map(|(rank, Failing { kind, message, .. })| Error::Peer { rank, kind: *kind, message: message.clone() })
    };
    let failed = || first(false).or_else(|| first(true));
    match own {
        Ok(value) => failed().map_or(Ok(value), Err),
        Err(own @ Error::Peer { .. }) => Err(failed().unwrap_or(own)),
        Err(own) => Err(own),
    }
}

/// The error of data from `rank` that has another form than this rank's.
pub(crate) fn malformed(rank: usize, what: &str) -> Error {
    Error::Peers(PeersError::Malformed { rank: rank as u32, what: what.to_owned() })
}

/// Sends `told` to all ranks, and returns what each has sent. A rank that `has_failed` tells the others at once, which may still be
/// at work. They may take as long as [`PATIENCE`] beyond `left`. A single rank gets its own back.
///
/// # Errors
/// [`Error::Peers`].
pub(crate) fn gather<T: Serialize + DeserializeOwned>(
    peers: &mut dyn Peers,
    told: T,
    has_failed: bool,
    left: Duration,
) -> Result<Vec<T>> {
    if peers.size() == 1 {
        return Ok(vec![told]);
    }
    if has_failed {
        peers.raise();
    }
    let all = peers.allgather(&message::bytes(&told), left.saturating_add(PATIENCE)).map_err(Error::Peers)?;
    if all.len() != peers.size() as usize {
        let what = format!("data of {} ranks, expected {}", all.len(), peers.size());
        return Err(malformed(peers.rank() as usize, &what));
    }
    let ranks = all.iter().enumerate();
    ranks.map(|(rank, data)| message::read(data).ok_or_else(|| malformed(rank, "an outcome"))).collect()
}

/// Gathers `data` of all ranks, if none of them has failed before: else all ranks end with an error that names it. Returns this
/// rank's outcome, and the data by rank.
pub(crate) fn exchange<T, D: Serialize + DeserializeOwned>(
    peers: &mut dyn Peers,
    outcome: Result<T>,
    data: impl FnOnce(&T) -> D,
    left: Duration,
) -> Result<(T, Vec<D>)> {
    let told = outcome.as_ref().map(data).map_err(Failing::of);
    let all: Vec<std::result::Result<D, Failing>> = match gather(peers, told, outcome.is_err(), left) {
        Ok(all) => all,
        Err(error) => return outcome.and(Err(error)),
    };
    let failing: Vec<Option<Failing>> = all.iter().map(|one| one.as_ref().err().cloned()).collect();
    let value = agreed(outcome, &failing)?;
    Ok((value, all.into_iter().filter_map(std::result::Result::ok).collect()))
}

impl Cluster {
    /// Whether this process holds all cards.
    pub(crate) fn is_alone(&self) -> bool {
        self.group.peers.size() == 1
    }

    /// As the free function, within `deadline`.
    pub(crate) fn exchange<T, D: Serialize + DeserializeOwned>(
        &mut self,
        outcome: Result<T>,
        data: impl FnOnce(&T) -> D,
        deadline: Deadline,
    ) -> Result<(T, Vec<D>)> {
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
        self.exchange(outcome, |_| (), deadline).map(|(value, _)| value)
    }

    /// Refuses unless `terms`, names and values, and the cards' eager limits are the same on all ranks. Collective.
    ///
    /// # Errors
    /// [`Error::Differs`], the same on all ranks; [`Error::Peers`].
    pub fn compare(&mut self, terms: &[(&str, String)]) -> Result<()> {
        let deadline = self.deadline();
        let terms: Vec<Term> = terms.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        self.compare_until(Ok(()), || terms, deadline)
    }

    /// Agrees on `outcome`, and compares `terms`, which are made only if there are other ranks, and the cards' eager limits: a reset or
    /// a rank may have changed one since the cluster was made.
    pub(crate) fn compare_until<T>(
        &mut self,
        outcome: Result<T>,
        terms: impl FnOnce() -> Vec<Term>,
        deadline: Deadline,
    ) -> Result<T> {
        if self.is_alone() {
            return outcome;
        }
        let limit = ("eager_limit".to_owned(), self.capabilities().eager_limit.to_string());
        let terms = |_: &T| [vec![limit], terms()].concat();
        let (value, all) = self.exchange(outcome, terms, deadline)?;
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
        digest.u64(program.tables.len() as u64);
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

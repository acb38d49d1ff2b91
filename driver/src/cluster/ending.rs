//! How programs ended: alike on all ranks. If they have failed on one, the cards of all are aborted together.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::card::Card;
use crate::cluster::agreement::{Failing, agreed, gather, malformed};
use crate::cluster::blame::{Late, Seen, Unfinished};
use crate::cluster::ranks::Ended;
use crate::cluster::{Cluster, UNDEFINED, ranks};
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// How programs ended on the cards held here.
#[derive(Debug)]
pub(crate) struct Ending {
    /// The failure of the lowest rank held here that failed.
    pub(crate) failed: Result<()>,
    /// The error of a card or a bus.
    pub(crate) ended: Result<()>,
    /// Ranks held here that were not done in time.
    pub(crate) late: Option<Late>,
    /// Whether no card held here needs an abort for what ran there.
    pub(crate) is_clean: bool,
}

/// Returns the error of a run that ended so, and the ranks that were not done in time.
pub(crate) fn of_run(
    cards: &[Card],
    ran: Result<Ended>,
    unfinished: impl Iterator<Item = Unfinished>,
    deadline: Deadline,
) -> (Result<()>, Option<Late>) {
    match ran {
        Ok(Ended::Done) => (Ok(()), None),
        Ok(Ended::Late) => {
            let unfinished: Vec<_> = unfinished.collect();
            (Ok(()), Some(Late::observe(cards, &unfinished, deadline.waited())))
        }
        Err(error) => (Err(error), None),
    }
}

impl Ending {
    fn needs_abort(&self) -> bool {
        !self.is_clean || self.ended.is_err() || self.late.is_some()
    }
}

/// What a rank tells the others of its end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Told<D> {
    needs_abort: bool,
    pub(crate) failing: Option<Failing>,
    pub(crate) seen: Vec<Seen>,
    pub(crate) data: D,
}

impl<D> Told<D> {
    pub(crate) fn is_complete(&self) -> bool {
        !self.needs_abort && self.failing.is_none()
    }

    /// Whether it gives a reason for an abort, if it asks for one.
    fn is_reasoned(&self) -> bool {
        !self.needs_abort || self.failing.is_some() || !self.seen.is_empty()
    }
}

/// Returns the error of a rank that has lost the others by `error`: its `own`, unless it only gave up because another has failed.
fn rather(own: Option<Error>, error: Error) -> Error {
    own.filter(|own| !matches!(own, Error::Peer { .. })).unwrap_or(error)
}

impl Cluster {
    /// Ends a run alike on all ranks, and returns the `data` of each. If it has failed on one, the cards with these indices, and those
    /// of the other ranks, are aborted together. `group` are the nodes by rank.
    pub(crate) fn conclude<D: Serialize + DeserializeOwned>(
        &mut self,
        group: &[u32],
        indices: &[usize],
        ending: Ending,
        data: D,
        deadline: Deadline,
    ) -> Result<Vec<D>> {
        let (own, all) = match self.tell(ending, data, deadline) {
            Ok(told) => told,
            Err(error) => {
                self.stop_without_others(indices);
                return Err(error);
            }
        };
        if all.iter().all(Told::is_complete) {
            return Ok(all.into_iter().map(|told| told.data).collect());
        }
        let waited = deadline.waited();
        let (stuck, aborted) = match all.iter().any(|told| told.needs_abort) {
            true => match self.abort_together(indices) {
                Ok(aborted) => aborted,
                Err(error) => return Err(rather(own, error)),
            },
            false => (Vec::new(), Ok(())),
        };
        let failing: Vec<Option<Failing>> = all.iter().map(|told| told.failing.clone()).collect();
        let seen: Vec<Seen> = all.into_iter().flat_map(|told| told.seen).collect();
        if failing.iter().all(Option::is_none) {
            let mut late = Late::together(seen, waited);
            late.note_stuck(|node| stuck.contains(&node));
            return Err(late.error(group, UNDEFINED));
        }
        agreed(own.map_or(Ok(()), Err), &failing).and(aborted).map(|()| Vec::new())
    }

    /// Tells the other ranks how programs ended here, with `data`. Returns the error of this rank, if there is one, and what each rank
    /// has told.
    ///
    /// # Errors
    /// The error of this rank, or else [`Error::Peers`].
    pub(crate) fn tell<D: Serialize + DeserializeOwned>(
        &mut self,
        ending: Ending,
        data: D,
        deadline: Deadline,
    ) -> Result<(Option<Error>, Vec<Told<D>>)> {
        let needs_abort = ending.needs_abort();
        let Ending { failed, ended, late, .. } = ending;
        let (seen, gone) = match late.map(Late::into_seen) {
            None => (Vec::new(), Ok(())),
            Some(Ok(seen)) => (seen, Ok(())),
            Some(Err(error)) => (Vec::new(), Err(error)),
        };
        let own = failed.and(ended).and(gone).err();
        let told = Told { needs_abort, failing: own.as_ref().map(Failing::of), seen, data };
        let has_failed = !told.is_complete();
        let all = gather(&mut *self.group.peers, told, has_failed, deadline.left());
        let reasoned = all.and_then(|all| match all.iter().position(|told| !told.is_reasoned()) {
            None => Ok(all),
            Some(rank) => Err(malformed(rank, "an end")),
        });
        match reasoned {
            Ok(all) => Ok((own, all)),
            Err(error) => Err(rather(own, error)),
        }
    }

    /// Stops the cards with these indices for good: without the other ranks they must not go on.
    pub(crate) fn stop_without_others(&mut self, indices: &[usize]) {
        if let (_, Err(error)) = ranks::stop(&mut self.cards, indices.iter().copied()) {
            log::warn!("stop: {error}");
        }
    }

    /// Aborts the cards with these indices together with those of all other ranks: all cards are stopped before the first goes on. See
    /// [`Card::abort`](crate::Card::abort). Collective.
    ///
    /// # Errors
    /// [`Error::BadArgument`] if there is no card with an index, and nothing is stopped here. The first card's that could not be
    /// aborted: it takes nothing more before it is reset. [`Error::Peer`] and [`Error::Peers`], after which the cards stay stopped.
    pub fn abort(&mut self, indices: impl IntoIterator<Item = usize>) -> Result<()> {
        let indices: Vec<usize> = indices.into_iter().collect();
        if let Some(index) = indices.iter().find(|index| **index >= self.cards.len()) {
            let error = Error::argument("card index", index, format!("less than {}", self.cards.len()));
            // The other ranks wait for which cards are stuck here.
            let deadline = Deadline::after(Duration::ZERO);
            return self.exchange(Err::<Vec<u32>, _>(error), Vec::clone, deadline).map(drop);
        }
        self.abort_together(&indices).and_then(|(_, aborted)| aborted)
    }

    /// Returns the nodes, on all ranks, whose cards could not be stopped.
    fn abort_together(&mut self, indices: &[usize]) -> Result<(Vec<u32>, Result<()>)> {
        let (stopped, outcome) = ranks::stop(&mut self.cards, indices.iter().copied());
        let stuck = self.stuck_of(indices, &stopped);
        let deadline = Deadline::after(Duration::ZERO);
        let (_, all) = self.exchange(Ok(stuck), Vec::clone, deadline)?;
        let stuck = all.concat();
        let restarted = ranks::restart(&mut self.cards, stopped);
        // Whoever goes on sends to cards that have dropped what came before.
        let aborted = self.agree_until(outcome.and(restarted), deadline);
        if let Err(error) = &aborted {
            log::warn!("abort: {error}");
        }
        Ok((stuck, aborted))
    }

    fn stuck_of(&self, indices: &[usize], stopped: &[usize]) -> Vec<u32> {
        indices.iter().filter(|index| !stopped.contains(index)).map(|index| self.cards[*index].node()).collect()
    }
}

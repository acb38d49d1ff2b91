//! Launches that need their cards for themselves, because a one-sided operation of theirs can reach a card that runs something else.
//!
//! Such a launch claims all cards of its schedule, also those on which it runs nothing: their memory is reached too. It is refused
//! unless nothing is in flight there, which all ranks agree on. Until it is finished, whatever else would run on a claimed card is
//! refused.

use std::sync::Arc;

use cmdseq::{Reason, Refusal};

use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::ledger::claims::Claim;
use crate::ledger::state::State;

impl Cluster {
    /// Claims the cards `nodes` for a launch of the schedule that has `pin`. Collective.
    ///
    /// # Errors
    /// [`Error::Refused`] if a card is claimed, or something is in flight there, and on the other ranks [`Error::Peer`]; then nothing has
    /// changed.
    pub(crate) fn claim(&mut self, nodes: &[u32], why: &Refusal, pin: &Arc<()>) -> Result<()> {
        let deadline = self.deadline();
        let is_free =
            self.end_dropped_claims().and_then(|()| match self.claim_on(nodes).is_none() && self.is_idle(nodes)? {
                true => Ok(()),
                false => Err(Error::Refused(why.clone())),
            });
        self.agree_until(is_free, deadline)?;
        self.claims.push(Claim::new(nodes, why, pin));
        Ok(())
    }

    /// Takes back the claim of the schedule that has `pin`, if it has one.
    pub(crate) fn unclaim(&mut self, pin: &Arc<()>) {
        self.claims.retain(|claim| !claim.is_of(pin));
    }

    /// Refuses what would run on the cards `nodes` if a launch in flight needs one of them for itself.
    ///
    /// # Errors
    /// [`Error::Refused`].
    #[inline]
    pub(crate) fn check_unclaimed(&mut self, nodes: &[u32]) -> Result<()> {
        if self.claims.is_empty() { Ok(()) } else { self.refuse_claimed(nodes) }
    }

    #[cold]
    fn refuse_claimed(&mut self, nodes: &[u32]) -> Result<()> {
        self.end_dropped_claims()?;
        match self.claim_on(nodes) {
            None => Ok(()),
            Some((node, Claim { why, .. })) => {
                let cause = format!("a launch in flight needs node {node} for itself until it is finished: its {why}");
                Err(Error::Refused(Refusal::general(cause).because(Reason::Race)))
            }
        }
    }

    /// Returns the first claim of one of `nodes`, and which node it is.
    fn claim_on(&self, nodes: &[u32]) -> Option<(u32, &Claim)> {
        let claimed = |claim: &Claim| claim.nodes.iter().copied().find(|node| nodes.contains(node));
        self.claims.iter().find_map(|claim| claimed(claim).map(|node| (node, claim)))
    }

    /// Ends claims of dropped schedules whose cards are held here and have nothing in flight. Those on cards of other processes end when
    /// windows are closed, for which all ranks agree.
    fn end_dropped_claims(&mut self) -> Result<()> {
        let mut claims = std::mem::take(&mut self.claims);
        let mut outcome = Ok(());
        claims.retain(|claim| {
            if !claim.is_dropped() || !claim.nodes.iter().all(|node| self.holds(*node)) {
                return true;
            }
            let is_idle = self.is_idle(&claim.nodes);
            let is_over = matches!(is_idle, Ok(true));
            outcome = std::mem::replace(&mut outcome, Ok(())).and(is_idle.map(drop));
            !is_over
        });
        self.claims = claims;
        outcome
    }

    /// Whether nothing is in flight on those of the cards `nodes` that are held here and run: what another has in flight ends when it
    /// is reset.
    pub(crate) fn is_idle(&mut self, nodes: &[u32]) -> Result<bool> {
        for index in self.here(nodes)? {
            let queue = self.card_mut(index).queue_mut();
            if queue.state() != State::Running {
                continue;
            }
            let _ = queue.poll()?;
            if queue.in_flight() > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

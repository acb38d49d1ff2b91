//! Programs of several ranks that run at the same time, each on its card: watched together, with one deadline.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use cmdseq::{Completion, Operation};

use crate::card::Card;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::ledger::state::State;
use crate::ledger::token::Token;
use crate::peers::Peers;
use crate::queue::{QueuePair, check};
use crate::sequencer::block::STOP;

/// Time for other ranks to end after one has failed: their own failures tell more than that they were aborted.
const GRACE: Duration = Duration::from_millis(50);
/// Longest sleep on one card: another may have room in its ring meanwhile, or may have failed.
const SLEEP: Duration = Duration::from_millis(2);

/// The run of one rank's program on its card.
pub(crate) trait RankRun {
    /// What all ranks count together.
    type Shared;

    /// Index of the card in the cluster.
    fn card(&self) -> usize;

    /// Takes completions and stores instructions without waiting. Returns whether a rank can go on at once: this one, because
    /// its instructions are not rung yet, or another, because it waits for the count of this one.
    fn advance(&mut self, card: &mut Card, shared: &mut Self::Shared) -> Result<bool>;

    /// Whether all completions were taken.
    fn is_done(&self) -> bool;

    /// Whether a completion has a status other than done.
    fn has_failed(&self) -> bool;
}

/// How [`run`] ended, if no card and no bus failed as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All ranks are done; or one has failed, and the others had [`GRACE`] to end.
    Done,
    /// Not all ranks here are done: the deadline has passed, or one of the other processes has given up or is gone.
    Late,
}

/// Rings every card and takes completions until all ranks are done, [`GRACE`] after a failure here or of one of `peers`, or until the
/// deadline.
pub(crate) fn run<R: RankRun>(
    cards: &mut [Card],
    ranks: &mut [R],
    shared: &mut R::Shared,
    peers: &mut dyn Peers,
    deadline: Deadline,
) -> Result<Ended> {
    let mut failed_at = None;
    let mut is_raised = false;
    let mut sleeper = 0;
    loop {
        // Whatever has come by the deadline counts: an access to a mock card can take longer than all of its work.
        let (is_last, mut goes_on) = (deadline.left().is_zero(), false);
        for rank in ranks.iter_mut() {
            let card = &mut cards[rank.card()];
            card.queue_mut().ring()?;
            goes_on |= rank.advance(card, shared)?;
        }
        if ranks.iter().all(RankRun::is_done) {
            return Ok(Ended::Done);
        }
        let now = Instant::now();
        if failed_at.is_none() && ranks.iter().any(RankRun::has_failed) {
            failed_at = Some(now);
        }
        if failed_at.is_some_and(|at| now.duration_since(at) >= GRACE) {
            return Ok(if is_raised { Ended::Late } else { Ended::Done });
        }
        if is_last {
            return Ok(Ended::Late);
        }
        if goes_on {
            continue;
        }
        if failed_at.is_none() && peers.raised().is_some() {
            (is_raised, failed_at) = (true, Some(now));
        }
        // Every unfinished card in turn, so that one that is gone or halted is found out.
        sleeper =
            (1..=ranks.len()).map(|step| (sleeper + step) % ranks.len()).find(|i| !ranks[*i].is_done()).unwrap_or(0);
        cards[ranks[sleeper].card()].queue_mut().wait_progress(deadline.left().min(SLEEP))?;
    }
}

/// Gives `take` the completions that have come, in the order of `tokens`, and removes their tokens.
pub(crate) fn collect(
    queue: &mut QueuePair,
    tokens: &mut VecDeque<Token>,
    mut take: impl FnMut(Completion),
) -> Result<()> {
    queue.poll()?;
    while let Some(token) = tokens.pop_front() {
        match queue.take(token)? {
            Ok(completion) => take(completion),
            Err(token) => {
                tokens.push_front(token);
                break;
            }
        }
    }
    Ok(())
}

/// Whether the next instruction of a rank with these `tokens` is to be pushed: if there is room; and if only tokens that the caller keeps
/// fill the queue, because then none comes by waiting, and the push fails with [`Error::Full`].
pub(crate) fn may_push(queue: &mut QueuePair, tokens: &VecDeque<Token>) -> bool {
    queue.has_room() || (tokens.is_empty() && queue.in_flight() == 0)
}

/// Returns the failure of instruction `index` of a rank on `node`, if it is one.
pub(crate) fn failure(
    (rank, node): (u32, u32),
    index: usize,
    operation: Operation,
    completion: Completion,
) -> Option<Error> {
    match check(completion, node, index, operation) {
        Err(Error::Failed { node, instruction, operation, status, detail, .. }) => {
            Some(Error::Failed { node, rank: Some(rank), instruction, operation, status, detail })
        }
        _ => None,
    }
}

/// Returns the failure of the lowest rank. `failure` returns that of one rank, an abort only if it is called with true: an abort
/// is reported only if no rank failed otherwise.
pub(crate) fn first_failure<R>(ranks: &[R], failure: impl Fn(&R, bool) -> Option<Error>) -> Result<()> {
    let first = |is_abort_too| ranks.iter().find_map(|rank| failure(rank, is_abort_too));
    first(false).or_else(|| first(true)).map_or(Ok(()), Err)
}

/// Stops the cards with these indices together: all are told to stop before the first is waited for, within one deadline. Returns the
/// indices of those that have stopped.
///
/// # Errors
/// The first card's that could not be stopped, or that needed a reset before: it takes nothing more until it is reset.
pub(crate) fn stop(cards: &mut [Card], indices: impl Iterator<Item = usize>) -> (Vec<usize>, Result<()>) {
    let mut outcome = Ok(());
    let mut told = Vec::new();
    for index in indices {
        let queue = cards[index].queue();
        match queue.needs_reset() {
            true => outcome = outcome.and(Err(queue.refusal())),
            false => told.push((index, queue.request_stop())),
        }
    }
    let deadline = Deadline::after(STOP);
    let mut stopped = Vec::with_capacity(told.len());
    for (index, told) in told {
        match cards[index].queue_mut().await_stop(told, deadline) {
            State::Stopped => stopped.push(index),
            _ => outcome = outcome.and(Err(cards[index].queue().refusal())),
        }
    }
    (stopped, outcome)
}

/// Starts cards again that have stopped. Each drops what the others have sent, so all of them must have stopped before.
pub(crate) fn restart(cards: &mut [Card], stopped: Vec<usize>) -> Result<()> {
    let mut outcome = Ok(());
    for index in stopped {
        outcome = outcome.and(cards[index].abort());
    }
    outcome
}

//! Several cards at work on one thing: watched together, with one deadline.

use std::time::{Duration, Instant};

use crate::card::Card;
use crate::deadline::Deadline;
use crate::error::Result;
use crate::queue_state::State;
use crate::stopping::STOP;

/// How long other ranks may go on after one has failed: their own failures tell more than that they were aborted.
const GRACE: Duration = Duration::from_millis(20);
/// How long to sleep on one card while others may need their rings filled, and while none does.
const SLEEP_FILLING: Duration = Duration::from_millis(1);
const SLEEP: Duration = Duration::from_millis(10);

/// One card's part.
pub(crate) trait Lane {
    /// What all lanes count together.
    type Shared;

    /// Index of the card.
    fn place(&self) -> usize;
    /// Goes on without waiting, and says whether anything has changed.
    fn advance(&mut self, card: &mut Card, shared: &mut Self::Shared) -> Result<bool>;
    fn is_done(&self) -> bool;
    fn has_failed(&self) -> bool;
    /// Whether there is more to put into the ring.
    fn is_filling(&self) -> bool;
}

/// How [`run`] ended, if nothing went wrong with the bus or a card as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All lanes are done, or some have failed and the others had time to.
    Done,
    /// Time is up.
    Late,
}

/// Rings every card and takes completions until there is no more to wait for, or the deadline has passed.
pub(crate) fn run<L: Lane>(
    cards: &mut [Card],
    lanes: &mut [L],
    shared: &mut L::Shared,
    deadline: Deadline,
) -> Result<Ended> {
    let mut failed_at = None;
    let mut sleeper = 0;
    loop {
        let mut progress = false;
        for lane in lanes.iter_mut() {
            let card = &mut cards[lane.place()];
            card.queue_mut().ring()?;
            progress |= lane.advance(card, shared)?;
        }
        if lanes.iter().all(Lane::is_done) {
            return Ok(Ended::Done);
        }
        let now = Instant::now();
        if failed_at.is_none() && lanes.iter().any(Lane::has_failed) {
            failed_at = Some(now);
        }
        if failed_at.is_some_and(|at| now.duration_since(at) >= GRACE) {
            return Ok(Ended::Done);
        }
        let left = deadline.left();
        if left.is_zero() {
            return Ok(Ended::Late);
        }
        if progress {
            continue;
        }
        let filling = lanes.iter().any(Lane::is_filling);
        let time = if filling || failed_at.is_some() { SLEEP_FILLING } else { SLEEP };
        // Every unfinished card in turn, so that one that is gone or halted is found out.
        sleeper =
            (1..=lanes.len()).map(|step| (sleeper + step) % lanes.len()).find(|i| !lanes[*i].is_done()).unwrap_or(0);
        cards[lanes[sleeper].place()].queue_mut().wait_progress(left.min(time))?;
    }
}

/// Aborts these cards together: what one of them no longer runs, the others would wait for. All are told to stop before the
/// first is waited for, within one deadline, and each is stopped before any goes on. Then each drops what the others have
/// still sent.
///
/// # Errors
/// The first card's that could not be aborted: it takes nothing more before it is reset.
pub(crate) fn abort(cards: &mut [Card], places: impl Iterator<Item = usize>) -> Result<()> {
    let told: Vec<_> = places.map(|place| (place, cards[place].queue().request_stop())).collect();
    let deadline = Deadline::after(STOP);
    let mut outcome = Ok(());
    let mut stopped = Vec::with_capacity(told.len());
    for (place, told) in told {
        match cards[place].queue_mut().await_stop(told, deadline) {
            State::Stopped => stopped.push(place),
            _ => outcome = outcome.and(Err(cards[place].queue().refusal())),
        }
    }
    for place in stopped {
        outcome = outcome.and(cards[place].abort());
    }
    if let Err(error) = &outcome {
        log::warn!("abort: {error}");
    }
    outcome
}

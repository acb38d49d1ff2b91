//! When each card issues its instructions: in order, and after those that they wait for (`docs/isa.md`, Lanes).

use super::clock::Clock;
use crate::cost::Moment;
use crate::matching::{Claim, Job, Lanes};

/// The issues of all cards.
pub(super) struct Issues<'a> {
    clock: &'a Clock<'a>,
    lanes: Lanes<'a>,
    cards: Vec<Card>,
}

#[derive(Default)]
struct Card {
    /// Index of the next instruction to be issued.
    next: usize,
    /// When the next may be issued, but for what it waits for.
    ready: Moment,
    /// Issued, and not known to be over by one issued later.
    running: Vec<Running>,
}

struct Running {
    index: usize,
    claim: Claim,
    issue: Moment,
    /// Known once its step is timed.
    end: Moment,
}

impl<'a> Issues<'a> {
    pub(super) fn new(clock: &'a Clock<'a>, job: Job<'a>) -> Self {
        Issues { clock, lanes: Lanes::new(job), cards: job.programs.iter().map(|_| Card::default()).collect() }
    }

    /// Returns when instruction `index` of `rank` is issued. All that it waits for has ended, and `end` was told.
    pub(super) fn of(&mut self, rank: usize, index: usize) -> Moment {
        let card = &mut self.cards[rank];
        for index in card.next..=index {
            let claim = self.lanes.claim(rank, index);
            let mut issue = card.ready;
            card.running.retain(|earlier| {
                let waits = claim.waits_for(&earlier.claim);
                if waits {
                    issue = issue.max(self.clock.issued_after(earlier.end));
                }
                !waits
            });
            card.running.push(Running { index, claim, issue, end: issue });
            card.ready = self.clock.dispatched(issue, 0);
            card.next = index + 1;
        }
        card.running.iter().find(|one| one.index == index).map_or(card.ready, |one| one.issue)
    }

    /// Tells when instruction `index` of `rank` ended.
    pub(super) fn end(&mut self, rank: usize, index: usize, end: Moment) {
        if let Some(ended) = self.cards[rank].running.iter_mut().find(|one| one.index == index) {
            ended.end = end;
        }
    }
}

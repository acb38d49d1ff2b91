//! Advances virtual time, from event to event.

use crate::engine::Agenda;
use crate::model::host_dma::HostWork;
use crate::proto::optweb::lane::LaneId;
use crate::world::{Core, Event, Pace};

impl Core {
    /// Advances time until no event is left or host memory is pending: now, or on the clock's thread.
    pub(crate) fn run(&mut self) {
        match self.pace {
            Pace::Access => while self.run_some(usize::MAX) {},
            Pace::Idle => self.pace = Pace::Due,
            Pace::Due | Pace::Stop => {}
        }
    }

    /// Ends the fabric after a panic of the model: all cards are gone, and no event runs.
    pub(crate) fn give_up(&mut self) {
        for card in &mut self.cards {
            card.freeze();
            card.is_gone = true;
        }
        self.agenda = Agenda::default();
        self.moving = None;
        self.has_failed = true;
    }

    /// Handles up to `events` events, fewer if they move much data. Returns `false` if no event is left or host memory is
    /// pending.
    pub(crate) fn run_some(&mut self, events: usize) -> bool {
        for _ in 0..events {
            if self.has_failed {
                return false;
            }
            if !self.go_on_moving() || self.has_held_enough() {
                return true;
            }
            match self.run_host_dma() {
                HostWork::None => {}
                HostWork::More => continue,
                HostWork::Pending => return false,
            }
            let next = self.agenda.next_at();
            if self.rates.is_unsettled() && next.is_none_or(|at| at > self.now) {
                let mut ends = std::mem::take(&mut self.ends);
                self.rates.settle(self.now, &mut ends);
                for (at, id) in ends.drain(..) {
                    self.schedule(at, Event::StreamEnds(id));
                }
                self.ends = ends;
                continue;
            }
            let Some((at, event)) = self.agenda.take() else { return false };
            self.now = self.now.max(at);
            self.statistics.events += 1;
            self.handle(event);
        }
        true
    }

    pub(crate) fn handle(&mut self, event: Event) {
        let is_current = |core: &Core, at: LaneId, epoch: u64| core.lane(at).epoch == epoch;
        match event {
            Event::StreamEnds(id) => {
                if let Some(purpose) = self.rates.finish(id) {
                    self.stream_ended(purpose);
                }
            }
            Event::Issue { card, epoch } if self.cards[card].epoch == epoch => self.issue(card),
            Event::Step { at, epoch, step } if is_current(self, at, epoch) => self.step(at, step),
            Event::Arrival { at, port, session, what } => self.arrived(at, port as usize, session, what),
            Event::BufferedCounted { at, epoch, port } if is_current(self, at, epoch) => {
                self.buffered_counted(at, port);
            }
            Event::Switches => self.run_switches(),
            Event::TransformEnds => self.transform_ended(),
            Event::ReplyBegins(id) => self.reply_begins(id),
            Event::Strike(fault) => self.strike(fault),
            Event::LinkUp { a, b } => self.link_up(a, b),
            Event::Unanswered { number } => self.completion_timeout(number),
            Event::Posted { card, number } => self.posted_due(card, number),
            Event::ResetGoesOn { card, epoch } if self.cards[card].epoch == epoch => self.reset_goes_on(card),
            Event::Issue { .. } | Event::Step { .. } | Event::BufferedCounted { .. } | Event::ResetGoesOn { .. } => {}
        }
    }
}

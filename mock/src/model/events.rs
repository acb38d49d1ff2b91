//! Advances virtual time, from event to event.

use crate::engine::Agenda;
use crate::environment::Pace;
use crate::event::Event;
use crate::model::host_dma::HostWork;
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::stream::StreamPurpose;
use crate::world::Core;

impl Core {
    /// Advances time until no event is left or host memory is pending: now, or on the clock's thread.
    pub(crate) fn run(&mut self) {
        match self.env.pace {
            Pace::Access => while self.run_some(usize::MAX) {},
            Pace::Idle => self.env.pace = Pace::Due,
            Pace::Due | Pace::Stop => {}
        }
    }

    /// Ends the fabric after a panic of the model: all cards are gone, and no event runs.
    pub(crate) fn give_up(&mut self) {
        for card in &mut self.cards {
            card.freeze();
            card.is_gone = true;
        }
        (self.env.agenda, self.env.strikes) = (Agenda::default(), 0);
        self.env.moving = None;
        self.has_failed = true;
    }

    /// Handles up to `events` events, fewer if they move much data. Returns `false` if no event is left but planted faults, or host memory
    /// is pending.
    pub(crate) fn run_some(&mut self, events: usize) -> bool {
        for _ in 0..events {
            if self.has_failed {
                return false;
            }
            if !self.go_on_moving() || self.env.has_held_enough() {
                return true;
            }
            match self.run_host_dma() {
                HostWork::None => {}
                HostWork::More => continue,
                HostWork::Pending => return false,
            }
            let next = self.env.agenda.next_at();
            if self.env.rates.is_unsettled() && next.is_none_or(|at| at > self.env.now) {
                let mut ends = std::mem::take(&mut self.ends);
                self.env.rates.settle(self.env.now, &mut ends);
                for (at, id) in ends.drain(..) {
                    self.env.schedule(at, Event::StreamEnds(id));
                }
                self.ends = ends;
                continue;
            }
            // A fault that comes later waits until the cards have been at work for so long.
            if self.env.strikes > 0 && self.env.agenda.len() == self.env.strikes {
                return false;
            }
            let Some((at, event)) = self.env.agenda.take() else { return false };
            self.env.now = self.env.now.max(at);
            self.env.statistics.events += 1;
            self.handle(event);
        }
        true
    }

    pub(crate) fn handle(&mut self, event: Event) {
        let is_current = |core: &Core, at: LaneId, epoch: u64| core.cards[at.card].lanes[at.lane].epoch == epoch;
        match event {
            Event::StreamEnds(id) => {
                if let Some(purpose) = self.env.rates.finish(id) {
                    self.stream_ended(purpose);
                }
            }
            Event::Issue { card, epoch } if self.cards[card].epoch == epoch => self.on(card).issue(),
            Event::Step { at, epoch, step } if is_current(self, at, epoch) => self.on(at.card).step(at, step),
            Event::Arrival { at, port, session, what } => self.on(at.card).arrived(at, port as usize, session, what),
            Event::BufferedCounted { at, epoch, port } if is_current(self, at, epoch) => {
                self.on(at.card).buffered_counted(at, port);
            }
            Event::Switches => self.run_switches(),
            Event::TransformEnds { number } => self.transform_ended(number),
            Event::ReplyBegins(id) => self.on(id.at.card).reply_begins(id),
            Event::Strike(fault) => {
                self.env.strikes -= 1;
                self.strike(fault);
            }
            Event::LinkUp { a, b } => self.link_up(a, b),
            Event::Unanswered { number } => self.completion_timeout(number),
            Event::Posted { card, number } => self.posted_due(card, number),
            Event::ResetGoesOn { card, epoch } if self.cards[card].epoch == epoch => self.reset_goes_on(card),
            Event::Issue { .. } | Event::Step { .. } | Event::BufferedCounted { .. } | Event::ResetGoesOn { .. } => {}
        }
    }

    /// A stream has moved its last byte, or its first part has.
    fn stream_ended(&mut self, purpose: StreamPurpose) {
        match purpose {
            StreamPurpose::Watched(rest) => self.watched_point(*rest),
            purpose => {
                self.log_end(&purpose);
                self.on(purpose.at().card).stream_ended(purpose);
            }
        }
    }

    /// Continues with the data that moves. Returns `false` if the lock must be released first.
    fn go_on_moving(&mut self) -> bool {
        let card = self.env.moving.as_ref().map(|moving| moving.at.card);
        card.is_none_or(|card| self.on(card).go_on_moving())
    }
}

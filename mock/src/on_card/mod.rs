//! One card and what is around it: all that happens on a card sees no other.

mod copy;
mod fold;
mod garbled;
mod host_dma;
mod moves;
mod rdma;
mod sequencer;
mod serving;
mod signals;
mod stored;
mod switch;
mod switched;
mod watch;
mod windows;

use crate::card::Card;
use crate::card::lane::Lane;
use crate::card::running::Running;
use crate::environment::Environment;
use crate::event::{Event, Step};
use crate::proto::optweb::lane::LaneId;

/// A card, for what happens on it.
pub(crate) struct OnCard<'a> {
    pub(crate) card: &'a mut Card,
    pub(crate) env: &'a mut Environment,
}

impl OnCard<'_> {
    /// The card's place among those of the fabric.
    pub(crate) fn index(&self) -> usize {
        self.card.node as usize
    }

    pub(crate) fn lanes(&self) -> impl Iterator<Item = LaneId> + use<> {
        let card = self.index();
        (0..self.card.lanes.len()).map(move |lane| LaneId { card, lane })
    }

    pub(crate) fn lane(&self, at: LaneId) -> &Lane {
        &self.card.lanes[at.lane]
    }

    pub(crate) fn lane_mut(&mut self, at: LaneId) -> &mut Lane {
        &mut self.card.lanes[at.lane]
    }

    /// Returns the instruction that runs in the lane.
    pub(crate) fn running(&self, at: LaneId) -> Option<&Running> {
        self.lane(at).running.as_ref()
    }

    pub(crate) fn running_mut(&mut self, at: LaneId) -> Option<&mut Running> {
        self.lane_mut(at).running.as_mut()
    }

    /// Schedules a step of the instruction that runs in a lane, `delay` from now.
    pub(crate) fn schedule_step(&mut self, at: LaneId, delay: u64, step: Step) {
        let epoch = self.lane(at).epoch;
        self.env.schedule_in(delay, Event::Step { at, epoch, step });
    }
}

//! Ends instructions, and writes completions in the order of the program.

use cmdseq::completion::{Completion, Status};
use cmdseq::{Flags, Instruction};
use fpga_regs::bits::Errors;

use crate::card::Card;
use crate::card::host_jobs::Job;
use crate::card::in_flight::Ended;
use crate::card::running::{Running, Work};
use crate::engine::Time;
use crate::event::Step;
use crate::on_card::OnCard;
use crate::proto::optweb::lane::{Claim, LaneId};
use crate::proto::refusal::Refusal;

impl Card {
    /// Issues nothing until the host sets RUN. An instruction that was not issued stays in the ring.
    pub(crate) fn issue_no_more(&mut self) {
        self.sequencer.may_run = false;
        // A frozen card stays busy.
        if !self.is_frozen {
            self.sequencer.issue_at = None;
        }
    }
}

impl OnCard<'_> {
    /// Fails the lane's instruction after `delay`.
    pub(crate) fn fail_after(&mut self, at: LaneId, (status, detail): Refusal, delay: u64) {
        if let Some(running) = self.running_mut(at) {
            (running.status, running.detail, running.work) = (status, detail, Work::Timed);
        }
        self.schedule_step(at, delay, Step::Finish);
    }

    /// Fails the lane's instruction, now.
    pub(crate) fn fail(&mut self, at: LaneId, (status, detail): Refusal) {
        if let Some(running) = self.running_mut(at) {
            (running.status, running.detail) = (status, detail);
        }
        self.finish(at);
    }

    /// Ends the lane's instruction, now.
    pub(crate) fn finish(&mut self, at: LaneId) {
        let Some((order, ended)) = self.end(at) else { return };
        let in_flight = &mut self.card.sequencer.in_flight;
        if ended.status != Status::Done {
            in_flight.end(order, ended);
            self.stop_launch(order);
        } else if in_flight.take_first(order) {
            self.ended(&ended);
        } else {
            in_flight.end(order, ended);
        }
        self.retire();
        self.kick();
    }

    /// Takes the lane's instruction out of its lane.
    fn end(&mut self, at: LaneId) -> Option<(u64, Ended)> {
        let handover = self.env.profile.cycles(self.env.profile.handover_cycles);
        let lane = &mut self.card.lanes[at.lane];
        let running = lane.running.as_ref()?;
        let (order, ended) = (running.order, Ended::new(running, self.env.now));
        let number = lane.epoch;
        let work = lane.running.take().map(|running| running.work);
        lane.epoch += 1;
        lane.free_at = self.env.now + Time::from(handover);
        if ended.status != Status::Done {
            self.stop_streams(at);
        }
        self.card.links.iter_mut().for_each(|link| link.release(at.lane));
        self.env.statistics.instructions += 1;
        match work {
            Some(Work::Rdma(issued)) => self.cancel(at, &issued, number),
            Some(Work::Switched(call)) if ended.status != Status::Done => self.cancel_switched(call.context),
            _ => {}
        }
        Some((order, ended))
    }

    /// An instruction of a resident program failed: issues no more of them, and aborts those after it that run.
    fn stop_launch(&mut self, failed: u64) {
        let card = &mut *self.card;
        let Some(launch) = &mut card.sequencer.launch else { return };
        launch.has_failed = true;
        (card.sequencer.next, card.sequencer.issue_at) = (None, None);
        for at in self.lanes() {
            if let Some(running) = self.running_mut(at).filter(|running| running.order > failed) {
                running.status = Status::Aborted;
                if let Some((order, ended)) = self.end(at) {
                    self.card.sequencer.in_flight.end(order, ended);
                }
            }
        }
    }

    /// Completes what has ended, up to the first instruction that still runs.
    fn retire(&mut self) {
        while let Some(ended) = self.card.sequencer.in_flight.take_ended() {
            self.ended(&ended);
        }
    }

    /// Completes the first instruction in flight, or the resident program that it ends.
    fn ended(&mut self, ended: &Ended) {
        if self.card.sequencer.launch.is_none() {
            self.complete(ended);
        } else if let Some(over) = self.add_to_launch(ended) {
            self.complete(&over);
        }
    }

    /// Adds an instruction to its resident program, and returns the end of the program, if this is it.
    fn add_to_launch(&mut self, ended: &Ended) -> Option<Ended> {
        let card = &mut *self.card;
        let sequencer = &mut card.sequencer;
        let mut launch = sequencer.launch.take()?;
        launch.add(ended);
        let has_failed = ended.status != Status::Done;
        let length = card.resident.get(launch.slot).map_or(0, Vec::len);
        let has_more = sequencer.next.is_some() || sequencer.in_flight.len() > 0 || launch.next_place(length).is_some();
        if has_more && !has_failed {
            sequencer.launch = Some(launch);
            return None;
        }
        // All after a failed instruction have ended: their outcome is not told.
        sequencer.in_flight.clear();
        sequencer.is_fenced = true;
        // If a resident program fails, the detail is the index of the failed instruction.
        Some(launch.over(if has_failed { (ended.status, ended.place as u16) } else { (Status::Done, 0) }))
    }

    fn complete(&mut self, over: &Ended) {
        let clock = self.card.clock;
        let issued = clock.count(over.issued);
        let cycles = |at: Time| clock.count(at.max(over.issued)).wrapping_sub(issued);
        let completion = Completion {
            tag: over.tag,
            status: over.status,
            detail: over.detail,
            issued,
            t1: cycles(over.counted_out),
            t2: cycles(over.ended),
            arrival: over.arrival.map_or(0, cycles),
            bytes: over.bytes,
            phase: false,
        };
        let interrupt = over.flags.contains(Flags::INTERRUPT);
        self.card.sequencer.completing += 1;
        self.push_host_job(Job::Complete { completion, interrupt, life: over.life });
    }

    /// The completion is in host memory.
    pub(crate) fn completion_written(&mut self, interrupt: bool, went_well: bool) {
        let card = &mut *self.card;
        card.sequencer.completing -= 1;
        if !went_well {
            return self.halt(Errors::COMPLETION_FAULT);
        }
        card.rings.completed();
        card.sequencer.retired += 1;
        if card.rings.take_due_interrupt() || interrupt {
            card.interrupt();
        }
        self.kick();
    }

    /// The queue was disabled after the issue of the instruction.
    pub(crate) fn completion_dropped(&mut self) {
        self.card.sequencer.completing -= 1;
        self.kick();
    }

    /// Halts the sequencer until the host clears the error.
    pub(crate) fn halt(&mut self, why: Errors) {
        let card = &mut *self.card;
        card.errors |= why;
        card.sequencer.is_halted = true;
        card.issue_no_more();
    }

    /// Ends the running instructions for the host, and stops.
    pub(crate) fn abort(&mut self) {
        let card = &mut *self.card;
        card.issue_no_more();
        if card.is_frozen {
            return;
        }
        // The instructions have ended: a kept job would be taken for a later instruction's.
        card.links.iter_mut().for_each(|link| link.inbound.clear());
        if card.oldest_lane().is_none() {
            self.abort_between();
        }
        while let Some(lane) = self.card.oldest_lane() {
            self.fail(LaneId { card: self.index(), lane }, (Status::Aborted, 0));
        }
    }

    /// Ends a resident program between two of its instructions: the next one fails before it is issued.
    fn abort_between(&mut self) {
        let now = self.env.now;
        let card = &mut *self.card;
        let sequencer = &mut card.sequencer;
        let Some(launch) = &sequencer.launch else { return };
        let life = launch.life;
        let length = card.resident.get(launch.slot).map_or(0, Vec::len);
        let next = sequencer.next.take().map(|next| next.place);
        let place = next.or_else(|| launch.next_place(length)).unwrap_or(0);
        let order = sequencer.in_flight.begin();
        let lane = &mut card.lanes[0];
        lane.claim = Claim::ALONE;
        lane.running = Some(Running { place, ..Running::begun(Instruction::nop(), now, order, life) });
    }
}

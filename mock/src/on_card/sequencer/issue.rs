//! Issues instructions in the order of the program: fetches them, finds what each waits for, and when it is due.

use cmdseq::completion::Status;
use cmdseq::instruction::{self, offset};
use cmdseq::ranges::{Context, Transfer, transfers};
use cmdseq::{DecodeError, Flags, Instruction};
use fpga_regs::bits::Errors;

use crate::card::Card;
use crate::card::decode::decode;
use crate::card::host_jobs::{HostFault, Job};
use crate::card::lane::Lane;
use crate::card::running::Running;
use crate::card::sequencer::Next;
use crate::engine::Time;
use crate::event::Event;
use crate::on_card::OnCard;
use crate::proto::optweb::lane::{Claim, LaneId};
use crate::proto::refusal::{Refusal, bad_field};

impl Card {
    /// Returns whether an instruction could be issued beside those that run.
    fn has_free_lane(&self) -> bool {
        let is_alone = |lane: &Lane| lane.running.is_some() && lane.claim.is_alone;
        self.lanes.iter().any(|lane| lane.running.is_none()) && !self.lanes.iter().any(is_alone)
    }
}

impl OnCard<'_> {
    /// Continues with the card's queue if an instruction is available and the sequencer may run.
    pub(crate) fn kick(&mut self) {
        let card = &mut *self.card;
        let sequencer = &card.sequencer;
        if card.is_frozen || !sequencer.may_go_on() || !card.has_free_lane() {
            return;
        }
        let has_fetched = sequencer.next.is_some() || !sequencer.prefetched.is_empty();
        if sequencer.launch.is_some() || (has_fetched && card.rings.has_room(sequencer.unfinished())) {
            if let Some(at) = self.next_issue() {
                let card = &mut *self.card;
                card.sequencer.issue_at = Some(at);
                let epoch = card.epoch;
                self.env.schedule(at, Event::Issue { card: self.index(), epoch });
            }
        } else if !has_fetched && card.rings.next_fetch(1).is_some() {
            card.sequencer.is_fetching = true;
            let life = card.rings.life();
            self.push_host_job(Job::Fetch { life });
        }
    }

    /// Takes the instructions of a fetch.
    pub(crate) fn fetched(&mut self, words: Result<&[u8], HostFault>) {
        let card = &mut *self.card;
        card.sequencer.is_fetching = false;
        let words = match words {
            Ok(words) => words,
            Err(fault) => return self.halt(Errors::FETCH_FAULT | fault.errors()),
        };
        let (words, _) = words.as_chunks::<{ instruction::BYTES }>();
        card.rings.fetched(words.len() as u32);
        card.sequencer.prefetched.extend(words);
        self.kick();
    }

    /// Returns when the next instruction is due; `None` if there is none, or one that it waits for runs.
    fn next_issue(&mut self) -> Option<Time> {
        if self.card.sequencer.next.is_none() {
            self.card.sequencer.next = Some(self.take_next()?);
        }
        let card = &*self.card;
        let next = card.sequencer.next.as_ref()?;
        let is_fenced = card.sequencer.is_fenced || next.instruction.flags.contains(Flags::FENCE);
        let mut free_at = 0;
        // Of each lane, the last instruction stands for all: those before it have ended a hand-over before its issue.
        for lane in card.lanes.iter().filter(|lane| is_fenced || next.claim.waits_for(&lane.claim)) {
            if lane.running.is_some() {
                return None;
            }
            free_at = free_at.max(lane.free_at);
        }
        let turn = if next.turns { self.env.profile.cycles(self.env.profile.dispatch_cycles) } else { 0 };
        let at = card.sequencer.ready_at.max(free_at + Time::from(turn)).max(self.env.now);
        Some(at.next_multiple_of(self.env.profile.cycle_ps.into()))
    }

    /// Takes the next instruction of the resident program, or of the fetched ones.
    fn take_next(&mut self) -> Option<Next> {
        let card = &mut *self.card;
        if let Some(launch) = &mut card.sequencer.launch {
            let upcoming = launch.take(card.resident.get(launch.slot)?)?;
            card.sequencer.is_fenced |= upcoming.turns;
            let next = Next::of(upcoming.instruction, self.claim(&upcoming.instruction));
            return Some(Next { place: upcoming.place, turns: upcoming.turns, ..next });
        }
        let word = card.sequencer.prefetched.pop_front()?;
        Some(match decode(&self.env.profile, &word) {
            Ok(instruction) => Next::of(instruction, self.claim(&instruction)),
            // An invalid instruction still gets a completion, with the tag it seems to have.
            Err(error) => {
                let tag = u16::from_le_bytes([word[offset::TAG], word[offset::TAG + 1]]);
                Next::of(Instruction::nop().with_tag(tag), Err(refusal(error)))
            }
        })
    }

    /// Returns what `instruction` occupies while it runs, unless it names a lane or a fence that the card does not have.
    fn claim(&self, instruction: &Instruction) -> Result<Claim, Refusal> {
        let lanes = self.card.lanes.len();
        let lane = usize::from(instruction.lane);
        if lanes == 1 && instruction.flags.contains(Flags::FENCE) {
            return Err(bad_field(offset::FLAGS));
        }
        if lane >= lanes {
            return Err(bad_field(offset::LANE));
        }
        if !instruction.operation.fields().lane {
            return Ok(Claim::ALONE);
        }
        // In one lane, exchanges wait for each other whatever links they use.
        let (out, into) = if lanes == 1 { (0, 0) } else { self.directions(instruction).unwrap_or_default() };
        Ok(Claim { lane, out, into, is_alone: false })
    }

    /// Returns the links on which an exchange sends, and on which it receives: one bit for each port. An exchange without
    /// them is refused when it begins, or sends nothing but signals.
    fn directions(&self, instruction: &Instruction) -> Option<(u64, u64)> {
        let card = &*self.card;
        let membership = card.membership(instruction).ok()?;
        let (rank, ranks) = (membership.own_rank, membership.members.len() as u32);
        let context =
            Context { rank, ranks, stripe_bytes: 2 * self.env.profile.stripe_half_bytes(), tables: &card.tables };
        let moved = transfers(instruction, &context).ok()?;
        let port =
            |block: &Transfer| self.env.ports.toward(card.node, *membership.members.get(block.peer_rank as usize)?);
        let links = |blocks: &[Transfer]| blocks.iter().filter_map(port).fold(0, |links, port| links | 1 << port);
        Some((links(&moved.sends), links(&moved.receives)))
    }

    /// Issues the next instruction, now.
    pub(crate) fn issue(&mut self) {
        let sequencer = &mut self.card.sequencer;
        if sequencer.issue_at.take_if(|at| *at == self.env.now).is_none() {
            return;
        }
        if let Some(next) = sequencer.next.take() {
            sequencer.is_fenced = false;
            sequencer.ready_at = self.env.now + Time::from(self.env.profile.cycles(self.env.profile.dispatch_cycles));
            self.issue_now(next);
        }
        self.kick();
    }

    fn issue_now(&mut self, next: Next) {
        let Next { instruction, refusal, place, claim, .. } = next;
        let at = LaneId { card: self.index(), lane: claim.lane };
        let (order, life) = (self.card.sequencer.in_flight.begin(), self.card.rings.life());
        let running = Running { place, ..Running::begun(instruction, self.env.now, order, life) };
        let lane = self.lane_mut(at);
        (lane.running, lane.claim) = (Some(running), claim);
        let begun = refusal.map_or_else(|| self.begin(at, &instruction), Err);
        if let Err(refusal) = begun {
            self.fail_after(at, refusal, self.env.profile.cycles(self.env.profile.dispatch_cycles));
        }
    }
}

fn refusal(error: DecodeError) -> Refusal {
    match error {
        DecodeError::Checksum { .. } => (Status::BadChecksum, 0),
        DecodeError::Version(_) => (Status::BadVersion, 0),
        DecodeError::Operation(code) => (Status::BadOperation, code.into()),
        DecodeError::Field { offset, .. } => bad_field(offset),
    }
}

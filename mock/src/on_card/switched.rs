//! Collectives that the switches of the network compute: a card gives its data to its switch, and gets the result from it.

use cmdseq::communicator::ContextId;
use cmdseq::instruction::offset;
use cmdseq::ranges::{Range, given_and_got};
use cmdseq::switch::Call;
use cmdseq::{Context, Instruction};

use crate::card::communicators::Members;
use crate::card::running::{Running, Work, memory_refusal};
use crate::engine::Time;
use crate::event::Step;
use crate::on_card::OnCard;
use crate::proto::optweb::lane::LaneId;
use crate::proto::refusal::{Refusal, bad_field};

/// What the switches are to do for a card.
struct Task {
    call: Call,
    /// Rank and ranks.
    place: (u32, u32),
    given: Vec<Range>,
    got: Vec<Range>,
    members: Members,
}

impl OnCard<'_> {
    pub(crate) fn begin_switched(&mut self, at: LaneId, instruction: &Instruction) -> Result<(), Refusal> {
        let (Some(switches), Some(call)) = (&self.env.switches, Call::of(instruction)) else {
            return Err(bad_field(offset::FLAGS));
        };
        let is_direct = switches.network.shape().is_direct();
        let membership = self.card.membership(instruction)?;
        let ranks = membership.members.len() as u32;
        self.check_ranks(instruction, ranks)?;
        self.checked_transfers(instruction, membership.own_rank, ranks)?;
        call.check(ranks, is_direct).map_err(|_| bad_field(offset::FLAGS))?;
        self.set_work(at, Work::Switched(call));
        let read = self.env.profile.cycles(self.env.profile.dispatch_cycles + self.env.profile.memory_read_cycles);
        self.schedule_step(at, read, Step::DataAtNetwork);
        Ok(())
    }

    /// What the switches are to do for the instruction that runs in the lane.
    fn switched(&self, at: LaneId) -> Option<Task> {
        let Running { work: Work::Switched(call), instruction, .. } = self.running(at)? else { return None };
        let membership = self.card.membership(instruction).ok()?;
        let (rank, ranks) = (membership.own_rank, membership.members.len() as u32);
        let stripe_bytes = 2 * self.env.profile.stripe_half_bytes();
        let context = Context { rank, ranks, stripe_bytes, tables: &self.card.tables };
        let [given, got] = given_and_got(instruction, &context).ok()?;
        Some(Task { call: *call, place: (rank, ranks), given, got, members: membership.members.clone() })
    }

    /// The first beats from memory are at the switch.
    pub(crate) fn data_at_network(&mut self, at: LaneId) {
        let Some(Task { call, place, given, members, .. }) = self.switched(at) else { return };
        let card = &*self.card;
        if let Some(switches) = &mut self.env.switches
            && switches.network.is_far_ahead(card.node, call.context, &members)
        {
            return switches.held.push(at.card);
        }
        let mut input = Vec::with_capacity(given.iter().map(|range| range.bytes as usize).sum());
        for range in given {
            if let Err(error) = card.memory.append_to(range.address, range.bytes, &mut input) {
                return self.fail(at, memory_refusal(error));
            }
        }
        self.env.hold_bytes += input.len() as u64;
        let (now, node) = (self.env.now, card.node);
        let Some(switches) = &mut self.env.switches else { return };
        switches.network.begin(now, call, node, place, &input);
        switches.waiting.push(at.card);
        switches.released.append(&mut switches.held);
        if let Some(running) = self.running_mut(at) {
            running.bytes = input.len() as u64;
        }
        self.env.wake_switches();
    }

    /// Writes the result to memory.
    pub(crate) fn switched_ended(&mut self, at: LaneId, sent: Time, output: &[u8]) {
        let Some(Task { got, .. }) = self.switched(at) else { return };
        let memory = &mut self.card.memory;
        let mut rest = output;
        for range in got {
            let Some((block, after)) = rest.split_at_checked(range.bytes as usize) else { break };
            if !memory.is_hollow()
                && let Err(error) = memory.write(range.address, block)
            {
                return self.fail(at, memory_refusal(error));
            }
            rest = after;
        }
        self.env.hold_bytes += output.len() as u64;
        let through = if output.is_empty() { 0 } else { self.env.profile.cycles(self.env.profile.switch_cycles) };
        let counted = self.env.now + Time::from(through);
        if let Some(running) = self.running_mut(at) {
            running.counted_out = sent.max(running.issued);
            running.arrival = (!output.is_empty()).then_some(counted);
            running.bytes += output.len() as u64;
        }
        self.schedule_step(at, through, Step::InMemory);
    }

    /// A call of a card has failed: all calls on its communicator are over.
    pub(crate) fn cancel_switched(&mut self, id: ContextId) {
        let now = self.env.now;
        let members = self.card.communicators.all().into_iter().find(|(known, _)| known.index() == id.index());
        let Some(switches) = &mut self.env.switches else { return };
        switches.released.append(&mut switches.held);
        for cards in [&mut switches.waiting, &mut switches.released] {
            cards.retain(|card| *card != self.card.node as usize);
        }
        switches.network.cancel(self.card.node);
        if let Some((id, members)) = members {
            switches.network.end_calls(now, id, &members);
        }
        self.env.wake_switches();
    }

    /// Returns the lowest node that has not begun the call which a card runs.
    pub(crate) fn switched_waits_for(&self) -> Option<u32> {
        let lane = self.card.oldest_lane()?;
        let Running { work: Work::Switched(call), instruction, .. } =
            self.running(LaneId { card: self.index(), lane })?
        else {
            return None;
        };
        let (network, own) = (&self.env.switches.as_ref()?.network, self.card.node);
        let members = self.card.membership(instruction).ok()?.members;
        members.iter().copied().filter(|node| network.is_behind(*node, own, call.context)).min()
    }

    /// A card has defined a communicator.
    pub(crate) fn defined_in_switches(&mut self, id: u16, members: &Members) {
        let (Some(switches), Some(id)) = (&mut self.env.switches, ContextId::from_raw(id)) else { return };
        let card = &*self.card;
        switches.network.set_table(card.node, card.communicators.table());
        switches.network.define(id, members, card.node);
    }

    /// A card has freed a communicator.
    pub(crate) fn freed_in_switches(&mut self, id: u16) {
        if let (Some(switches), Some(id)) = (&mut self.env.switches, ContextId::from_raw(id)) {
            switches.forget(&*self.card, id);
        }
    }

    /// A card is about to be reset.
    pub(crate) fn leave_switches(&mut self) {
        if self.env.switches.is_none() {
            return;
        }
        for (id, _) in self.card.communicators.all() {
            self.cancel_switched(id);
            if id != ContextId::WORLD {
                self.freed_in_switches(id.raw());
            }
        }
    }

    /// A card was reset.
    pub(crate) fn join_switches(&mut self) {
        if let Some(switches) = &mut self.env.switches {
            switches.join(&*self.card);
        }
    }
}

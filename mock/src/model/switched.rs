//! Collectives that the switches of the network compute: a card gives its data to its switch, and gets the result from it.

use cmdseq::communicator::ContextId;
use cmdseq::instruction::offset;
use cmdseq::ranges::{Range, given_and_got};
use cmdseq::switch::Call;
use cmdseq::{Context, Instruction};

use crate::card::communicators::Members;
use crate::card::running::{Running, Work, memory_refusal};
use crate::engine::Time;
use crate::proto::optweb::lane::LaneId;
use crate::proto::refusal::{Refusal, bad_field};
use crate::world::{Core, Event, Step};

/// What the switches are to do for a card.
struct Task {
    call: Call,
    /// Rank and ranks.
    place: (u32, u32),
    given: Vec<Range>,
    got: Vec<Range>,
}

impl Core {
    pub(crate) fn begin_switched(&mut self, at: LaneId, instruction: &Instruction) -> Result<(), Refusal> {
        let (Some(switches), Some(call)) = (&self.switches, Call::of(instruction)) else {
            return Err(bad_field(offset::FLAGS));
        };
        let is_direct = switches.network.shape().is_direct();
        let membership = self.cards[at.card].membership(instruction)?;
        let ranks = membership.members.len() as u32;
        self.check_ranks(instruction, ranks)?;
        self.checked_transfers(at, instruction, membership.own_rank, ranks)?;
        call.check(ranks, is_direct).map_err(|_| bad_field(offset::FLAGS))?;
        self.set_work(at, Work::Switched(call));
        let read = self.profile.cycles(self.profile.dispatch_cycles + self.profile.memory_read_cycles);
        self.schedule_step(at, read, Step::DataAtNetwork);
        Ok(())
    }

    /// What the switches are to do for the instruction that runs in the lane.
    fn switched(&self, at: LaneId) -> Option<Task> {
        let Running { work: Work::Switched(call), instruction, .. } = self.running(at)? else { return None };
        let membership = self.cards[at.card].membership(instruction).ok()?;
        let (rank, ranks) = (membership.own_rank, membership.members.len() as u32);
        let stripe_bytes = 2 * self.profile.stripe_half_bytes();
        let context = Context { rank, ranks, stripe_bytes, tables: &self.cards[at.card].tables };
        let [given, got] = given_and_got(instruction, &context).ok()?;
        Some(Task { call: *call, place: (rank, ranks), given, got })
    }

    /// The first beats from memory are at the switch.
    pub(crate) fn data_at_network(&mut self, at: LaneId) {
        let Some(Task { call, place, given, .. }) = self.switched(at) else { return };
        let card = &self.cards[at.card];
        let mut input = Vec::with_capacity(given.iter().map(|range| range.bytes as usize).sum());
        for range in given {
            if let Err(error) = card.memory.append_to(range.address, range.bytes, &mut input) {
                return self.fail(at, memory_refusal(error));
            }
        }
        self.hold_bytes += input.len() as u64;
        let (now, node) = (self.now, card.node);
        let Some(switches) = &mut self.switches else { return };
        switches.network.begin(now, call, node, place, &input);
        switches.waiting.push(at.card);
        if let Some(running) = self.running_mut(at) {
            running.bytes = input.len() as u64;
        }
        self.wake_switches();
    }

    /// Has the fabric look at the network when its next message arrives.
    fn wake_switches(&mut self) {
        let Some(switches) = &mut self.switches else { return };
        let Some(next) = switches.network.next_at() else { return };
        if switches.due.is_none_or(|due| next < due) {
            switches.due = Some(next);
            self.schedule(next, Event::Switches);
        }
    }

    /// Lets the messages of the network arrive that are due.
    pub(crate) fn run_switches(&mut self) {
        let now = self.now;
        let Some(switches) = &mut self.switches else { return };
        if switches.due.is_some_and(|due| due <= now) {
            switches.due = None;
        }
        switches.network.run_until(now);
        let mut ended = Vec::new();
        let network = &mut switches.network;
        switches.waiting.retain(|card| match network.take_ended(*card as u32) {
            Some(one) => {
                ended.push((*card, one));
                false
            }
            None => true,
        });
        for (card, one) in ended {
            if !self.cards[card].is_frozen {
                self.switched_ended(LaneId::first(card), one.sent, &one.output);
            }
        }
        self.wake_switches();
    }

    /// Writes the result to memory.
    fn switched_ended(&mut self, at: LaneId, sent: Time, output: &[u8]) {
        let Some(Task { got, .. }) = self.switched(at) else { return };
        let memory = &mut self.cards[at.card].memory;
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
        self.hold_bytes += output.len() as u64;
        let through = if output.is_empty() { 0 } else { self.profile.cycles(self.profile.switch_cycles) };
        let counted = self.now + Time::from(through);
        if let Some(running) = self.running_mut(at) {
            running.counted_out = sent.max(running.issued);
            running.arrival = (!output.is_empty()).then_some(counted);
            running.bytes += output.len() as u64;
        }
        self.schedule_step(at, through, Step::InMemory);
    }

    /// A call of a card has failed: all calls on its communicator are over.
    pub(crate) fn cancel_switched(&mut self, card: usize, id: ContextId) {
        let now = self.now;
        let members = self.cards[card].communicators.all().into_iter().find(|(known, _)| known.index() == id.index());
        let Some(switches) = &mut self.switches else { return };
        switches.waiting.retain(|waiting| *waiting != card);
        switches.network.cancel(card as u32);
        if let Some((id, members)) = members {
            switches.network.end_calls(now, id, &members);
        }
        self.wake_switches();
    }

    /// Returns the lowest node that has not begun the call which a card runs.
    pub(crate) fn switched_waits_for(&self, card: usize) -> Option<u32> {
        let lane = self.cards[card].oldest_lane()?;
        let Running { work: Work::Switched(call), instruction, .. } = self.running(LaneId { card, lane })? else {
            return None;
        };
        let (network, own) = (&self.switches.as_ref()?.network, self.cards[card].node);
        let members = self.cards[card].membership(instruction).ok()?.members;
        let begun = network.begun(own, call.context);
        members.iter().copied().filter(|node| network.begun(*node, call.context) < begun).min()
    }

    /// A card has defined a communicator.
    pub(crate) fn defined_in_switches(&mut self, card: usize, id: u16, members: &Members) {
        let (Some(switches), Some(id)) = (&mut self.switches, ContextId::from_raw(id)) else { return };
        let card = &self.cards[card];
        switches.network.set_table(card.node, card.communicators.table());
        switches.network.define(id, members, card.node);
    }

    /// A card has freed a communicator.
    pub(crate) fn freed_in_switches(&mut self, card: usize, id: u16) {
        if let (Some(switches), Some(id)) = (&mut self.switches, ContextId::from_raw(id)) {
            switches.forget(&self.cards[card], id);
        }
    }

    /// A card is about to be reset.
    pub(crate) fn leave_switches(&mut self, card: usize) {
        if self.switches.is_none() {
            return;
        }
        for (id, _) in self.cards[card].communicators.all() {
            self.cancel_switched(card, id);
            if id != ContextId::WORLD {
                self.freed_in_switches(card, id.raw());
            }
        }
    }

    /// A card was reset.
    pub(crate) fn join_switches(&mut self, card: usize) {
        if let Some(switches) = &mut self.switches {
            switches.join(&self.cards[card]);
        }
    }
}

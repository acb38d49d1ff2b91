//! Starts barriers and transfers: checks, and the sends and receives of each.

use cmdseq::completion::Status;
use cmdseq::instruction::takes_tables;
use cmdseq::ranges::{self, Context, RangeError};
use cmdseq::{Flags, Instruction, Layout, Operation};

use crate::card::running::Work;
use crate::event::Step;
use crate::net::buffer::Way;
use crate::on_card::OnCard;
use crate::profile::BEAT_CYCLES;
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::transfer::{Barrier, Receive, ReceiveState, Send, SendState, Transfer};
use crate::proto::refusal::Refusal;
use crate::reduce::Fold;

impl OnCard<'_> {
    pub(crate) fn begin_barrier(&mut self, at: LaneId) -> Result<(), Refusal> {
        let Some(running) = self.running(at) else { return Ok(()) };
        let membership = self.card.membership(&running.instruction)?;
        let others = (0..membership.members.len() as u32).filter(|rank| *rank != membership.own_rank);
        let ports: Vec<usize> =
            others.map(|rank| Ok(self.port_toward(&membership, rank)?.0)).collect::<Result<_, Refusal>>()?;
        let missing = ports.len();
        let barrier = Barrier { came: vec![false; missing], ports, missing, is_sent: false };
        let controls_out = self.env.profile.cycles(self.env.profile.dispatch_cycles + BEAT_CYCLES);
        self.set_work(at, Work::Barrier(barrier));
        self.schedule_step(at, controls_out, Step::ControlsOut);
        Ok(())
    }

    pub(crate) fn begin_transfer(&mut self, at: LaneId, instruction: &Instruction) -> Result<(), Refusal> {
        let membership = self.card.membership(instruction)?;
        let ranks = membership.members.len() as u32;
        self.check_ranks(instruction, ranks)?;
        let transfers = self.checked_transfers(instruction, membership.own_rank, ranks)?;
        let is_rendezvous = self.is_rendezvous(instruction, &transfers)?;
        let lower = transfers.receives.iter().filter(|one| one.peer_rank < membership.own_rank).count();
        let fold = instruction.combine().and_then(|combine| Fold::of(&transfers, combine, lower));
        // A result of its own, if it has one.
        let partial = fold.as_ref().filter(|fold| is_rendezvous && fold.keeps_partials());
        let partial = partial.map(|fold| fold.reduced.destination);
        let contributes = fold.as_ref().is_some_and(|fold| fold.reduced.own.is_some());
        let mut transfer = Transfer {
            is_rendezvous,
            is_multicast: transfers.multicast,
            sends: Vec::with_capacity(transfers.sends.len()),
            receives: Vec::with_capacity(transfers.receives.len()),
            own: transfers.own,
            fold,
            contribution: transfers.contribution(),
            partial,
            is_set: false,
            has_data: false,
            has_started: false,
            not_ready: 0,
            moving: 0,
            not_acknowledged: transfers.sends.len(),
            not_received: transfers.receives.len(),
            own_is_pending: transfers.own.is_some() || contributes,
        };
        for send in &transfers.sends {
            let (port, _) = self.port_toward(&membership, send.peer_rank)?;
            let state = if is_rendezvous { SendState::AwaitsReady } else { SendState::Ready };
            transfer.sends.push(Send {
                port,
                address: send.address,
                bytes: send.bytes,
                state,
                burst: 0,
                way: Way::default(),
            });
        }
        for receive in &transfers.receives {
            let (port, _) = self.port_toward(&membership, receive.peer_rank)?;
            let state = ReceiveState::Waiting;
            transfer.receives.push(Receive { port, address: receive.address, bytes: receive.bytes, state });
        }
        transfer.not_ready = if is_rendezvous { transfer.sends.len() } else { 0 };
        let card = &mut *self.card;
        for (place, send) in transfer.sends.iter().enumerate() {
            card.links[send.port].send = Some((at.lane, place));
        }
        for (place, receive) in transfer.receives.iter().enumerate() {
            card.links[receive.port].receive = Some((at.lane, place));
        }
        let reads = transfer.reads();
        self.set_work(at, Work::Transfer(Box::new(transfer)));
        let dispatch = self.env.profile.dispatch_cycles;
        self.schedule_step(at, self.env.profile.cycles(dispatch), Step::SwitchSet);
        self.schedule_step(at, self.env.profile.cycles(dispatch + BEAT_CYCLES), Step::ControlsOut);
        if reads {
            let data = self.env.profile.cycles(dispatch + self.env.profile.memory_read_cycles);
            self.schedule_step(at, data, Step::DataAtSwitch);
        }
        Ok(())
    }

    pub(crate) fn check_ranks(&self, instruction: &Instruction, ranks: u32) -> Result<(), Refusal> {
        let fields = instruction.operation.fields();
        for (is_read, rank) in [(fields.root, instruction.root), (fields.peer, instruction.peer)] {
            if is_read && u32::from(rank) >= ranks {
                return Err((Status::BadRank, rank));
            }
        }
        Ok(())
    }

    /// Decides between rendezvous and eager, once per instruction by its largest block: per link, two cards could disagree. A
    /// vector form is always rendezvous, since not every card knows the largest block.
    fn is_rendezvous(&self, instruction: &Instruction, transfers: &ranges::Transfers) -> Result<bool, Refusal> {
        if instruction.flags.contains(Flags::EAGER) {
            let fits = instruction.bytes.max(transfers.longest()) <= self.env.profile.receive_buffer_bytes;
            return if fits { Ok(false) } else { Err((Status::EagerOverrun, 0)) };
        }
        let is_large = instruction.bytes > self.card.eager_limit || takes_tables(instruction.operation);
        Ok(is_large || instruction.flags.contains(Flags::RENDEZVOUS))
    }

    /// Returns the instruction's transfers, if all ranges are inside memory and stripes, and none overlap.
    pub(crate) fn checked_transfers(
        &self,
        instruction: &Instruction,
        rank: u32,
        ranks: u32,
    ) -> Result<ranges::Transfers, Refusal> {
        let half = self.env.profile.stripe_half_bytes();
        // A longer block would reach into the pseudo channel reserved for the other operand.
        let is_striped = [instruction.source, instruction.destination].iter().any(|o| o.layout == Layout::Striped);
        if is_striped && instruction.bytes > half {
            return Err((Status::OutOfRange, 0));
        }
        let context = Context { rank, ranks, stripe_bytes: 2 * half, tables: &self.card.tables };
        let transfers = ranges::transfers(instruction, &context).map_err(unfit)?;
        let card = ranges::card_ranges(instruction, &context).map_err(unfit)?;
        if card.reads.iter().chain(&card.writes).any(|range| !self.card.memory.contains(range.address, range.bytes)) {
            return Err((Status::OutOfRange, 0));
        }
        if transfers.sends.iter().chain(&transfers.receives).any(|transfer| transfer.peer_rank == rank) {
            return Err((Status::BadRank, rank as u16));
        }
        let mut spans: Vec<(ranges::Range, bool)> = card.reads.iter().map(|range| (*range, false)).collect();
        spans.extend(card.writes.iter().map(|range| (*range, true)));
        spans.sort_unstable_by_key(|(range, _)| range.address);
        let mut read_end = 0;
        let mut write_end = 0;
        for (range, is_write) in spans {
            if range.address < write_end || (is_write && range.address < read_end) {
                return Err((Status::Overlap, 0));
            }
            let end = if is_write { &mut write_end } else { &mut read_end };
            *end = range.end().max(*end);
        }
        // An exchange in place would overwrite blocks that are not sent yet.
        if instruction.operation == Operation::Alltoall && card.in_place.is_some() && ranks > 1 {
            return Err((Status::Overlap, 0));
        }
        Ok(transfers)
    }
}

/// Converts an error of an instruction's ranges to its refusal.
fn unfit(error: RangeError) -> Refusal {
    match error {
        RangeError::Address { .. } => (Status::OutOfRange, 0),
        RangeError::NoTable { slot } => (Status::BadTable, slot as u16),
        RangeError::Entries { slot, .. } | RangeError::OwnBlock { slot, .. } => (Status::BadTable, slot),
    }
}

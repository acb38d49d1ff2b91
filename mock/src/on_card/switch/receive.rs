//! The receiving side: bursts in the receive buffers, and blocks that bypass them.

use std::sync::Arc;

use cmdseq::completion::Status;
use fpga_regs::bits::Errors;

use crate::card::running::{Running, Work, memory_refusal};
use crate::event::Event;
use crate::net::buffer::{Burst, Way, beats};
use crate::net::payload::Payload;
use crate::on_card::OnCard;
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::moving::{Data, Then};
use crate::proto::optweb::stream::StreamPurpose;
use crate::proto::optweb::transfer::{Carried, ReceiveState};

impl OnCard<'_> {
    pub(super) fn switch_set(&mut self, at: LaneId) {
        let Some(transfer) = self.transfer(at) else { return };
        transfer.is_set = true;
        let ports: Vec<usize> = transfer.receives.iter().map(|receive| receive.port).collect();
        for port in ports {
            self.drain(at, port);
        }
    }

    pub(crate) fn burst_head_came(&mut self, at: LaneId, port: usize, id: u64, data: Arc<[u8]>) {
        let buffer = self.env.profile.receive_buffer_bytes;
        let card = &mut *self.card;
        if card.is_frozen {
            return;
        }
        let inbound = &mut card.links[port].inbound;
        let (bytes, beat) = (data.len() as u64, self.env.profile.beat_bytes.max(1));
        if inbound.buffered_beats(beat) + beats(bytes, beat) > beats(buffer, beat) {
            // Links have no backpressure: data that does not fit is lost.
            card.errors |= Errors::RECEIVE_OVERRUN;
            return;
        }
        let lane = at.lane;
        inbound.push(Burst { id, lane, bytes, data, is_whole: false, is_drained: false, is_counted: false });
        self.drain(at, port);
    }

    /// Starts writing the oldest burst of `port` to memory, if the running instruction receives it.
    fn drain(&mut self, at: LaneId, port: usize) {
        if self.transfer(at).is_some_and(|transfer| transfer.fold.is_some()) {
            return self.drain_fold(at);
        }
        let card = &mut *self.card;
        let link = &mut card.links[port];
        let Some(burst) = link.inbound.first(at.lane) else { return };
        let Some(Running { work: Work::Transfer(transfer), .. }) = &mut card.lanes[at.lane].running else { return };
        let Some(place) = link.receive(at.lane).filter(|_| transfer.is_set) else { return };
        let receive = &mut transfer.receives[place];
        if receive.state != ReceiveState::Waiting {
            return;
        }
        if burst.bytes != receive.bytes {
            return self.mismatch(at, port);
        }
        receive.state = ReceiveState::Draining;
        let (bytes, address) = (receive.bytes, receive.address);
        let channel = self.env.resources[self.index()].channel(address);
        self.start_stream(bytes, vec![channel], StreamPurpose::Drain { at, port });
    }

    /// Fails the instruction: a peer sent another number of bytes than expected.
    pub(crate) fn mismatch(&mut self, at: LaneId, port: usize) {
        let card = &mut *self.card;
        card.links[port].inbound.take_first(at.lane);
        let peer = self.env.ports.peer(card.node, port);
        self.fail(at, (Status::Mismatch, peer as u16));
    }

    pub(super) fn drained(&mut self, at: LaneId, port: usize) {
        if let Some(burst) = self.card.links[port].inbound.first_mut(at.lane) {
            burst.is_drained = true;
            self.count_buffered(at, port);
        }
    }

    pub(crate) fn burst_tail_came(&mut self, at: LaneId, port: usize, id: u64) {
        if let Some(burst) = self.card.links[port].inbound.burst_mut(id) {
            burst.is_whole = true;
            self.count_buffered(at, port);
            self.count_fold(at);
        }
    }

    /// Schedules the count of the oldest burst's last beat once the burst is whole and written.
    fn count_buffered(&mut self, at: LaneId, port: usize) {
        let card = &mut *self.card;
        let Some(burst) = card.links[port].inbound.first_mut(at.lane).filter(|_| !card.is_frozen) else { return };
        if burst.is_whole && burst.is_drained && !std::mem::replace(&mut burst.is_counted, true) {
            let event = Event::BufferedCounted { at, epoch: card.lanes[at.lane].epoch, port };
            self.env.schedule_in(self.env.profile.past_receive_buffer_ps(), event);
        }
    }

    pub(crate) fn buffered_counted(&mut self, at: LaneId, port: usize) {
        let card = &mut *self.card;
        let Some(burst) = card.links[port].inbound.take_first(at.lane) else { return };
        let Some(place) = card.links[port].receive(at.lane) else { return };
        let Some(Running { work: Work::Transfer(transfer), .. }) = &card.lanes[at.lane].running else { return };
        let Some(receive) = transfer.receives.get(place).filter(|receive| receive.bytes == burst.bytes) else { return };
        self.env.hold_bytes += receive.bytes;
        if let Err(error) = card.memory.write(receive.address, &burst.data) {
            return self.fail(at, memory_refusal(error));
        }
        self.received(at, port, place);
    }

    /// The last beat of a block that bypassed the receive buffer is counted.
    pub(super) fn block_counted(&mut self, at: LaneId, port: usize, payload: Payload) {
        let card = &mut *self.card;
        if card.is_frozen {
            return;
        }
        let expected = match (&card.lanes[at.lane].running, card.links[port].receive(at.lane)) {
            (Some(Running { work: Work::Transfer(transfer), .. }), Some(place)) => {
                Some((place, &transfer.receives[place])).filter(|(_, receive)| receive.state == ReceiveState::Waiting)
            }
            _ => None,
        };
        let Some((place, receive)) = expected else {
            card.errors |= Errors::UNEXPECTED_DATA;
            return;
        };
        if receive.bytes != payload.len() {
            return self.mismatch(at, port);
        }
        let to = receive.address;
        if self.transfer(at).is_some_and(|transfer| transfer.fold.is_some()) {
            return self.contribution_came(at, place, payload);
        }
        self.start_move(at, Data::Block { payload, to }, Then::Received { port, place });
    }

    /// Completes a receive: signals the source, and finishes the instruction after the last.
    pub(crate) fn received(&mut self, at: LaneId, port: usize, place: usize) {
        let now = self.env.now;
        if let Some(running) = self.running_mut(at) {
            running.arrival = Some(now);
            if let Work::Transfer(transfer) = &mut running.work
                && let Some(receive) = transfer.receives.get_mut(place)
            {
                receive.state = ReceiveState::Done;
                transfer.not_received = transfer.not_received.saturating_sub(1);
                running.bytes = running.bytes.saturating_add(receive.bytes);
            }
        }
        self.carry(at, port, self.env.profile.acknowledge_ps(), Carried::Control(Way::default()));
        self.finish_if_done(at);
    }
}

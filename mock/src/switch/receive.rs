//! The receiving side: bursts in the receive buffers, and blocks that bypass them.

use std::sync::Arc;

use cmdseq::completion::Status;
use fpga_regs::bits::Errors;

use super::{ReceiveState, StreamPurpose};
use crate::fabric::{Core, Event};
use crate::inbound::Burst;
use crate::moves::{Data, Then};
use crate::sequencer::{Running, Work, memory_refusal};

impl Core {
    pub(super) fn switch_set(&mut self, index: usize) {
        let Some(transfer) = self.cards[index].transfer() else { return };
        transfer.is_set = true;
        let ports: Vec<usize> = transfer.receives.iter().map(|receive| receive.port).collect();
        for port in ports {
            self.drain(index, port);
        }
    }

    pub(crate) fn burst_head_came(&mut self, index: usize, port: usize, id: u64, data: Arc<[u8]>) {
        let buffer = self.profile.receive_buffer_bytes;
        let card = &mut self.cards[index];
        if card.is_frozen {
            return;
        }
        let inbound = &mut card.links[port].inbound;
        let bytes = data.len() as u64;
        // A burst without data still takes a beat.
        let most = (buffer / self.profile.beat_bytes.max(1)) as usize;
        if inbound.buffered_bytes() + bytes > buffer || inbound.bursts.len() >= most.max(1) && bytes == 0 {
            // Links have no backpressure: data that does not fit is lost.
            card.errors |= Errors::RECEIVE_OVERRUN;
            return;
        }
        inbound.bursts.push_back(Burst { id, bytes, data, is_whole: false, is_drained: false, is_counted: false });
        self.drain(index, port);
    }

    /// Starts writing the oldest burst of `port` to memory, if the running instruction receives it.
    fn drain(&mut self, index: usize, port: usize) {
        if self.cards[index].transfer().is_some_and(|transfer| transfer.fold.is_some()) {
            return self.drain_fold(index);
        }
        let card = &mut self.cards[index];
        let link = &mut card.links[port];
        let Some(burst) = link.inbound.bursts.front() else { return };
        let Some(Running { work: Work::Transfer(transfer), .. }) = &mut card.running else { return };
        let Some(place) = link.receive.filter(|_| transfer.is_set) else { return };
        let receive = &mut transfer.receives[place];
        if receive.state != ReceiveState::Waiting {
            return;
        }
        if burst.bytes != receive.bytes {
            return self.mismatch(index, port);
        }
        receive.state = ReceiveState::Draining;
        let (bytes, address) = (receive.bytes, receive.address);
        let channel = card.channel(address);
        self.start_stream(bytes, vec![channel], StreamPurpose::Drain { card: index, port });
    }

    /// Fails the instruction: a peer sent another number of bytes than expected.
    pub(crate) fn mismatch(&mut self, index: usize, port: usize) {
        let card = &mut self.cards[index];
        card.links[port].inbound.bursts.pop_front();
        let peer = self.ports.peer(card.node, port);
        self.fail(index, (Status::Mismatch, peer as u16));
    }

    pub(super) fn drained(&mut self, index: usize, port: usize) {
        if let Some(burst) = self.cards[index].links[port].inbound.bursts.front_mut() {
            burst.is_drained = true;
            self.count_buffered(index, port);
        }
    }

    pub(crate) fn burst_tail_came(&mut self, index: usize, port: usize, id: u64) {
        if let Some(burst) = self.cards[index].links[port].inbound.burst_mut(id) {
            burst.is_whole = true;
            self.count_buffered(index, port);
            self.count_fold(index);
        }
    }

    /// Schedules the count of the oldest burst's last beat once the burst is whole and written.
    fn count_buffered(&mut self, index: usize, port: usize) {
        let card = &mut self.cards[index];
        let Some(burst) = card.links[port].inbound.bursts.front_mut().filter(|_| !card.is_frozen) else { return };
        if burst.is_whole && burst.is_drained && !std::mem::replace(&mut burst.is_counted, true) {
            let event = Event::BufferedCounted { card: index, epoch: card.epoch, port };
            self.schedule_in(self.profile.past_receive_buffer_ps(), event);
        }
    }

    pub(crate) fn buffered_counted(&mut self, index: usize, port: usize) {
        let card = &mut self.cards[index];
        let Some(burst) = card.links[port].inbound.bursts.pop_front() else { return };
        let Some(place) = card.links[port].receive else { return };
        let Some(Running { work: Work::Transfer(transfer), .. }) = &card.running else { return };
        let Some(receive) = transfer.receives.get(place).filter(|receive| receive.bytes == burst.bytes) else { return };
        self.hold_bytes += receive.bytes;
        match card.memory.slice_mut(receive.address, receive.bytes) {
            Ok(memory) => memory.copy_from_slice(&burst.data),
            Err(error) => return self.fail(index, memory_refusal(error)),
        }
        self.received(index, port, place);
    }

    pub(crate) fn direct_counted(&mut self, index: usize, port: usize, source: usize, address: u64, bytes: u64) {
        let card = &mut self.cards[index];
        if card.is_frozen {
            return;
        }
        let expected = match (&card.running, card.links[port].receive) {
            (Some(Running { work: Work::Transfer(transfer), .. }), Some(place)) => {
                Some((place, &transfer.receives[place])).filter(|(_, receive)| receive.state == ReceiveState::Waiting)
            }
            _ => None,
        };
        let Some((place, receive)) = expected else {
            card.errors |= Errors::UNEXPECTED_DATA;
            return;
        };
        if receive.bytes != bytes {
            return self.mismatch(index, port);
        }
        let to = receive.address;
        if card.transfer().is_some_and(|transfer| transfer.fold.is_some()) {
            return self.contribution_came(index, place, source, address);
        }
        let block = Data::Block { from: (source, address), to: (index, to), bytes };
        self.start_move(index, block, Then::Received { port, place });
    }

    /// Completes a receive: signals the source, and finishes the instruction after the last.
    pub(crate) fn received(&mut self, index: usize, port: usize, place: usize) {
        let now = self.now;
        if let Some(running) = &mut self.cards[index].running {
            running.arrival = Some(now);
            if let Work::Transfer(transfer) = &mut running.work
                && let Some(receive) = transfer.receives.get_mut(place)
            {
                receive.state = ReceiveState::Done;
                transfer.not_received = transfer.not_received.saturating_sub(1);
                running.bytes = running.bytes.saturating_add(receive.bytes);
            }
        }
        self.send_control(index, port, self.profile.acknowledge_ps());
        self.finish_if_done(index);
    }
}

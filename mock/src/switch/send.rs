//! The sending side: control signals, streams and bursts out, and the own block.

use std::sync::Arc;

use super::{SendState, StreamPurpose};
use crate::fabric::{Core, Event, Step};
use crate::moves::{Data, Then};
use crate::rates::ResourceId;
use crate::sequencer::{Running, Work, memory_refusal};

impl Core {
    pub(super) fn controls_out(&mut self, index: usize) {
        let control = self.profile.control_ps();
        let now = self.now;
        let Some(running) = &mut self.cards[index].running else { return };
        running.counted_out = now;
        let ports: Vec<usize> = match &mut running.work {
            Work::Barrier(barrier) => {
                barrier.is_sent = true;
                barrier.ports.clone()
            }
            Work::Transfer(transfer) if transfer.is_rendezvous => {
                transfer.receives.iter().map(|receive| receive.port).collect()
            }
            Work::Rdma(_) => return self.rdma_request_out(index),
            _ => Vec::new(),
        };
        for port in &ports {
            self.send_control(index, *port, control);
        }
        self.use_all_controls(index);
        self.finish_if_done(index);
    }

    pub(super) fn send_control(&mut self, index: usize, port: usize, delay: u64) {
        if let Some((card, port)) = self.far_end(index, port) {
            self.schedule_in(delay, Event::Control { card, port });
        }
    }

    /// Consumes signals that arrived before the instruction waited for them.
    fn use_all_controls(&mut self, index: usize) {
        let card = &mut self.cards[index];
        let ports: Vec<usize> = match &card.running {
            Some(Running { work: Work::Barrier(barrier), .. }) => barrier.ports.clone(),
            Some(Running { work: Work::Transfer(transfer), .. }) => transfer.sends.iter().map(|s| s.port).collect(),
            _ => return,
        };
        for port in ports {
            self.use_control(index, port);
        }
    }

    pub(crate) fn control_came(&mut self, index: usize, port: usize) {
        let card = &mut self.cards[index];
        let controls = &mut card.links[port].inbound.controls;
        *controls = controls.saturating_add(1);
        if !card.is_frozen {
            self.use_control(index, port);
            self.finish_if_done(index);
        }
    }

    /// Consumes a signal of `port`, if the running instruction waits for it.
    fn use_control(&mut self, index: usize, port: usize) {
        let card = &mut self.cards[index];
        let link = &mut card.links[port];
        let Some(running) = &mut card.running else { return };
        match &mut running.work {
            Work::Barrier(barrier) if barrier.is_sent => {
                let Some(place) = link.receive.filter(|place| !barrier.came[*place]) else { return };
                if link.inbound.take_control() {
                    barrier.came[place] = true;
                    barrier.missing -= 1;
                    running.arrival = Some(self.now);
                }
            }
            Work::Transfer(transfer) => {
                let Some(send) = link.send.map(|place| &mut transfer.sends[place]) else { return };
                match send.state {
                    SendState::AwaitsReady if link.inbound.take_control() => {
                        send.state = SendState::Ready;
                        transfer.not_ready -= 1;
                        self.start_if_ready(index);
                    }
                    SendState::AwaitsAcknowledge if link.inbound.take_control() => {
                        send.state = SendState::Done;
                        transfer.not_acknowledged -= 1;
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    pub(super) fn data_at_switch(&mut self, index: usize) {
        let Some(running) = &mut self.cards[index].running else { return };
        match &mut running.work {
            Work::Transfer(transfer) => transfer.has_data = true,
            Work::Rdma(_) => return self.schedule_step(index, self.profile.cycles(2), Step::HeaderOut),
            Work::Local { .. } => return self.start_local(index),
            _ => return,
        }
        self.start_if_ready(index);
    }

    /// Announces the data once it is at the switch and all destinations are ready.
    fn start_if_ready(&mut self, index: usize) {
        let Some(transfer) = self.cards[index].transfer() else { return };
        if transfer.has_data && transfer.not_ready == 0 && !transfer.has_started {
            transfer.has_started = true;
            self.schedule_step(index, self.profile.cycles(1), Step::HeaderOut);
        }
    }

    /// The announcing beat is out; the data follows.
    pub(super) fn header_out(&mut self, index: usize) {
        if matches!(&self.cards[index].running, Some(Running { work: Work::Rdma(_), .. })) {
            return self.start_rdma_stream(index);
        }
        let Some(transfer) = self.cards[index].transfer() else { return };
        let (is_multicast, is_rendezvous) = (transfer.is_multicast, transfer.is_rendezvous);
        let sends: Vec<(usize, usize, usize, u64, u64)> = transfer
            .sends
            .iter()
            .enumerate()
            .map(|(place, send)| (place, send.port, send.peer, send.address, send.bytes))
            .collect();
        let (own, contribution, partial) = (transfer.own, transfer.contribution, transfer.partial);
        let mut together = Vec::new();
        for (place, port, peer, address, bytes) in &sends {
            let mut passes = vec![self.cards[index].links[*port].out];
            if is_rendezvous {
                passes.extend(self.destination_passes(index, *port, *peer).into_iter().flatten());
            }
            if is_multicast {
                together.extend(passes);
            } else {
                passes.push(self.cards[index].channel(*address));
                self.start_stream(*bytes, passes, StreamPurpose::Send { card: index, send: *place });
            }
        }
        if !is_rendezvous {
            self.send_bursts(index, is_multicast);
        }
        if let Some(own) = own {
            let card = &self.cards[index];
            together.push(card.channel(own.destination));
            if !is_multicast || sends.is_empty() {
                together.extend([card.channel(own.source), card.local]);
                self.start_stream(own.bytes, std::mem::take(&mut together), StreamPurpose::Own { card: index });
            }
        }
        if let Some((address, bytes)) = contribution {
            let card = &self.cards[index];
            let mut passes = vec![card.channel(address), card.local];
            passes.extend(partial.map(|partial| card.channel(partial)));
            self.start_stream(bytes, passes, StreamPurpose::Own { card: index });
        }
        if let (true, Some((_, _, _, address, bytes))) = (is_multicast, sends.first()) {
            together.push(self.cards[index].channel(*address));
            self.start_stream(*bytes, together, StreamPurpose::Multicast { card: index });
        }
        let own_streams = usize::from((own.is_some() && (!is_multicast || sends.is_empty())) || contribution.is_some());
        let streams = if is_multicast { usize::from(!sends.is_empty()) } else { sends.len() };
        self.statistics.transfers = self.statistics.transfers.wrapping_add(sends.len() as u64);
        if let Some(transfer) = self.cards[index].transfer() {
            transfer.moving = streams + own_streams;
        }
    }

    pub(crate) fn start_stream(&mut self, bytes: u64, passes: Vec<ResourceId>, purpose: StreamPurpose) {
        // A partial last beat takes the time of a whole beat.
        let beat = self.profile.beat_bytes;
        let bytes = bytes.div_ceil(beat).saturating_mul(beat);
        self.rates.start(self.now, bytes, passes, purpose);
    }

    /// Returns what a block from `index` passes at `peer`: the destination's pseudo channel, and the reduction units for a fold.
    /// The contributions to a fold pass together, so the first stands for all; each has a pseudo channel if it has a result.
    fn destination_passes(&self, index: usize, port: usize, peer: usize) -> [Option<ResourceId>; 2] {
        let Some((_, back)) = self.far_end(index, port) else { return [None; 2] };
        let card = &self.cards[peer];
        let Some(Running { work: Work::Transfer(transfer), .. }) = &card.running else { return [None; 2] };
        let Some(place) = card.links[back].receive else { return [None; 2] };
        let Some(receive) = transfer.receives.get(place) else { return [None; 2] };
        let channel = Some(card.channel(receive.address));
        match &transfer.fold {
            None => [channel, None],
            Some(_) if place == 0 => [channel, Some(card.fold)],
            Some(fold) if fold.keeps_partials() => [channel, None],
            Some(_) => [None; 2],
        }
    }

    /// Eager: sends the current data to the receive buffers of the other cards.
    fn send_bursts(&mut self, index: usize, is_multicast: bool) {
        let to_buffer = self.profile.to_receive_buffer_ps();
        let card = &mut self.cards[index];
        let Some(Running { work: Work::Transfer(transfer), .. }) = &mut card.running else { return };
        let mut shared: Option<Arc<[u8]>> = None;
        let mut bursts = Vec::with_capacity(transfer.sends.len());
        for send in &mut transfer.sends {
            let data = match shared.take().filter(|_| is_multicast) {
                Some(data) => data,
                None => match card.memory.slice(send.address, send.bytes) {
                    Ok(data) => Arc::from(data),
                    Err(error) => return self.fail(index, memory_refusal(error)),
                },
            };
            shared = Some(Arc::clone(&data));
            self.hold_bytes += send.bytes;
            send.burst = self.next_burst;
            self.next_burst += 1;
            bursts.push((send.port, send.burst, data));
        }
        for (port, id, data) in bursts {
            if let Some((card, port)) = self.far_end(index, port) {
                self.schedule_in(to_buffer, Event::BurstHead { card, port, id, data });
            }
        }
    }

    /// The last beat of a send is out.
    pub(super) fn counted_out(&mut self, index: usize, place: usize) {
        let now = self.now;
        let Some(running) = &mut self.cards[index].running else { return };
        let Work::Transfer(transfer) = &mut running.work else { return };
        let is_rendezvous = transfer.is_rendezvous;
        let Some(send) = transfer.sends.get_mut(place) else { return };
        send.state = SendState::AwaitsAcknowledge;
        running.counted_out = now;
        running.bytes = running.bytes.saturating_add(send.bytes);
        let (port, id, address, bytes) = (send.port, send.burst, send.address, send.bytes);
        self.statistics.bytes = self.statistics.bytes.wrapping_add(bytes);
        let Some((card, far)) = self.far_end(index, port) else { return };
        if is_rendezvous {
            let event = Event::DirectCounted { card, port: far, source: index, address, bytes };
            self.schedule_in(self.profile.data_ps(), event);
        } else {
            self.schedule_in(self.profile.to_receive_buffer_ps(), Event::BurstTail { card, port: far, id });
        }
    }

    pub(super) fn own_through_switch(&mut self, index: usize) {
        if self.cards[index].transfer().is_some_and(|transfer| transfer.own_is_pending) {
            let cycles = 2 * self.profile.switch_cycles + self.profile.size_check_cycles;
            self.schedule_step(index, self.profile.cycles(cycles), Step::OwnCounted);
        }
    }

    pub(super) fn own_counted(&mut self, index: usize) {
        let now = self.now;
        let Some(Running { work: Work::Transfer(transfer), arrival, .. }) = &mut self.cards[index].running else {
            return;
        };
        let Some(own) = transfer.own else { return self.own_kept(index) };
        *arrival = Some(now);
        let block = Data::Block { from: (index, own.source), to: (index, own.destination), bytes: own.bytes };
        self.start_move(index, block, Then::OwnKept);
    }

    /// The card's own block is in place.
    pub(crate) fn own_kept(&mut self, index: usize) {
        let Some(transfer) = self.cards[index].transfer() else { return };
        transfer.own_is_pending = false;
        if transfer.fold.is_some() {
            self.contributed(index, 1);
        }
        self.finish_if_done(index);
    }
}

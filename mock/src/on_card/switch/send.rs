//! The sending side: control signals, streams and bursts out, and the own block.

use std::sync::Arc;

use crate::card::running::{Running, Work, memory_refusal};
use crate::event::Step;
use crate::net::buffer::Way;
use crate::on_card::OnCard;
use crate::profile::{BEAT_CYCLES, ONE_SIDED_CYCLES};
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::moving::{Data, Then};
use crate::proto::optweb::stream::StreamPurpose;
use crate::proto::optweb::transfer::{Carried, SendState};

impl OnCard<'_> {
    pub(super) fn controls_out(&mut self, at: LaneId) {
        let control = self.env.profile.control_ps();
        let now = self.env.now;
        let Some(running) = self.running_mut(at) else { return };
        running.counted_out = now;
        let ports: Vec<usize> = match &mut running.work {
            Work::Barrier(barrier) => {
                barrier.is_sent = true;
                barrier.ports.clone()
            }
            Work::Transfer(transfer) if transfer.is_rendezvous => {
                transfer.receives.iter().map(|receive| receive.port).collect()
            }
            Work::Rdma(_) => return self.rdma_request_out(at),
            _ => Vec::new(),
        };
        for port in &ports {
            let way = self.way_in(at, *port);
            self.carry(at, *port, control, Carried::Control(way));
        }
        self.use_all_controls(at);
        self.finish_if_done(at);
    }

    /// Consumes signals that arrived before the instruction waited for them.
    fn use_all_controls(&mut self, at: LaneId) {
        let card = &mut *self.card;
        let ports: Vec<usize> = match &card.lanes[at.lane].running {
            Some(Running { work: Work::Barrier(barrier), .. }) => barrier.ports.clone(),
            Some(Running { work: Work::Transfer(transfer), .. }) => transfer.sends.iter().map(|s| s.port).collect(),
            _ => return,
        };
        for port in ports {
            self.use_control(at, port);
        }
    }

    pub(crate) fn control_came(&mut self, at: LaneId, port: usize, way: Way) {
        let card = &mut *self.card;
        card.links[port].inbound.add_control(at.lane, way);
        if !card.is_frozen {
            self.use_control(at, port);
            self.finish_if_done(at);
        }
    }

    /// Consumes a signal of `port`, if the lane's instruction waits for it.
    fn use_control(&mut self, at: LaneId, port: usize) {
        let card = &mut *self.card;
        let link = &mut card.links[port];
        let Some(running) = &mut card.lanes[at.lane].running else { return };
        match &mut running.work {
            Work::Barrier(barrier) if barrier.is_sent => {
                let place = barrier.ports.iter().position(|other| *other == port);
                let Some(place) = place.filter(|place| !barrier.came[*place]) else { return };
                if link.inbound.take_control(at.lane).is_some() {
                    barrier.came[place] = true;
                    barrier.missing -= 1;
                    running.arrival = Some(self.env.now);
                }
            }
            Work::Transfer(transfer) => {
                let Some(send) = link.send(at.lane).map(|place| &mut transfer.sends[place]) else { return };
                if !matches!(send.state, SendState::AwaitsReady | SendState::AwaitsAcknowledge) {
                    return;
                }
                let Some(way) = link.inbound.take_control(at.lane) else { return };
                if send.state == SendState::AwaitsReady {
                    (send.state, send.way) = (SendState::Ready, way);
                    transfer.not_ready -= 1;
                    self.start_if_ready(at);
                } else {
                    send.state = SendState::Done;
                    transfer.not_acknowledged -= 1;
                }
            }
            _ => {}
        }
    }

    pub(super) fn data_at_switch(&mut self, at: LaneId) {
        let Some(running) = self.running_mut(at) else { return };
        match &mut running.work {
            Work::Transfer(transfer) => transfer.has_data = true,
            Work::Rdma(_) => return self.schedule_step(at, self.env.profile.cycles(ONE_SIDED_CYCLES), Step::HeaderOut),
            Work::Local { .. } => return self.start_local(at),
            _ => return,
        }
        self.start_if_ready(at);
    }

    /// Announces the data once it is at the switch and all destinations are ready.
    fn start_if_ready(&mut self, at: LaneId) {
        let Some(transfer) = self.transfer(at) else { return };
        if transfer.has_data && transfer.not_ready == 0 && !transfer.has_started {
            transfer.has_started = true;
            self.schedule_step(at, self.env.profile.cycles(BEAT_CYCLES), Step::HeaderOut);
        }
    }

    /// The announcing beat is out; the data follows.
    pub(super) fn header_out(&mut self, at: LaneId) {
        if matches!(self.running(at), Some(Running { work: Work::Rdma(_), .. })) {
            return self.start_write(at);
        }
        let Some(transfer) = self.transfer(at) else { return };
        let (is_multicast, is_rendezvous) = (transfer.is_multicast, transfer.is_rendezvous);
        let sends = transfer.sends.clone();
        let (own, contribution, partial) = (transfer.own, transfer.contribution, transfer.partial);
        if !is_rendezvous && !self.send_bursts(at, is_multicast) {
            return;
        }
        let mut together = Vec::new();
        for (place, send) in sends.iter().enumerate() {
            let Way(way) = send.way;
            let mut passes = self.card.links[send.port].out.to_vec();
            passes.extend(way.into_iter().flatten());
            if is_multicast {
                together.extend(passes);
            } else {
                passes.push(self.env.resources[self.index()].channel(send.address));
                self.start_stream(send.bytes, passes, StreamPurpose::Send { at, send: place });
            }
        }
        if let Some(own) = own {
            let resources = &self.env.resources[self.index()];
            together.push(resources.channel(own.destination));
            if !is_multicast || sends.is_empty() {
                together.extend([resources.channel(own.source), resources.local[at.lane]]);
                self.start_stream(own.bytes, std::mem::take(&mut together), StreamPurpose::Own { at });
            }
        }
        if let Some((address, bytes)) = contribution {
            let resources = &self.env.resources[self.index()];
            let mut passes = vec![resources.channel(address), resources.local[at.lane]];
            passes.extend(partial.map(|partial| resources.channel(partial)));
            self.start_stream(bytes, passes, StreamPurpose::Own { at });
        }
        if let (true, Some(send)) = (is_multicast, sends.first()) {
            together.push(self.env.resources[self.index()].channel(send.address));
            self.start_stream(send.bytes, together, StreamPurpose::Multicast { at });
        }
        let own_streams = usize::from((own.is_some() && (!is_multicast || sends.is_empty())) || contribution.is_some());
        let streams = if is_multicast { usize::from(!sends.is_empty()) } else { sends.len() };
        self.env.statistics.transfers = self.env.statistics.transfers.wrapping_add(sends.len() as u64);
        if let Some(transfer) = self.transfer(at) {
            transfer.moving = streams + own_streams;
        }
    }

    /// Returns what a block that the lane's instruction receives at `port` passes in this card: its pseudo channel, and the
    /// reduction units for a fold. The contributions to a fold pass together, so the first stands for all; each has a pseudo
    /// channel if it has a result.
    fn way_in(&self, at: LaneId, port: usize) -> Way {
        let resources = &self.env.resources[self.index()];
        let Some(Running { work: Work::Transfer(transfer), .. }) = self.running(at) else { return Way::default() };
        let receive = self.card.links[port].receive(at.lane);
        let Some((place, receive)) = receive.map(|place| (place, &transfer.receives[place])) else {
            return Way::default();
        };
        let channel = Some(resources.channel(receive.address));
        Way(match &transfer.fold {
            None => [channel, None],
            Some(_) if place == 0 => [channel, Some(resources.fold[at.lane])],
            Some(fold) if fold.keeps_partials() => [channel, None],
            Some(_) => [None; 2],
        })
    }

    /// Eager: sends the current data to the receive buffers of the other cards. Returns `false` if it failed the instruction instead.
    fn send_bursts(&mut self, at: LaneId, is_multicast: bool) -> bool {
        let to_buffer = self.env.profile.to_receive_buffer_ps();
        let card = &mut *self.card;
        let Some(Running { work: Work::Transfer(transfer), .. }) = &mut card.lanes[at.lane].running else {
            return false;
        };
        let mut shared: Option<Arc<[u8]>> = None;
        let mut bursts = Vec::with_capacity(transfer.sends.len());
        for send in &mut transfer.sends {
            let data = match shared.take().filter(|_| is_multicast) {
                Some(data) => data,
                None => match card.memory.read(send.address, send.bytes) {
                    Ok(data) => data.into(),
                    Err(error) => {
                        self.fail(at, memory_refusal(error));
                        return false;
                    }
                },
            };
            shared = Some(Arc::clone(&data));
            self.env.hold_bytes += send.bytes;
            send.burst = self.env.next_burst;
            self.env.next_burst += 1;
            bursts.push((send.port, send.burst, data));
        }
        for (port, id, data) in bursts {
            self.carry(at, port, to_buffer, Carried::BurstHead { id, data });
        }
        true
    }

    /// The last beat of a send is out.
    pub(super) fn counted_out(&mut self, at: LaneId, place: usize) {
        let now = self.env.now;
        let Some(running) = self.running_mut(at) else { return };
        let Work::Transfer(transfer) = &mut running.work else { return };
        let is_rendezvous = transfer.is_rendezvous;
        let Some(send) = transfer.sends.get_mut(place) else { return };
        send.state = SendState::AwaitsAcknowledge;
        running.counted_out = now;
        running.bytes = running.bytes.saturating_add(send.bytes);
        let (port, id, address, bytes) = (send.port, send.burst, send.address, send.bytes);
        self.env.statistics.bytes = self.env.statistics.bytes.wrapping_add(bytes);
        if is_rendezvous {
            match self.card.memory.payload(address, bytes) {
                Ok(payload) => self.carry(at, port, self.env.profile.data_ps(), Carried::Block(Box::new(payload))),
                Err(error) => self.fail(at, memory_refusal(error)),
            }
        } else {
            self.carry(at, port, self.env.profile.to_receive_buffer_ps(), Carried::BurstTail { id });
        }
    }

    pub(super) fn own_through_switch(&mut self, at: LaneId) {
        if self.transfer(at).is_some_and(|transfer| transfer.own_is_pending) {
            let cycles = 2 * self.env.profile.switch_cycles + self.env.profile.size_check_cycles;
            self.schedule_step(at, self.env.profile.cycles(cycles), Step::OwnCounted);
        }
    }

    pub(super) fn own_counted(&mut self, at: LaneId) {
        let now = self.env.now;
        let Some(Running { work: Work::Transfer(transfer), arrival, .. }) = self.running_mut(at) else {
            return;
        };
        let Some(own) = transfer.own else { return self.own_kept(at) };
        *arrival = Some(now);
        match self.card.memory.payload(own.source, own.bytes) {
            Ok(payload) => self.start_move(at, Data::Block { payload, to: own.destination }, Then::OwnKept),
            Err(error) => self.fail(at, memory_refusal(error)),
        }
    }

    /// The card's own block is in place.
    pub(crate) fn own_kept(&mut self, at: LaneId) {
        let Some(transfer) = self.transfer(at) else { return };
        transfer.own_is_pending = false;
        if transfer.fold.is_some() {
            self.contributed(at, 1);
        }
        self.finish_if_done(at);
    }
}

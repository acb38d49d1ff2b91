//! The distributed switch: barriers, blocks between cards, and the control signals that order them.
//!
//! A source sends once all of its destinations are ready (rendezvous) or at once into their receive buffers (eager). The
//! destination counts what comes in, and when all of a block is there, signals the source. Signals carry nothing: each
//! link only counts those that came and were not waited for yet.

use std::sync::Arc;

use cmdseq::completion::Status;
use cmdseq::instruction::takes_tables;
use cmdseq::ranges;
use cmdseq::ranges::{Context, RangeError};
use cmdseq::{Flags, Instruction, Layout, Operation};
use fpga_regs::bits::Errors;

use crate::card::Card;
use crate::communicators::Membership;
use crate::fabric::{Core, Event, Step};
use crate::fold::Fold;
use crate::inbound::Burst;
use crate::moves::{Data, Then};
use crate::rates::ResourceId;
use crate::sequencer::{Refusal, Running, Work, memory_refusal};

/// A barrier at work.
#[derive(Debug)]
pub(crate) struct Barrier {
    ports: Vec<usize>,
    /// Whether the signal of the peer at the same place in `ports` came.
    came: Vec<bool>,
    missing: usize,
    is_sent: bool,
}

/// Blocks out and in of one instruction.
#[derive(Debug)]
pub(crate) struct Transfer {
    is_rendezvous: bool,
    is_multicast: bool,
    pub(crate) sends: Vec<Send>,
    pub(crate) receives: Vec<Receive>,
    own: Option<ranges::OwnBlock>,
    /// What is made of the receives, if they are folded.
    pub(crate) fold: Option<Fold>,
    /// Where the own contribution to the fold is read, and its length, if it is a stream of its own.
    contribution: Option<(u64, u64)>,
    pub(crate) is_set: bool,
    has_data: bool,
    has_started: bool,
    /// Destinations that have not said that they are ready.
    not_ready: usize,
    /// Streams that move, of the own block too.
    moving: usize,
    not_acknowledged: usize,
    not_received: usize,
    own_is_pending: bool,
}

#[derive(Debug)]
pub(crate) struct Send {
    port: usize,
    pub(crate) peer: usize,
    address: u64,
    bytes: u64,
    pub(crate) state: SendState,
    /// Name of the burst, if eager.
    burst: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendState {
    AwaitsReady,
    Ready,
    AwaitsAcknowledge,
    Done,
}

#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) port: usize,
    address: u64,
    pub(crate) bytes: u64,
    pub(crate) state: ReceiveState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveState {
    Waiting,
    /// The receive buffer is being written to memory, or was and the last beat is on its way; or it has come to a fold that
    /// is not over.
    Draining,
    Done,
}

/// What a stream is for.
#[derive(Debug)]
pub(crate) enum StreamPurpose {
    /// One send of `card`'s instruction, by place.
    Send { card: usize, send: usize },
    /// All its sends, and the own block, from one stream.
    Multicast { card: usize },
    /// Its own block.
    Own { card: usize },
    /// The receive buffer of a link to memory.
    Drain { card: usize, port: usize },
    /// The fold of what lies in the receive buffers to memory.
    Fold { card: usize },
    /// A copy or fill within a card.
    Local { card: usize },
    /// A one-sided transfer, by the card that issued it.
    Rdma { issuer: usize },
}

impl StreamPurpose {
    fn card(&self) -> usize {
        match *self {
            StreamPurpose::Send { card, .. }
            | StreamPurpose::Multicast { card }
            | StreamPurpose::Own { card }
            | StreamPurpose::Drain { card, .. }
            | StreamPurpose::Fold { card }
            | StreamPurpose::Local { card }
            | StreamPurpose::Rdma { issuer: card } => card,
        }
    }
}

impl Transfer {
    /// Whether it reads memory.
    fn reads(&self) -> bool {
        !self.sends.is_empty() || self.own.is_some() || self.contribution.is_some()
    }
}

impl Card {
    fn transfer(&mut self) -> Option<&mut Transfer> {
        match &mut self.running {
            Some(Running { work: Work::Transfer(transfer), .. }) => Some(transfer),
            _ => None,
        }
    }

    pub(crate) fn membership(&self, instruction: &Instruction) -> Result<Membership, Refusal> {
        self.communicators.get(instruction.communicator)
    }

    /// The pseudo channel in which `address` lies. A block that goes on into the next is counted where it starts.
    pub(crate) fn channel(&self, address: u64) -> ResourceId {
        let bytes = self.memory.len() / self.channels.len() as u64;
        self.channels[((address / bytes) as usize).min(self.channels.len() - 1)]
    }

    /// The node that the running instruction waits for, the lowest if several.
    pub(crate) fn waiting_for(&self, node_at: impl Fn(usize) -> u32) -> Option<u32> {
        match &self.running.as_ref()?.work {
            Work::Barrier(barrier) => {
                let missing = barrier.ports.iter().zip(&barrier.came).filter(|(_, came)| !**came);
                missing.map(|(port, _)| node_at(*port)).min()
            }
            Work::Transfer(transfer) => {
                let sends = transfer.sends.iter().filter(|send| send.state != SendState::Done).map(|send| send.port);
                // A fold waits for those that have not come, and not for those that wait with it.
                let has_come = |receive: &Receive| match transfer.fold {
                    Some(_) if receive.state == ReceiveState::Waiting => {
                        !self.links[receive.port].inbound.bursts.is_empty()
                    }
                    Some(_) => true,
                    None => receive.state == ReceiveState::Done,
                };
                let receives = transfer.receives.iter().filter(|receive| !has_come(receive)).map(|r| r.port);
                sends.chain(receives).map(node_at).min()
            }
            Work::Rdma(rdma) => Some(rdma.peer as u32),
            Work::Timed | Work::Signal { .. } | Work::Local { .. } | Work::HostTable | Work::HostCopy { .. } => None,
        }
    }
}

impl Core {
    /// Stops all streams that `card`'s instruction has moving.
    pub(crate) fn stop_streams(&mut self, index: usize) {
        self.rates.stop(|purpose| purpose.card() == index);
    }

    /// The link at `port` has gone down: an instruction that still needs it fails.
    pub(crate) fn lost_link(&mut self, index: usize, port: usize) {
        let peer = self.ports.peer(self.cards[index].node, port);
        let card = &mut self.cards[index];
        let link = &card.links[port];
        let Some(running) = &mut card.running else { return };
        let is_used = link.send.is_some()
            || link.receive.is_some()
            || matches!(&running.work, Work::Rdma(rdma) if rdma.peer == peer as usize);
        if is_used && !card.is_frozen {
            (running.status, running.detail) = (Status::LinkDown, peer as u16);
            self.finish(index);
        }
    }

    /// The port toward rank `rank`, if there is a link and it is up.
    pub(crate) fn port_toward(
        &self,
        index: usize,
        membership: &Membership,
        rank: u32,
    ) -> Result<(usize, usize), Refusal> {
        let peer = *membership.members.get(rank as usize).ok_or((Status::BadRank, rank as u16))?;
        let port = self.ports.toward(self.cards[index].node, peer);
        let port = port.filter(|port| self.cards[index].links[*port].is_up);
        port.map(|port| (port, peer as usize)).ok_or((Status::LinkDown, peer as u16))
    }

    /// The port at which a signal or burst comes in that leaves `index` by `port`.
    pub(crate) fn far_end(&self, index: usize, port: usize) -> Option<(usize, usize)> {
        let node = self.cards[index].node;
        let peer = self.ports.peer(node, port);
        let link = self.cards[index].links[port].is_up.then_some(peer)?;
        self.ports.toward(link, node).map(|back| (peer as usize, back))
    }

    fn send_control(&mut self, index: usize, port: usize, delay: u64) {
        if let Some((card, port)) = self.far_end(index, port) {
            self.schedule_in(delay, Event::Control { card, port });
        }
    }

    pub(crate) fn begin_barrier(&mut self, index: usize) -> Result<(), Refusal> {
        let Some(running) = &self.cards[index].running else { return Ok(()) };
        let membership = self.cards[index].membership(&running.instruction)?;
        let others = (0..membership.members.len() as u32).filter(|rank| *rank != membership.own_rank);
        let ports: Vec<usize> =
            others.map(|rank| Ok(self.port_toward(index, &membership, rank)?.0)).collect::<Result<_, Refusal>>()?;
        let missing = ports.len();
        let barrier = Barrier { came: vec![false; missing], ports, missing, is_sent: false };
        for (place, port) in barrier.ports.iter().enumerate() {
            self.cards[index].links[*port].receive = Some(place);
        }
        let controls_out = self.profile.cycles(self.profile.dispatch_cycles + 1);
        if let Some(running) = &mut self.cards[index].running {
            running.work = Work::Barrier(barrier);
        }
        self.schedule_step(index, controls_out, Step::ControlsOut);
        Ok(())
    }

    pub(crate) fn begin_transfer(&mut self, index: usize, instruction: &Instruction) -> Result<(), Refusal> {
        let membership = self.cards[index].membership(instruction)?;
        let ranks = membership.members.len() as u32;
        self.check_ranks(instruction, ranks)?;
        let transfers = self.checked_transfers(index, instruction, membership.own_rank, ranks)?;
        let is_rendezvous = self.is_rendezvous(index, instruction, &transfers)?;
        let lower = transfers.receives.iter().filter(|one| one.peer_rank < membership.own_rank).count();
        let fold = transfers.reduced.zip(instruction.combine());
        let fold = fold.map(|(reduced, combine)| Fold::new(reduced, combine, lower, transfers.receives.len()));
        let contributes = fold.as_ref().is_some_and(|fold| fold.reduced.own.is_some());
        let mut transfer = Transfer {
            is_rendezvous,
            is_multicast: transfers.multicast,
            sends: Vec::with_capacity(transfers.sends.len()),
            receives: Vec::with_capacity(transfers.receives.len()),
            own: transfers.own,
            fold,
            contribution: transfers.contribution(),
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
            let (port, peer) = self.port_toward(index, &membership, send.peer_rank)?;
            let state = if is_rendezvous { SendState::AwaitsReady } else { SendState::Ready };
            transfer.sends.push(Send { port, peer, address: send.address, bytes: send.bytes, state, burst: 0 });
        }
        for receive in &transfers.receives {
            let (port, _) = self.port_toward(index, &membership, receive.peer_rank)?;
            let state = ReceiveState::Waiting;
            transfer.receives.push(Receive { port, address: receive.address, bytes: receive.bytes, state });
        }
        transfer.not_ready = if is_rendezvous { transfer.sends.len() } else { 0 };
        let card = &mut self.cards[index];
        for (place, send) in transfer.sends.iter().enumerate() {
            card.links[send.port].send = Some(place);
        }
        for (place, receive) in transfer.receives.iter().enumerate() {
            card.links[receive.port].receive = Some(place);
        }
        let reads = transfer.reads();
        if let Some(running) = &mut card.running {
            running.work = Work::Transfer(Box::new(transfer));
        }
        let dispatch = self.profile.dispatch_cycles;
        self.schedule_step(index, self.profile.cycles(dispatch), Step::SwitchSet);
        self.schedule_step(index, self.profile.cycles(dispatch + 1), Step::ControlsOut);
        if reads {
            let data = self.profile.cycles(dispatch + self.profile.memory_read_cycles);
            self.schedule_step(index, data, Step::DataAtSwitch);
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

    /// Decided once per instruction, by its largest piece: deciding link by link would let two cards disagree. Of a vector
    /// form, not every card knows the largest.
    fn is_rendezvous(
        &self,
        index: usize,
        instruction: &Instruction,
        transfers: &ranges::Transfers,
    ) -> Result<bool, Refusal> {
        if instruction.flags.contains(Flags::EAGER) {
            let fits = instruction.bytes.max(transfers.longest()) <= self.profile.receive_buffer_bytes;
            return if fits { Ok(false) } else { Err((Status::EagerOverrun, 0)) };
        }
        let is_large = instruction.bytes > self.cards[index].eager_limit || takes_tables(instruction.operation);
        Ok(is_large || instruction.flags.contains(Flags::RENDEZVOUS))
    }

    /// What the instruction moves, if all of it lies inside memory and stripes, and nothing overlaps.
    pub(crate) fn checked_transfers(
        &self,
        index: usize,
        instruction: &Instruction,
        rank: u32,
        ranks: u32,
    ) -> Result<ranges::Transfers, Refusal> {
        let half = self.profile.stripe_half_bytes();
        // A longer block would reach into the pseudo channel that the other operand is to have for itself.
        let is_striped = [instruction.source, instruction.destination].iter().any(|o| o.layout == Layout::Striped);
        if is_striped && instruction.bytes > half {
            return Err((Status::OutOfRange, 0));
        }
        let context = Context { rank, ranks, stripe_bytes: 2 * half, tables: &self.cards[index].tables };
        let transfers = ranges::transfers(instruction, &context).map_err(unfit)?;
        let card = ranges::card_ranges(instruction, &context).map_err(unfit)?;
        if card
            .reads
            .iter()
            .chain(&card.writes)
            .any(|range| !self.cards[index].memory.contains(range.address, range.bytes))
        {
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
        // An exchange in place would need a second copy of every block: it writes a block that has not been sent.
        if instruction.operation == Operation::Alltoall && card.in_place.is_some() && ranks > 1 {
            return Err((Status::Overlap, 0));
        }
        Ok(transfers)
    }

    /// A step of time for the running instruction.
    pub(crate) fn step(&mut self, index: usize, step: Step) {
        match step {
            Step::SwitchSet => self.switch_set(index),
            Step::ControlsOut => self.controls_out(index),
            Step::DataAtSwitch => self.data_at_switch(index),
            Step::HeaderOut => self.header_out(index),
            Step::OwnCounted => self.own_counted(index),
            Step::SignalsRead => self.signals_read(index),
            Step::FoldCounted => self.fold_counted(index),
            Step::Folded => self.folded(index),
            Step::HostPiece => self.host_piece(index),
            Step::Acknowledged => self.finish(index),
            Step::Finish => self.timed_finish(index),
        }
    }

    pub(crate) fn timed_finish(&mut self, index: usize) {
        let now = self.now;
        if let Some(running) = &mut self.cards[index].running {
            running.counted_out = running.counted_out.max(now);
        }
        self.finish(index);
    }

    fn switch_set(&mut self, index: usize) {
        let Some(transfer) = self.cards[index].transfer() else { return };
        transfer.is_set = true;
        let ports: Vec<usize> = transfer.receives.iter().map(|receive| receive.port).collect();
        for port in ports {
            self.drain(index, port);
        }
    }

    fn controls_out(&mut self, index: usize) {
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

    /// Looks at the signals that came before the instruction could wait for them.
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

    /// Uses a signal of `port`, if there is one and the running instruction waits for it.
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

    fn data_at_switch(&mut self, index: usize) {
        let Some(running) = &mut self.cards[index].running else { return };
        match &mut running.work {
            Work::Transfer(transfer) => transfer.has_data = true,
            Work::Rdma(_) => return self.schedule_step(index, self.profile.cycles(2), Step::HeaderOut),
            Work::Local { .. } => return self.start_local(index),
            _ => return,
        }
        self.start_if_ready(index);
    }

    /// Announces the data once it is there and all destinations are ready.
    fn start_if_ready(&mut self, index: usize) {
        let Some(transfer) = self.cards[index].transfer() else { return };
        if transfer.has_data && transfer.not_ready == 0 && !transfer.has_started {
            transfer.has_started = true;
            self.schedule_step(index, self.profile.cycles(1), Step::HeaderOut);
        }
    }

    /// The announcing beat is out; the data follows.
    fn header_out(&mut self, index: usize) {
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
        let (own, contribution) = (transfer.own, transfer.contribution);
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
            let passes = vec![card.channel(address), card.local];
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
        // The last beat is partial, but takes its time on the wire all the same.
        let beat = self.profile.beat_bytes;
        let bytes = bytes.div_ceil(beat).saturating_mul(beat);
        self.rates.start(self.now, bytes, passes, purpose);
    }

    /// What a block from `index` passes at `peer`: the pseudo channel in which it is put, and of a fold the units too. The
    /// contributions to a fold pass together, so one of them stands for the result of all.
    fn destination_passes(&self, index: usize, port: usize, peer: usize) -> [Option<ResourceId>; 2] {
        let Some((_, back)) = self.far_end(index, port) else { return [None; 2] };
        let card = &self.cards[peer];
        let Some(Running { work: Work::Transfer(transfer), .. }) = &card.running else { return [None; 2] };
        let Some(place) = card.links[back].receive else { return [None; 2] };
        let Some(receive) = transfer.receives.get(place) else { return [None; 2] };
        let channel = Some(card.channel(receive.address));
        match transfer.fold {
            None => [channel, None],
            Some(_) if place == 0 => [channel, Some(card.fold)],
            Some(_) => [None; 2],
        }
    }

    /// Eager: the data leaves as it is now, and goes into the receive buffers of the other cards.
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

    pub(crate) fn stream_ended(&mut self, purpose: StreamPurpose) {
        match purpose {
            StreamPurpose::Send { card, send } => {
                self.counted_out(card, send);
                self.stream_over(card);
            }
            StreamPurpose::Multicast { card } => {
                let sends = self.cards[card].transfer().map_or(0, |transfer| transfer.sends.len());
                (0..sends).for_each(|send| self.counted_out(card, send));
                self.own_through_switch(card);
                self.stream_over(card);
            }
            StreamPurpose::Own { card } => {
                let is_alone = self.cards[card].transfer().is_some_and(|transfer| transfer.sends.is_empty());
                if let Some(running) = self.cards[card].running.as_mut().filter(|_| is_alone) {
                    running.counted_out = self.now;
                }
                self.own_through_switch(card);
                self.stream_over(card);
            }
            StreamPurpose::Drain { card, port } => self.drained(card, port),
            StreamPurpose::Fold { card } => self.fold_drained(card),
            StreamPurpose::Local { card } => self.local_ended(card),
            StreamPurpose::Rdma { issuer } => self.rdma_stream_ended(issuer),
        }
    }

    fn stream_over(&mut self, index: usize) {
        if let Some(transfer) = self.cards[index].transfer() {
            transfer.moving = transfer.moving.saturating_sub(1);
        }
        self.finish_if_done(index);
    }

    /// The last beat of a send is out.
    fn counted_out(&mut self, index: usize, place: usize) {
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

    fn own_through_switch(&mut self, index: usize) {
        if self.cards[index].transfer().is_some_and(|transfer| transfer.own_is_pending) {
            let cycles = 2 * self.profile.switch_cycles + self.profile.size_check_cycles;
            self.schedule_step(index, self.profile.cycles(cycles), Step::OwnCounted);
        }
    }

    fn own_counted(&mut self, index: usize) {
        let now = self.now;
        let Some(Running { work: Work::Transfer(transfer), arrival, .. }) = &mut self.cards[index].running else {
            return;
        };
        let Some(own) = transfer.own else { return self.own_kept(index) };
        *arrival = Some(now);
        let block = Data::Block { from: (index, own.source), to: (index, own.destination), bytes: own.bytes };
        self.start_move(index, block, Then::OwnKept);
    }

    /// The own block is where it belongs.
    pub(crate) fn own_kept(&mut self, index: usize) {
        let Some(transfer) = self.cards[index].transfer() else { return };
        transfer.own_is_pending = false;
        if transfer.fold.is_some() {
            self.contributed(index, 1);
        }
        self.finish_if_done(index);
    }

    pub(crate) fn burst_head_came(&mut self, index: usize, port: usize, id: u64, data: Arc<[u8]>) {
        let buffer = self.profile.receive_buffer_bytes;
        let card = &mut self.cards[index];
        if card.is_frozen {
            return;
        }
        let inbound = &mut card.links[port].inbound;
        let bytes = data.len() as u64;
        // Without data a burst still takes its beat.
        let most = (buffer / self.profile.beat_bytes.max(1)) as usize;
        if inbound.buffered_bytes() + bytes > buffer || inbound.bursts.len() >= most.max(1) && bytes == 0 {
            // There is no backpressure on a link: what does not fit is lost.
            card.errors |= Errors::RECEIVE_OVERRUN;
            return;
        }
        inbound.bursts.push_back(Burst { id, bytes, data, is_whole: false, is_drained: false, is_counted: false });
        self.drain(index, port);
    }

    /// Starts to write the oldest burst of `port` to memory, if the running instruction takes it.
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

    /// A peer sent another number of bytes than the instruction says.
    pub(crate) fn mismatch(&mut self, index: usize, port: usize) {
        let card = &mut self.cards[index];
        card.links[port].inbound.bursts.pop_front();
        let peer = self.ports.peer(card.node, port);
        self.fail(index, (Status::Mismatch, peer as u16));
    }

    fn drained(&mut self, index: usize, port: usize) {
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

    /// Once the oldest burst is whole and written, its last beat still has to pass the switch and be counted.
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

    /// All of a block is here: the source is told, and the sequencer when it was the last.
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

    fn finish_if_done(&mut self, index: usize) {
        let Some(running) = &self.cards[index].running else { return };
        let controls_are_out = running.counted_out > running.issued;
        let is_done = match &running.work {
            Work::Barrier(barrier) => barrier.is_sent && barrier.missing == 0,
            Work::Transfer(transfer) => {
                let started = transfer.has_started || !transfer.reads();
                let all_out = transfer.moving == 0 && transfer.not_acknowledged == 0 && !transfer.own_is_pending;
                controls_are_out && started && all_out && transfer.not_received == 0
            }
            _ => false,
        };
        if is_done {
            self.finish(index);
        }
    }
}

/// What the card says of an instruction of which it cannot be said what it moves.
fn unfit(error: RangeError) -> Refusal {
    match error {
        RangeError::Address(_) => (Status::OutOfRange, 0),
        RangeError::NoTable { slot } => (Status::BadTable, slot as u16),
        RangeError::Entries { slot, .. } | RangeError::OwnBlock { slot, .. } => (Status::BadTable, slot),
    }
}

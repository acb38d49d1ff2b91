//! The distributed switch: barriers, blocks between cards, and the control signals that order them.
//!
//! A source sends once all of its destinations are ready (rendezvous) or at once into their receive buffers (eager). The
//! destination counts arriving beats, and signals the source when the block is complete. Signals carry no data: each link only
//! counts those that arrived and were not consumed.

mod begin;
mod receive;
mod send;

use cmdseq::Instruction;
use cmdseq::completion::Status;

use crate::card::Card;
use crate::card::communicators::Membership;
use crate::card::running::{Running, Work};
use crate::event::{Event, Step};
use crate::on_card::OnCard;
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::stream::StreamPurpose;
use crate::proto::optweb::transfer::{Carried, Receive, ReceiveState, SendState, Transfer};
use crate::proto::refusal::Refusal;

impl Card {
    pub(crate) fn membership(&self, instruction: &Instruction) -> Result<Membership, Refusal> {
        self.communicators.get(instruction.communicator)
    }

    /// Returns the node that the current instruction waits for, the lowest if several.
    pub(crate) fn waiting_for(&self, node_at: impl Fn(usize) -> u32) -> Option<u32> {
        let lane = self.oldest_lane()?;
        match &self.lanes[lane].running.as_ref()?.work {
            Work::Barrier(barrier) => {
                let missing = barrier.ports.iter().zip(&barrier.came).filter(|(_, came)| !**came);
                missing.map(|(port, _)| node_at(*port)).min()
            }
            Work::Transfer(transfer) => {
                let sends = transfer.sends.iter().filter(|send| send.state != SendState::Done).map(|send| send.port);
                // A fold waits for missing contributions, not for those that arrived and wait too.
                let has_come = |receive: &Receive| match transfer.fold {
                    Some(_) if receive.state == ReceiveState::Waiting => {
                        self.links[receive.port].inbound.first(lane).is_some()
                    }
                    Some(_) => true,
                    None => receive.state == ReceiveState::Done,
                };
                let receives = transfer.receives.iter().filter(|receive| !has_come(receive)).map(|r| r.port);
                sends.chain(receives).map(node_at).min()
            }
            Work::Rdma(issued) => Some(issued.peer as u32),
            Work::Timed
            | Work::Switched(_)
            | Work::Signal { .. }
            | Work::Closing(_)
            | Work::Local { .. }
            | Work::HostTable
            | Work::HostCopy { .. } => None,
        }
    }
}

impl OnCard<'_> {
    /// Returns the transfer of the lane's instruction.
    fn transfer(&mut self, at: LaneId) -> Option<&mut Transfer> {
        match self.running_mut(at) {
            Some(Running { work: Work::Transfer(transfer), .. }) => Some(transfer),
            _ => None,
        }
    }

    /// Stops all streams of the lane's instruction.
    pub(crate) fn stop_streams(&mut self, at: LaneId) {
        self.env.rates.stop(|purpose| purpose.at() == at && purpose.served().is_none());
    }

    /// Number of blocks that the lane's instruction sends.
    pub(crate) fn sends(&self, at: LaneId) -> usize {
        match self.running(at) {
            Some(Running { work: Work::Transfer(transfer), .. }) => transfer.sends.len(),
            _ => 0,
        }
    }

    /// Fails an instruction that needs the link at `port`, which went down.
    pub(crate) fn lost_link(&mut self, port: usize) {
        self.lose_served(port);
        let peer = self.env.ports.peer(self.card.node, port);
        for at in self.lanes() {
            let link = &self.card.links[port];
            let Some(running) = self.running(at) else { continue };
            let is_used = match &running.work {
                Work::Barrier(barrier) => barrier.needs(port),
                Work::Transfer(transfer) => transfer.needs(link.send(at.lane), link.receive(at.lane)),
                Work::Rdma(issued) => issued.port == port,
                _ => false,
            };
            if is_used && !self.card.is_frozen {
                self.fail(at, (Status::LinkDown, peer as u16));
            }
        }
    }

    /// Returns the port and node of `rank`, if the link exists and is up.
    pub(crate) fn port_toward(&self, membership: &Membership, rank: u32) -> Result<(usize, usize), Refusal> {
        let peer = *membership.members.get(rank as usize).ok_or((Status::BadRank, rank as u16))?;
        let port = self.env.ports.toward(self.card.node, peer);
        let port = port.filter(|port| self.card.links[*port].is_up);
        port.map(|port| (port, peer as usize)).ok_or((Status::LinkDown, peer as u16))
    }

    /// Returns lane and port at the far end of a link that is up. Exchanges meet only in the same lane.
    pub(crate) fn far_end(&self, at: LaneId, port: usize) -> Option<(LaneId, usize)> {
        let (card, back) = self.env.back(at.card, port).filter(|_| self.card.links[port].is_up)?;
        Some((LaneId { card, ..at }, back))
    }

    /// Sends something out of `port`, to arrive after `delay` if the way is one link. A link that is down loses it.
    pub(crate) fn carry(&mut self, at: LaneId, port: usize, delay: u64, what: Carried) {
        let delay = delay + self.card.links[port].farther_ps;
        if let Some((to, back)) = self.far_end(at, port) {
            let what = self.hit(port, what);
            let session = self.card.links[port].session;
            self.env.schedule_in(delay, Event::Arrival { at: to, port: back as u32, session, what });
        }
    }

    /// Takes what a link carried.
    pub(crate) fn arrived(&mut self, at: LaneId, port: usize, session: u32, what: Carried) {
        if self.card.links[port].session != session {
            return;
        }
        match what {
            Carried::Control(way) => self.control_came(at, port, way),
            Carried::BurstHead { id, data } => self.burst_head_came(at, port, id, data),
            Carried::BurstTail { id } => self.burst_tail_came(at, port, id),
            Carried::Block(block) => self.block_counted(at, port, *block),
            Carried::OneSided(what) => self.one_sided_came(at, port, *what),
            Carried::Garbled { is_data } => self.garbled_came(at, port, is_data),
        }
    }

    /// Runs a step of the lane's instruction.
    pub(crate) fn step(&mut self, at: LaneId, step: Step) {
        match step {
            Step::DataAtNetwork => self.data_at_network(at),
            Step::InMemory => self.finish(at),
            Step::SwitchSet => self.switch_set(at),
            Step::ControlsOut => self.controls_out(at),
            Step::DataAtSwitch => self.data_at_switch(at),
            Step::HeaderOut => self.header_out(at),
            Step::OwnCounted => self.own_counted(at),
            Step::SignalsRead => self.signals_read(at),
            Step::FoldCounted => self.fold_counted(at),
            Step::Folded => self.folded(at),
            Step::HostPiece => self.host_piece(at),
            Step::Closed => self.closed(at),
            Step::Finish => self.timed_finish(at),
        }
    }

    pub(crate) fn timed_finish(&mut self, at: LaneId) {
        let now = self.env.now;
        if let Some(running) = self.running_mut(at) {
            running.counted_out = running.counted_out.max(now);
        }
        self.finish(at);
    }

    /// A stream has moved its last byte. Of one in two parts, the fabric sees the end of the first.
    pub(crate) fn stream_ended(&mut self, purpose: StreamPurpose) {
        match purpose {
            StreamPurpose::Send { at, send } => {
                self.counted_out(at, send);
                self.stream_over(at);
            }
            StreamPurpose::Multicast { at } => {
                (0..self.sends(at)).for_each(|send| self.counted_out(at, send));
                self.own_through_switch(at);
                self.stream_over(at);
            }
            StreamPurpose::Own { at } => {
                let is_alone = self.transfer(at).is_some_and(|transfer| transfer.sends.is_empty());
                let now = self.env.now;
                if let Some(running) = self.running_mut(at).filter(|_| is_alone) {
                    running.counted_out = now;
                }
                self.own_through_switch(at);
                self.stream_over(at);
            }
            StreamPurpose::Drain { at, port } => self.drained(at, port),
            StreamPurpose::Fold { at } => self.fold_drained(at),
            StreamPurpose::Local { at } => self.local_ended(at),
            StreamPurpose::Write { at } => self.write_out(at),
            StreamPurpose::Reply(id) => self.reply_out(id),
            StreamPurpose::Watched(_) => {}
        }
    }

    fn stream_over(&mut self, at: LaneId) {
        if let Some(transfer) = self.transfer(at) {
            transfer.moving = transfer.moving.saturating_sub(1);
        }
        self.finish_if_done(at);
    }

    fn finish_if_done(&mut self, at: LaneId) {
        let Some(running) = self.running(at) else { return };
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
            self.finish(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cmdseq::Operand;
    use fpga_regs::bits::Errors;

    use super::*;
    use crate::environment::Pace;
    use crate::profile::Profile;
    use crate::testing::Host;
    use crate::world::Core;

    fn two_cards() -> (Core, [Arc<Host>; 2]) {
        let mut core = Core::new(Profile::optweb(2));
        core.env.pace = Pace::Due;
        let hosts = [0, 1].map(|card| {
            let host = Arc::new(Host::default());
            host.attach(&mut core, card);
            host
        });
        (core, hosts)
    }

    /// Runs until the beats of card 0's transfer are out, or else its signals.
    fn run_until_out(core: &mut Core) {
        let is_out = |core: &Core| match &core.running(LaneId::first(0)).unwrap().work {
            Work::Barrier(barrier) => barrier.is_sent,
            Work::Transfer(transfer) => transfer.sends[0].state == SendState::AwaitsAcknowledge,
            other => panic!("{other:?}"),
        };
        while !is_out(core) {
            assert!(core.run_some(1), "nothing goes out");
        }
    }

    #[test]
    fn a_signal_from_before_a_reset_does_not_count() {
        for resets in [&[][..], &[0], &[1], &[0, 1], &[1, 0]] {
            let (mut core, _hosts) = two_cards();
            core.begin_alone(0, Instruction::barrier());
            run_until_out(&mut core);
            resets.iter().for_each(|card| core.reset(*card));
            while core.run_some(1) {}
            let came = core.cards[1].links[0].inbound.take_control(0).is_some();
            assert_eq!(came, resets.is_empty(), "resets of {resets:?}");
        }
    }

    #[test]
    fn a_burst_from_before_a_reset_is_lost() {
        for resets in [&[][..], &[0], &[1], &[0, 1], &[1, 0]] {
            let (mut core, _hosts) = two_cards();
            core.begin_alone(0, Instruction::send(1, Operand::card(0), 64));
            run_until_out(&mut core);
            resets.iter().for_each(|card| core.reset(*card));
            while core.run_some(1) {}
            let bursts = core.cards[1].links[0].inbound.bursts();
            assert_eq!(bursts, usize::from(resets.is_empty()), "resets of {resets:?}");
        }
    }

    #[test]
    fn a_block_in_flight_is_what_its_source_held_when_it_left() {
        let send = Instruction::send(1, Operand::card(0), 64).with_flags(cmdseq::Flags::RENDEZVOUS);
        let receive = Instruction::recv(0, Operand::card(0), 64).with_flags(cmdseq::Flags::RENDEZVOUS);
        for is_aborted in [false, true] {
            let (mut core, hosts) = two_cards();
            core.cards[0].memory.fill(0, 64, 1).unwrap();
            core.begin_alone(0, send);
            core.begin_alone(1, receive);
            run_until_out(&mut core);
            if is_aborted {
                core.on(0).abort();
                core.cards[0].memory.fill(0, 64, 2).unwrap();
            }
            while core.run_some(1) {}
            assert_eq!(hosts[1].statuses(), [Status::Done]);
            assert_eq!(core.cards[1].memory.read(0, 64).unwrap(), [1, 0, 0, 0, 0, 0, 0, 0].repeat(8));
        }
    }

    #[test]
    fn a_broadcast_whose_source_cannot_be_read_sends_nothing() {
        let mut core = Core::new(Profile::optweb(4));
        core.env.pace = Pace::Due;
        let host = Arc::new(Host::default());
        host.attach(&mut core, 0);
        core.cards[0].memory.flip_bits(0, 2);
        core.begin_alone(0, Instruction::broadcast(0, Operand::card(0), Operand::card(1 << 20), 4096));
        while core.cards[0].is_busy() {
            assert!(core.run_some(1), "the broadcast does not end");
        }
        assert_eq!(host.statuses(), [Status::MemoryError]);
        // No card receives: nothing tells the source to begin.
        core.begin_alone(0, Instruction::send(1, Operand::card(65536), 1 << 20));
        while core.run_some(1) {}
        let Some(Running { work: Work::Transfer(transfer), .. }) = core.running(LaneId::first(0)) else { panic!() };
        assert_eq!(transfer.sends[0].state, SendState::AwaitsReady);
        assert!(core.cards[1].errors.is_empty(), "{:?}", core.cards[1].errors);
    }

    #[test]
    fn a_receive_buffer_holds_beats() {
        // 512 beats of 32 bytes.
        for (bytes, most) in [(0, 512), (1, 512), (32, 512), (33, 256), (16 << 10, 1)] {
            let (mut core, _hosts) = two_cards();
            for id in 0..=most {
                assert!(core.cards[1].errors.is_empty(), "burst {id} of {bytes} bytes");
                core.on(1).burst_head_came(LaneId::first(1), 0, id, vec![0; bytes].into());
            }
            assert_eq!(core.cards[1].errors, Errors::RECEIVE_OVERRUN, "{bytes} bytes");
        }
    }
}

//! The distributed switch: barriers, blocks between cards, and the control signals that order them.
//!
//! A source sends once all of its destinations are ready (rendezvous) or at once into their receive buffers (eager). The
//! destination counts arriving beats, and signals the source when the block is complete. Signals carry no data: each link only
//! counts those that arrived and were not consumed.

mod begin;
mod receive;
mod send;

use cmdseq::completion::Status;
use cmdseq::{Instruction, ranges};

use crate::card::Card;
use crate::communicators::Membership;
use crate::fabric::{Core, Step};
use crate::fold::Fold;
use crate::lanes::LaneId;
use crate::rates::ResourceId;
use crate::sequencer::{Refusal, Running, Work};

/// A running barrier.
#[derive(Debug)]
pub(crate) struct Barrier {
    ports: Vec<usize>,
    /// Whether the signal of the peer at the same index in `ports` arrived.
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
    /// The fold of the receives, for a reduction.
    pub(crate) fold: Option<Fold>,
    /// Address and length of the card's own contribution, if it is a separate stream.
    contribution: Option<(u64, u64)>,
    /// Address of the partial result to which the stream of the own contribution goes; `None` if it goes to the common one.
    partial: Option<u64>,
    pub(crate) is_set: bool,
    has_data: bool,
    has_started: bool,
    /// Destinations that are not ready.
    not_ready: usize,
    /// Moving streams, including that of the own block.
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
    /// Id of the burst, if eager.
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
    /// The receive buffer is being written to memory, or was and the last beat is in flight; or the data reached an unfinished
    /// fold.
    Draining,
    Done,
}

/// Purpose of a stream, with the lane of its instruction.
#[derive(Debug)]
pub(crate) enum StreamPurpose {
    /// One send of the instruction, by index.
    Send { at: LaneId, send: usize },
    /// All sends of the instruction, and its own block, as one stream.
    Multicast { at: LaneId },
    /// The instruction's own block.
    Own { at: LaneId },
    /// From the receive buffer of a link to memory.
    Drain { at: LaneId, port: usize },
    /// From the receive buffers through the fold to memory.
    Fold { at: LaneId },
    /// A copy or fill within a card.
    Local { at: LaneId },
    /// A one-sided transfer, by the lane that issued it.
    Rdma { issuer: LaneId },
}

impl StreamPurpose {
    fn at(&self) -> LaneId {
        match *self {
            StreamPurpose::Send { at, .. }
            | StreamPurpose::Multicast { at }
            | StreamPurpose::Own { at }
            | StreamPurpose::Drain { at, .. }
            | StreamPurpose::Fold { at }
            | StreamPurpose::Local { at }
            | StreamPurpose::Rdma { issuer: at } => at,
        }
    }
}

impl Transfer {
    /// Returns whether the transfer reads memory.
    fn reads(&self) -> bool {
        !self.sends.is_empty() || self.own.is_some() || self.contribution.is_some()
    }
}

impl Card {
    pub(crate) fn membership(&self, instruction: &Instruction) -> Result<Membership, Refusal> {
        self.communicators.get(instruction.communicator)
    }

    /// Returns the pseudo channel of `address`. A block that spans two channels counts for the first.
    pub(crate) fn channel(&self, address: u64) -> ResourceId {
        let bytes = self.memory.len() / self.channels.len() as u64;
        self.channels[((address / bytes) as usize).min(self.channels.len() - 1)]
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
            Work::Rdma(rdma) => Some(rdma.peer as u32),
            Work::Timed
            | Work::Signal { .. }
            | Work::Closing(_)
            | Work::Local { .. }
            | Work::HostTable
            | Work::HostCopy { .. } => None,
        }
    }
}

impl Core {
    /// Returns the transfer of the lane's instruction.
    fn transfer(&mut self, at: LaneId) -> Option<&mut Transfer> {
        match self.running_mut(at) {
            Some(Running { work: Work::Transfer(transfer), .. }) => Some(transfer),
            _ => None,
        }
    }

    /// Stops all streams of the lane's instruction.
    pub(crate) fn stop_streams(&mut self, at: LaneId) {
        self.rates.stop(|purpose| purpose.at() == at);
    }

    /// Stops all streams of the card's instructions.
    pub(crate) fn stop_all_streams(&mut self, card: usize) {
        self.rates.stop(|purpose| purpose.at().card == card);
    }

    /// Fails an instruction that needs the link at `port`, which went down.
    pub(crate) fn lost_link(&mut self, card: usize, port: usize) {
        let peer = self.ports.peer(self.cards[card].node, port);
        for at in (0..self.cards[card].lanes.len()).map(|lane| LaneId { card, lane }) {
            let link = &self.cards[card].links[port];
            let Some(running) = self.running(at) else { continue };
            let is_used = link.send(at.lane).is_some()
                || link.receive(at.lane).is_some()
                || matches!(&running.work, Work::Barrier(barrier) if barrier.ports.contains(&port))
                || matches!(&running.work, Work::Rdma(rdma) if rdma.peer == peer as usize);
            if is_used && !self.cards[card].is_frozen {
                self.fail(at, (Status::LinkDown, peer as u16));
            }
        }
    }

    /// Returns the port and node of `rank`, if the link exists and is up.
    pub(crate) fn port_toward(
        &self,
        at: LaneId,
        membership: &Membership,
        rank: u32,
    ) -> Result<(usize, usize), Refusal> {
        let peer = *membership.members.get(rank as usize).ok_or((Status::BadRank, rank as u16))?;
        let port = self.ports.toward(self.cards[at.card].node, peer);
        let port = port.filter(|port| self.cards[at.card].links[*port].is_up);
        port.map(|port| (port, peer as usize)).ok_or((Status::LinkDown, peer as u16))
    }

    /// Returns lane and port at the far end of a link that is up. Exchanges meet only in the same lane.
    pub(crate) fn far_end(&self, at: LaneId, port: usize) -> Option<(LaneId, usize)> {
        let node = self.cards[at.card].node;
        let peer = self.ports.peer(node, port);
        let link = self.cards[at.card].links[port].is_up.then_some(peer)?;
        self.ports.toward(link, node).map(|back| (LaneId { card: peer as usize, ..at }, back))
    }

    /// Runs a step of the lane's instruction.
    pub(crate) fn step(&mut self, at: LaneId, step: Step) {
        match step {
            Step::SwitchSet => self.switch_set(at),
            Step::ControlsOut => self.controls_out(at),
            Step::DataAtSwitch => self.data_at_switch(at),
            Step::HeaderOut => self.header_out(at),
            Step::OwnCounted => self.own_counted(at),
            Step::SignalsRead => self.signals_read(at),
            Step::FoldCounted => self.fold_counted(at),
            Step::Folded => self.folded(at),
            Step::HostPiece => self.host_piece(at),
            Step::Acknowledged => self.finish(at),
            Step::Closed => self.closed(at),
            Step::Finish => self.timed_finish(at),
        }
    }

    pub(crate) fn timed_finish(&mut self, at: LaneId) {
        let now = self.now;
        if let Some(running) = self.running_mut(at) {
            running.counted_out = running.counted_out.max(now);
        }
        self.finish(at);
    }

    pub(crate) fn stream_ended(&mut self, purpose: StreamPurpose) {
        match purpose {
            StreamPurpose::Send { at, send } => {
                self.counted_out(at, send);
                self.stream_over(at);
            }
            StreamPurpose::Multicast { at } => {
                let sends = self.transfer(at).map_or(0, |transfer| transfer.sends.len());
                (0..sends).for_each(|send| self.counted_out(at, send));
                self.own_through_switch(at);
                self.stream_over(at);
            }
            StreamPurpose::Own { at } => {
                let is_alone = self.transfer(at).is_some_and(|transfer| transfer.sends.is_empty());
                let now = self.now;
                if let Some(running) = self.running_mut(at).filter(|_| is_alone) {
                    running.counted_out = now;
                }
                self.own_through_switch(at);
                self.stream_over(at);
            }
            StreamPurpose::Drain { at, port } => self.drained(at, port),
            StreamPurpose::Fold { at } => self.fold_drained(at),
            StreamPurpose::Local { at } => self.local_ended(at),
            StreamPurpose::Rdma { issuer } => self.rdma_stream_ended(issuer),
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

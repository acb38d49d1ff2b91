//! One-sided operations, at the card that issues them.
//!
//! An extension: OPTWEB has none, because its data carries no address. Here the beat that announces data is followed by
//! one with address and size, and the peer's switch and memory serve it whatever its sequencer does: see [`super::serving`].

use cmdseq::completion::Status;
use cmdseq::instruction::offset;
use cmdseq::{Instruction, Operation};

use crate::card::running::{Running, Work, memory_refusal};
use crate::event::Step;
use crate::net::buffer::Way;
use crate::net::payload::Payload;
use crate::on_card::OnCard;
use crate::profile::ONE_SIDED_CYCLES;
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::moving::{Data, Then};
use crate::proto::optweb::one_sided::{Issued, OneSided, Request};
use crate::proto::optweb::signal::Signal;
use crate::proto::optweb::stream::StreamPurpose;
use crate::proto::optweb::transfer::Carried;
use crate::proto::refusal::{Refusal, bad_field};

impl OnCard<'_> {
    pub(crate) fn begin_rdma(&mut self, at: LaneId, instruction: &Instruction) -> Result<(), Refusal> {
        let membership = self.card.membership(instruction)?;
        self.check_ranks(instruction, membership.members.len() as u32)?;
        if u32::from(instruction.peer) == membership.own_rank {
            return Err(bad_field(offset::PEER));
        }
        // A card without windows does not know the field.
        if self.env.profile.windows() == 0 && instruction.window().is_some() {
            return Err(bad_field(offset::EXTENT));
        }
        let (port, peer) = self.port_toward(&membership, instruction.peer.into())?;
        // Block addresses are those of any transfer with this peer.
        let (own_rank, ranks) = (membership.own_rank, membership.members.len() as u32);
        let moved = self.checked_transfers(instruction, own_rank, ranks)?;
        let remote = moved.remote.map_or(0, |remote| remote.address);
        let own = moved.sends.iter().chain(&moved.receives).next().map_or(0, |block| block.address);
        self.check_memory(remote, instruction.bytes)?;
        let is_read = instruction.operation == Operation::RdmaRead;
        let signal = (instruction.operation == Operation::PutSignal).then(|| Signal::of(instruction)).transpose()?;
        let (window, rights, bytes) = (instruction.window(), instruction.needed_rights(), instruction.bytes);
        let request = Request { window, rights, address: remote, bytes };
        self.set_work(at, Work::Rdma(Issued { is_read, own, port, peer, request, signal, is_announced: false }));
        let dispatch = self.env.profile.dispatch_cycles;
        if is_read || bytes == 0 {
            self.schedule_step(at, self.env.profile.cycles(dispatch + ONE_SIDED_CYCLES), Step::ControlsOut);
        } else {
            let data = dispatch + self.env.profile.memory_read_cycles;
            self.schedule_step(at, self.env.profile.cycles(data), Step::DataAtSwitch);
        }
        Ok(())
    }

    fn issued(&mut self, at: LaneId) -> Option<&mut Issued> {
        match self.running_mut(at) {
            Some(Running { work: Work::Rdma(issued), .. }) => Some(issued),
            _ => None,
        }
    }

    /// What the lane's operation is called on its link.
    fn number(&self, at: LaneId) -> u64 {
        self.lane(at).epoch
    }

    fn carry_one_sided(&mut self, at: LaneId, port: usize, delay: u64, what: OneSided) {
        self.carry(at, port, delay, Carried::OneSided(Box::new(what)));
    }

    /// The beat with address and size is out, of an operation that sends no data.
    pub(crate) fn rdma_request_out(&mut self, at: LaneId) {
        let number = self.number(at);
        let Some(Running { work: Work::Rdma(issued), instruction, .. }) = self.running(at) else { return };
        let (tag, port, own, request) = (instruction.tag, issued.port, issued.own, issued.request);
        let asked = match (issued.is_read, issued.signal) {
            _ if request.bytes == 0 && issued.signal.is_none() => return self.finish(at),
            (false, Some(signal)) => OneSided::Signal { number, request, signal },
            _ => OneSided::Read {
                number,
                tag,
                request,
                way: Way([Some(self.env.resources[self.index()].channel(own)), None]),
            },
        };
        self.announce(at, port, asked);
    }

    fn announce(&mut self, at: LaneId, port: usize, what: OneSided) {
        if let Some(issued) = self.issued(at) {
            issued.is_announced = true;
        }
        self.carry_one_sided(at, port, self.env.profile.control_ps(), what);
    }

    /// The beat with address and size of a write is out; the data follows.
    pub(crate) fn start_write(&mut self, at: LaneId) {
        let number = self.number(at);
        let Some(issued) = self.issued(at) else { return };
        let Issued { own, port, peer, request, .. } = *issued;
        let mut passes = self.card.links[port].out.to_vec();
        passes
            .extend([self.env.resources[self.index()].channel(own), self.env.resources[peer].channel(request.address)]);
        self.start_stream(request.bytes, passes, StreamPurpose::Write { at });
        self.env.count_transfer(request.bytes);
        self.announce(at, port, OneSided::Announced { number, request });
    }

    /// The last beat of a write is out.
    pub(crate) fn write_out(&mut self, at: LaneId) {
        let (now, number) = (self.env.now, self.number(at));
        let Some(issued) = self.issued(at) else { return };
        let Issued { own, port, request, signal, .. } = *issued;
        if let Some(running) = self.running_mut(at) {
            running.counted_out = now;
        }
        match self.card.memory.payload(own, request.bytes) {
            Ok(payload) => {
                self.carry_one_sided(at, port, self.env.profile.data_ps(), OneSided::Data { number, payload, signal });
            }
            Err(error) => self.fail(at, memory_refusal(error)),
        }
    }

    /// Whether `number` is the operation that the lane has issued on the link at `port`.
    fn is_issued(&mut self, at: LaneId, port: usize, number: u64) -> bool {
        number == self.number(at) && self.issued(at).is_some_and(|issued| issued.port == port)
    }

    /// What the lane's read asked for is here.
    pub(super) fn reply_came(&mut self, at: LaneId, port: usize, number: u64, payload: Payload) {
        if self.is_issued(at, port, number)
            && let Some(Issued { own, .. }) = self.issued(at)
        {
            let to = *own;
            self.start_move(at, Data::Block { payload, to }, Then::ReadDone);
        }
    }

    /// The data of a read is in the card's memory.
    pub(crate) fn read_done(&mut self, at: LaneId) {
        let now = self.env.now;
        if let Some(running) = self.running_mut(at) {
            running.arrival = Some(now);
            running.bytes = running.bytes.saturating_add(running.instruction.bytes);
            running.work = Work::Timed;
            self.finish(at);
        }
    }

    /// The peer says that the lane's operation is over.
    pub(super) fn over_came(&mut self, at: LaneId, port: usize, number: u64, bytes: u64, result: Result<(), Refusal>) {
        if !self.is_issued(at, port, number) {
            return;
        }
        if let Some(running) = self.running_mut(at) {
            running.bytes = running.bytes.saturating_add(bytes);
            running.work = Work::Timed;
        }
        match result {
            Ok(()) => self.finish(at),
            Err(refusal) => self.fail(at, refusal),
        }
    }

    /// Tells the peer that an operation has ended before it was over.
    pub(crate) fn cancel(&mut self, at: LaneId, issued: &Issued, number: u64) {
        if issued.is_announced {
            self.carry_one_sided(at, issued.port, self.env.profile.control_ps(), OneSided::Cancelled { number });
        }
    }

    /// The link at `port` of this card was trained: the operations that it carried are lost.
    pub(crate) fn lose_issued(&mut self, port: usize) {
        if self.card.is_frozen {
            return;
        }
        let at = LaneId::first(self.index());
        if let Some(issued) = self.issued(at).filter(|issued| issued.port == port) {
            let peer = issued.peer as u16;
            self.fail(at, (Status::LinkDown, peer));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cmdseq::Operand;

    use super::*;
    use crate::environment::Pace;
    use crate::profile::Profile;
    use crate::testing::Host;
    use crate::world::Core;

    /// Cards without windows check nothing: only the link knows that the peer was reset.
    #[test]
    fn what_is_on_its_way_to_a_card_that_is_reset_does_not_arrive() {
        let (here, there) = (Operand::card(0), Operand::card(1 << 20));
        // With the steps after which it is on the link: the announcement, and for the write the read of its data before.
        for (instruction, steps) in [
            (Instruction::rdma_write(1, here, there, 4096), 2),
            (Instruction::rdma_read(1, there, here, 4096), 1),
            (Instruction::put_signal(1, here, there, 0, 0, 1), 1),
        ] {
            for is_reset in [false, true] {
                let mut core = Core::new(Profile { windows: 0, ..Profile::optweb(2) });
                core.env.pace = Pace::Due;
                let host = Arc::new(Host::default());
                host.attach(&mut core, 0);
                core.cards[0].memory.fill(0, 4096, 1).unwrap();
                core.begin_alone(0, instruction);
                (0..steps).for_each(|_| assert!(core.run_some(1)));
                if is_reset {
                    core.reset(1);
                }
                while core.run_some(1) {}
                let (status, signals) = if is_reset { (Status::LinkDown, 0) } else { (Status::Done, 1) };
                assert_eq!(host.statuses(), [status], "{instruction:?}");
                if is_reset || instruction.operation == Operation::PutSignal {
                    assert_eq!(core.cards[1].signals[0], signals);
                }
                if is_reset {
                    assert_eq!(core.cards[1].memory.read(1 << 20, 1).unwrap(), [0]);
                }
                assert!(core.cards[1].served.is_empty());
            }
        }
    }

    /// The card that serves an operation is told when its issuer gives up, in the middle of the data or after it.
    #[test]
    fn what_was_given_up_is_served_no_longer() {
        let (here, there) = (Operand::card(0), Operand::card(1 << 20));
        for instruction in
            [Instruction::rdma_write(1, here, there, 1 << 20), Instruction::rdma_read(1, there, here, 1 << 20)]
        {
            let mut core = Core::new(Profile { windows: 0, ..Profile::optweb(2) });
            core.env.pace = Pace::Due;
            let host = Arc::new(Host::default());
            host.attach(&mut core, 0);
            core.cards[0].memory.fill(0, 1 << 20, 1).unwrap();
            core.begin_alone(0, instruction);
            while core.cards[1].served.is_empty() {
                assert!(core.run_some(1), "the peer is told");
            }
            core.on(0).abort();
            while core.run_some(1) {}
            assert_eq!(host.statuses(), [Status::Aborted], "{instruction:?}");
            assert!(core.cards[1].served.is_empty());
            assert_eq!(core.cards[1].memory.read(1 << 20, 1).unwrap(), [0]);
        }
    }
}

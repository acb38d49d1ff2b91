//! One-sided transfers: the peer's sequencer takes no part.
//!
//! An extension: OPTWEB has none, because its data carries no address. Here the beat that announces data is followed by
//! one with address and size, and the peer's switch and memory serve it whatever its sequencer does.

use cmdseq::completion::Status;
use cmdseq::instruction::offset;
use cmdseq::{Instruction, Operation};

use crate::card::running::{Running, Work, memory_refusal};
use crate::net::payload::Payload;
use crate::profile::{BEAT_CYCLES, ONE_SIDED_CYCLES};
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::moving::{Data, Then};
use crate::proto::optweb::one_sided::{Rdma, Request};
use crate::proto::optweb::signal::Signal;
use crate::proto::optweb::stream::StreamPurpose;
use crate::proto::refusal::{Refusal, bad_field};
use crate::world::{Core, Event, Step};

impl Core {
    pub(crate) fn begin_rdma(&mut self, at: LaneId, instruction: &Instruction) -> Result<(), Refusal> {
        let membership = self.cards[at.card].membership(instruction)?;
        self.check_ranks(instruction, membership.members.len() as u32)?;
        if u32::from(instruction.peer) == membership.own_rank {
            return Err(bad_field(offset::PEER));
        }
        // A card without windows does not know the field.
        if self.profile.windows() == 0 && instruction.window().is_some() {
            return Err(bad_field(offset::EXTENT));
        }
        let (port, peer) = self.port_toward(at, &membership, instruction.peer.into())?;
        // Block addresses are those of any transfer with this peer.
        let (own_rank, ranks) = (membership.own_rank, membership.members.len() as u32);
        let moved = self.checked_transfers(at, instruction, own_rank, ranks)?;
        let remote = moved.remote.map_or(0, |remote| remote.address);
        let own = moved.sends.iter().chain(&moved.receives).next().map_or(0, |block| block.address);
        self.check_memory(at.card, remote, instruction.bytes)?;
        let is_read = instruction.operation == Operation::RdmaRead;
        let signal = (instruction.operation == Operation::PutSignal).then(|| Signal::of(instruction)).transpose()?;
        let (source, destination) = if is_read { (peer, at.card) } else { (at.card, peer) };
        let (_, back) = self.far_end(at, port).ok_or((Status::LinkDown, peer as u16))?;
        let link = if is_read { &self.cards[peer].links[back] } else { &self.cards[at.card].links[port] };
        let (out, farther_ps) = (link.out.clone(), link.farther_ps);
        let dispatch = self.profile.dispatch_cycles;
        let (window, rights, bytes) = (instruction.window(), instruction.needed_rights(), instruction.bytes);
        let rdma = Rdma {
            is_read,
            source: (source, if is_read { remote } else { own }),
            destination: (destination, if is_read { own } else { remote }),
            out,
            farther_ps,
            data: None,
            port,
            session: self.cards[at.card].links[port].session,
            signal,
            peer,
            request: Request { window, rights, address: remote, bytes },
            admitted: None,
        };
        self.set_work(at, Work::Rdma(rdma));
        if is_read || instruction.bytes == 0 {
            self.schedule_step(at, self.profile.cycles(dispatch + ONE_SIDED_CYCLES), Step::ControlsOut);
        } else {
            let data = dispatch + self.profile.memory_read_cycles;
            self.schedule_step(at, self.profile.cycles(data), Step::DataAtSwitch);
        }
        Ok(())
    }

    fn rdma(&self, at: LaneId) -> Option<(&Rdma, u64)> {
        match self.running(at) {
            Some(Running { work: Work::Rdma(rdma), instruction, .. }) => Some((rdma, instruction.bytes)),
            _ => None,
        }
    }

    pub(crate) fn rdma_request_out(&mut self, at: LaneId) {
        let epoch = self.lane(at).epoch;
        match self.rdma(at) {
            // Without data the beat with address and size carries the signal.
            Some((rdma @ Rdma { signal: Some(_), .. }, 0)) => {
                self.schedule_in(self.profile.control_ps() + rdma.farther_ps, Event::RdmaCounted { issuer: at, epoch });
            }
            Some((_, 0)) => self.finish(at),
            Some((rdma, _)) => {
                self.schedule_in(
                    self.profile.control_ps() + rdma.farther_ps,
                    Event::RdmaRequested { reader: at, epoch },
                );
            }
            None => {}
        }
    }

    /// Fails a transfer whose link was trained since it began: the peer was reset, and knows nothing of it.
    fn fail_if_lost(&mut self, issuer: LaneId) {
        let Some((rdma, _)) = self.rdma(issuer) else { return };
        let peer = rdma.peer as u16;
        if self.cards[issuer.card].links[rdma.port].session != rdma.session {
            self.fail(issuer, (Status::LinkDown, peer));
        }
    }

    /// The peer checks a transfer, and returns whether it is admitted.
    fn admit(&mut self, issuer: LaneId) -> bool {
        let node = self.cards[issuer.card].node;
        let Some((rdma, _)) = self.rdma(issuer) else { return false };
        let admitted = self.cards[rdma.peer].admit(node, &rdma.request);
        if let Some(Running { work: Work::Rdma(rdma), .. }) = self.running_mut(issuer) {
            rdma.admitted = admitted;
        }
        admitted.is_some()
    }

    /// Tells the issuer after `delay` that the peer refuses the transfer.
    fn refuse_rdma(&mut self, issuer: LaneId, delay: u64) {
        let Some((rdma, _)) = self.rdma(issuer) else { return };
        let peer = rdma.peer;
        self.fail_after(issuer, Status::BadWindow, peer as u16, delay);
        self.transfer_ended(peer);
    }

    /// The announcing beat of a write is at the peer, before its data.
    pub(crate) fn rdma_announced(&mut self, writer: LaneId) {
        self.fail_if_lost(writer);
        if let Some((rdma, _)) = self.rdma(writer)
            && !self.cards[rdma.peer].is_frozen
        {
            self.admit(writer);
        }
    }

    /// Sends the data back from the source card's memory, independent of that card's sequencer.
    pub(crate) fn rdma_requested(&mut self, reader: LaneId) {
        self.fail_if_lost(reader);
        let Some((rdma, _)) = self.rdma(reader) else { return };
        let refused_ps = self.profile.control_ps() + rdma.farther_ps;
        let source = rdma.source.0;
        if !self.cards[source].is_frozen && !self.one_sided_is_hit(reader.card, source, 0) {
            if !self.admit(reader) {
                return self.refuse_rdma(reader, refused_ps);
            }
            let cycles = self.profile.memory_read_cycles + BEAT_CYCLES;
            self.schedule_step(reader, self.profile.cycles(cycles), Step::HeaderOut);
        }
    }

    pub(crate) fn start_rdma_stream(&mut self, issuer: LaneId) {
        let Some((rdma, bytes)) = self.rdma(issuer) else { return };
        let (from, to, is_read) = (rdma.source, rdma.destination, rdma.is_read);
        let channels = [self.cards[from.0].channel(from.1), self.cards[to.0].channel(to.1)];
        let passes = channels.iter().chain(&rdma.out).copied().collect();
        let announced_ps = self.profile.control_ps() + rdma.farther_ps;
        self.statistics.transfers = self.statistics.transfers.wrapping_add(1);
        self.statistics.bytes = self.statistics.bytes.wrapping_add(bytes);
        self.start_stream(bytes, passes, StreamPurpose::Rdma { issuer });
        if !is_read {
            let epoch = self.lane(issuer).epoch;
            self.schedule_in(announced_ps, Event::RdmaAnnounced { writer: issuer, epoch });
        }
    }

    pub(crate) fn rdma_stream_ended(&mut self, issuer: LaneId) {
        let (now, epoch) = (self.now, self.lane(issuer).epoch);
        let Some((rdma, bytes)) = self.rdma(issuer) else { return };
        let left = match self.cards[rdma.source.0].memory.payload(rdma.source.1, bytes) {
            Ok(payload) => payload,
            Err(error) => return self.fail(issuer, memory_refusal(error)),
        };
        let counted_ps = self.profile.data_ps() + rdma.farther_ps;
        if let Some(Running { work: Work::Rdma(Rdma { is_read, data, .. }), counted_out, .. }) =
            self.running_mut(issuer)
        {
            *data = Some(left);
            if !*is_read {
                *counted_out = now;
            }
        }
        self.schedule_in(counted_ps, Event::RdmaCounted { issuer, epoch });
    }

    pub(crate) fn rdma_counted(&mut self, issuer: LaneId) {
        self.fail_if_lost(issuer);
        let Some((rdma, bytes)) = self.rdma(issuer) else { return };
        if self.cards[rdma.destination.0].is_frozen {
            return;
        }
        let (peer, is_read, admitted, to) = (rdma.peer, rdma.is_read, rdma.admitted, rdma.destination);
        let acknowledge_ps = self.profile.acknowledge_ps() + rdma.farther_ps;
        if self.one_sided_is_hit(rdma.source.0, to.0, bytes) {
            // Of a write the issuer hears nothing, as of one to a card that is gone.
            if is_read {
                self.fail(issuer, (Status::LinkError, peer as u16));
            }
            return;
        }
        let is_admitted = match admitted {
            // The window may be gone: closed although the transfer had not ended, or by a reset.
            Some(admission) => self.cards[peer].windows.holds(admission),
            // A signal without data is announced by its only beats.
            None => bytes == 0 && self.admit(issuer),
        };
        match is_admitted {
            true => {
                let data = match self.running_mut(issuer) {
                    Some(Running { work: Work::Rdma(rdma), .. }) => rdma.data.take(),
                    _ => None,
                };
                let payload = data.unwrap_or_else(Payload::empty);
                self.start_move(issuer, to.0, Data::Block { payload, to: to.1 }, Then::RdmaMoved);
            }
            false => self.refuse_rdma(issuer, if is_read { 0 } else { acknowledge_ps }),
        }
    }

    /// The data has arrived: adds to the peer's signal, then notifies the issuer.
    pub(crate) fn rdma_moved(&mut self, issuer: LaneId) {
        let Some((rdma, bytes)) = self.rdma(issuer) else { return };
        let (is_read, to, signal) = (rdma.is_read, rdma.destination.0, rdma.signal);
        let acknowledge_ps = self.profile.acknowledge_ps() + rdma.farther_ps;
        let now = self.now;
        let signalled = signal.map_or(Ok(()), |signal| self.add_signal(to, signal));
        if let Some(running) = self.running_mut(issuer) {
            running.bytes = running.bytes.saturating_add(bytes);
            if let Err((status, detail)) = signalled {
                (running.status, running.detail) = (status, detail);
            }
            if is_read {
                running.arrival = Some(now);
                self.finish(issuer);
            } else {
                running.work = Work::Timed;
                self.schedule_step(issuer, acknowledge_ps, Step::Acknowledged);
                self.transfer_ended(to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cmdseq::Operand;

    use super::*;
    use crate::profile::Profile;
    use crate::testing::Host;
    use crate::world::Pace;

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
                core.pace = Pace::Due;
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
            }
        }
    }
}

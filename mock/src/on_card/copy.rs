//! Copies, fills and folds within a card's own memory, and copies between it and its host.

use cmdseq::completion::Status;
use cmdseq::{AddressSpace, Instruction};

use crate::card::host_jobs::{HostFault, Job, PIECE_BYTES};
use crate::card::running::{Running, Work, memory_refusal};
use crate::event::Step;
use crate::on_card::OnCard;
use crate::profile::BEAT_CYCLES;
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::moving::{Data, Then};
use crate::proto::optweb::stream::StreamPurpose;
use crate::proto::refusal::Refusal;
use crate::reduce::Fold;

impl OnCard<'_> {
    pub(crate) fn begin_copy(&mut self, at: LaneId, instruction: &Instruction) -> Result<(), Refusal> {
        let Instruction { source, destination, bytes, .. } = *instruction;
        for operand in [source, destination] {
            if operand.space == AddressSpace::Card {
                self.check_memory(operand.address, bytes)?;
            }
        }
        // A copy moves piece by piece, so that what overlaps would come out as the pieces lie.
        let distance = source.address.abs_diff(destination.address);
        if source.space == destination.space && distance != 0 && distance < bytes {
            return Err((Status::Overlap, 0));
        }
        if source.space == AddressSpace::Card && destination.space == AddressSpace::Card {
            self.begin_local(at, vec![source.address], destination.address);
            return Ok(());
        }
        self.set_work(at, Work::HostCopy { done: 0 });
        self.host_piece(at);
        Ok(())
    }

    /// Moves the next piece between host and card. Consecutive pieces are separated by their time on the host link, so that
    /// other cards run in between.
    pub(crate) fn host_piece(&mut self, at: LaneId) {
        let Some(Running { work: Work::HostCopy { done }, instruction, .. }) = self.running(at) else {
            return;
        };
        let (Instruction { source, destination, .. }, done) = (*instruction, *done);
        let bytes = (instruction.bytes - done).min(PIECE_BYTES);
        // Of card memory the range is checked; what leaves host memory, the bus refuses.
        let (from, to) = (source.address.wrapping_add(done), destination.address.wrapping_add(done));
        let job = match (source.space, destination.space) {
            (AddressSpace::Host, AddressSpace::Card) => {
                if let Err(error) = self.card.memory.reserve(to, bytes) {
                    let dispatch = self.env.profile.cycles(self.env.profile.dispatch_cycles);
                    return self.fail_after(at, memory_refusal(error), dispatch);
                }
                Job::In { iova: from, address: to, bytes }
            }
            (AddressSpace::Card, _) => Job::Out { address: from, iova: to, bytes },
            _ => Job::Through { from, to, bytes },
        };
        self.push_host_job(job);
    }

    /// A piece has moved between host and card; its time on the host link is still to pass.
    pub(crate) fn host_copied(&mut self, at: LaneId, result: Result<(), (HostFault, bool)>) {
        let host_mbps = u128::from(self.env.profile.host_mbps.max(1));
        let Some(Running { work: Work::HostCopy { done }, instruction, .. }) = self.running_mut(at) else {
            return;
        };
        // Both ends of the piece are rounded alike, so that all pieces take what the whole does.
        let on_the_link = |bytes: u64| u128::from(bytes) * 8_000_000 / host_mbps;
        let before = on_the_link(*done);
        *done += (instruction.bytes - *done).min(PIECE_BYTES);
        let piece = u64::try_from(on_the_link(*done) - before).unwrap_or(u64::MAX);
        let is_last = *done == instruction.bytes;
        let dispatch = self.env.profile.cycles(self.env.profile.dispatch_cycles);
        match result {
            Ok(()) if is_last => self.schedule_step(at, dispatch.saturating_add(piece), Step::Finish),
            Ok(()) => self.schedule_step(at, piece, Step::HostPiece),
            Err((fault, is_write)) => self.fail_after(at, fault.refusal(is_write), dispatch),
        }
    }

    /// Begins a fold of two operands, of which the result may replace either.
    pub(crate) fn begin_fold(&mut self, at: LaneId, instruction: &Instruction) -> Result<(), Refusal> {
        let Instruction { source, destination, extent, bytes, .. } = *instruction;
        for address in [source.address, extent, destination.address] {
            self.check_memory(address, bytes)?;
        }
        for operand in [source.address, extent] {
            let distance = operand.abs_diff(destination.address);
            if distance != 0 && distance < bytes {
                return Err((Status::Overlap, 0));
            }
        }
        self.begin_local(at, vec![source.address, extent], destination.address);
        Ok(())
    }

    /// Begins a stream from the `sources` to `destination` in the card's own memory.
    pub(crate) fn begin_local(&mut self, at: LaneId, sources: Vec<u64>, destination: u64) {
        // A beat announces a fold, as it does the own contribution to a reduction.
        let cycles = match sources.len() {
            0 => 0,
            1 => self.env.profile.memory_read_cycles,
            _ => self.env.profile.memory_read_cycles + BEAT_CYCLES,
        };
        self.set_work(at, Work::Local { sources, destination });
        self.schedule_step(at, self.env.profile.cycles(self.env.profile.dispatch_cycles + cycles), Step::DataAtSwitch);
    }

    pub(crate) fn start_local(&mut self, at: LaneId) {
        let resources = &self.env.resources[self.index()];
        let Some(Running { work: Work::Local { sources, destination }, instruction, .. }) = self.running(at) else {
            return;
        };
        let mut passes = vec![resources.channel(*destination)];
        passes.extend(sources.iter().flat_map(|source| [resources.channel(*source), resources.local[at.lane]]));
        if sources.len() > 1 {
            passes.push(resources.fold[at.lane]);
        }
        self.start_stream(instruction.bytes, passes, StreamPurpose::Local { at });
    }

    /// The last beat is out of the loop-back. Those of a fold still pass the switch and the reduction unit.
    pub(crate) fn local_ended(&mut self, at: LaneId) {
        let Some(Running { work: Work::Local { sources, .. }, .. }) = self.running(at) else { return };
        if sources.len() < 2 {
            return self.move_local(at);
        }
        let switch = self.env.profile.cycles(2 * self.env.profile.switch_cycles + self.env.profile.size_check_cycles);
        self.schedule_step(at, switch + self.env.profile.reduce_ps(sources.len()), Step::Folded);
    }

    /// Moves the data to its place.
    pub(crate) fn move_local(&mut self, at: LaneId) {
        let Some(Running { work: Work::Local { sources, destination }, instruction, .. }) = self.running(at) else {
            return;
        };
        let (bytes, to) = (instruction.bytes, *destination);
        let data = match (sources.as_slice(), instruction.combine()) {
            ([first, second], Some(combine)) => {
                Data::Result(Box::new(Fold::of_two(combine, [*first, *second], to, bytes)))
            }
            ([source, ..], _) => match self.card.memory.payload(*source, bytes) {
                Ok(payload) => Data::Block { payload, to },
                Err(error) => return self.fail(at, memory_refusal(error)),
            },
            ([], _) => Data::Pattern { bytes, pattern: instruction.extent, to },
        };
        self.start_move(at, data, Then::LocalDone);
    }
}

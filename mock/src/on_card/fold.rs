//! The reduction units: behind the receiving side of the switch, a chain of vector units that folds what comes in on the
//! links, and the card's own contribution, into one stream to memory (MPI-FPGA paper, section 4.3 and figure 7).
//!
//! The units take one beat of each contribution at a time, in the order of ranks. Past the receive buffers nothing is kept:
//! the contributions pass together, and their sources are told when the result is counted.
//!
//! For an alltoall_scan, a tap after each unit gives out the partial result too, as a stream of its own to memory.

use cmdseq::completion::Status;

use crate::card::memory::MemoryError;
use crate::card::running::{Running, Work};
use crate::event::Step;
use crate::net::payload::Payload;
use crate::on_card::OnCard;
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::moving::{Data, HOLD_BYTES, Then};
use crate::proto::optweb::stream::StreamPurpose;
use crate::proto::optweb::transfer::{ReceiveState, Transfer};
use crate::reduce::{Contribution, Fold};

/// Bytes folded at a time: whole elements of every type, and small enough for a processor's cache.
const CHUNK: u64 = 64 << 10;
/// Smallest piece that is worth a round; whole elements too.
const CHUNK_UNIT: u64 = 4 << 10;

impl OnCard<'_> {
    fn folding(&mut self, at: LaneId) -> Option<(&mut Transfer, &mut u64)> {
        match self.running_mut(at) {
            Some(Running { work: Work::Transfer(transfer), bytes, .. }) if transfer.fold.is_some() => {
                Some((transfer, bytes))
            }
            _ => None,
        }
    }

    /// Eager: starts the fold once the first beats of all contributions are in the receive buffers.
    pub(crate) fn drain_fold(&mut self, at: LaneId) {
        let card = &mut *self.card;
        let Some(Running { work: Work::Transfer(transfer), .. }) = &card.lanes[at.lane].running else { return };
        let Some(fold) = transfer.fold.as_ref().filter(|_| transfer.is_set) else { return };
        let mut sizes = transfer.receives.iter().map(|receive| {
            let burst = card.links[receive.port].inbound.first(at.lane);
            (receive, burst.map(|burst| burst.bytes))
        });
        if sizes.clone().any(|(receive, bytes)| receive.state != ReceiveState::Waiting || bytes.is_none()) {
            return;
        }
        if let Some((receive, _)) = sizes.find(|(receive, bytes)| *bytes != Some(receive.bytes)) {
            let port = receive.port;
            return self.mismatch(at, port);
        }
        let reduced = fold.reduced;
        let resources = &self.env.resources[at.card];
        let results = fold.results().iter().map(|result| resources.channel(*result));
        let passes = results.chain([resources.fold[at.lane]]).collect();
        if let Some((transfer, _)) = self.folding(at) {
            transfer.receives.iter_mut().for_each(|receive| receive.state = ReceiveState::Draining);
        }
        self.start_stream(reduced.bytes, passes, StreamPurpose::Fold { at });
    }

    pub(crate) fn fold_drained(&mut self, at: LaneId) {
        if let Some(fold) = self.folding(at).and_then(|(transfer, _)| transfer.fold.as_mut()) {
            fold.is_drained = true;
        }
        self.count_fold(at);
    }

    /// Counts the last beats after the receive buffers are empty: they still have to pass the switch.
    pub(crate) fn count_fold(&mut self, at: LaneId) {
        let card = &mut *self.card;
        let Some(Running { work: Work::Transfer(transfer), .. }) = &mut card.lanes[at.lane].running else { return };
        let links = &card.links;
        let is_whole = |port: usize| links[port].inbound.first(at.lane).is_some_and(|burst| burst.is_whole);
        let all_whole = transfer.receives.iter().all(|receive| is_whole(receive.port));
        let Some(fold) = transfer.fold.as_mut().filter(|fold| fold.is_drained && !fold.is_counted) else { return };
        if all_whole && !card.is_frozen {
            fold.is_counted = true;
            self.schedule_step(at, self.env.profile.past_receive_buffer_ps(), Step::FoldCounted);
        }
    }

    pub(crate) fn fold_counted(&mut self, at: LaneId) {
        let card = &mut *self.card;
        let Some(Running { work: Work::Transfer(transfer), .. }) = &mut card.lanes[at.lane].running else { return };
        let Some(fold) = &mut transfer.fold else { return };
        for (receive, contribution) in transfer.receives.iter().zip(&mut fold.contributions) {
            if let Some(burst) = card.links[receive.port].inbound.take_first(at.lane) {
                *contribution = Contribution::Carried(Payload::Copied(burst.data));
            }
        }
        let came = transfer.receives.len();
        self.contributed(at, came);
    }

    /// Rendezvous: a whole contribution has reached the units.
    pub(crate) fn contribution_came(&mut self, at: LaneId, place: usize, payload: Payload) {
        let Some((transfer, _)) = self.folding(at) else { return };
        transfer.receives[place].state = ReceiveState::Draining;
        if let Some(fold) = &mut transfer.fold {
            fold.contributions[place] = Contribution::Carried(payload);
        }
        self.contributed(at, 1);
    }

    /// `came` more contributions have reached the units; the result follows the last one.
    pub(crate) fn contributed(&mut self, at: LaneId, came: usize) {
        let Some(fold) = self.folding(at).and_then(|(transfer, _)| transfer.fold.as_mut()) else { return };
        fold.missing = fold.missing.saturating_sub(came);
        let contributions = fold.contributions.len() + usize::from(fold.reduced.own.is_some());
        if fold.missing == 0 {
            self.schedule_step(at, self.env.profile.reduce_ps(contributions), Step::Folded);
        }
    }

    /// The result is counted: moves it to memory and signals the sources.
    pub(crate) fn folded(&mut self, at: LaneId) {
        if matches!(self.running(at), Some(Running { work: Work::Local { .. }, .. })) {
            return self.move_local(at);
        }
        let Some((transfer, _)) = self.folding(at) else { return };
        let Some(fold) = transfer.fold.take() else { return };
        let ports: Vec<usize> = transfer.receives.iter().map(|receive| receive.port).collect();
        // A burst that its source's reset took out of the receive buffer.
        let is_missing = |contribution: &Contribution| matches!(contribution, Contribution::Missing);
        if let Some((_, port)) = fold.contributions.iter().zip(&ports).find(|(one, _)| is_missing(one)) {
            let peer = self.env.ports.peer(self.card.node, *port);
            return self.fail(at, (Status::Mismatch, peer as u16));
        }
        self.start_move(at, Data::Result(Box::new(fold)), Then::Folded);
    }

    /// The result is in memory: completes all receives.
    pub(crate) fn all_received(&mut self, at: LaneId) {
        let Some(Running { work: Work::Transfer(transfer), .. }) = self.running(at) else { return };
        let ports: Vec<usize> = transfer.receives.iter().map(|receive| receive.port).collect();
        for (place, port) in ports.into_iter().enumerate() {
            self.received(at, port, place);
        }
    }

    /// Folds the next bytes of all contributions, from `done` on, and returns their number.
    pub(crate) fn fold_piece(&mut self, fold: &mut Fold, done: u64) -> Result<u64, MemoryError> {
        let left = fold.reduced.bytes - done;
        let results = fold.results().len();
        let memory = &mut self.card.memory;
        let Some(accumulator) = fold.accumulator.as_mut().filter(|_| !memory.is_hollow()) else {
            return Ok(left);
        };
        let own = fold.reduced.own.map(Contribution::Own);
        let scratch = &mut fold.scratch;
        let (lower, higher) = fold.contributions.split_at(fold.lower);
        let in_order = || lower.iter().chain(&own).chain(higher);
        let moved = (in_order().count() + results) as u64;
        let bytes = left.min(CHUNK).min((HOLD_BYTES / moved).next_multiple_of(CHUNK_UNIT));
        self.env.hold_bytes += moved * bytes;
        accumulator.clear();
        let mut partials = fold.partials.iter();
        for contribution in in_order() {
            match contribution {
                Contribution::Missing => {}
                Contribution::Own(address) => accumulator.add(memory.view(address + done, bytes, scratch)?),
                Contribution::Carried(payload) => accumulator.add(payload.view(done..done + bytes, scratch)),
            }
            if let Some(partial) = partials.next() {
                scratch.resize(bytes as usize, 0);
                accumulator.result(scratch);
                memory.write(partial + done, scratch)?;
            }
        }
        if fold.partials.is_empty() {
            scratch.resize(bytes as usize, 0);
            accumulator.result(scratch);
            memory.write(fold.reduced.destination + done, scratch)?;
        }
        Ok(bytes)
    }
}

//! DMA of the cards to host memory; the fabric's clock stops meanwhile. Here one request at a time; `split_dma` makes many.
//!
//! A job is one request, or two for a copy within host memory, of at most 1 MiB, so that others wait for at most that.

use cmdseq::completion::{self, Completion};
use cmdseq::instruction;
use fpga_hal::Iova;
use fpga_hal::endpoint::{DmaFault, DmaProgress, DmaTag};

use crate::card::Card;
use crate::card::config_space::Uncorrectable;
use crate::card::host_jobs::{Active, FETCH_WORDS, HostFault, Job, Misanswer, TABLE_BYTES};
use crate::proto::optweb::lane::LaneId;
use crate::world::{Core, Event};

/// How long a card waits for the answer to a read: the default range of PCIe is 50 us to 50 ms, and less than 10 ms is advised
/// against (PCI Express Base 5.0, section 2.8).
const COMPLETION_TIMEOUT_PS: u64 = 10_000_000_000;

/// What is left to do with host memory at this instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostWork {
    /// Nothing: time may advance.
    None,
    /// More requests.
    More,
    /// Nothing until the bus completes a request.
    Pending,
}

/// State of a request.
enum Asked {
    Done(Result<(), HostFault>),
    Pending,
    Unanswered,
}

impl Core {
    /// Starts a job for `card`, or queues it. The job ends before the clock advances, perhaps before this returns, so callers
    /// must be done.
    pub(crate) fn push_host_job(&mut self, card: usize, job: Job) {
        let epoch = self.cards[card].job_epoch(&job);
        let life = self.cards[card].rings[0].life();
        let buffer = std::mem::take(&mut self.host.spare);
        let active = Active { card, epoch, life, job, buffer, is_writing: false };
        // What waits from before the card's last reset is void.
        let cards = &self.cards;
        self.host.waiting.retain(|other| other.card != card || other.epoch == cards[card].job_epoch(&other.job));
        let is_split = self.profile.hardware.split_dma.is_some();
        if is_split || self.host.outstanding.is_some() || !self.host.waiting.is_empty() {
            self.host.waiting.push_back(active);
        } else {
            self.drive(active);
        }
    }

    /// Returns whether a card has an unfinished job. A host may free memory once the card reports that it is not busy.
    pub(crate) fn uses_host(&self, card: usize) -> bool {
        let mut unanswered = self.host.unanswered.iter().map(|(_, active)| active);
        self.host.jobs().any(|active| active.card == card)
            || unanswered.any(|active| active.card == card && self.is_current(active))
    }

    /// Runs the waiting jobs.
    pub(crate) fn run_host_dma(&mut self) -> HostWork {
        if self.profile.hardware.split_dma.is_some() {
            return self.run_split_dma();
        }
        if self.host.outstanding.is_some() {
            return HostWork::Pending;
        }
        while let Some(active) = self.host.waiting.pop_front() {
            if self.is_current(&active) && !self.drive(active) {
                return HostWork::Pending;
            }
        }
        HostWork::None
    }

    /// Completes a pending request.
    pub(crate) fn host_dma_completed(&mut self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        if self.profile.hardware.split_dma.is_some() {
            self.part_completed(tag, result);
            return self.run();
        }
        if !self.host.is_last(tag) {
            return;
        }
        let Some(mut active) = self.host.outstanding.take() else { return };
        if !self.is_current(&active) {
            // The card was reset, or the instruction aborted: nothing may follow the request.
            self.host.spare = active.buffer;
            return self.run();
        }
        let went_well = result.map(|data| self.take_answer(&mut active, data)).map_err(HostFault::Refused);
        if let Some(result) = self.after_request(&mut active, went_well) {
            self.job_ended(active, result);
        } else if !self.drive(active) {
            return;
        }
        self.run();
    }

    /// Whether what a job belongs to still runs.
    pub(super) fn is_current(&self, active: &Active) -> bool {
        self.cards[active.card].job_epoch(&active.job) == active.epoch
    }

    /// Makes requests until the job is done. Returns `false` if a request is pending.
    fn drive(&mut self, mut active: Active) -> bool {
        loop {
            match self.request(&mut active) {
                Asked::Pending => {
                    self.host.outstanding = Some(active);
                    return false;
                }
                Asked::Unanswered => {
                    self.leave_unanswered(active);
                    return true;
                }
                Asked::Done(result) => {
                    if let Some(result) = self.after_request(&mut active, result) {
                        self.job_ended(active, result);
                        return true;
                    }
                }
            }
        }
    }

    fn request(&mut self, active: &mut Active) -> Asked {
        self.hold_bytes += active.bytes();
        let iova = match self.prepare(active) {
            Ok(iova) => iova,
            Err(result) => return Asked::Done(result),
        };
        let misanswer = if active.writes() { None } else { self.host.misanswer(active.card) };
        match misanswer {
            Some(Misanswer::Never) => return Asked::Unanswered,
            Some(Misanswer::Poisoned) => return Asked::Done(Err(HostFault::Poisoned)),
            None => {}
        }
        let tag = self.host.next_tag();
        let card = &self.cards[active.card];
        let progress = match active.writes() {
            true => card.write_host(tag, iova, &active.buffer),
            false => card.read_host(tag, iova, &mut active.buffer),
        };
        match progress {
            DmaProgress::Pending => Asked::Pending,
            DmaProgress::Done(result) => Asked::Done(result.map_err(HostFault::Refused)),
        }
    }

    /// Makes the buffer that the job reads into, or writes, and returns where it lies in host memory. `Err` is the result of a
    /// job that has nothing to move.
    pub(super) fn prepare(&mut self, active: &mut Active) -> Result<Iova, Result<(), HostFault>> {
        let card = &mut self.cards[active.card];
        let (iova, bytes) = match active.job {
            Job::Fetch { queue } => {
                // The host may have disabled the queue, or disabled and enabled it, since the job was queued.
                let next =
                    card.rings[queue].next_fetch(FETCH_WORDS).filter(|_| card.rings[queue].life() == active.life);
                let (address, words) = next.ok_or(Ok(()))?;
                (address, words as usize * instruction::BYTES)
            }
            Job::Complete { queue, completion, .. } => {
                let (address, phase) = card.rings[queue].begin_completion(active.life).ok_or(Ok(()))?;
                let word: [u8; completion::BYTES] = Completion { phase, ..completion }.encode();
                active.buffer.clear();
                active.buffer.extend(word);
                return Ok(Iova(address));
            }
            Job::Out { address, iova, bytes } => {
                active.buffer.clear();
                let read = card.memory.append_to(address, bytes, &mut active.buffer);
                return read.map(|()| Iova(iova)).map_err(|error| Err(HostFault::Unreadable(error)));
            }
            Job::Through { to, .. } if active.is_writing => return Ok(Iova(to)),
            Job::Through { from, bytes, .. } => (from, bytes as usize),
            Job::In { iova, bytes, .. } => (iova, bytes as usize),
            Job::Table { iova, bytes } => (iova, (bytes as usize).min(TABLE_BYTES)),
        };
        active.buffer.resize(bytes, 0);
        Ok(Iova(iova))
    }

    /// Stores the data of a pending read where an immediate read would have stored it.
    fn take_answer(&mut self, active: &mut Active, data: &[u8]) {
        self.hold_bytes += active.bytes();
        if !active.writes() && data.len() == active.buffer.len() {
            active.buffer.copy_from_slice(data);
        }
    }

    /// Advances the job after a request. Returns the job's result once it is done.
    pub(super) fn after_request(
        &mut self,
        active: &mut Active,
        result: Result<(), HostFault>,
    ) -> Option<Result<(), (HostFault, bool)>> {
        if let Err(fault) = result {
            return Some(Err((fault, active.writes())));
        }
        match active.job {
            Job::Through { .. } if !active.is_writing => {
                active.is_writing = true;
                None
            }
            Job::In { address, .. } => {
                self.cards[active.card].keep(address, &active.buffer);
                Some(Ok(()))
            }
            _ => Some(Ok(())),
        }
    }

    /// A read of the job will never be answered. Meanwhile time passes.
    pub(super) fn leave_unanswered(&mut self, active: Active) {
        let DmaTag(number) = self.host.next_tag();
        self.host.unanswered.push((number, active));
        self.schedule_in(COMPLETION_TIMEOUT_PS, Event::Unanswered { number });
    }

    /// The card has waited long enough.
    pub(crate) fn completion_timeout(&mut self, number: u64) {
        if let Some(place) = self.host.unanswered.iter().position(|(other, _)| *other == number) {
            let (_, active) = self.host.unanswered.swap_remove(place);
            self.job_ended(active, Err((HostFault::TimedOut, false)));
        }
    }

    pub(super) fn job_ended(&mut self, active: Active, result: Result<(), (HostFault, bool)>) {
        let is_current = self.is_current(&active);
        let Active { card, life, job, buffer, .. } = active;
        match result {
            Err((HostFault::TimedOut, _)) => self.cards[card].config.report(Uncorrectable::CompletionTimeout),
            Err((HostFault::Poisoned, _)) => self.cards[card].config.report(Uncorrectable::PoisonedTlp),
            Ok(()) | Err((HostFault::Refused(_) | HostFault::Unreadable(_), _)) => {}
        }
        if is_current {
            let at = LaneId::first(card);
            let is_same_queue = self.cards[card].rings[0].life() == life;
            let data = result.map(|()| &buffer[..]).map_err(|(fault, _)| fault);
            match job {
                // Fetches and completions of a queue that was disabled are dropped.
                Job::Fetch { queue } if !is_same_queue => self.fetched(card, queue, Ok(&[])),
                Job::Complete { .. } if !is_same_queue => self.completion_dropped(card),
                Job::Fetch { queue } => self.fetched(card, queue, data),
                Job::Complete { queue, interrupt, .. } => {
                    self.completion_written(card, queue, interrupt, result.is_ok())
                }
                Job::In { .. } | Job::Out { .. } | Job::Through { .. } => self.host_copied(at, result),
                Job::Table { .. } => self.table_read(at, data),
            }
        }
        self.host.spare = buffer;
    }
}

impl Card {
    /// Writes what came from the host. The range was reserved before, so it does not fail.
    fn keep(&mut self, address: u64, data: &[u8]) {
        let kept = self.memory.write(address, data);
        debug_assert_eq!(kept, Ok(()));
    }

    /// Returns the current epoch of what `job` belongs to: fetches and completions belong to the card, all others to an
    /// instruction, which is no exchange.
    fn job_epoch(&self, job: &Job) -> u64 {
        match job {
            Job::Fetch { .. } | Job::Complete { .. } => self.epoch,
            Job::In { .. } | Job::Out { .. } | Job::Through { .. } | Job::Table { .. } => self.lanes[0].epoch,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cmdseq::{Instruction, Operand};

    use super::*;
    use crate::profile::Profile;
    use crate::testing::Host;
    use crate::world::Pace;

    const BYTES: u64 = 64;

    /// Has a copy read host memory, resets its card before the answer, and gives it a new host: the host's writes, and the
    /// bytes of card memory after the answer.
    fn answered_late(copy: Instruction) -> (usize, Vec<u8>) {
        let (mut core, host) = (Core::new(Profile::optweb(2)), Arc::new(Host { is_slow: true, ..Host::default() }));
        core.pace = Pace::Due;
        host.attach(&mut core, 0);
        core.begin_alone(0, copy);
        let tag = host.reads.lock().unwrap()[0];
        core.reset(0);
        host.attach(&mut core, 0);
        core.host_dma_completed(tag, Ok(&[9; BYTES as usize]));
        while core.run_some(1) {}
        assert!(!core.uses_host(0) && !core.cards[0].is_busy());
        let writes = host.writes.lock().unwrap().len();
        (writes, core.cards[0].memory.read(0, BYTES).unwrap())
    }

    #[test]
    fn an_answer_does_not_land_in_a_card_that_was_reset() {
        let copy = Instruction::copy(Operand::host(4096), Operand::card(0), BYTES);
        assert_eq!(answered_late(copy), (0, vec![0; BYTES as usize]));
    }

    #[test]
    fn a_card_that_was_reset_does_not_go_on_with_a_copy_within_host_memory() {
        let copy = Instruction::copy(Operand::host(4096), Operand::host(8192), BYTES);
        assert_eq!(answered_late(copy), (0, vec![0; BYTES as usize]));
    }
}

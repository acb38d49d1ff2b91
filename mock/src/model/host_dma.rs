//! DMA of the cards to host memory: one request at a time; the fabric's clock stops meanwhile.
//!
//! A job is one request, or two for a copy within host memory, of at most 1 MiB, so that others wait for at most that.

use cmdseq::completion::{self, Completion};
use cmdseq::instruction;
use fpga_hal::Iova;
use fpga_hal::endpoint::{DmaFault, DmaProgress, DmaTag};

use crate::card::Card;
use crate::card::host_jobs::{Active, FETCH_WORDS, Job, TABLE_BYTES};
use crate::proto::optweb::lane::LaneId;
use crate::world::Core;

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
        if self.host.outstanding.is_some() || !self.host.waiting.is_empty() {
            self.host.waiting.push_back(active);
        } else {
            self.drive(active);
        }
    }

    /// Returns whether a card has an unfinished job. A host may free memory once the card reports that it is not busy.
    pub(crate) fn uses_host(&self, card: usize) -> bool {
        self.host.waiting.iter().chain(&self.host.outstanding).any(|active| active.card == card)
    }

    /// Runs the waiting jobs. Returns `false` if one is pending.
    pub(crate) fn run_host_dma(&mut self) -> bool {
        if self.host.outstanding.is_some() {
            return false;
        }
        while let Some(active) = self.host.waiting.pop_front() {
            if self.is_current(&active) && !self.drive(active) {
                return false;
            }
        }
        true
    }

    /// Completes the outstanding request.
    pub(crate) fn host_dma_completed(&mut self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        if tag.0 != self.host.tag {
            return;
        }
        let Some(mut active) = self.host.outstanding.take() else { return };
        if !self.is_current(&active) {
            // The card was reset, or the instruction aborted: nothing may follow the request.
            self.host.spare = active.buffer;
            return self.run();
        }
        let went_well = result.map(|data| self.take_answer(&mut active, data));
        if let Some(result) = self.after_request(&mut active, went_well) {
            self.job_ended(active, result);
        } else if !self.drive(active) {
            return;
        }
        self.run();
    }

    /// Whether what a job belongs to still runs.
    fn is_current(&self, active: &Active) -> bool {
        self.cards[active.card].job_epoch(&active.job) == active.epoch
    }

    /// Makes requests until the job is done. Returns `false` if a request is pending.
    fn drive(&mut self, mut active: Active) -> bool {
        loop {
            match self.request(&mut active) {
                DmaProgress::Pending => {
                    self.host.outstanding = Some(active);
                    return false;
                }
                DmaProgress::Done(result) => {
                    if let Some(result) = self.after_request(&mut active, result) {
                        self.job_ended(active, result);
                        return true;
                    }
                }
            }
        }
    }

    fn request(&mut self, active: &mut Active) -> DmaProgress {
        self.host.tag = self.host.tag.wrapping_add(1);
        let tag = DmaTag(self.host.tag);
        self.hold_bytes += active.bytes();
        let card = &mut self.cards[active.card];
        match active.job {
            Job::Fetch { queue } => {
                // The host may have disabled the queue, or disabled and enabled it, since the job was queued.
                let next =
                    card.rings[queue].next_fetch(FETCH_WORDS).filter(|_| card.rings[queue].life() == active.life);
                let Some((address, words)) = next else { return DmaProgress::Done(Ok(())) };
                active.buffer.resize(words as usize * instruction::BYTES, 0);
                card.read_host(tag, Iova(address), &mut active.buffer)
            }
            Job::Complete { queue, completion, .. } => {
                let next = card.rings[queue].begin_completion(active.life);
                let Some((address, phase)) = next else { return DmaProgress::Done(Ok(())) };
                let word: [u8; completion::BYTES] = Completion { phase, ..completion }.encode();
                card.write_host(tag, Iova(address), &word)
            }
            Job::In { iova, address, bytes } => {
                active.buffer.resize(bytes as usize, 0);
                let progress = card.read_host(tag, Iova(iova), &mut active.buffer);
                if progress == DmaProgress::Done(Ok(())) {
                    card.keep(address, &active.buffer);
                }
                progress
            }
            Job::Out { address, iova, bytes } => {
                active.buffer.clear();
                match card.memory.append_to(address, bytes, &mut active.buffer) {
                    Ok(()) => card.write_host(tag, Iova(iova), &active.buffer),
                    // The range was checked before.
                    Err(_) => DmaProgress::Done(Err(DmaFault::NotMaster)),
                }
            }
            Job::Through { to, .. } if active.is_writing => card.write_host(tag, Iova(to), &active.buffer),
            Job::Through { from, bytes, .. } => {
                active.buffer.resize(bytes as usize, 0);
                card.read_host(tag, Iova(from), &mut active.buffer)
            }
            Job::Table { iova, bytes } => {
                active.buffer.resize((bytes as usize).min(TABLE_BYTES), 0);
                card.read_host(tag, Iova(iova), &mut active.buffer)
            }
        }
    }

    /// Stores the data of a pending read where an immediate read would have stored it.
    fn take_answer(&mut self, active: &mut Active, data: &[u8]) {
        self.hold_bytes += active.bytes();
        match active.job {
            Job::In { address, bytes, .. } if data.len() as u64 == bytes => {
                self.cards[active.card].keep(address, data);
            }
            Job::Fetch { .. } | Job::Through { .. } | Job::Table { .. }
                if !active.is_writing && data.len() == active.buffer.len() =>
            {
                active.buffer.copy_from_slice(data);
            }
            _ => {}
        }
    }

    /// Advances the job after a request. Returns the job's result once it is done.
    fn after_request(
        &mut self,
        active: &mut Active,
        result: Result<(), DmaFault>,
    ) -> Option<Result<(), (DmaFault, bool)>> {
        if let Err(fault) = result {
            let is_write = active.is_writing || matches!(active.job, Job::Out { .. } | Job::Complete { .. });
            return Some(Err((fault, is_write)));
        }
        match active.job {
            Job::Through { .. } if !active.is_writing => {
                active.is_writing = true;
                None
            }
            _ => Some(Ok(())),
        }
    }

    fn job_ended(&mut self, active: Active, result: Result<(), (DmaFault, bool)>) {
        let Active { card, epoch, life, job, buffer, .. } = active;
        if self.cards[card].job_epoch(&job) == epoch {
            let at = LaneId::first(card);
            let is_same_queue = self.cards[card].rings[0].life() == life;
            match job {
                // Fetches and completions of a queue that was disabled are dropped.
                Job::Fetch { queue } if !is_same_queue => self.fetched(card, queue, &[], true),
                Job::Complete { .. } if !is_same_queue => self.completion_dropped(card),
                Job::Fetch { queue } => self.fetched(card, queue, &buffer, result.is_ok()),
                Job::Complete { queue, interrupt, .. } => {
                    self.completion_written(card, queue, interrupt, result.is_ok())
                }
                Job::In { .. } | Job::Out { .. } | Job::Through { .. } => self.host_copied(at, result),
                Job::Table { .. } => self.table_read(at, &buffer, result.is_ok()),
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

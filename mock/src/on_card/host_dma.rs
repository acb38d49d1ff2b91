//! The jobs of a card with host memory, request by request.

use cmdseq::completion::{self, Completion};
use cmdseq::instruction;
use fpga_hal::Iova;
use fpga_hal::endpoint::DmaProgress;

use crate::card::Card;
use crate::card::config_space::Uncorrectable;
use crate::card::host_jobs::{Active, FETCH_WORDS, HostFault, Job, Misanswer};
use crate::event::Event;
use crate::on_card::OnCard;
use crate::proto::optweb::lane::LaneId;

/// How long a card waits for the answer to a read: the default range of PCIe is 50 us to 50 ms, and less than 10 ms is advised
/// against (PCI Express Base 5.0, section 2.8).
const COMPLETION_TIMEOUT_PS: u64 = 10_000_000_000;

/// State of a request.
enum Asked {
    Done(Result<(), HostFault>),
    Pending,
    Unanswered,
}

impl OnCard<'_> {
    /// Starts a job for the card, or queues it. The job ends before the clock advances, perhaps before this returns, so callers
    /// must be done.
    pub(crate) fn push_host_job(&mut self, job: Job) {
        let (card, epoch) = (self.index(), self.card.job_epoch(&job));
        let buffer = std::mem::take(&mut self.env.host.spare);
        let active = Active { card, epoch, job, buffer, is_writing: false };
        // What waits from before the card's last reset is void.
        self.env.host.waiting.retain(|other| other.card != card || other.epoch == self.card.job_epoch(&other.job));
        let is_split = self.env.profile.hardware.split_dma.is_some();
        if is_split || self.env.host.outstanding.is_some() || !self.env.host.waiting.is_empty() {
            self.env.host.waiting.push_back(active);
        } else {
            self.drive(active);
        }
    }

    /// Makes requests until the job is done. Returns `false` if a request is pending.
    pub(crate) fn drive(&mut self, mut active: Active) -> bool {
        loop {
            match self.request(&mut active) {
                Asked::Pending => {
                    self.env.host.outstanding = Some(active);
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
        self.env.hold_bytes += active.bytes();
        let iova = match self.prepare(active) {
            Ok(iova) => iova,
            Err(result) => return Asked::Done(result),
        };
        let misanswer = if active.writes() { None } else { self.env.host.misanswer(active.card) };
        match misanswer {
            Some(Misanswer::Never) => return Asked::Unanswered,
            Some(Misanswer::Poisoned) => return Asked::Done(Err(HostFault::Poisoned)),
            None => {}
        }
        let tag = self.env.host.next_tag();
        let card = &*self.card;
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
    pub(crate) fn prepare(&mut self, active: &mut Active) -> Result<Iova, Result<(), HostFault>> {
        let card = &mut *self.card;
        let (iova, bytes) = match active.job {
            Job::Fetch { life } => {
                // The host may have disabled the queue, or disabled and enabled it, since the job was queued.
                let next = card.rings.next_fetch(FETCH_WORDS).filter(|_| card.rings.life() == life);
                let (address, words) = next.ok_or(Ok(()))?;
                (address, words as usize * instruction::BYTES)
            }
            Job::Complete { completion, life, .. } => {
                let (address, phase) = card.rings.begin_completion(life).ok_or(Ok(()))?;
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
            Job::Table { iova, bytes } => (iova, bytes as usize),
        };
        active.buffer.resize(bytes, 0);
        Ok(Iova(iova))
    }

    /// Stores the data of a pending read where an immediate read would have stored it.
    pub(crate) fn take_answer(&mut self, active: &mut Active, data: &[u8]) {
        self.env.hold_bytes += active.bytes();
        if !active.writes() && data.len() == active.buffer.len() {
            active.buffer.copy_from_slice(data);
        }
    }

    /// Advances the job after a request. Returns the job's result once it is done.
    pub(crate) fn after_request(
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
                self.card.keep(address, &active.buffer);
                Some(Ok(()))
            }
            _ => Some(Ok(())),
        }
    }

    /// A read of the job will never be answered. Meanwhile time passes.
    pub(crate) fn leave_unanswered(&mut self, active: Active) {
        let number = self.env.host.leave_unanswered(active);
        self.env.schedule_in(COMPLETION_TIMEOUT_PS, Event::Unanswered { number });
    }

    pub(crate) fn job_ended(&mut self, active: Active, result: Result<(), (HostFault, bool)>) {
        let is_current = self.card.runs(&active);
        let Active { card, job, buffer, .. } = active;
        match result {
            Err((HostFault::TimedOut, _)) => self.card.config.report(Uncorrectable::CompletionTimeout),
            Err((HostFault::Poisoned, _)) => self.card.config.report(Uncorrectable::PoisonedTlp),
            Ok(()) | Err((HostFault::Refused(_) | HostFault::Unreadable(_), _)) => {}
        }
        if is_current {
            let at = LaneId::first(card);
            let present = self.card.rings.life();
            let data = result.map(|()| &buffer[..]).map_err(|(fault, _)| fault);
            match job {
                // Fetches and completions of a queue that was disabled are dropped.
                Job::Fetch { life } if life != present => self.fetched(Ok(&[])),
                Job::Complete { life, .. } if life != present => self.completion_dropped(),
                Job::Fetch { .. } => self.fetched(data),
                Job::Complete { interrupt, .. } => self.completion_written(interrupt, result.is_ok()),
                Job::In { .. } | Job::Out { .. } | Job::Through { .. } => self.host_copied(at, result),
                Job::Table { .. } => self.table_read(at, data),
            }
        }
        self.env.host.spare = buffer;
    }
}

impl Card {
    /// Writes what came from the host. The range was reserved before, so it does not fail.
    fn keep(&mut self, address: u64, data: &[u8]) {
        let kept = self.memory.write(address, data);
        debug_assert_eq!(kept, Ok(()));
    }

    /// Whether what a job of the card belongs to still runs.
    pub(crate) fn runs(&self, active: &Active) -> bool {
        self.job_epoch(&active.job) == active.epoch
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

//! DMA of the cards as it goes over PCIe: many requests at once, answered in any order, part by part.

use fpga_hal::Iova;
use fpga_hal::endpoint::{DmaFault, DmaProgress, DmaTag};

use crate::card::host_dma::HostDma;
use crate::card::host_jobs::{HostFault, Misanswer};
use crate::card::split::{Request, Split};
use crate::model::host_dma::HostWork;
use crate::world::Core;

/// What is done next: a part of a request of a job is moved, or a job ends.
enum Next {
    Part { job: usize, request: usize },
    End { job: usize, result: Result<(), HostFault> },
}

impl Core {
    /// Moves one part of one request, whichever the dice choose, or ends a job.
    pub(super) fn run_split_dma(&mut self) -> HostWork {
        let mut jobs = std::mem::take(&mut self.host.split);
        jobs.extend(self.host.waiting.drain(..).map(Split::new));
        // Of what a reset or an abort made void, nothing follows the requests that the bus works on.
        jobs.retain(|job| job.is_pending() || self.is_current(&job.active));
        let next = self.next_of(&mut jobs);
        self.host.split = jobs;
        match next {
            Some(Next::Part { job, request }) => self.move_part(job, request),
            Some(Next::End { job, result }) => self.end_split(job, result),
            None if self.host.split.is_empty() => return HostWork::None,
            None => return HostWork::Pending,
        }
        HostWork::More
    }

    /// Has the jobs make what requests they may, and chooses one.
    fn next_of(&mut self, jobs: &mut [Split]) -> Option<Next> {
        let (mut writing, mut ready) = (Vec::new(), Vec::new());
        for (job, split) in jobs.iter_mut().enumerate() {
            let card = split.active.card;
            // No request of a card passes an earlier write of it.
            if writing.contains(&card) {
                continue;
            }
            if split.active.writes() {
                writing.push(card);
            }
            if !self.is_current(&split.active) {
                continue;
            }
            if !split.has_begun()
                && let Err(result) = self.begin_split(split)
            {
                return Some(Next::End { job, result });
            }
            while split.has_tag()
                && let Some(left) = split.next_request()
            {
                let misanswer = if split.active.writes() { None } else { self.host.misanswer(card) };
                split.requests.push(Request { left, pending: None, misanswer });
            }
            if split.is_over() {
                return Some(Next::End { job, result: Ok(()) });
            }
            let requests = split.requests.iter().enumerate().filter(|(_, request)| request.pending.is_none());
            ready.extend(requests.map(|(request, _)| (job, request)));
        }
        let chosen = self.host.dice.below(ready.len() as u64) as usize;
        ready.get(chosen).map(|&(job, request)| Next::Part { job, request })
    }

    fn begin_split(&mut self, split: &mut Split) -> Result<(), Result<(), HostFault>> {
        let Iova(iova) = self.prepare(&mut split.active)?;
        let config = &self.cards[split.active.card].config;
        split.begin(iova, if split.active.writes() { config.payload_bytes() } else { config.read_request_bytes() });
        Ok(())
    }

    fn move_part(&mut self, job: usize, request: usize) {
        let HostDma { split, dice, .. } = &mut self.host;
        let Request { left, misanswer, .. } = &split[job].requests[request];
        match misanswer {
            Some(Misanswer::Never) => {
                let lost = split.remove(job);
                return self.leave_unanswered(lost.active);
            }
            Some(Misanswer::Poisoned) => return self.end_split(job, Err(HostFault::Poisoned)),
            None => {}
        }
        let part = left.start..split[job].part_end(left, dice);
        let tag = self.host.next_tag();
        let split = &mut self.host.split[job];
        let (iova, is_write) = (Iova(split.iova(part.start)), split.active.writes());
        let card = &self.cards[split.active.card];
        let data = &mut split.active.buffer[part.start as usize..part.end as usize];
        self.hold_bytes += data.len() as u64;
        let progress = if is_write { card.write_host(tag, iova, data) } else { card.read_host(tag, iova, data) };
        match progress {
            DmaProgress::Pending => split.requests[request].pending = Some((tag, part.end)),
            DmaProgress::Done(result) => self.part_moved(job, request, part.end, result),
        }
    }

    /// Takes the completion of a pending part.
    pub(super) fn part_completed(&mut self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        let is_its = |request: &Request| request.pending.is_some_and(|(pending, _)| pending == tag);
        let found = self
            .host
            .split
            .iter()
            .enumerate()
            .find_map(|(job, split)| split.requests.iter().position(is_its).map(|request| (job, request)));
        // Nothing waits for an answer after a fault.
        let Some((job, request)) = found else { return };
        let split = &mut self.host.split[job];
        let Request { left, pending, .. } = &mut split.requests[request];
        let Some((_, end)) = pending.take() else { return };
        let part = left.start as usize..end as usize;
        if let Ok(data) = result
            && !split.active.writes()
            && data.len() == part.len()
        {
            self.hold_bytes += data.len() as u64;
            split.active.buffer[part].copy_from_slice(data);
        }
        if self.is_current(&self.host.split[job].active) {
            self.part_moved(job, request, end, result.map(drop));
        }
    }

    fn part_moved(&mut self, job: usize, request: usize, end: u64, result: Result<(), DmaFault>) {
        if let Err(fault) = result {
            return self.end_split(job, Err(HostFault::Refused(fault)));
        }
        let split = &mut self.host.split[job];
        split.requests[request].left.start = end;
        if split.requests[request].left.is_empty() {
            split.requests.remove(request);
        }
        if split.is_over() {
            self.end_split(job, Ok(()));
        }
    }

    /// Ends a job, or goes on with a copy within host memory that has been read.
    fn end_split(&mut self, job: usize, result: Result<(), HostFault>) {
        let mut active = self.host.split.remove(job).active;
        match self.after_request(&mut active, result) {
            Some(result) => self.job_ended(active, result),
            None => self.host.split.push(Split::new(active)),
        }
    }
}

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
        let mut jobs = std::mem::take(&mut self.env.host.split);
        jobs.extend(self.env.host.waiting.drain(..).map(Split::new));
        // Of what a reset or an abort made void, nothing follows the requests that the bus works on.
        jobs.retain(|job| job.is_pending() || self.cards[job.active.card].runs(&job.active));
        let next = self.next_of(&mut jobs);
        self.env.host.split = jobs;
        match next {
            Some(Next::Part { job, request }) => self.move_part(job, request),
            Some(Next::End { job, result }) => self.end_split(job, result),
            None if self.env.host.split.is_empty() => return HostWork::None,
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
            if split.fault.is_some() || !self.cards[split.active.card].runs(&split.active) {
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
                let misanswer = if split.active.writes() { None } else { self.env.host.misanswer(card) };
                split.requests.push(Request { left, pending: None, misanswer });
            }
            if let Some(result) = split.result() {
                return Some(Next::End { job, result });
            }
            let requests = split.requests.iter().enumerate().filter(|(_, request)| request.pending.is_none());
            ready.extend(requests.map(|(request, _)| (job, request)));
        }
        let chosen = self.env.host.dice.below(ready.len() as u64) as usize;
        ready.get(chosen).map(|&(job, request)| Next::Part { job, request })
    }

    fn begin_split(&mut self, split: &mut Split) -> Result<(), Result<(), HostFault>> {
        let Iova(iova) = self.on(split.active.card).prepare(&mut split.active)?;
        let config = &self.cards[split.active.card].config;
        split.begin(iova, if split.active.writes() { config.payload_bytes() } else { config.read_request_bytes() });
        Ok(())
    }

    fn move_part(&mut self, job: usize, request: usize) {
        let HostDma { split, dice, .. } = &mut self.env.host;
        let Request { left, misanswer, .. } = &split[job].requests[request];
        match misanswer {
            Some(Misanswer::Never) => return self.split_failed(job, HostFault::TimedOut),
            Some(Misanswer::Poisoned) => return self.split_failed(job, HostFault::Poisoned),
            None => {}
        }
        let part = left.start..split[job].part_end(left, dice);
        let tag = self.env.host.next_tag();
        let split = &mut self.env.host.split[job];
        let (iova, is_write) = (Iova(split.iova(part.start)), split.active.writes());
        let card = &self.cards[split.active.card];
        let data = &mut split.active.buffer[part.start as usize..part.end as usize];
        self.env.hold_bytes += data.len() as u64;
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
            .env
            .host
            .split
            .iter()
            .enumerate()
            .find_map(|(job, split)| split.requests.iter().position(is_its).map(|request| (job, request)));
        let Some((job, request)) = found else { return };
        let split = &mut self.env.host.split[job];
        let Request { left, pending, .. } = &mut split.requests[request];
        let Some((_, end)) = pending.take() else { return };
        let part = left.start as usize..end as usize;
        if let Ok(data) = result
            && !split.active.writes()
            && data.len() == part.len()
        {
            self.env.hold_bytes += data.len() as u64;
            split.active.buffer[part].copy_from_slice(data);
        }
        let split = &self.env.host.split[job];
        // A fault is reported even if an abort has made the job void.
        if split.fault.is_some() || self.cards[split.active.card].runs(&split.active) {
            self.part_moved(job, request, end, result.map(drop));
        }
    }

    fn part_moved(&mut self, job: usize, request: usize, end: u64, result: Result<(), DmaFault>) {
        if let Err(fault) = result {
            return self.split_failed(job, HostFault::Refused(fault));
        }
        let split = &mut self.env.host.split[job];
        split.requests[request].left.start = end;
        if split.requests[request].left.is_empty() {
            split.requests.remove(request);
        }
        self.end_if_over(job);
    }

    /// A request of a job failed. The first fault is the job's.
    fn split_failed(&mut self, job: usize, fault: HostFault) {
        self.env.host.split[job].fault.get_or_insert(fault);
        self.end_if_over(job);
    }

    fn end_if_over(&mut self, job: usize) {
        if let Some(result) = self.env.host.split[job].result() {
            self.end_split(job, result);
        }
    }

    /// Ends a job, or goes on with a copy within host memory that has been read.
    fn end_split(&mut self, job: usize, result: Result<(), HostFault>) {
        let mut active = self.env.host.split.remove(job).active;
        if result == Err(HostFault::TimedOut) {
            return self.on(active.card).leave_unanswered(active);
        }
        match self.on(active.card).after_request(&mut active, result) {
            Some(result) => self.on(active.card).job_ended(active, result),
            None => self.env.host.split.push(Split::new(active)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    use cmdseq::completion::Status;
    use cmdseq::{Completion, Instruction, Operand};
    use fpga_hal::endpoint::{DmaPort, InterruptPort};
    use fpga_regs::sequencer::queue;

    use super::*;
    use crate::card::bus_ports::BusPorts;
    use crate::card::config_space::Uncorrectable;
    use crate::environment::Pace;
    use crate::profile::{Hardware, Profile};

    const BYTES: u64 = 20_000;
    /// Most bytes of a write, after a reset.
    const MOST: u64 = 128;

    /// A host that answers reads on demand.
    #[derive(Default)]
    struct Slow {
        reads: Mutex<Vec<DmaTag>>,
        statuses: Mutex<Vec<Status>>,
    }

    impl DmaPort for Slow {
        fn read(&self, tag: DmaTag, _: Iova, _: &mut [u8]) -> DmaProgress {
            self.reads.lock().unwrap().push(tag);
            DmaProgress::Pending
        }

        fn write(&self, _: DmaTag, _: Iova, data: &[u8]) -> DmaProgress {
            self.statuses.lock().unwrap().push(Completion::decode(data.try_into().unwrap()).status);
            DmaProgress::Done(Ok(()))
        }
    }

    impl InterruptPort for Slow {
        fn raise(&self, _: u16) {}
        fn set_intx(&self, _: bool) {}
    }

    #[test]
    fn a_job_that_fails_ends_after_the_last_answer() {
        let cases = [None, Some(Misanswer::Poisoned), Some(Misanswer::Never)];
        for (planted, is_aborted) in cases.into_iter().flat_map(|one| [(one, false), (one, true)]) {
            let hardware = Hardware { split_dma: Some(1), ..Hardware::default() };
            let mut core = Core::new(Profile { hardware, ..Profile::optweb(2) });
            core.env.pace = Pace::Due;
            let host = Arc::new(Slow::default());
            let card = &mut core.cards[0];
            card.bus = Some(BusPorts::new(Arc::clone(&host) as _, Arc::clone(&host) as _));
            card.config.write(4, &[6, 0]);
            card.rings.configure(queue::DEPTH, 4);
            card.rings.configure(queue::ENABLE, 1);
            core.env.host.misanswers.extend(planted.map(|misanswer| (0, 0, misanswer)));
            core.begin_alone(0, Instruction::copy(Operand::host(0), Operand::card(0), BYTES));
            while core.run_some(1) {}
            let tags = host.reads.lock().unwrap().clone();
            assert!(tags.len() > 2, "{planted:?}: {} reads", tags.len());
            for (place, tag) in tags.iter().enumerate() {
                assert!(core.uses_host(0), "{planted:?}, {place} of {} answers", tags.len());
                if !is_aborted || place == 0 {
                    assert!(core.cards[0].is_busy() && host.statuses.lock().unwrap().is_empty());
                }
                let is_first = place == 0 && planted.is_none();
                core.host_dma_completed(*tag, if is_first { Err(DmaFault::HostGone) } else { Ok(&[]) });
                while core.run_some(1) {}
                if is_aborted && place == 0 {
                    core.on(0).abort();
                }
            }
            assert!(!core.uses_host(0) && !core.cards[0].is_busy(), "{planted:?}");
            let status = if is_aborted { Status::Aborted } else { Status::HostReadFault };
            assert_eq!(*host.statuses.lock().unwrap(), [status], "{planted:?}");
            let mut errors = [0; 4];
            core.cards[0].config.read(0x104, &mut errors);
            let reported = match planted {
                None => 0,
                Some(Misanswer::Poisoned) => 1 << Uncorrectable::PoisonedTlp as u32,
                Some(Misanswer::Never) => 1 << Uncorrectable::CompletionTimeout as u32,
            };
            assert_eq!(u32::from_le_bytes(errors), reported, "{planted:?}");
            assert_eq!(host.reads.lock().unwrap().len(), tags.len(), "no more reads");
        }
    }

    /// What a card does to its host.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Done {
        Read(u64, u64),
        Wrote(u64, u64),
        Raised,
    }

    /// A host that records what the card at a node does to it, in the order of all cards.
    struct Recorder(u32, Arc<Mutex<Vec<(u32, Done)>>>);

    impl Recorder {
        fn note(&self, done: Done) -> DmaProgress {
            self.1.lock().unwrap().push((self.0, done));
            DmaProgress::Done(Ok(()))
        }
    }

    impl DmaPort for Recorder {
        fn read(&self, _: DmaTag, iova: Iova, data: &mut [u8]) -> DmaProgress {
            self.note(Done::Read(iova.0, data.len() as u64))
        }

        fn write(&self, _: DmaTag, iova: Iova, data: &[u8]) -> DmaProgress {
            self.note(Done::Wrote(iova.0, data.len() as u64))
        }
    }

    impl InterruptPort for Recorder {
        fn raise(&self, _: u16) {
            let _ = self.note(Done::Raised);
        }

        fn set_intx(&self, _: bool) {}
    }

    /// Has two cards copy host memory to host memory, and returns what they did.
    fn copies(seed: u64) -> Vec<(u32, Done)> {
        let hardware = Hardware { split_dma: Some(seed), ..Hardware::default() };
        let mut core = Core::new(Profile { hardware, ..Profile::optweb(2) });
        core.env.pace = Pace::Due;
        let all = Arc::<Mutex<Vec<_>>>::default();
        for node in 0..2 {
            let host = Arc::new(Recorder(node, Arc::clone(&all)));
            let card = &mut core.cards[node as usize];
            card.bus = Some(BusPorts::new(Arc::clone(&host) as _, host as _));
            card.config.write(4, &[6, 0]);
            // MSI-X is on, and its first vector is not masked.
            card.config.write(0x82, &[0, 0x80]);
            card.msix.write(12, 0);
            card.rings.configure(queue::COMPLETION_BASE_LO, 1 << 20);
            card.rings.configure(queue::DEPTH, 4);
            card.rings.configure(queue::ENABLE, 1);
            card.rings.arm(0);
            let copy = Instruction::copy(Operand::host(100), Operand::host(50_000), BYTES);
            core.begin_alone(node as usize, copy);
        }
        while core.run_some(1) {}
        all.lock().unwrap().clone()
    }

    #[test]
    fn reads_are_answered_in_any_order_and_all_else_is_in_order() {
        let mut orders = BTreeSet::new();
        for seed in 0..20 {
            let all = copies(seed);
            for node in 0..2 {
                let of_card: Vec<Done> = all.iter().filter(|(of, _)| *of == node).map(|(_, done)| *done).collect();
                let reads: Vec<_> = of_card
                    .iter()
                    .filter_map(|done| if let Done::Read(at, bytes) = *done { Some((at, bytes)) } else { None })
                    .collect();
                let mut sorted = reads.clone();
                sorted.sort_unstable();
                assert!(sorted.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0), "each byte is read once");
                assert_eq!((sorted[0].0, reads.iter().map(|read| read.1).sum()), (100, BYTES));
                assert_ne!(reads, sorted, "different reads pass each other");
                // After them the writes, in order, the completion, and then the interrupt.
                let mut next = 50_000;
                let mut after = of_card[reads.len()..].iter();
                while next < 50_000 + BYTES {
                    let Some(Done::Wrote(at, bytes)) = after.next() else { panic!("{of_card:?}") };
                    assert!(*at == next && *bytes <= MOST && at / 4096 == (at + bytes - 1) / 4096);
                    next += bytes;
                }
                assert_eq!(after.collect::<Vec<_>>(), [&Done::Wrote(1 << 20, 32), &Done::Raised]);
                orders.insert(reads);
            }
            assert!(all.windows(2).filter(|pair| pair[0].0 != pair[1].0).count() > 10, "cards take turns");
            assert_eq!(all, copies(seed), "the same seed");
        }
        assert!(orders.len() > 30, "{} orders", orders.len());
    }
}

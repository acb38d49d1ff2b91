//! DMA of the cards to host memory; the fabric's clock stops meanwhile. Here one request at a time; `split_dma` makes many.
//!
//! A job is one request, or two for a copy within host memory, of at most 1 MiB, so that others wait for at most that.

use fpga_hal::endpoint::{DmaFault, DmaTag};

use crate::card::host_jobs::HostFault;
use crate::world::Core;

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

impl Core {
    /// Returns whether a card has an unfinished job. A host may free memory once the card reports that it is not busy.
    pub(crate) fn uses_host(&self, card: usize) -> bool {
        let mut unanswered = self.env.host.unanswered.iter().map(|(_, active)| active);
        self.env.host.jobs().any(|active| active.card == card)
            || unanswered.any(|active| active.card == card && self.cards[active.card].runs(active))
    }

    /// Runs the waiting jobs.
    pub(crate) fn run_host_dma(&mut self) -> HostWork {
        if self.env.profile.hardware.split_dma.is_some() {
            return self.run_split_dma();
        }
        if self.env.host.outstanding.is_some() {
            return HostWork::Pending;
        }
        while let Some(active) = self.env.host.waiting.pop_front() {
            if self.cards[active.card].runs(&active) && !self.on(active.card).drive(active) {
                return HostWork::Pending;
            }
        }
        HostWork::None
    }

    /// Completes a pending request.
    pub(crate) fn host_dma_completed(&mut self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        if self.env.profile.hardware.split_dma.is_some() {
            self.part_completed(tag, result);
            return self.run();
        }
        if !self.env.host.is_last(tag) {
            return;
        }
        let Some(mut active) = self.env.host.outstanding.take() else { return };
        if !self.cards[active.card].runs(&active) {
            // The card was reset, or the instruction aborted: nothing may follow the request.
            self.env.host.spare = active.buffer;
            return self.run();
        }
        let mut on = self.on(active.card);
        let went_well = result.map(|data| on.take_answer(&mut active, data)).map_err(HostFault::Refused);
        if let Some(result) = on.after_request(&mut active, went_well) {
            on.job_ended(active, result);
        } else if !on.drive(active) {
            return;
        }
        self.run();
    }

    /// The card has waited long enough.
    pub(crate) fn completion_timeout(&mut self, number: u64) {
        if let Some(place) = self.env.host.unanswered.iter().position(|(other, _)| *other == number) {
            let (_, active) = self.env.host.unanswered.swap_remove(place);
            self.on(active.card).job_ended(active, Err((HostFault::TimedOut, false)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cmdseq::{Instruction, Operand};

    use super::*;
    use crate::card::config_space::Uncorrectable;
    use crate::environment::Pace;
    use crate::fault::Fault;
    use crate::profile::Profile;
    use crate::testing::Host;

    const BYTES: u64 = 64;

    /// Has a copy read host memory, resets its card before the answer, and gives it a new host: the host's writes, and the
    /// bytes of card memory after the answer.
    fn answered_late(copy: Instruction) -> (usize, Vec<u8>) {
        let (mut core, host) = (Core::new(Profile::optweb(2)), Arc::new(Host { is_slow: true, ..Host::default() }));
        core.env.pace = Pace::Due;
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
    fn a_card_that_was_reset_reports_no_read_of_before() {
        let (mut core, host) = (Core::new(Profile::optweb(2)), Arc::new(Host::default()));
        core.env.pace = Pace::Due;
        for is_reset in [true, false] {
            host.attach(&mut core, 0);
            core.plant(Fault::Unanswered { node: 0, after: 0 });
            core.begin_alone(0, Instruction::copy(Operand::host(4096), Operand::card(0), BYTES));
            if is_reset {
                core.reset(0);
            }
            while core.run_some(1) {}
            let mut errors = [0; 4];
            core.cards[0].config.read(0x104, &mut errors);
            let reported = if is_reset { 0 } else { 1 << Uncorrectable::CompletionTimeout as u32 };
            assert_eq!(u32::from_le_bytes(errors), reported);
        }
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

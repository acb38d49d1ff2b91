//! Resets of cards: at once, or in steps that take time.

use crate::card::readiness::Readiness;
use crate::environment::Pace;
use crate::event::Event;
use crate::fault::Fault;
use crate::world::Core;

const PS_PER_MS: u64 = 1_000_000_000;

impl Core {
    /// Resets one card: its function and its logic. Its links retrain.
    pub(crate) fn reset(&mut self, index: usize) {
        let contents = self.cards[index].reset_function();
        self.env.discarded.push(Box::new(contents));
        // The function waits for no answer any more.
        self.env.host.unanswered.retain(|(_, active)| active.card != index);
        self.env.host.split.iter_mut().filter(|split| split.active.card == index).for_each(|split| split.fault = None);
        self.clear_logic(index);
        let takes_time = self.env.profile.hardware.reset_ms > 0;
        self.cards[index].readiness = if takes_time { Readiness::Resetting } else { Readiness::Ready };
        self.schedule_half_reset(index);
    }

    /// Resets the logic of one card, but not its function nor its memory. Its links retrain. A reset of the function goes on.
    pub(crate) fn reset_logic(&mut self, index: usize) {
        self.clear_logic(index);
        self.schedule_half_reset(index);
    }

    fn clear_logic(&mut self, index: usize) {
        self.retrain(index);
        self.on(index).leave_switches();
        self.reset_unit(index);
        self.cards[index].reset_logic(self.env.profile.receive_buffer_bytes, &self.env.world);
        self.on(index).join_switches();
        if !self.cards[index].has_rung {
            let outlasting = self.env.outlasting.clone();
            let of_card = |fault: &Fault| fault.undone_by_reset().is_some_and(|node| node as usize == index);
            outlasting.into_iter().filter(of_card).for_each(|fault| self.strike(fault));
        }
    }

    /// Half of a reset is over.
    pub(crate) fn reset_goes_on(&mut self, index: usize) {
        match self.cards[index].readiness {
            Readiness::Resetting => {
                self.cards[index].readiness = Readiness::Training;
                self.schedule_half_reset(index);
            }
            Readiness::Training => {
                self.retrain(index);
                self.cards[index].readiness = Readiness::Ready;
            }
            Readiness::Ready => {}
        }
    }

    /// Has the time pass in which a host polls a card that is not ready, up to its next step. With a clock, time passes by
    /// itself.
    pub(crate) fn poll_reset(&mut self, index: usize) {
        let before = self.cards[index].readiness;
        if before != Readiness::Ready && self.env.pace == Pace::Access {
            while self.cards[index].readiness == before && self.run_some(1) {}
        }
    }

    /// Begins a half of a reset, if the card is in one.
    fn schedule_half_reset(&mut self, index: usize) {
        if self.cards[index].readiness == Readiness::Ready {
            return;
        }
        let half = u64::from(self.env.profile.hardware.reset_ms) * PS_PER_MS / 2;
        let epoch = self.cards[index].epoch;
        self.env.schedule_in(half, Event::ResetGoesOn { card: index, epoch });
        // Without a clock, the access that began the reset would wait for its end.
        if self.env.pace != Pace::Access {
            self.run();
        }
    }

    /// Trains the links of a card: what is on them is lost, and so is what its peers had received and not used.
    fn retrain(&mut self, index: usize) {
        self.env.stop_streams_of(index);
        for port in 0..self.cards[index].links.len() {
            let link = &mut self.cards[index].links[port];
            link.begin_session();
            link.inbound.clear();
            if let Some((peer, back)) = self.env.back(index, port) {
                let link = &mut self.cards[peer].links[back];
                link.begin_session();
                link.inbound.clear();
                self.on(peer).lose_served(back);
                self.on(peer).lose_issued(back);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fpga_regs::bits::Status;
    use fpga_regs::sequencer::{self, queue};

    use super::*;
    use crate::fault::{Fault, When};
    use crate::profile::{Hardware, Profile};

    fn core(reset_ms: u32) -> Core {
        Core::new(Profile { hardware: Hardware { reset_ms, ..Hardware::default() }, ..Profile::optweb(2) })
    }

    #[test]
    fn a_reset_takes_its_time_in_two_halves() {
        let mut core = core(100);
        core.reset(1);
        let steps = [(); 4].map(|()| {
            let seen = (core.cards[1].readiness, core.env.now / u128::from(PS_PER_MS));
            core.poll_reset(1);
            seen
        });
        let ready = (Readiness::Ready, 100);
        assert_eq!(steps, [(Readiness::Resetting, 0), (Readiness::Training, 50), ready, ready]);
    }

    #[test]
    fn a_reset_during_a_reset_begins_anew() {
        let mut core = core(100);
        core.reset(0);
        core.poll_reset(0);
        core.reset(0);
        core.run();
        assert_eq!((core.cards[0].readiness, core.env.now), (Readiness::Ready, 150 * u128::from(PS_PER_MS)));
    }

    #[test]
    fn a_reset_of_the_logic_starts_a_stopped_clock_and_does_not_end_a_reset_of_the_function() {
        let mut core = core(100);
        core.cards[1].freeze();
        core.reset_logic(1);
        assert!(!core.cards[1].is_frozen && core.cards[1].readiness == Readiness::Ready);
        core.reset(1);
        for expected in [Readiness::Resetting, Readiness::Training] {
            core.reset_logic(1);
            assert_eq!(core.cards[1].readiness, expected);
            core.poll_reset(1);
        }
        assert_eq!(core.cards[1].readiness, Readiness::Ready);
    }

    #[test]
    fn a_reset_of_the_logic_clears_the_counts_of_errors_and_keeps_the_memory() {
        let mut core = core(0);
        core.cards[0].memory.write(128, &[7]).unwrap();
        core.cards[0].memory.flip_bits(64, 1);
        core.cards[0].memory.read(64, 1).unwrap();
        core.cards[0].link_errors = 1;
        let counts =
            |core: &mut Core| [sequencer::MEMORY_CORRECTED, sequencer::LINK_ERRORS].map(|at| core.read_register(0, at));
        assert_eq!(counts(&mut core), [1; 2]);
        core.reset_logic(0);
        assert_eq!(counts(&mut core), [0; 2]);
        assert_eq!(core.cards[0].memory.read(128, 1).unwrap(), [7]);
        core.cards[0].memory.read(64, 1).unwrap();
        assert_eq!(counts(&mut core), [1, 0]);
    }

    #[test]
    fn what_is_written_before_the_sequencer_is_ready_does_nothing() {
        let mut core = core(2);
        core.reset(0);
        core.poll_reset(0);
        let ready = |core: &mut Core| core.read_register(0, sequencer::STATUS) & Status::READY.bits();
        core.write_register(0, sequencer::SCRATCH, 1);
        assert_eq!((ready(&mut core), core.cards[0].scratch), (0, 0));
        core.poll_reset(0);
        core.write_register(0, sequencer::SCRATCH, 2);
        assert_eq!((ready(&mut core), core.cards[0].scratch), (1, 2));
    }

    #[test]
    fn without_the_switch_a_reset_is_over_at_once() {
        let mut core = core(0);
        core.reset(0);
        assert_eq!((core.cards[0].readiness, core.env.now), (Readiness::Ready, 0));
    }

    /// A host that opens a card resets it first.
    #[test]
    fn a_fault_before_the_first_doorbell_outlasts_resets_until_then() {
        for reset_ms in [0, 2] {
            let mut core = core(reset_ms);
            core.plant(Fault::Freeze { node: 1, when: When::After(0) });
            core.plant(Fault::FlipBits { node: 1, address: 64, bits: 2 });
            for opened in 0..2 {
                core.reset(1);
                core.run();
                assert!(
                    core.cards[1].is_frozen && core.cards[1].readiness == Readiness::Ready,
                    "{opened}, {reset_ms} ms"
                );
                assert!(core.cards[1].memory.read(64, 1).is_err());
            }
            let at = |register| sequencer::QUEUES_OFFSET + register;
            core.write_register(1, at(queue::DEPTH), 16);
            core.write_register(1, at(queue::ENABLE), 1);
            core.write_register(1, at(queue::SUBMISSION_TAIL), 1);
            core.reset(1);
            core.run();
            assert!(!core.cards[1].is_frozen && core.cards[1].memory.read(64, 1).is_ok(), "{reset_ms} ms");
        }
    }
}

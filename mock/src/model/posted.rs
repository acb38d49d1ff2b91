//! Register writes: at once, or posted.

use fpga_regs::pci;

use crate::card::posted::Write;
use crate::environment::Pace;
use crate::event::Event;
use crate::model::registers::sequencer_offset;
use crate::world::Core;

/// Longest time that a posted write is under way: several times what a root complex and a switch take.
const LATEST_PS: u64 = 1_000_000;

impl Core {
    /// Takes a register write of the host.
    pub(crate) fn post_write(&mut self, index: usize, write: Write) {
        let Some(most) = self.env.profile.hardware.posted_writes else { return self.act(index, write) };
        let number = self.cards[index].posted.push(write);
        self.env.schedule_in(LATEST_PS, Event::Posted { card: index, number });
        while self.cards[index].posted.len() > most as usize {
            self.act_next(index);
        }
        // Without a clock, time does not pass while a write is under way.
        if self.env.pace != Pace::Access {
            self.run();
        }
    }

    /// Has all posted writes of the card act: a read or an access to configuration space does not pass them.
    pub(crate) fn push_posted(&mut self, index: usize) {
        self.posted_due(index, u64::MAX);
    }

    /// A posted write has been under way for the longest time: it acts, after those before it.
    pub(crate) fn posted_due(&mut self, index: usize, number: u64) {
        while let Some(write) = self.cards[index].posted.take_up_to(number) {
            self.act(index, write);
        }
    }

    fn act_next(&mut self, index: usize) {
        if let Some(write) = self.cards[index].posted.take() {
            self.act(index, write);
        }
    }

    fn act(&mut self, index: usize, Write { bar, offset, value }: Write) {
        let card = &mut self.cards[index];
        match bar {
            _ if card.is_gone => {}
            pci::REGISTERS_BAR => match sequencer_offset(offset) {
                Some(offset) => self.write_register(index, offset, value),
                None => self.write_routed(index, offset, value),
            },
            pci::MSIX_BAR => {
                card.msix.write(offset, value);
                card.deliver_interrupts();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use fpga_regs::sequencer;

    use super::*;
    use crate::model::registers::SEQUENCER_OFFSET;
    use crate::profile::{Hardware, Profile};

    fn core(posted_writes: Option<u32>) -> Core {
        Core::new(Profile { hardware: Hardware { posted_writes, ..Hardware::default() }, ..Profile::optweb(2) })
    }

    fn write(core: &mut Core, card: usize, value: u32) {
        let offset = SEQUENCER_OFFSET + u64::from(sequencer::SCRATCH);
        core.post_write(card, Write { bar: pci::REGISTERS_BAR, offset, value });
    }

    #[test]
    fn writes_act_at_once_or_late_and_in_order() {
        for (posted, acted) in [(None, [1, 2, 3, 4]), (Some(0), [1, 2, 3, 4]), (Some(2), [0, 0, 1, 2])] {
            let mut core = core(posted);
            let seen = [1, 2, 3, 4].map(|value| {
                write(&mut core, 0, value);
                core.cards[0].scratch
            });
            assert_eq!(seen, acted, "{posted:?}");
        }
    }

    #[test]
    fn a_read_pushes_the_writes_of_its_card_alone_and_time_pushes_all() {
        let mut core = core(Some(8));
        for card in 0..2 {
            write(&mut core, card, 1);
            write(&mut core, card, 2);
        }
        core.push_posted(0);
        assert_eq!([0, 1].map(|card| core.cards[card].scratch), [2, 0]);
        core.run();
        assert_eq!((core.cards[1].scratch, core.env.now), (2, LATEST_PS.into()));
        // What a reset drops stays dropped when its time comes, and what comes after it acts.
        write(&mut core, 1, 3);
        core.reset(1);
        write(&mut core, 1, 4);
        assert!(core.run_some(1));
        assert_eq!(core.cards[1].scratch, 0);
        core.run();
        assert_eq!(core.cards[1].scratch, 4);
    }
}

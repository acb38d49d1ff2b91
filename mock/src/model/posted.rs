//! Register writes: at once, or posted.

use fpga_regs::pci;

use crate::card::posted::Write;
use crate::model::registers::sequencer_offset;
use crate::world::{Core, Event, Pace};

/// Longest time that a posted write is under way: several times what a root complex and a switch take.
const LATEST_PS: u64 = 1_000_000;

impl Core {
    /// Takes a register write of the host.
    pub(crate) fn post_write(&mut self, index: usize, write: Write) {
        let Some(most) = self.profile.hardware.posted_writes else { return self.act(index, write) };
        let number = self.cards[index].posted.push(write);
        self.schedule_in(LATEST_PS, Event::Posted { card: index, number });
        while self.cards[index].posted.len() > most as usize {
            self.act_next(index);
        }
        // Without a clock, time does not pass while a write is under way.
        if self.pace != Pace::Access {
            self.run();
        }
    }

    /// Has all posted writes of the card act: a read or an access to configuration space does not pass them.
    pub(crate) fn push_posted(&mut self, index: usize) {
        while self.cards[index].posted.len() > 0 {
            self.act_next(index);
        }
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
            pci::REGISTERS_BAR => {
                if let Some(offset) = sequencer_offset(offset) {
                    self.write_register(index, offset, value);
                }
            }
            pci::MSIX_BAR => {
                card.msix.write(offset, value);
                card.deliver_interrupts();
            }
            _ => {}
        }
    }
}

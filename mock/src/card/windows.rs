//! The window slots of a card: what one-sided operations of other cards reach in its memory.

use cmdseq::Instruction;
use cmdseq::completion::Status;
use cmdseq::instruction::{Rights, Window};

use crate::card::communicators::Members;
use crate::proto::optweb::one_sided::{Admission, Request};
use crate::proto::refusal::Refusal;

/// The window slots of a card.
#[derive(Debug)]
pub(crate) struct Windows {
    pub(crate) slots: Box<[Option<Open>]>,
    /// Number of the last `open` since the fabric was built.
    pub(crate) opened: u64,
}

impl Windows {
    pub(crate) fn new(slots: u32) -> Self {
        Windows { slots: (0..slots).map(|_| None).collect(), opened: 0 }
    }

    /// Closes all windows.
    pub(crate) fn reset(&mut self) {
        self.slots.fill_with(|| None);
    }

    /// Number of slots.
    pub(crate) fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(crate) fn open(&mut self, instruction: &Instruction, window: Window, members: Members) -> Result<(), Refusal> {
        let free = self.slots.get_mut(usize::from(window.slot)).filter(|slot| slot.is_none());
        self.opened += 1;
        *free.ok_or((Status::BadWindow, window.slot))? = Some(Open {
            key: window.key,
            rights: instruction.rights(),
            members,
            address: instruction.destination.address,
            bytes: instruction.bytes,
            number: self.opened,
            is_closing: false,
        });
        Ok(())
    }

    /// Refuses new transfers through `window`, and returns what admits the others.
    pub(crate) fn begin_close(&mut self, window: Window) -> Result<Admission, Refusal> {
        let slot = usize::from(window.slot);
        let open = self.slots.get_mut(slot).and_then(Option::as_mut).filter(|open| open.key == window.key);
        let open = open.ok_or((Status::BadWindow, window.slot))?;
        open.is_closing = true;
        Ok(Admission::Window { slot, number: open.number })
    }

    pub(crate) fn close(&mut self, admission: Admission) {
        if let Admission::Window { slot, .. } = admission
            && self.holds(admission)
        {
            self.slots[slot] = None;
        }
    }

    /// Whether the window of `admission` is still open, or closing.
    pub(crate) fn holds(&self, admission: Admission) -> bool {
        match admission {
            Admission::Unchecked => true,
            Admission::Window { slot, number } => self.slots[slot].as_ref().is_some_and(|open| open.number == number),
        }
    }
}

/// An open window.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) key: u32,
    pub(crate) rights: Rights,
    /// The cards that may use it: those of the communicator when it was opened.
    pub(crate) members: Members,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// Its number among all windows that the card has opened.
    pub(crate) number: u64,
    /// A `close` has begun: new transfers are refused.
    pub(crate) is_closing: bool,
}

impl Open {
    pub(crate) fn allows(&self, request: &Request, window: Window) -> bool {
        let is_inside = request.bytes == 0
            || request
                .address
                .checked_sub(self.address)
                .is_some_and(|distance| distance.checked_add(request.bytes).is_some_and(|end| end <= self.bytes));
        !self.is_closing && self.key == window.key && self.rights.contains(request.rights) && is_inside
    }
}

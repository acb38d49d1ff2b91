//! Windows: what one-sided operations of other cards reach in the memory of a card.
//!
//! The card whose memory it is checks the beat that announces a transfer, before a byte is read or written. A card without slots
//! is that of before version 1.5 of the registers: it checks nothing.

use cmdseq::Instruction;
use cmdseq::completion::Status;
use cmdseq::instruction::{Rights, Window, offset};

use crate::card::Card;
use crate::communicators::Members;
use crate::fabric::{Core, Step};
use crate::lanes::LaneId;
use crate::sequencer::{Refusal, Running, Work, bad_field};

/// Longest time that a `close` waits for transfers through its window, in cycles: 1.3 seconds at 200 MHz.
const CLOSE_CYCLES: u64 = 1 << 28;

/// The window slots of a card.
#[derive(Debug)]
pub(crate) struct Windows {
    slots: Box<[Option<Open>]>,
    /// Windows opened since the fabric was built.
    opened: u64,
}

/// An open window.
#[derive(Debug)]
struct Open {
    key: u32,
    rights: Rights,
    /// The cards that may use it: those of the communicator when it was opened.
    members: Members,
    address: u64,
    bytes: u64,
    /// Its number among all windows that the card has opened.
    number: u64,
    /// A `close` has begun: new transfers are refused.
    is_closing: bool,
}

/// What a one-sided operation asks of a card.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) window: Option<Window>,
    pub(crate) rights: Rights,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

/// Permission for one transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The card has no windows.
    Unchecked,
    /// Through the window in `slot` with this number.
    Window { slot: usize, number: u64 },
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

    fn open(&mut self, instruction: &Instruction, window: Window, members: Members) -> Result<(), Refusal> {
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
    fn begin_close(&mut self, window: Window) -> Result<Admission, Refusal> {
        let slot = usize::from(window.slot);
        let open = self.slots.get_mut(slot).and_then(Option::as_mut).filter(|open| open.key == window.key);
        let open = open.ok_or((Status::BadWindow, window.slot))?;
        open.is_closing = true;
        Ok(Admission::Window { slot, number: open.number })
    }

    fn close(&mut self, admission: Admission) {
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

impl Open {
    fn allows(&self, request: &Request, window: Window) -> bool {
        let is_inside = request.bytes == 0
            || request
                .address
                .checked_sub(self.address)
                .is_some_and(|distance| distance.checked_add(request.bytes).is_some_and(|end| end <= self.bytes));
        !self.is_closing && self.key == window.key && self.rights.contains(request.rights) && is_inside
    }
}

impl Card {
    /// Admits a transfer that `node` announces.
    pub(crate) fn admit(&self, node: u32, request: &Request) -> Option<Admission> {
        if self.windows.count() == 0 {
            return Some(Admission::Unchecked);
        }
        let window = request.window?;
        let slot = usize::from(window.slot);
        let open = self.windows.slots.get(slot)?.as_ref().filter(|open| open.allows(request, window))?;
        open.members.contains(&node).then_some(Admission::Window { slot, number: open.number })
    }
}

/// Returns the window of an instruction that opens or closes one.
fn named(instruction: &Instruction) -> Result<Window, Refusal> {
    instruction.window().ok_or(bad_field(offset::EXTENT))
}

impl Core {
    pub(crate) fn begin_open(&mut self, at: LaneId, instruction: &Instruction) -> Result<(), Refusal> {
        let window = named(instruction)?;
        let membership = self.cards[at.card].membership(instruction)?;
        self.check_memory(at.card, instruction.destination.address, instruction.bytes)?;
        self.cards[at.card].windows.open(instruction, window, membership.members)?;
        self.schedule_step(at, self.profile.cycles(self.profile.dispatch_cycles), Step::Finish);
        Ok(())
    }

    /// Closes a window to new transfers, and waits for those through it.
    pub(crate) fn begin_close(&mut self, at: LaneId, instruction: &Instruction) -> Result<(), Refusal> {
        let window = named(instruction)?;
        let admission = self.cards[at.card].windows.begin_close(window)?;
        self.set_work(at, Work::Closing(admission));
        let cycles = if self.is_passed(at.card, admission) { CLOSE_CYCLES } else { self.profile.dispatch_cycles };
        self.schedule_step(at, self.profile.cycles(cycles), Step::Closed);
        Ok(())
    }

    /// Whether a transfer goes through this window of card `index`.
    fn is_passed(&self, index: usize, admission: Admission) -> bool {
        let lanes = self.cards.iter().flat_map(|card| &card.lanes);
        let passes = |running: &Running| match &running.work {
            Work::Rdma(rdma) => rdma.peer == index && rdma.admitted == Some(admission),
            _ => false,
        };
        lanes.filter_map(|lane| lane.running.as_ref()).any(passes)
    }

    /// A transfer to or from card `index` has ended: a `close` there may wait for it.
    pub(crate) fn transfer_ended(&mut self, index: usize) {
        let at = LaneId::first(index);
        if let Some(Running { work: Work::Closing(admission), .. }) = self.running(at)
            && !self.cards[index].is_frozen
            && !self.is_passed(index, *admission)
        {
            self.schedule_step(at, 0, Step::Closed);
        }
    }

    /// Empties the slot. Transfers that have not ended by now fail before they write.
    pub(crate) fn closed(&mut self, at: LaneId) {
        if let Some(Running { work: Work::Closing(admission), .. }) = self.running(at) {
            let admission = *admission;
            self.cards[at.card].windows.close(admission);
            self.timed_finish(at);
        }
    }
}

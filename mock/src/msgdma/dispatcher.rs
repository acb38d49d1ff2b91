//! The dispatcher: its queue, its state, and when it interrupts.

use std::collections::VecDeque;

use fpga_regs::msgdma::{Control, DescriptorControl, Status};

use crate::msgdma::descriptor::{Descriptor, Violation};
use crate::msgdma::planted::{Fault, Planted};
use crate::msgdma::transfer::Transfer;
use crate::violations::Violations;

/// Descriptors that the queue holds.
pub(super) const DEPTH: usize = 128;
/// Reads of STATUS for which a reset goes on, if nothing is on its way.
const RESET_READS: u32 = 2;
/// Bits of CONTROL that keep what is written.
const KEPT: Control = Control::STOP
    .union(Control::STOP_ON_ERROR)
    .union(Control::STOP_EARLY)
    .union(Control::INTERRUPTS)
    .union(Control::STOP_DESCRIPTORS);
const FLUSHES: Control = Control::FLUSH_DESCRIPTORS.union(Control::FLUSH_READS).union(Control::FLUSH_WRITES);

/// The dispatcher.
#[derive(Debug, Default)]
pub(super) struct Dispatcher {
    pub(super) words: [u32; 8],
    queue: VecDeque<(Descriptor, Option<Violation>)>,
    pub(super) present: Option<Transfer>,
    control: u32,
    /// Bits of STATUS that stay: STOPPED_ON_ERROR, STOPPED_EARLY, IRQ.
    noted: u32,
    /// Reads of STATUS until a reset ends.
    resetting: Option<u32>,
    /// Reads of STATUS until the next descriptor begins.
    waits: u32,
    number: u16,
    pub(super) planted: Planted,
    pub(super) violations: Violations<Violation>,
}

impl Dispatcher {
    pub(super) fn control(&self) -> Control {
        Control::from_bits_retain(self.control)
    }

    fn noted(&self) -> Status {
        Status::from_bits_retain(self.noted)
    }

    fn note(&mut self, bits: Status) {
        self.noted |= bits.bits();
    }

    fn is_outstanding(&self) -> bool {
        self.present.as_ref().is_some_and(Transfer::is_outstanding)
    }

    fn is_halted(&self) -> bool {
        self.noted().intersects(Status::STOPPED_ON_ERROR | Status::STOPPED_EARLY) || self.resetting.is_some()
    }

    /// Returns whether masters may make their next access.
    pub(super) fn may_move(&self) -> bool {
        !self.is_halted() && !self.control().contains(Control::STOP)
    }

    /// Reads STATUS, and counts the read.
    pub(super) fn status(&mut self) -> Status {
        self.waits = self.waits.saturating_sub(1);
        let mut status = self.noted() | Status::RESPONSES_EMPTY;
        status.set(Status::BUSY, self.present.is_some() || !self.queue.is_empty());
        status.set(Status::EMPTY, self.queue.is_empty());
        status.set(Status::FULL, self.queue.len() == DEPTH);
        let (stops, lets_end) =
            (self.control().contains(Control::STOP), self.control().contains(Control::STOP_DESCRIPTORS));
        let is_stopped = stops && !self.is_outstanding() || lets_end && self.present.is_none();
        status.set(Status::STOPPED, is_stopped);
        status.set(Status::RESETTING, self.resetting.is_some());
        if let Some(reads) = &mut self.resetting {
            *reads = reads.saturating_sub(1);
        }
        self.end_reset();
        status
    }

    /// Ends a reset once nothing is on its way.
    pub(super) fn end_reset(&mut self) {
        if self.resetting == Some(0) && !self.is_outstanding() {
            let (planted, violations) = (std::mem::take(&mut self.planted), std::mem::take(&mut self.violations));
            *self = Dispatcher { planted, violations, ..Dispatcher::default() };
        }
    }

    pub(super) fn clear(&mut self, bits: u32) {
        self.noted &= !(bits & Status::IRQ.bits());
    }

    pub(super) fn set_control(&mut self, value: u32) {
        let written = Control::from_bits_retain(value);
        self.control = value & KEPT.bits();
        if written.contains(Control::RESET) {
            self.queue.clear();
            self.resetting = Some(RESET_READS);
            if !self.is_outstanding() {
                self.present = None;
            }
        }
        if written.intersects(FLUSHES) {
            self.queue.clear();
        }
    }

    pub(super) fn fill_level(&self) -> u32 {
        self.queue.len() as u32 * 0x1_0001
    }

    pub(super) fn sequence(&self) -> u32 {
        u32::from(self.number) * 0x1_0001
    }

    /// Queues what the words of the descriptor port say, if the last has GO.
    pub(super) fn commit(&mut self) {
        if self.words[7] & DescriptorControl::GO.bits() == 0 {
            return;
        }
        if self.resetting.is_some() {
            return self.violations.note(Violation::DuringReset);
        }
        if self.queue.len() == DEPTH {
            return self.violations.note(Violation::QueueFull);
        }
        let (descriptor, violation) = Descriptor::decode(&self.words);
        violation.into_iter().for_each(|violation| self.violations.note(violation));
        if self.queue.is_empty() && self.present.is_none() {
            self.waits = self.planted.slow;
        }
        self.queue.push_back((descriptor, violation));
    }

    /// Begins the next descriptor. Returns whether something was begun or ended.
    pub(super) fn begin(&mut self) -> bool {
        let may_begin = self.may_move() && !self.control().contains(Control::STOP_DESCRIPTORS);
        if self.present.is_some() || !may_begin || self.waits > 0 {
            return false;
        }
        let Some((descriptor, violation)) = self.queue.pop_front() else { return false };
        self.waits = self.planted.slow;
        self.number = descriptor.number;
        self.present = Some(Transfer::new(descriptor));
        match violation {
            None => {}
            Some(Violation::NoBytes) => self.complete(),
            Some(_) => self.fail(),
        }
        if self.present.is_some() && self.planted.take(Fault::EarlyTermination) {
            self.end_early();
        }
        true
    }

    /// Ends the present transfer as it should.
    pub(super) fn complete(&mut self) {
        let Some(ended) = self.present.take() else { return };
        if ended.descriptor.control.contains(DescriptorControl::COMPLETE_IRQ) {
            self.note(Status::IRQ);
        }
    }

    /// Ends the present transfer with an error.
    pub(super) fn fail(&mut self) {
        let Some(ended) = self.present.take() else { return };
        if self.control().contains(Control::STOP_ON_ERROR) {
            self.note(Status::STOPPED_ON_ERROR);
        }
        if ended.descriptor.error_irqs != 0 {
            self.note(Status::IRQ);
        }
    }

    fn end_early(&mut self) {
        let Some(ended) = self.present.take() else { return };
        if self.control().contains(Control::STOP_EARLY) {
            self.note(Status::STOPPED_EARLY);
        }
        if ended.descriptor.control.contains(DescriptorControl::EARLY_IRQ) {
            self.note(Status::IRQ);
        }
    }

    /// Returns the level of the interrupt.
    pub(super) fn interrupts(&self) -> bool {
        self.control().contains(Control::INTERRUPTS) && self.noted().contains(Status::IRQ)
    }
}

//! The registers of the building block, and the window on card memory.

use std::sync::Arc;

use fpga_hal::endpoint::{DmaFault, DmaPort, DmaTag};
use fpga_regs::msgdma::{CSR, DESCRIPTOR, SPAN, WINDOW, WINDOW_BYTES, csr, extended, span};

use crate::fabric::Fabric;
use crate::msgdma::dispatcher::Dispatcher;
use crate::msgdma::header;
use crate::msgdma::planted::Fault;
use crate::msgdma::transfer::{Reach, Step};

/// Bytes from the header to the registers.
const HEADER_BYTES: u32 = CSR;
/// Bit of tags that are the engine's.
const OWN_TAG: u64 = 1 << 63;
/// Most bytes that are moved in one access of the host; what a step costs besides is counted as [`STEP_WORK`] bytes.
const WORK_MAX: u64 = 256 << 20;
const STEP_WORK: u64 = 1024;

/// Returns whether a request is of the engine.
pub(super) fn is_own(tag: DmaTag) -> bool {
    tag.0 & OWN_TAG != 0
}

/// The building block of one card.
pub(super) struct Registers {
    fabric: Fabric,
    node: u32,
    pub(super) dispatcher: Dispatcher,
    /// Address of the first byte in the window.
    page: u64,
    /// Number of the last request. It outlives resets, so that a late answer is nobody's.
    tag: u64,
    /// Level of the interrupt.
    level: bool,
    pub(super) port: Option<Arc<dyn DmaPort>>,
    /// The interrupt has risen, and was not sent.
    pub(super) rises: bool,
}

impl Registers {
    pub(super) fn new(fabric: &Fabric, node: u32) -> Self {
        Registers {
            fabric: fabric.clone(),
            node,
            dispatcher: Dispatcher::default(),
            page: 0,
            tag: OWN_TAG,
            level: false,
            port: None,
            rises: false,
        }
    }

    /// Clears all state that a reset clears.
    pub(super) fn reset(&mut self) {
        let violations = std::mem::take(&mut self.dispatcher.violations);
        self.dispatcher = Dispatcher::default();
        self.dispatcher.violations = violations;
        self.page = 0;
        self.level = false;
    }

    /// Reads the 32 bits at `offset`, a multiple of 4.
    pub(super) fn read(&mut self, offset: u32) -> u32 {
        if offset < HEADER_BYTES {
            return (header::word(offset & !7) >> (offset % 8 * 8)) as u32;
        }
        if let Some(at) = offset.checked_sub(WINDOW).filter(|at| *at < WINDOW_BYTES) {
            let address = self.page + u64::from(at);
            let read = self.fabric.memory(self.node, 4, |memory| memory.read(address, 4));
            return read.ok().and_then(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?))).unwrap_or(u32::MAX);
        }
        match offset.checked_sub(SPAN) {
            Some(span::PAGE_LO) => return self.page as u32,
            Some(span::PAGE_HI) => return (self.page >> 32) as u32,
            _ => {}
        }
        match offset.checked_sub(CSR).filter(|_| offset < DESCRIPTOR) {
            Some(csr::STATUS) => self.dispatcher.status().bits(),
            Some(csr::CONTROL) => self.dispatcher.control().bits(),
            Some(csr::FILL_LEVEL) => self.dispatcher.fill_level(),
            Some(csr::SEQUENCE) => self.dispatcher.sequence(),
            _ => 0,
        }
    }

    /// Writes the 32 bits at `offset`, a multiple of 4.
    pub(super) fn write(&mut self, offset: u32, value: u32) {
        if let Some(at) = offset.checked_sub(WINDOW).filter(|at| *at < WINDOW_BYTES) {
            let address = self.page + u64::from(at);
            // Nobody hears of a write to what is not there.
            let _ = self.fabric.memory(self.node, 4, |memory| memory.write(address, &value.to_le_bytes()));
            return;
        }
        if let Some(word) = offset.checked_sub(DESCRIPTOR).filter(|word| *word < extended::BYTES) {
            self.dispatcher.words[word as usize / 4] = value;
            if word == extended::CONTROL {
                self.dispatcher.commit();
            }
            return;
        }
        match offset.checked_sub(SPAN) {
            Some(span::PAGE_LO) => {
                self.page = self.page >> 32 << 32 | u64::from(value & !(WINDOW_BYTES - 1));
                return;
            }
            Some(span::PAGE_HI) => {
                // Addresses of card memory have 48 bits.
                self.page = u64::from(value & 0xffff) << 32 | self.page & 0xffff_ffff;
                return;
            }
            _ => {}
        }
        match offset.checked_sub(CSR) {
            Some(csr::STATUS) => self.dispatcher.clear(value),
            Some(csr::CONTROL) => self.dispatcher.set_control(value),
            _ => {}
        }
        // A level that falls here may rise again in what the dispatcher does next: that is an edge.
        self.update_interrupt();
    }

    /// Has the engine do what it can, but not much in one access. `is_master`: the function may master the bus.
    pub(super) fn run(&mut self, is_master: bool) {
        let mut worked = 0;
        while worked < WORK_MAX {
            worked += STEP_WORK;
            if self.dispatcher.begin() {
                continue;
            }
            let Some(step) = self.step(is_master) else { break };
            match step {
                Step::Moved(bytes) => worked += bytes,
                Step::Pending => break,
                Step::Ended => self.dispatcher.complete(),
                Step::Failed => self.dispatcher.fail(),
            }
        }
        self.update_interrupt();
    }

    /// Makes the next access of the present transfer. `None`: there is nothing to do.
    fn step(&mut self, is_master: bool) -> Option<Step> {
        let Registers { fabric, node, dispatcher, tag, port, .. } = self;
        if !dispatcher.may_move() {
            return None;
        }
        let transfer = dispatcher.present.as_mut()?;
        if transfer.is_outstanding() {
            return None;
        }
        if dispatcher.planted.take(Fault::Unanswered) {
            transfer.lose();
            return None;
        }
        if dispatcher.planted.take(Fault::Error) {
            return Some(Step::Failed);
        }
        let loses_write = transfer.writes_host() && dispatcher.planted.take(Fault::LostWrite);
        let host = match (is_master, port.as_deref()) {
            (false, _) => Err(DmaFault::NotMaster),
            (true, None) => Err(DmaFault::HostGone),
            (true, Some(port)) => Ok(port),
        };
        *tag = OWN_TAG | tag.wrapping_add(1);
        Some(transfer.step(&Reach { fabric, node: *node, host, tag: DmaTag(*tag), loses_write }))
    }

    /// Ends a request that was pending.
    pub(super) fn answered(&mut self, tag: DmaTag, result: Result<&[u8], DmaFault>, is_master: bool) {
        let Some(transfer) = &mut self.dispatcher.present else { return };
        match transfer.answered(tag, result) {
            None | Some(Step::Pending) => return,
            Some(Step::Moved(_)) => {}
            Some(Step::Ended) => self.dispatcher.complete(),
            Some(Step::Failed) => self.dispatcher.fail(),
        }
        self.dispatcher.end_reset();
        self.run(is_master);
    }

    /// Notes a rising edge of the interrupt.
    fn update_interrupt(&mut self) {
        let level = self.dispatcher.interrupts();
        self.rises |= level && !self.level;
        self.level = level;
    }
}

#[cfg(test)]
mod tests {
    use fpga_regs::msgdma::{Control, DescriptorControl, Status};

    use super::*;
    use crate::{Profile, Shell};

    #[test]
    fn an_interrupt_that_is_cleared_and_rises_within_an_access_is_sent_again() {
        let fabric = Fabric::new(Profile { shell: Shell::S10Pac, ..Profile::optweb(2) }).unwrap();
        let mut registers = Registers::new(&fabric, 0);
        let (go, interrupts) = (DescriptorControl::GO, DescriptorControl::COMPLETE_IRQ);
        let copy = |registers: &mut Registers, to: u32| {
            let words = [0, to, 64, 0, 0x1_0001, 1 << 16, 0, (go | interrupts).bits()];
            for (offset, word) in (DESCRIPTOR..).step_by(4).zip(words) {
                registers.write(offset, word);
            }
        };
        let control = |registers: &mut Registers, bits: Control| registers.write(CSR + csr::CONTROL, bits.bits());
        control(&mut registers, Control::INTERRUPTS);
        copy(&mut registers, 0);
        registers.run(true);
        assert!(std::mem::take(&mut registers.rises));
        // The second copy waits, and goes on in the access of 8 bytes that clears the interrupt of the first.
        control(&mut registers, Control::INTERRUPTS | Control::STOP);
        copy(&mut registers, 64);
        registers.run(true);
        assert!(!registers.rises);
        registers.write(CSR + csr::STATUS, Status::IRQ.bits());
        control(&mut registers, Control::INTERRUPTS);
        registers.run(true);
        assert!(registers.rises && registers.read(CSR + csr::STATUS) & Status::IRQ.bits() != 0);
    }
}

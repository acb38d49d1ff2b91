//! The registers of a control function.

use std::collections::BTreeMap;
use std::sync::Arc;

use fpga_regs::dfl::{CONTROL, FEATURES, Register, Writes, fme, port, reconfiguration};

use crate::dfl::accelerator::Accelerator;
use crate::dfl::attached::{Attached, FunctionEndpoint, Logic};
use crate::dfl::exerciser::Exerciser;
use crate::dfl::reconfiguration::{Event, Reconfiguration};
use crate::dfl::slot::Slot;

/// Time that a read takes: there and back over PCIe.
const READ_NS: u64 = 1_000;
/// Time that a posted write takes.
const WRITE_NS: u64 = 10;
/// Time after which a change of the port's soft reset is acknowledged.
const PORT_RESET_NS: u64 = 5_000;
/// Vector of errors of the management engine.
const ERROR_VECTOR: u32 = 6;

/// BITSTREAM_ID of the model: version 2.3.0.
const BITSTREAM_ID: u64 = 2 << 60 | 3 << 56 | 0x0050_0000_0000;
/// BITSTREAM_MD of the model: 1 November 2026, seed 1.
const BITSTREAM_MD: u64 = 0x26 << 20 | 0x11 << 12 | 0x01 << 4 | 1;
/// Version in STATUS_1 of the clock.
const CLOCK_VERSION: u64 = 4 << 60;
/// Reference clock in 10 kHz: 100 MHz.
const REFERENCE_10KHZ: u64 = 10_000;
/// Half and full rate of the accelerator's clock in 10 kHz.
const CLOCKS_10KHZ: [u64; 2] = [15_625, 31_250];

/// Offsets of the features whose registers act.
const ERRORS: u32 = FEATURES[3].offset;
const ENGINE: u32 = FEATURES[8].offset;
const PORT: u32 = FEATURES[9].offset;
const CLOCK: u32 = FEATURES[10].offset;
const PORT_ERRORS: u32 = FEATURES[12].offset;

/// A control function.
pub(super) struct Control {
    pub(super) attached: Attached,
    registers: BTreeMap<u32, (Writes, u64)>,
    pub(super) engine: Reconfiguration,
    interface: u128,
    slot: Arc<Slot>,
    accelerator: Arc<Accelerator>,
    exerciser: Arc<FunctionEndpoint<Exerciser>>,
    now_ns: u64,
    /// When the port's soft reset changed last.
    port_changed_ns: u64,
    /// A soft reset of the port is never acknowledged.
    pub(super) withholds_port_ack: bool,
}

fn declared() -> impl Iterator<Item = (u32, &'static Register)> {
    FEATURES.iter().flat_map(|feature| feature.registers.iter().map(|one| (feature.offset + one.offset, one)))
}

impl Control {
    pub(super) fn new(
        interface: u128,
        slot: Arc<Slot>,
        accelerator: Arc<Accelerator>,
        exerciser: Arc<FunctionEndpoint<Exerciser>>,
    ) -> Self {
        let stored = |(offset, register): (u32, &Register)| (offset, (register.writes, register.reset.unwrap_or(0)));
        let headers = FEATURES.iter().map(|feature| (feature.offset, (Writes::Ignored, feature.header)));
        Control {
            attached: Attached::new(&CONTROL),
            registers: declared().map(stored).chain(headers).collect(),
            engine: Reconfiguration::new(),
            interface,
            slot,
            accelerator,
            exerciser,
            now_ns: 0,
            port_changed_ns: 0,
            withholds_port_ack: false,
        }
    }

    fn stored(&self, offset: u32) -> u64 {
        self.registers.get(&offset).map_or(0, |(_, value)| *value)
    }

    /// Lets `ns` pass.
    fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
        let event = self.engine.advance(self.now_ns);
        self.act(event);
    }

    fn act(&mut self, event: Option<Event>) {
        let Some(event) = event else { return };
        if event == Event::Started {
            self.accelerator.reset_logic();
        }
        let mut region = self.slot.lock();
        match event {
            Event::Started => (region.accelerator, region.is_frozen) = (None, true),
            Event::Configured(guid) => (region.accelerator, region.is_frozen) = (Some(guid), false),
            Event::Reset => region.is_frozen = false,
        }
    }

    /// Releases the accelerator from reset, long ago.
    pub(super) fn release_port(&mut self) {
        self.store(PORT + port::CONTROL, 0, port::SOFT_RESET);
        self.now_ns += PORT_RESET_NS;
    }

    fn injected(&self) -> u64 {
        self.stored(ERRORS + fme::errors::INJECT)
    }

    fn port_control(&self) -> u64 {
        let kept = self.stored(PORT + port::CONTROL);
        let is_held = kept & port::SOFT_RESET != 0;
        let is_settled = self.now_ns - self.port_changed_ns >= PORT_RESET_NS;
        let ack = is_held == is_settled && !self.withholds_port_ack;
        kept | if ack { port::SOFT_RESET_ACK } else { 0 }
    }

    /// Notes accesses that the accelerator did not answer.
    fn look_at_port(&mut self) {
        if std::mem::take(&mut self.slot.lock().is_unanswered) {
            self.set_errors(PORT_ERRORS + port::errors::ERROR, port::errors::MMIO_TIMEOUT);
        }
    }

    /// Sets bits of an error register. The port's come first if there were none.
    pub(super) fn set_errors(&mut self, offset: u32, bits: u64) {
        let before = self.stored(offset);
        if let Some((Writes::Clear(mask), value)) = self.registers.get_mut(&offset) {
            *value |= bits & *mask;
        }
        if offset == PORT_ERRORS + port::errors::ERROR && before == 0 {
            let now = self.stored(offset);
            if let Some((_, first)) = self.registers.get_mut(&(PORT_ERRORS + port::errors::FIRST)) {
                *first = now;
            }
        }
    }

    /// Sends the interrupt of errors of the management engine.
    pub(super) fn interrupt(&mut self) {
        self.attached.interrupt(ERROR_VECTOR);
    }

    fn store(&mut self, offset: u32, value: u64, mask: u64) {
        let Some((writes, stored)) = self.registers.get_mut(&offset) else { return };
        let before = *stored;
        match *writes {
            Writes::Kept(bits) | Writes::Control(bits, _) => *stored = *stored & !(bits & mask) | value & bits & mask,
            Writes::Clear(bits) => *stored &= !(value & bits & mask),
            Writes::Ignored | Writes::Pushed => {}
        }
        let changed = before ^ *stored;
        if offset == PORT + port::CONTROL && changed & port::SOFT_RESET != 0 {
            self.port_changed_ns = self.now_ns;
            let is_in_reset = self.stored(offset) & port::SOFT_RESET != 0;
            self.slot.lock().is_in_reset = is_in_reset;
            if is_in_reset {
                self.accelerator.reset_logic();
                self.exerciser.lock().reset_logic();
            }
        }
        if offset == ERRORS + fme::errors::INJECT && changed != 0 && self.injected() != 0 {
            self.interrupt();
        }
    }
}

impl Logic for Control {
    fn attached(&mut self) -> &mut Attached {
        &mut self.attached
    }

    fn read(&mut self, offset: u32) -> u64 {
        self.pass(READ_NS);
        self.look_at_port();
        match offset {
            _ if offset == fme::BITSTREAM_ID => BITSTREAM_ID,
            _ if offset == fme::BITSTREAM_MD => BITSTREAM_MD,
            _ if offset == ERRORS + fme::errors::NONFATAL => {
                let is_injected = self.injected() & 1 << 2 != 0;
                if is_injected { fme::errors::NONFATAL_INJECTED } else { 0 }
            }
            _ if offset == ERRORS + fme::errors::CATFAT => {
                (self.injected() >> 1 & 1) << 9 | (self.injected() & 1) << 11
            }
            _ if offset == ENGINE + reconfiguration::CONTROL => self.engine.control(self.now_ns),
            _ if offset == ENGINE + reconfiguration::STATUS => self.engine.status(),
            _ if offset == ENGINE + reconfiguration::ERROR => self.engine.errors(),
            _ if offset == ENGINE + reconfiguration::INTERFACE_LO => self.interface as u64,
            _ if offset == ENGINE + reconfiguration::INTERFACE_HI => (self.interface >> 64) as u64,
            _ if offset == PORT + port::CONTROL => self.port_control(),
            _ if offset == PORT + port::STATUS => u64::from(self.slot.lock().is_frozen),
            _ if offset == CLOCK + port::clock::STATUS_1 => {
                let which = self.stored(CLOCK + port::clock::COMMAND_1) >> 32 & 1;
                CLOCK_VERSION | REFERENCE_10KHZ << 33 | which << 32 | CLOCKS_10KHZ[which as usize]
            }
            _ => self.stored(offset),
        }
    }

    fn write(&mut self, offset: u32, value: u64, mask: u64) {
        self.pass(WRITE_NS);
        match offset {
            _ if offset == ENGINE + reconfiguration::CONTROL => {
                let event = self.engine.write_control(value, mask, self.now_ns);
                self.act(event);
            }
            _ if offset == ENGINE + reconfiguration::DATA => self.engine.push((value & mask) as u32),
            _ if offset == ENGINE + reconfiguration::ERROR => self.engine.clear_errors(value & mask),
            _ => self.store(offset, value, mask),
        }
    }

    /// Resets the accelerator. The registers of the shell stay.
    fn reset(&mut self) {
        self.accelerator.reset_logic();
    }
}

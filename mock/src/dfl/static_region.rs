//! The static region of a card: the registers of its shell, wherever its functions show them.

use std::collections::BTreeMap;
use std::sync::Arc;

use fpga_regs::dfl::board::{READ_CORE, WRITE_CORE};
use fpga_regs::dfl::{Feature, Writes, fme, port, reconfiguration};
use fpga_regs::feature_list::{Header, TYPE_FIU};

use crate::dfl::accelerator::Accelerator;
use crate::dfl::attached::FunctionEndpoint;
use crate::dfl::board::Board;
use crate::dfl::exerciser::Exerciser;
use crate::dfl::reconfiguration::{Event, Planted, Reconfiguration};
use crate::dfl::slot::Slot;

/// Id of the interface that images for these cards are made for, `a1c4ad5c-2b37-4d2e-9f0e-64a6b6c51f70`.
pub const INTERFACE: u128 = 0xa1c4ad5c_2b37_4d2e_9f0e_64a6b6c51f70;
/// Time that a read takes: there and back over PCIe.
const READ_NS: u64 = 1_000;
/// Time that a posted write takes.
const WRITE_NS: u64 = 10;
/// Time after which a change of the port's soft reset is acknowledged.
const PORT_RESET_NS: u64 = 5_000;
/// Vector of errors of the management engine.
pub(super) const ERROR_VECTOR: u32 = 6;

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

/// Where the features are whose registers act: as [`Feature::place`].
#[derive(Debug, Clone, Copy)]
struct Places {
    errors: Option<u32>,
    engine: Option<u32>,
    port: Option<u32>,
    clock: Option<u32>,
    port_errors: Option<u32>,
    board: Option<u32>,
}

impl Places {
    fn of(features: &[Feature]) -> Self {
        let place = |is_unit: bool, id: u16| {
            let is_meant = |feature: &&Feature| {
                let header = Header::decode(feature.header);
                (header.kind == TYPE_FIU, header.id) == (is_unit, id)
            };
            features.iter().find(is_meant).map(Feature::place)
        };
        Places {
            errors: place(false, fme::errors::ID),
            engine: place(false, reconfiguration::ID),
            port: place(true, port::ID),
            clock: place(false, port::clock::ID),
            port_errors: place(false, port::errors::ID),
            board: place(false, fme::board::ID),
        }
    }
}

/// The static region. Registers are named by the place of their feature ([`Feature::place`]) and their offset in it.
pub(super) struct StaticRegion {
    registers: BTreeMap<u32, (Writes, u64)>,
    places: Places,
    engine: Reconfiguration,
    /// The board's controller.
    pub(super) board: Board,
    slot: Arc<Slot>,
    accelerator: Arc<Accelerator>,
    exerciser: Option<Arc<FunctionEndpoint<Exerciser>>>,
    now_ns: u64,
    /// When the port's soft reset changed last.
    port_changed_ns: u64,
    /// A soft reset of the port is never acknowledged.
    pub(super) withholds_port_ack: bool,
    /// The control function loses its configuration space when a new accelerator is configured.
    pub(super) loses_configuration: bool,
    has_lost: bool,
    /// An interrupt of the management engine is to be sent.
    is_interrupting: bool,
}

/// Returns whether `offset` is that of a register of a feature, if there is the feature.
fn is_at(offset: u32, place: Option<u32>, register: u32) -> bool {
    place.is_some_and(|place| offset == place + register)
}

impl StaticRegion {
    pub(super) fn new(
        features: &[Feature],
        slot: Arc<Slot>,
        accelerator: Arc<Accelerator>,
        exerciser: Option<Arc<FunctionEndpoint<Exerciser>>>,
    ) -> Self {
        let mut registers = BTreeMap::new();
        for feature in features {
            registers.insert(feature.place(), (Writes::Ignored, feature.header));
            registers.extend(feature.registers.iter().map(|register| {
                let value = feature.reset_of(register).unwrap_or(0);
                (feature.place() + register.offset, (register.writes, value))
            }));
        }
        StaticRegion {
            registers,
            places: Places::of(features),
            engine: Reconfiguration::new(),
            board: Board::new(),
            slot,
            accelerator,
            exerciser,
            now_ns: 0,
            port_changed_ns: 0,
            withholds_port_ack: false,
            loses_configuration: false,
            has_lost: false,
            is_interrupting: false,
        }
    }

    /// Has the next reconfiguration fail with these bits of ERROR after `after_words` words.
    pub(super) fn fail_reconfiguration(&mut self, errors: u64, after_words: u64) {
        self.engine.planted = Some(Planted { errors, after_words: after_words.max(1) });
    }

    /// Sets whether resets of the reconfiguration engine are never acknowledged.
    pub(super) fn withhold_engine_acknowledge(&mut self, withholds: bool) {
        self.engine.withholds_ack = withholds;
    }

    /// Returns whether an interrupt is to be sent since the last call.
    pub(super) fn take_interrupt(&mut self) -> bool {
        std::mem::take(&mut self.is_interrupting)
    }

    /// The function was reset: its accelerator is, too. The registers of the shell stay.
    pub(super) fn reset(&mut self) {
        self.accelerator.reset_logic();
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
        self.has_lost |= self.loses_configuration && matches!(event, Event::Configured(_));
        let mut region = self.slot.lock();
        match event {
            Event::Started => (region.accelerator, region.is_frozen) = (None, true),
            Event::Configured(guid) => (region.accelerator, region.is_frozen) = (Some(guid), false),
            Event::Reset => region.is_frozen = false,
        }
    }

    /// Returns whether the control function has lost its configuration space, since the last call.
    pub(super) fn take_loss(&mut self) -> bool {
        std::mem::take(&mut self.has_lost)
    }

    /// Releases the accelerator from reset, long ago.
    pub(super) fn release_port(&mut self) {
        if let Some(port) = self.places.port {
            self.store(port + port::CONTROL, 0, port::SOFT_RESET);
        }
        self.now_ns += PORT_RESET_NS;
    }

    fn injected(&self) -> u64 {
        self.places.errors.map_or(0, |errors| self.stored(errors + fme::errors::INJECT))
    }

    fn port_control(&self, offset: u32) -> u64 {
        let kept = self.stored(offset);
        let is_held = kept & port::SOFT_RESET != 0;
        let is_settled = self.now_ns - self.port_changed_ns >= PORT_RESET_NS;
        let ack = is_held == is_settled && !self.withholds_port_ack;
        kept | if ack { port::SOFT_RESET_ACK } else { 0 }
    }

    /// Notes accesses that the accelerator did not answer.
    fn look_at_port(&mut self) {
        let is_unanswered = std::mem::take(&mut self.slot.lock().is_unanswered);
        if let (true, Some(errors)) = (is_unanswered, self.places.port_errors) {
            self.set_errors(errors + port::errors::ERROR, port::errors::MMIO_TIMEOUT);
        }
    }

    /// Sets bits of an error register. The port's come first if there were none.
    pub(super) fn set_errors(&mut self, offset: u32, bits: u64) {
        let before = self.stored(offset);
        if let Some((Writes::Clear(mask), value)) = self.registers.get_mut(&offset) {
            *value |= bits & *mask;
        }
        if is_at(offset, self.places.port_errors, port::errors::ERROR) && before == 0 {
            let (first, now) = (offset - port::errors::ERROR + port::errors::FIRST, self.stored(offset));
            if let Some((_, first)) = self.registers.get_mut(&first) {
                *first = now;
            }
        }
    }

    /// Sends the interrupt of errors of the management engine.
    pub(super) fn interrupt(&mut self) {
        self.is_interrupting = true;
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
        if is_at(offset, self.places.port, port::CONTROL) && changed & port::SOFT_RESET != 0 {
            self.port_changed_ns = self.now_ns;
            let is_in_reset = self.stored(offset) & port::SOFT_RESET != 0;
            self.slot.lock().is_in_reset = is_in_reset;
            if is_in_reset {
                self.accelerator.reset_logic();
                if let Some(exerciser) = &self.exerciser {
                    exerciser.lock().reset_logic();
                }
            }
        }
        if is_at(offset, self.places.errors, fme::errors::INJECT) && changed != 0 && self.injected() != 0 {
            self.interrupt();
        }
    }

    /// A write to ADDRESS of the serial link: accesses its core.
    fn access_board(&mut self, offset: u32, value: u64, mask: u64) {
        self.store(offset, value, mask);
        let register = self.stored(offset) as u32;
        if value & mask & WRITE_CORE != 0 {
            let word = self.stored(offset - fme::board::ADDRESS + fme::board::WRITE_DATA);
            self.board.write_core(register, word as u32);
        }
        if value & mask & READ_CORE != 0 {
            self.board.read_core(register);
        }
    }

    /// Reads the 64 bits at `offset`, a multiple of 8.
    pub(super) fn read(&mut self, offset: u32) -> u64 {
        self.pass(READ_NS);
        self.look_at_port();
        let Places { errors, engine, port, clock, board, .. } = self.places;
        match offset {
            _ if offset == fme::BITSTREAM_ID => BITSTREAM_ID,
            _ if offset == fme::BITSTREAM_MD => BITSTREAM_MD,
            _ if is_at(offset, errors, fme::errors::NONFATAL) => {
                let is_injected = self.injected() & 1 << 2 != 0;
                if is_injected { fme::errors::NONFATAL_INJECTED } else { 0 }
            }
            _ if is_at(offset, errors, fme::errors::CATFAT) => {
                let is_injected = |bit: u32| self.injected() >> bit & 1;
                (is_injected(1) * fme::errors::FATAL_INJECTED) | (is_injected(0) * fme::errors::CATASTROPHIC_INJECTED)
            }
            _ if is_at(offset, engine, reconfiguration::CONTROL) => self.engine.control(self.now_ns),
            _ if is_at(offset, engine, reconfiguration::STATUS) => self.engine.status(),
            _ if is_at(offset, engine, reconfiguration::ERROR) => self.engine.errors(),
            _ if is_at(offset, engine, reconfiguration::INTERFACE_LO) => INTERFACE as u64,
            _ if is_at(offset, engine, reconfiguration::INTERFACE_HI) => (INTERFACE >> 64) as u64,
            _ if is_at(offset, board, fme::board::READ_DATA) => self.board.read_data.into(),
            _ if is_at(offset, port, port::CONTROL) => self.port_control(offset),
            _ if is_at(offset, port, port::STATUS) => u64::from(self.slot.lock().is_frozen),
            _ if is_at(offset, clock, port::clock::STATUS_1) => {
                let which = self.stored(offset - port::clock::STATUS_1 + port::clock::COMMAND_1) >> 32 & 1;
                CLOCK_VERSION | REFERENCE_10KHZ << 33 | which << 32 | CLOCKS_10KHZ[which as usize]
            }
            _ => self.stored(offset),
        }
    }

    /// Writes the bits of `mask` at `offset`, a multiple of 8.
    pub(super) fn write(&mut self, offset: u32, value: u64, mask: u64) {
        self.pass(WRITE_NS);
        let Places { engine, board, .. } = self.places;
        match offset {
            _ if is_at(offset, engine, reconfiguration::CONTROL) => {
                let event = self.engine.write_control(value, mask, self.now_ns);
                self.act(event);
            }
            _ if is_at(offset, engine, reconfiguration::DATA) => self.engine.push((value & mask) as u32),
            _ if is_at(offset, engine, reconfiguration::ERROR) => self.engine.clear_errors(value & mask),
            _ if is_at(offset, board, fme::board::ADDRESS) => self.access_board(offset, value, mask),
            _ => self.store(offset, value, mask),
        }
    }
}

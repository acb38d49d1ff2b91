//! The card as any driver sees it: registers by number, from the product guide, without this project's tables.

use std::sync::Arc;
use std::time::Duration;

use fpga_driver::xdma::Direction;
use fpga_hal::{BarIndex, DmaBuffer, Function, InterruptKind, Window};
use fpga_mock::xdma::{Violation, XdmaCards};
use proptest::prelude::*;

use super::{attach, is_full, pattern, shape};

/// A function without a driver, with bus mastering on.
pub(crate) struct Raw {
    pub(crate) function: Function,
    bar: Window,
    pub(crate) list: Arc<DmaBuffer>,
    pub(crate) data: Arc<DmaBuffer>,
}

/// Run, with every event and error.
const RUN: u32 = 0x00ff_fe7f;

impl Raw {
    pub(crate) fn new(cards: &XdmaCards) -> Self {
        let function = attach(cards.endpoint(0));
        function.set_bus_master(true).unwrap();
        let bar = function.window(BarIndex::new(2).unwrap()).unwrap();
        let allocate = || function.domain().allocate(1 << 16, 4096).unwrap();
        let (list, data) = (allocate(), allocate());
        Raw { function, bar, list, data }
    }

    pub(crate) fn read(&self, offset: u64) -> u32 {
        self.bar.read_u32(offset).unwrap()
    }

    pub(crate) fn write(&self, offset: u64, value: u32) {
        self.bar.write_u32(offset, value).unwrap();
    }

    /// Starts channel 0 on a list.
    pub(crate) fn start(&self, direction: Direction, first: u64, adjacent: u32) {
        let base = if direction == Direction::H2c { 0 } else { 0x1000 };
        self.write(base + 0x0c, 1);
        self.write(base + 0x4080, first as u32);
        self.write(base + 0x4084, (first >> 32) as u32);
        self.write(base + 0x4088, adjacent);
        self.write(base + 0x04, RUN);
    }

    /// Puts one descriptor at the beginning of the list.
    fn put(&self, place: usize, control: u32, bytes: u32, (source, destination): (u64, u64), next: u64) {
        let mut words = [control, bytes, 0, 0, 0, 0, 0, 0].map(u32::to_le_bytes).concat();
        for (at, address) in [(8, source), (16, destination), (24, next)] {
            words[at..at + 8].copy_from_slice(&address.to_le_bytes());
        }
        self.list.write(32 * place, &words).unwrap();
    }

    /// Runs a list of one descriptor.
    pub(crate) fn one(&self, direction: Direction, bytes: u32, addresses: (u64, u64)) {
        self.put(0, 0xad4b_0003, bytes, addresses, 0);
        self.start(direction, self.list.iova().0, 0);
    }
}

/// How a register behaves. For RW and its aliases: the bits that exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ro,
    Rw(u32),
    /// Writing ones sets bits of the register this many bytes before.
    Set(u64),
    /// Writing ones clears bits of the register this many bytes before.
    Clear(u64),
    /// Status: nothing sets it by a write.
    Status,
}
use Kind::{Clear, Ro, Rw, Set, Status};

/// Registers of one card with 2 + 2 channels: offset, value after a reset, kind (PG195, register space).
fn list() -> Vec<(u64, u32, Kind)> {
    let mut all = Vec::new();
    for channel in 0..2_u32 {
        for (direction, control) in [(0_u64, 0x04ff_fe7f), (1, 0x06f8_3e7f)] {
            let base = direction << 12 | u64::from(channel) << 8;
            let events = control & 0x00ff_fe7e;
            all.extend([
                (base, 0x1fc0_0006 | (direction as u32) << 16 | channel << 8, Ro),
                // RUN is left out: setting it starts the channel.
                (base + 0x04, 0, Rw(control & !1)),
                (base + 0x08, 0, Set(4)),
                (base + 0x0c, 0, Clear(8)),
                (base + 0x40, 0, Status),
                (base + 0x44, 0, Status),
                (base + 0x48, 0, Ro),
                (base + 0x4c, 0x0001_0140, Ro),
                (base + 0x88, 0, Rw(!0)),
                (base + 0x8c, 0, Rw(!0)),
                (base + 0x90, 0, Rw(events)),
                (base + 0x94, 0, Set(4)),
                (base + 0x98, 0, Clear(8)),
                (base + 0xc0, 0, Rw(0b101)),
                (base + 0xc4, 0, Ro),
                (base + 0xc8, 0, Ro),
                (base + 0xcc, 0, Ro),
                (base + 0xd0, 0, Ro),
            ]);
            let base = base + 0x4000;
            all.extend([
                (base, 0x1fc4_0006 | (direction as u32) << 16 | channel << 8, Ro),
                (base + 0x80, 0, Rw(!0)),
                (base + 0x84, 0, Rw(!0)),
                (base + 0x88, 0, Rw(0x3f)),
            ]);
        }
    }
    all.extend([
        (0x2000, 0x1fc2_0006, Ro),
        (0x2004, 0, Rw(0xffff)),
        (0x2008, 0, Set(4)),
        (0x200c, 0, Clear(8)),
        (0x2010, 0, Rw(0xf)),
        (0x2014, 0, Set(4)),
        (0x2018, 0, Clear(8)),
        (0x2040, 0, Ro),
        (0x2044, 0, Ro),
        (0x2048, 0, Ro),
        (0x204c, 0, Ro),
        (0x2080, 0, Rw(0x1f1f_1f1f)),
        (0x2084, 0, Rw(0x1f1f_1f1f)),
        (0x2088, 0, Rw(0x1f1f_1f1f)),
        (0x208c, 0, Rw(0x1f1f_1f1f)),
        (0x20a0, 0, Rw(0x1f1f_1f1f)),
        (0x20a4, 0, Rw(0)),
        (0x3000, 0x1fc3_0006, Ro),
        (0x3008, 0, Ro),
        // Max_Read_Request_Size is 512 bytes.
        (0x300c, 2, Ro),
        (0x3010, 0xff01, Ro),
        (0x3014, 0, Ro),
        (0x3018, 3, Ro),
        (0x301c, 0, Rw(1)),
        (0x3060, 0, Rw(0x1f)),
        (0x6000, 0x1fc6_0006, Ro),
        (0x6010, 0, Rw(0x0003_0003)),
        (0x6014, 0, Set(4)),
        (0x6018, 0, Clear(8)),
        (0x6020, 0, Rw(0x0003_0003)),
        (0x6024, 0, Set(4)),
        (0x6028, 0, Clear(8)),
    ]);
    all
}

#[test]
fn every_register_has_its_value_and_access() {
    let raw = Raw::new(&XdmaCards::new(1, shape(2, 2)));
    for (offset, reset, kind) in list() {
        assert_eq!(raw.read(offset), reset, "{offset:#x} after a reset");
        match kind {
            Ro | Status => {
                raw.write(offset, !0);
                assert_eq!(raw.read(offset), reset, "{offset:#x} cannot be written");
            }
            Rw(bits) => {
                for value in [!0, 0x5555_5555, 0xaaaa_aaaa, 0] {
                    // RUN would start the channel.
                    let value = if offset & 0xff == 4 && offset < 0x2000 { value & !1 } else { value };
                    raw.write(offset, value);
                    assert_eq!(raw.read(offset), value & bits, "{offset:#x} = {value:#x}");
                }
            }
            Set(before) => {
                raw.write(offset, 0b110);
                let set = raw.read(offset - before);
                raw.write(offset, 0);
                assert_eq!(raw.read(offset - before), set, "{offset:#x}: zeros change nothing");
                assert_eq!(set & !0b110, 0, "{offset:#x}");
                assert_ne!(set, 0, "{offset:#x} sets");
                raw.write(offset - before, 0);
            }
            Clear(before) => {
                raw.write(offset - before, 0b110);
                let set = raw.read(offset - before);
                raw.write(offset, 0b010);
                assert_eq!(raw.read(offset - before), set & !0b010, "{offset:#x} clears");
                raw.write(offset, !0);
                assert_eq!(raw.read(offset - before), 0);
            }
        }
    }
    // All else reads as zero.
    let known: Vec<u64> = list().iter().map(|(offset, ..)| *offset).collect();
    let special = [0x3004, 0x3040, 0x3044, 0x408c, 0x418c, 0x508c, 0x518c];
    for offset in (0..0x8000).step_by(4).filter(|offset| !known.contains(offset) && !special.contains(offset)) {
        raw.write(offset, !0);
        assert_eq!(raw.read(offset), 0, "{offset:#x} is reserved");
    }
}

#[test]
fn accesses_of_other_widths_do_nothing() {
    let cards = XdmaCards::new(1, shape(1, 1));
    let raw = Raw::new(&cards);
    raw.bar.write_u64(0x88, 0x1234_5678_9abc_def0).unwrap();
    assert_eq!((raw.read(0x88), raw.read(0x8c)), (0, 0));
    assert_eq!(raw.bar.read_u64(0).unwrap(), !0);
    assert_eq!(cards.violations(0), [Violation::NotFourBytes; 2]);
}

#[test]
fn status_is_cleared_by_ones_or_by_a_read() {
    let cards = XdmaCards::new(1, shape(1, 1));
    let raw = Raw::new(&cards);
    raw.one(Direction::H2c, 64, (raw.data.iova().0, 0));
    assert_eq!(raw.read(0x40), 0b110);
    raw.write(0x40, 0b010);
    assert_eq!(raw.read(0x40), 0b100);
    assert_eq!(raw.read(0x44), 0b100);
    assert_eq!((raw.read(0x40), raw.read(0x44)), (0, 0));
    assert_eq!(raw.read(0x48), 1);
    // RUN stays set: only a rising edge starts again.
    assert_eq!(raw.read(0x04), RUN);
    raw.write(0x04, RUN);
    assert_eq!(raw.read(0x40), 0);
    raw.write(0x0c, 1);
    raw.write(0x08, 1);
    assert_eq!((raw.read(0x40), raw.read(0x48)), (0b110, 1));
}

#[test]
fn events_that_control_does_not_let_through_are_not_noted() {
    let cards = XdmaCards::new(1, shape(1, 1));
    let raw = Raw::new(&cards);
    raw.put(0, 0xad4b_0003, 64, (raw.data.iova().0, 0), 0);
    raw.start(Direction::H2c, raw.list.iova().0, 0);
    raw.write(0x0c, 1);
    raw.write(0x04, 1);
    assert_eq!((raw.read(0x40), raw.read(0x48)), (0, 1));
    // A bad descriptor stops the channel; whether that is noted is another question.
    raw.put(0, 0xad4a_0003, 64, (raw.data.iova().0, 0), 0);
    for (control, status) in [(0b1_0001, 0b1_0000), (1, 0)] {
        raw.write(0x0c, 1);
        raw.write(0x04, control);
        assert_eq!((raw.read(0x40), raw.read(0x48)), (status, 0));
    }
}

#[test]
fn poll_mode_needs_its_bit_and_a_descriptor_that_asks() {
    let cards = XdmaCards::new(1, shape(1, 1));
    let raw = Raw::new(&cards);
    let place = 4096;
    let word = || raw.data.load_acquire(place).unwrap();
    raw.write(0x88, raw.data.iova().0 as u32 + place as u32);
    raw.write(0x8c, (raw.data.iova().0 >> 32) as u32);
    let host = raw.data.iova().0;
    for (control, descriptor, expected) in [
        (RUN | 1 << 26, 0xad4b_0003_u32, 1),
        (1 | 1 << 26, 0xad4b_0003, 1),
        (RUN | 1 << 26, 0xad4b_0001, 0),
        (RUN, 0xad4b_0003, 0),
        (RUN | 1 << 26, 0xad4a_0003, 0x8000_0000),
    ] {
        raw.data.write(place, &[0; 8]).unwrap();
        raw.put(0, descriptor, 64, (host, 0), 0);
        raw.write(0x0c, 1);
        raw.write(0x4080, raw.list.iova().0 as u32);
        raw.write(0x4084, (raw.list.iova().0 >> 32) as u32);
        raw.write(0x04, control);
        assert_eq!(word(), expected, "{control:#x} {descriptor:#x}");
    }
}

#[test]
fn an_interrupt_is_a_level_and_its_message_an_edge() {
    let cards = XdmaCards::new(1, shape(2, 2));
    let raw = Raw::new(&cards);
    let vectors = raw.function.enable_interrupts_of(InterruptKind::Msix, 32).unwrap();
    let raised = |vector: usize| vectors[vector].wait(Duration::ZERO).unwrap();
    raw.write(0x20a0, 0x0908_0705);
    raw.write(0x90, 0b10);
    raw.write(0x2014, 0b1);
    raw.one(Direction::H2c, 64, (raw.data.iova().0, 0));
    assert!(raised(5));
    assert_eq!((raw.read(0x2044), raw.read(0x204c)), (1, 1));
    // Masked and unmasked while it is high: again. Cleared: no more.
    raw.write(0x2018, 1);
    assert_eq!((raw.read(0x2044), raw.read(0x204c)), (0, 1));
    assert!(!raised(5));
    raw.write(0x2014, 1);
    assert!(raised(5));
    raw.write(0x98, 0b10);
    raw.write(0x94, 0b10);
    assert!(raised(5));
    raw.read(0x44);
    assert_eq!((raw.read(0x2044), raw.read(0x204c)), (0, 0));
    raw.write(0x2018, 1);
    raw.write(0x2014, 1);
    assert!(!raised(5));
    // A channel to the host comes behind those to the card.
    raw.write(0x1090, 0b10);
    raw.write(0x2010, 0b100);
    raw.one(Direction::C2h, 64, (0, raw.data.iova().0));
    assert!(raised(8));
    assert_eq!(raw.read(0x2044), 0b100);

    raw.write(0x2080, 0x1f00);
    cards.set_user_interrupt(0, 1, true);
    assert!(!raised(31));
    assert_eq!((raw.read(0x2040), raw.read(0x2048)), (0, 0b10));
    raw.write(0x2008, 0b10);
    assert!(raised(31));
    cards.set_user_interrupt(0, 1, false);
    assert_eq!((raw.read(0x2040), raw.read(0x2048)), (0, 0));
    cards.set_user_interrupt(0, 1, true);
    assert!(raised(31));
}

#[test]
fn halt_and_credits_hold_descriptors_back() {
    let cards = XdmaCards::new(1, shape(1, 1));
    let raw = Raw::new(&cards);
    let (list, host) = (raw.list.iova().0, raw.data.iova().0);
    for place in 0..4 {
        raw.put(place, if place == 3 { 0xad4b_0003 } else { 0xad4b_0000 }, 64, (host, 0), 0);
    }
    raw.write(0x6014, 1);
    raw.start(Direction::H2c, list, 3);
    assert_eq!((raw.read(0x40), raw.read(0x48)), (1, 0));
    raw.write(0x6024, 1);
    raw.write(0x6018, 1);
    assert_eq!((raw.read(0x40), raw.read(0x48)), (1, 0));
    raw.write(0x408c, 1);
    assert_eq!((raw.read(0x40), raw.read(0x48), raw.read(0x408c)), (1, 1, 0));
    raw.write(0x408c, 5);
    assert_eq!((raw.read(0x40), raw.read(0x48), raw.read(0x408c)), (0b110, 4, 2));
    raw.write(0x0c, 1);
    assert_eq!(raw.read(0x408c), 0);
    assert_eq!(cards.violations(0), []);
}

#[test]
fn a_channel_that_is_stopped_ends_the_present_descriptor() {
    let cards = XdmaCards::new(1, shape(1, 1));
    let raw = Raw::new(&cards);
    raw.put(0, 0xad4b_0000, 64, (raw.data.iova().0, 0), raw.list.iova().0);
    raw.write(0x6024, 1);
    raw.start(Direction::H2c, raw.list.iova().0, 0);
    raw.write(0x408c, 3);
    assert_eq!((raw.read(0x40), raw.read(0x48)), (1, 3));
    raw.write(0x0c, 1);
    assert_eq!((raw.read(0x40), raw.read(0x48)), (1 << 6, 3), "idle");
}

#[test]
fn a_fixed_address_is_read_again_and_again() {
    let cards = XdmaCards::new(1, shape(1, 1));
    let raw = Raw::new(&cards);
    let word = pattern(9, 64);
    cards.write_memory(0, 640, &word).unwrap();
    raw.write(0x1004, 1 << 25);
    raw.put(0, 0xad4b_0003, 192, (640, raw.data.iova().0), 0);
    let start = |bytes: u32, source: u64| {
        raw.put(0, 0xad4b_0003, bytes, (source, raw.data.iova().0), 0);
        raw.write(0x1004, 1 << 25);
        raw.write(0x5080, raw.list.iova().0 as u32);
        raw.write(0x5084, (raw.list.iova().0 >> 32) as u32);
        raw.write(0x1004, RUN & !(0x1f << 14) | 1 << 25);
        raw.read(0x1040)
    };
    assert_eq!(start(192, 640), 0b110);
    let mut found = [0; 192];
    raw.data.read(0, &mut found).unwrap();
    assert!(found.chunks(64).all(|part| part == word));
    for (bytes, source) in [(100, 640), (128, 641)] {
        assert_eq!(start(bytes, source), 1 << 3, "align mismatch");
    }
}

#[test]
fn broken_rules_are_noted() {
    let cards = XdmaCards::new(1, shape(1, 1));
    let raw = Raw::new(&cards);
    let list = raw.list.iova().0;
    raw.one(Direction::H2c, 0, (raw.data.iova().0, 0));
    raw.start(Direction::H2c, list + 16, 0);
    assert_eq!(raw.read(0x40), 1 << 19);
    raw.start(Direction::H2c, list + 4096 - 64, 2);
    assert_eq!(raw.read(0x40), 1 << 19);
    assert_eq!(cards.violations(0), [Violation::NoBytes, Violation::MisalignedList, Violation::ListCrossesPage]);
}

#[test]
fn the_bypass_window_and_the_engine_reach_the_same_memory() {
    let cards = XdmaCards::new(1, shape(1, 1));
    let raw = Raw::new(&cards);
    let bypass = raw.function.window(BarIndex::new(4).unwrap()).unwrap();
    bypass.write_u32(0x1000, 0x1122_3344).unwrap();
    bypass.write_u64(0x1008, 0x5566_7788_99aa_bbcc).unwrap();
    raw.one(Direction::C2h, 16, (0x1000, raw.data.iova().0));
    let mut found = [0; 16];
    raw.data.read(0, &mut found).unwrap();
    assert_eq!(u128::from_le_bytes(found), 0x5566_7788_99aa_bbcc_0000_0000_1122_3344);
    assert_eq!(bypass.read_u32(0x100c).unwrap(), 0x5566_7788);
    assert!(raw.function.identity().to_string().starts_with("card 0 (10ee:903f, class 058000"));
}

#[derive(Debug, Clone)]
enum Access {
    Read(u8, u64),
    Write(u8, u64, u32),
    Config(u16, u32),
    List(usize, Vec<u8>),
    Reset,
}

fn access() -> impl Strategy<Value = Access> {
    let bar = prop::sample::select(vec![0_u8, 2, 2, 2, 2, 4]);
    // Registers that exist, mostly.
    let block = prop::sample::select(vec![0, 0x100, 0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x6000, 0x8000, 0x8f00]);
    let offset = (block, 0..64_u64).prop_map(|(block, register)| block + 4 * register);
    let value = prop_oneof![any::<u32>(), Just(!0), 0..64_u32, Just(RUN), Just(RUN | 1 << 26)];
    prop_oneof![
        4 => (bar.clone(), offset.clone()).prop_map(|(bar, offset)| Access::Read(bar, offset)),
        8 => (bar, offset, value.clone()).prop_map(|(bar, offset, value)| Access::Write(bar, offset, value)),
        1 => (0..1024_u16, value).prop_map(|(word, value)| Access::Config(4 * word, value)),
        2 => (0..64_usize, prop::collection::vec(any::<u8>(), 32)).prop_map(|(place, bytes)| Access::List(place, bytes)),
        1 => Just(Access::Reset),
    ]
}

/// A million accesses in the long form.
fn cases() -> u32 {
    if is_full() { 5000 } else { 150 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn nothing_a_host_writes_harms_a_neighbour(accesses in prop::collection::vec(access(), 200)) {
        let cards = XdmaCards::new(2, shape(2, 2));
        let raw = Raw::new(&cards);
        let neighbour = attach(cards.endpoint(1));
        let other = neighbour.window(BarIndex::new(2).unwrap()).unwrap();
        let marks = pattern(1, 4096);
        cards.write_memory(1, 0, &marks).unwrap();
        other.write_u32(0x2080, 0x0403_0201).unwrap();
        // Lists are where the channel looks for them, so that some run.
        for base in [0x4000, 0x5000] {
            raw.write(base + 0x80, raw.list.iova().0 as u32);
            raw.write(base + 0x84, (raw.list.iova().0 >> 32) as u32);
        }
        for access in accesses {
            match access {
                Access::Read(bar, offset) => {
                    raw.function.window(BarIndex::new(bar).unwrap()).unwrap().read_u32(offset).unwrap();
                }
                Access::Write(bar, offset, value) => {
                    raw.function.window(BarIndex::new(bar).unwrap()).unwrap().write_u32(offset, value).unwrap();
                }
                Access::Config(offset, value) => raw.function.config_write_u32(offset, value).unwrap(),
                Access::List(place, mut bytes) => {
                    // Half of the descriptors are valid, and short.
                    if bytes[31] & 1 == 0 {
                        (bytes[0], bytes[1]) = (bytes[0] & 0x13, 0);
                        bytes[2..4].copy_from_slice(&[0x4b, 0xad]);
                        bytes[6..8].fill(0);
                        bytes[8..16].copy_from_slice(&raw.data.iova().0.to_le_bytes());
                        bytes[16..24].copy_from_slice(&raw.data.iova().0.to_le_bytes());
                        bytes[24..32].copy_from_slice(&(raw.list.iova().0 + 32 * place as u64 + 32).to_le_bytes());
                    }
                    raw.list.write(32 * place, &bytes).unwrap();
                }
                Access::Reset => {
                    raw.function.reset().unwrap();
                    raw.function.set_bus_master(true).unwrap();
                }
            }
        }
        prop_assert_eq!(other.read_u32(0x2080).unwrap(), 0x0403_0201);
        prop_assert!(cards.read_memory(1, 0, 4096).unwrap() == marks);
        raw.function.reset().unwrap();
        prop_assert_eq!(raw.read(0), 0x1fc0_0006);
        prop_assert_eq!((raw.read(0x40), raw.read(0x04)), (0, 0));
    }
}

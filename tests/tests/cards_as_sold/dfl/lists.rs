//! Feature lists, good and bad, in the memory of a function that does nothing else.

use std::sync::Arc;

use fpga_driver::dfl::{Control, Error as ControlError};
use fpga_driver::feature_list::{Error, Feature, Place, Unit, Walk, places};
use fpga_driver::{Card, Error as CardError};
use fpga_hal::endpoint::{BarLayout, DmaFault, DmaPort, DmaTag, InterruptPort, Layout, ResetKind};
use fpga_hal::{BarIndex, Domain, Endpoint, Function, in_process};
use proptest::prelude::*;

use super::{Cards, bar_0};

/// A function whose configuration space and BARs are memory.
struct Memory {
    config: Vec<u8>,
    bars: Vec<(usize, Vec<u8>)>,
}

impl Memory {
    fn new(bars: &[(usize, usize)]) -> Self {
        let mut config = vec![0; 4096];
        config[..12].copy_from_slice(&[0x86, 0x80, 0x2b, 0x0b, 2, 0, 0, 0, 1, 0, 0, 0x12]);
        Memory { config, bars: bars.iter().map(|(index, bytes)| (*index, vec![0; *bytes])).collect() }
    }

    /// Puts 64-bit words into a BAR.
    fn put(mut self, bar: usize, offset: usize, words: &[u64]) -> Self {
        let (_, bytes) = self.bars.iter_mut().find(|(index, _)| *index == bar).unwrap();
        for (word, at) in words.iter().zip((offset..).step_by(8)) {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        self
    }

    /// Puts Intel's capability behind an error-reporting one.
    fn capability(mut self, words: &[u32]) -> Self {
        let all = [&[0x1480_0001_u32], &[0; 17][..], &[0x0001_000b, 0x0182_0043][..], words].concat();
        self.config[0x100..0x100 + 72].fill(0);
        self.config[0x100..0x104].copy_from_slice(&all[0].to_le_bytes());
        for (word, at) in all[18..].iter().zip((0x148..).step_by(4)) {
            self.config[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        self
    }

    fn attach(self) -> Function {
        in_process::attach(Arc::new(self), &Domain::in_process(), "memory").unwrap()
    }
}

impl Endpoint for Memory {
    fn layout(&self) -> Layout {
        let mut bars = [None; BarIndex::COUNT];
        for (index, bytes) in &self.bars {
            bars[*index] = Some(BarLayout { bytes: bytes.len() as u64, is_64_bit: true, prefetchable: false });
        }
        Layout { bars, dma_bits: 64 }
    }

    fn attach(&self, _: Arc<dyn DmaPort>, _: Arc<dyn InterruptPort>) {}

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        data.copy_from_slice(&self.config[usize::from(offset)..usize::from(offset) + data.len()]);
    }

    fn config_write(&self, _: u16, _: &[u8]) {}

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        let (_, bytes) = self.bars.iter().find(|(index, _)| *index == bar.index()).unwrap();
        data.copy_from_slice(&bytes[offset as usize..offset as usize + data.len()]);
    }

    fn bar_write(&self, _: BarIndex, _: u64, _: &[u8]) {}

    fn reset(&self, _: ResetKind) {}

    fn dma_complete(&self, _: DmaTag, _: Result<&[u8], DmaFault>) {}
}

const FME: u64 = 0x4000_0000_0000_0000;
const PORT: u64 = 0x4000_0000_0000_0001;
const PRIVATE: u64 = 0x3000_0000_0000_0000;
const VERSION_1: u64 = 1 << 52;
const END: u64 = 1 << 40;

fn next(bytes: u64) -> u64 {
    bytes << 16
}

fn walk(function: &Function) -> Result<Vec<Feature>, String> {
    let window = bar_0(function);
    let all: Result<Vec<Feature>, Error> = Walk::new(&window, 0).collect();
    all.map_err(|error| error.to_string())
}

#[test]
fn the_list_of_a_d5005_is_walked_to_its_end() {
    let cards = Cards::new();
    let function = cards.control_function();
    assert_eq!(places(&function).unwrap(), [Place { bar: BarIndex::new(0).unwrap(), offset: 0 }]);
    let found = walk(&function).unwrap();
    let offsets: Vec<u64> = found.iter().map(|feature| feature.offset).collect();
    assert_eq!(
        offsets,
        [
            0, 0x1000, 0x3000, 0x4000, 0x1_0000, 0x2_0000, 0x3_0000, 0x4_0000, 0x9_0000, 0x9_1000, 0x9_2000, 0x9_3000,
            0xa_0000
        ]
    );
    let ids: Vec<u16> = found.iter().map(|feature| feature.id).collect();
    assert_eq!(ids, [0, 1, 7, 4, 0xe, 0x20, 0xf, 9, 5, 1, 0x14, 0x13, 0x10]);
    assert!(found[..9].iter().all(|feature| feature.unit == Unit::Management));
    assert!(found[9..].iter().all(|feature| feature.unit == Unit::Port));
    assert_eq!(found[3].registers, Some(0x4000..0x1_0000));
    assert_eq!(found[12].registers, Some(0xa_0000..0xa_1000), "the last says no length");
    assert_eq!(found[0].guid, Some(0xbfaf2ae9_4a52_46e3_82fe_38f0f9e17764));
    assert_eq!(found[1].guid, None);
}

#[test]
fn headers_of_version_1_say_where_their_registers_are() {
    let function = Memory::new(&[(0, 0x1000)])
        .put(0, 0, &[FME | next(0x100), 1, 2])
        .put(0, 0x100, &[PRIVATE | VERSION_1 | next(0x80) | 0x26, 0x1111, 0x2222, 0x600, 0x40 << 32])
        .put(0, 0x180, &[PRIVATE | VERSION_1 | END | next(0x80) | 0x27, 3, 4, 0x8000_0001, 0x40 << 32])
        .attach();
    let found = walk(&function).unwrap();
    assert_eq!(found[1].registers, Some(0x700..0x740));
    assert_eq!(found[1].guid, Some(0x2222_0000_0000_0000_1111));
    assert_eq!((found[1].version, found[1].unit), (1, Unit::Management));
    assert_eq!(found[2].registers, None, "an address of the host's bus");
    assert_eq!(found.len(), 3);
}

#[test]
fn bad_lists_end_the_walk_with_the_reason() {
    let one = |words: &[u64]| Memory::new(&[(0, 0x1000)]).put(0, 0, words);
    let all_ones = Memory::new(&[(0, 0x1000)]).put(0, 0, &[FME | next(0x100)]).put(0, 0x100, &[u64::MAX]);
    let mut endless = Memory::new(&[(0, 0x1000)]);
    for at in 0..80 {
        endless = endless.put(0, at * 24, &[PRIVATE | next(24)]);
    }
    for (memory, reason) in [
        (one(&[FME | next(4)]), "header 0 at 0x0 says the next is 0x4 further on"),
        (one(&[FME | next(0x104)]), "header 0 at 0x0 says the next is 0x104 further on"),
        (one(&[FME | next(0x1000)]), "header 1 at 0x1000 is outside of the BAR's 0x1000 bytes"),
        (one(&[FME | next(0xff_fff8)]), "header 1 at 0xfffff8 is outside of the BAR's 0x1000 bytes"),
        (one(&[FME | next(0xff0)]), "header 1 at 0xff0 is outside of the BAR's 0x1000 bytes"),
        (one(&[FME | END | next(0x2000)]), "0x2000 bytes at 0x0, of header 0, are outside of the BAR's 0x1000 bytes"),
        (one(&[FME | 2 << 52 | END]), "header 0 at 0x0 is of version 2; 0 and 1 are known"),
        (
            one(&[PRIVATE | VERSION_1 | END, 0, 0, 0xff0, 0x40 << 32]),
            "0x40 bytes at 0xff0, of header 0, are outside of the BAR's 0x1000 bytes",
        ),
        (
            one(&[PRIVATE | VERSION_1 | END, 0, 0, u64::MAX - 1, 0x40 << 32]),
            "0x40 bytes at 0xfffffffffffffffe, of header 0, are outside of the BAR's 0x1000 bytes",
        ),
        (all_ones, "header 1 at 0x100 reads all-ones"),
        (endless, "the feature list does not end within 64 headers"),
    ] {
        let function = memory.attach();
        assert_eq!(walk(&function).unwrap_err(), reason);
        let error = Control::open(function.clone()).unwrap_err();
        assert!(matches!(&error, ControlError::NoControl { looked, .. } if looked == reason), "{error:?}");
        let error = Card::open(function).unwrap_err();
        assert!(matches!(error, CardError::NoSequencer { .. }), "{error:?}");
    }
}

#[test]
fn the_last_header_may_say_nothing_of_a_next() {
    for word in [FME, FME | END, FME | END | next(0x40)] {
        let function = Memory::new(&[(0, 0x1000)]).put(0, 0, &[word]).attach();
        assert_eq!(walk(&function).unwrap().len(), 1);
    }
}

/// Ids are numbered by the unit that a feature belongs to, as Linux' list of them has it.
#[test]
fn features_have_the_names_of_their_unit() {
    let header = |kind: u64, id: u64| kind << 60 | next(0x40) | id;
    let words = [
        (header(4, 0), Some("management engine")),
        (header(3, 0x04), Some("errors")),
        (header(3, 0x10), Some("Ethernet")),
        (header(3, 0x0e), Some("board controller")),
        (header(3, 0x06), None),
        (header(4, 1), Some("port")),
        (header(3, 0x10), Some("port errors")),
        (header(3, 0x04), None),
        (header(1, 0), Some("accelerator")),
        (header(3, 0x10), None),
        (header(2, 0x10), None),
        // A unit that this driver does not know.
        (header(4, 2), None),
        (header(3, 0x10) | END, None),
    ];
    let memory = words.iter().zip((0..).step_by(0x40));
    let memory = memory.fold(Memory::new(&[(0, 0x1000)]), |memory, ((word, _), at)| memory.put(0, at, &[*word]));
    let found: Vec<_> = walk(&memory.attach()).unwrap().iter().map(Feature::name).collect();
    assert_eq!(found, words.map(|(_, name)| name));
}

/// A BAR with the registers that say where the ports are, and one that ends within them.
#[test]
fn ports_are_looked_for_where_a_bar_has_them() {
    let port = 1 << 60 | 2 << 32 | 0x100;
    for (bytes, count) in [(0x80, 2), (0x40, 1)] {
        let memory = Memory::new(&[(0, bytes), (2, 0x2000)]).put(0, 0, &[FME | END | next(0x28), 1, 2]);
        let ports = memory.put(0, 0x38, &[port]).put(2, 0x100, &[PORT | END, 1, 2]);
        assert_eq!(places(&ports.attach()).unwrap().len(), count, "{bytes:#x}");
    }
}

/// The layout of the first PAC cards: the port in a BAR of its own.
#[test]
fn a_port_in_another_bar_has_a_list_of_its_own() {
    let port = 1 << 60 | 2 << 32 | 0x100;
    let memory = |port| {
        Memory::new(&[(0, 0x1000), (2, 0x2000)])
            .put(0, 0, &[FME | END, 1, 2])
            .put(0, 0x38, &[port])
            .put(2, 0x100, &[PORT | next(0x1000), 1, 2, 0, 0, 0, 0, 0x4])
            .put(2, 0x1100, &[PRIVATE | END | 0x10])
    };
    let function = memory(port).attach();
    let bar = |index| BarIndex::new(index).unwrap();
    assert_eq!(places(&function).unwrap(), [Place { bar: bar(0), offset: 0 }, Place { bar: bar(2), offset: 0x100 }]);
    let control = Control::open(function).unwrap();
    assert_eq!(control.features().len(), 3);
    assert!(!control.is_held().unwrap());
    for (port, reason) in [
        (1 << 60 | 2 << 32 | 0x2000, "a port begins at 0x2000 of BAR2, which has 0x2000 bytes"),
        (1 << 60 | 4 << 32, "a port begins in BAR4, which the function does not have"),
        (1 << 60 | 6 << 32, "a port begins in BAR6, which the function does not have"),
    ] {
        assert_eq!(places(&memory(port).attach()).unwrap_err().to_string(), reason);
    }
    // Not implemented.
    assert_eq!(places(&memory(6 << 32).attach()).unwrap().len(), 1);
}

#[test]
fn intels_capability_says_where_lists_begin() {
    let memory = || Memory::new(&[(0, 0x1000), (2, 0x2000)]).put(2, 0x800, &[FME | END]);
    let bar = |index| BarIndex::new(index).unwrap();
    let function = memory().capability(&[1, 0x802]).attach();
    assert_eq!(places(&function).unwrap(), [Place { bar: bar(2), offset: 0x800 }]);
    let function = memory().capability(&[2, 0x802, 0x10]).attach();
    assert_eq!(places(&function).unwrap(), [Place { bar: bar(2), offset: 0x800 }, Place { bar: bar(0), offset: 0x10 }]);
    for (words, reason) in [
        (&[0_u32, 0][..], "its capability 0x43 counts 0 lists, but there are 1 to 6 BARs"),
        (&[7, 0], "its capability 0x43 counts 7 lists, but there are 1 to 6 BARs"),
        (&[2, 0x802, 0x902], "its capability has two lists in BAR2"),
        (&[1, 0x2002], "its capability begins at 0x2000 of BAR2, which has 0x2000 bytes"),
        (&[1, 0x4], "its capability begins in BAR4, which the function does not have"),
        (&[1, 0x7], "its capability begins in BAR7, which the function does not have"),
    ] {
        let function = memory().capability(words).attach();
        assert_eq!(places(&function).unwrap_err().to_string(), reason);
        assert!(matches!(Control::open(function), Err(ControlError::NoControl { .. })));
    }
}

/// Intel's capability at the end of configuration space: there is room for one place.
#[test]
fn a_capability_does_not_leave_configuration_space() {
    let memory = |count: u32| {
        let mut memory = Memory::new(&[(0, 0x1000)]).put(0, 0x10, &[FME | END]);
        for (at, word) in
            [(0x100, 0xff0 << 20 | 0x1_0001), (0xff0, 0x1_000b), (0xff4, 0x0182_0043), (0xff8, count), (0xffc, 0x10)]
        {
            memory.config[at..at + 4].copy_from_slice(&u32::to_le_bytes(word));
        }
        memory.attach()
    };
    let first = Place { bar: BarIndex::new(0).unwrap(), offset: 0x10 };
    assert_eq!(places(&memory(1)).unwrap(), [first]);
    let error = places(&memory(2)).unwrap_err().to_string();
    assert_eq!(error, "its capability with the places of lists leaves configuration space");
}

#[test]
fn what_is_no_control_function_is_refused_by_name() {
    let cards = Cards::new();
    let second = Control::open(cards.second()).unwrap_err();
    assert_eq!(second.to_string(), "card 1 is no control function: none of its 2 features is a management engine");
    let none = Memory::new(&[(2, 0x1000)]).attach();
    let error = Control::open(none).unwrap_err();
    assert!(error.to_string().contains("BAR0"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Whatever memory holds, a walk ends, and nothing that it returns is outside of the BAR.
    #[test]
    fn any_memory_is_walked_to_an_end(words in prop::collection::vec(word(), 64..128)) {
        let bytes = 1024;
        let function = Memory::new(&[(0, bytes)]).put(0, 0, &words[..64]).attach();
        let window = bar_0(&function);
        let mut last = None;
        for feature in Walk::new(&window, 0) {
            let Ok(feature) = feature else { break };
            prop_assert!(last.is_none_or(|last| last < feature.offset));
            prop_assert!(feature.offset + 24 <= bytes as u64);
            if let Some(registers) = feature.registers {
                prop_assert!(registers.start <= registers.end && registers.end <= bytes as u64);
            }
            last = Some(feature.offset);
        }
        let _ = places(&function);
        let _ = Control::open(function);
    }
}

/// Words that look like headers, and some that do not.
fn word() -> impl Strategy<Value = u64> {
    let header = (0..5_u64, 0..3_u64, 0..2_u64, 0..40_u64, 0..0x30_u64)
        .prop_map(|(kind, version, end, next, id)| kind << 60 | version << 52 | end << 40 | (next * 8) << 16 | id);
    prop_oneof![6 => header, 1 => any::<u64>(), 1 => 0..0x400_u64]
}

//! Finding the sequencer: the card's words are checked, and the walk ends.

use std::sync::Arc;

use fpga_driver::alveo::Loader;
use fpga_driver::xdma::{Completion, Engine};
use fpga_driver::{Card, Error, find_sequencer};

use crate::cards::Open as _;
use crate::open_card;
use fpga_fake::{BLOCK, Fake};

/// Reads of registers after a card is described: of its health, at its end.
const AFTER: u32 = 2;

fn refused(prepare: impl Fn(&Fake)) -> Error {
    let fake = Fake::new(4);
    prepare(&fake);
    fake.counts();
    let error = fake.open().unwrap_err();
    let (reads, writes) = fake.counts();
    assert!(reads < 500 && writes == 0, "{reads} reads, {writes} writes: {error}");
    error
}

#[test]
fn a_card_says_what_it_is() {
    let card = Fake::node(3, 5, 64).open().unwrap();
    let capabilities = card.capabilities();
    assert_eq!((card.node(), capabilities.nodes, capabilities.ports), (3, 5, 4));
    assert_eq!((capabilities.clock_khz, capabilities.memory_bytes), (200_000, 4 << 20));
    assert_eq!((capabilities.queue_depth_max, card.queue().depth()), (64, 64));
    assert_eq!((capabilities.eager_bytes, capabilities.eager_limit), (65536, 16384));
    assert_eq!((card.name(), card.version(), card.is_mock()), ("fake", (1, 0), true));
    assert!(capabilities.runs(cmdseq::Operation::Launch));
}

#[test]
fn rings_are_no_deeper_than_needed() {
    assert_eq!(Fake::new(4096).open().unwrap().queue().depth(), 1024);
}

#[test]
fn lists_that_lead_nowhere_are_refused() {
    for (low, high, word) in [
        // The list ends at once; by its end bit, and by no next header.
        (0x1000_0001, 0x1000_0100, "ends after its first header"),
        (0x0000_0001, 0x1000_0000, "ends after its first header"),
        // The next header lies 4 bytes further on, at an odd place, outside of the BAR, at its very end.
        (0x0004_0001, 0x1000_0000, "0x4"),
        (0x1001_0001, 0x1000_0000, "0x1001"),
        (0x0000_0001, 0x1000_0002, "outside"),
        (0xfff8_0001, 0x1000_0000, "outside"),
    ] {
        let error = refused(|fake| {
            fake.set(0, low);
            fake.set(4, high);
        });
        let Error::NoSequencer { looked, .. } = &error else { panic!("{error}") };
        assert!(looked.contains(word), "{looked}");
    }
}

#[test]
fn a_block_may_end_where_the_bar_ends() {
    // The sequencer's header, as the second of a BAR of 64 KiB.
    let find = |at: u32| {
        let fake = Fake::new(4);
        fake.set(0, at << 16 | 1);
        let header = [0x0000_0002, 0x2000_0100, 0xa65e_4f08, 0x8e0b_93d1, 0x2f64_47f5, 0xc7e3_b1d2];
        for (word, offset) in header.into_iter().zip((at..0x1_0000).step_by(4)) {
            fake.set(offset, word);
        }
        find_sequencer(&fake.function()).map(|found| found.offset).map_err(|error| error.to_string())
    };
    assert_eq!(find(BLOCK), Ok(BLOCK.into()));
    assert_eq!(find(0xf000), Ok(0xf000));
    let error = find(0xffe8).unwrap_err();
    assert!(error.contains("its block at 0xffe8"), "the whole header is there: {error}");
    let error = find(0xfff0).unwrap_err();
    assert!(error.contains("header 1 at 0xfff0"), "{error}");
}

#[test]
fn a_list_without_end_is_left() {
    // Steps of 8 over headers that are all the same: the BAR would hold thousands.
    let error = refused(|fake| {
        for offset in (0..0x8000).step_by(8) {
            fake.set(offset, 0x0008_0001);
            fake.set(offset + 4, 0x3000_0000);
        }
    });
    assert!(matches!(&error, Error::NoSequencer { looked, .. } if looked.contains("64")), "{error}");
}

#[test]
fn all_ones_are_a_card_that_is_gone_if_its_vendor_id_is_too() {
    let fake = Fake::new(4);
    let function = fake.function();
    fake.state().is_gone = true;
    let error = open_card(function).unwrap_err();
    assert!(matches!(error, Error::Removed { .. }), "{error}");
    // The vendor id says that this one is there.
    let error = refused(|fake| {
        fake.set(0, u32::MAX);
        fake.set(4, u32::MAX);
    });
    assert!(matches!(&error, Error::NoSequencer { looked, .. } if looked.contains("all-ones")), "{error}");
    let error = refused(|fake| fake.set(BLOCK + 0x20, u32::MAX));
    assert!(matches!(error, Error::AllOnes { register: 0x20, .. }), "{error}");
    let error = refused(|fake| {
        fake.set(BLOCK, u32::MAX);
        fake.set(BLOCK + 4, u32::MAX);
    });
    assert!(matches!(&error, Error::NoSequencer { looked, .. } if looked.contains("all-ones")), "{error}");
}

/// A card, and a call that reads its description.
type Describes = (Arc<Fake>, Box<dyn FnOnce() -> Result<(), Error>>);

#[test]
fn a_card_that_vanishes_while_it_is_described_is_gone() {
    let open: fn() -> Describes = || {
        let fake = Fake::new(4);
        let function = fake.function();
        (fake, Box::new(|| open_card(function).map(drop)))
    };
    let reset: fn() -> Describes = || {
        let fake = Fake::new(4);
        let mut card = fake.open().unwrap();
        (fake, Box::new(move || card.reset()))
    };
    for begin in [open, reset] {
        let (fake, describe) = begin();
        fake.counts();
        describe().unwrap();
        let (reads, _) = fake.counts();
        assert!(reads > 40, "{reads}");
        for vanishes_after in 0..reads - AFTER {
            let (fake, describe) = begin();
            fake.vanish_after(vanishes_after);
            let error = describe().unwrap_err();
            assert!(matches!(error, Error::Removed { .. }), "after {vanishes_after} of {reads} reads: {error}");
        }
    }
}

#[test]
fn a_card_that_vanishes_while_its_sequencer_is_looked_for_is_gone() {
    let find = |reads| {
        let fake = Fake::new(4);
        let function = fake.function();
        fake.vanish_after(reads);
        find_sequencer(&function).map(|found| found.offset)
    };
    let all = (0..500).find(|reads| find(*reads).is_ok()).expect("a walk that ends");
    assert!(all > 4, "the list is read, not only {all} registers");
    for reads in 0..all {
        let error = find(reads).unwrap_err();
        assert!(matches!(error, Error::Removed { .. }), "after {reads} of {all} reads: {error}");
    }
}

#[test]
fn a_block_that_leaves_the_bar_is_refused() {
    let error = refused(|fake| {
        fake.set(0, 0xf800_0001);
        for (offset, value) in
            [(0, 2), (4, 0x2000_0100), (8, 0xa65e_4f08), (12, 0x8e0b_93d1), (16, 0x2f64_47f5), (20, 0xc7e3_b1d2)]
        {
            fake.set(0xf800 + offset, value);
        }
    });
    assert!(matches!(&error, Error::NoSequencer { looked, .. } if looked.contains("does not fit")), "{error}");
}

#[test]
fn other_versions_are_refused() {
    let error = refused(|fake| fake.set(BLOCK + 0x24, 0x0002_0000));
    assert!(matches!(error, Error::Version { found: 0x0002_0000, known: 0x0001_0007, .. }), "{error}");
    let error = refused(|fake| fake.set(BLOCK + 0x28, 2));
    assert!(matches!(error, Error::Version { found: 2, known: 1, .. }), "{error}");
    let error = refused(|fake| fake.set(BLOCK + 0x20, 0x1234));
    assert!(matches!(error, Error::NoSequencer { .. }), "{error}");
    // A newer minor version only adds.
    let fake = Fake::new(4);
    fake.set(BLOCK + 0x24, 0x0001_0008);
    assert_eq!(fake.open().unwrap().version(), (1, 8));
}

/// A newer card has bits and registers that this host does not know: it uses what it knows.
#[test]
fn what_a_newer_card_adds_is_left_alone() {
    let fake = Fake::new(4);
    let old = fake.open().unwrap().capabilities().clone();
    let fake = Fake::new(4);
    fake.set(BLOCK + 0x24, 0x0001_ffff);
    // Rings of both kinds, programs, and features 3, 10 and 31; all operations, element types and reductions; a register that
    // was reserved.
    fake.set(BLOCK + 0x2c, 0x8000_050b);
    for offset in [0x70, 0x74, 0x78, 0x7c] {
        fake.set(BLOCK + offset, u32::MAX);
    }
    fake.set(BLOCK + 0xfc, 0x1234_5678);
    let card = fake.open().unwrap();
    let new = card.capabilities();
    let all = cmdseq::Operation::ALL.iter().fold(0, |set, one| set | 1_u64 << *one as u8);
    assert_eq!(new.operations & !all, !all);
    assert!(cmdseq::Operation::ALL.iter().all(|one| new.runs(*one)));
    let (operations, element_types, reductions) = (new.operations, new.element_types, new.reductions);
    assert_eq!(*new, cmdseq::Capabilities { operations, element_types, reductions, ..old });
}

#[test]
fn capabilities_that_make_no_sense_are_refused_by_name() {
    for (offset, value, name) in [
        (0x2c, 0, "FEATURES"),
        (0x30, 0, "CLOCK_KHZ"),
        (0x30, u32::MAX, "CLOCK_KHZ"),
        (0x34, 1, "NODE"),
        (0x30, 10_000_001, "CLOCK_KHZ"),
        (0x38, 0, "NODES"),
        (0x38, 65537, "NODES"),
        (0x38, u32::MAX - 1, "NODES"),
        (0x3c, 65537, "PORTS"),
        (0x40, 0, "TOPOLOGY"),
        (0x40, 0x0003_0002, "TOPOLOGY"),
        (0x40, 2, "TOPOLOGY"),
        (0x44, 0, "MEMORY_MIB"),
        (0x44, (1 << 24) + 1, "MEMORY_MIB"),
        (0x48, 0, "MEMORY_CHANNELS"),
        (0x48, 65537, "MEMORY_CHANNELS"),
        (0x4c, 5, "STRIPE_MIB"),
        (0x50, 49, "QUEUES"),
        (0x50, 0, "QUEUES"),
        (0x54, 0, "QUEUE_DEPTH_MAX"),
        (0x54, 1, "QUEUE_DEPTH_MAX"),
        (0x54, 24, "QUEUE_DEPTH_MAX"),
        (0x54, u32::MAX - 1, "QUEUE_DEPTH_MAX"),
        (0x58, 0, "COMMUNICATORS"),
        (0x58, 33, "COMMUNICATORS"),
        (0x5c, 0, "COMMUNICATOR_RANKS"),
        (0x5c, 65537, "COMMUNICATOR_RANKS"),
        (0x60, 65537, "RESIDENT_PROGRAMS"),
        (0x64, 65537, "RESIDENT_WORDS"),
        (0x80, (1 << 24) + 1, "DISPATCH_CYCLES"),
        (0x84, u32::MAX - 1, "MEMORY_READ_CYCLES"),
        (0x88, u32::MAX - 1, "HANDOVER_CYCLES"),
        (0xac, u32::MAX - 1, "REDUCE_BEAT_CYCLES"),
        (0xb0, u32::MAX - 1, "REDUCE_UNIT_CYCLES"),
        (0xc0, u32::MAX - 1, "SWITCH_CYCLES"),
        (0xb4, 65537, "SIGNALS"),
        (0xb8, 65537, "TABLES"),
        (0xa8, 11, "DMA_BITS"),
        (0xa8, 65, "DMA_BITS"),
        (0xbc, 257, "COMMUNICATOR_GENERATIONS"),
        (0xc4, 257, "LANES"),
        (0x68, 0, "ADDRESS_ALIGN"),
        (0x68, 48, "ADDRESS_ALIGN"),
        (0x68, 1 << 20, "ADDRESS_ALIGN"),
        (0xa4, 0, "BEAT_BYTES"),
        (0xa4, 4097, "BEAT_BYTES"),
        (0x10c, 65537, "EAGER_LIMIT"),
    ] {
        let error = refused(|fake| fake.set(BLOCK + offset, value));
        assert!(matches!(error, Error::BadCapability { register, .. } if register == name), "{name}: {error}");
    }
}

#[test]
fn capabilities_at_their_bounds_are_believed() {
    for (offset, value) in [
        (0x30, 10_000_000),
        (0x38, 1 << 16),
        (0x3c, 1 << 16),
        (0x44, 1 << 24),
        (0x48, 1 << 16),
        (0x4c, 4),
        (0x50, 48),
        (0x54, 2),
        (0x58, 32),
        (0x5c, 1 << 16),
        (0x60, 1 << 16),
        (0x64, 1 << 16),
        (0x68, 4096),
        (0x80, 1 << 24),
        (0xa4, 4096),
        (0xa8, 12),
        (0xa8, 64),
        (0xb4, 1 << 16),
        (0xb8, 1 << 16),
        (0xbc, 256),
        (0x10c, 65536),
    ] {
        let fake = Fake::new(4);
        fake.set(BLOCK + offset, value);
        match fake.open() {
            Ok(_) => {}
            // That is too few addresses for the rings.
            Err(Error::Bus(_)) if (offset, value) == (0xa8, 12) => {}
            Err(error) => panic!("{offset:#x}, {value}: {error:?}"),
        }
    }
}

#[test]
fn a_model_says_so_and_its_ids_do_not() {
    for (device, is_mock) in [(0xf9a0, false), (0xf9a0, true), (0x903f, true)] {
        let fake = Fake::new(4);
        fake.identify(0x1234, device);
        fake.set(BLOCK + 0x2c, 0x8000_050b | u32::from(is_mock) << 18);
        let function = fake.function();
        let found = find_sequencer(&function).unwrap();
        assert_eq!(found.is_model(), Some(is_mock), "{device:04x}");
        assert_eq!(Card::open(function).unwrap().is_mock(), is_mock, "{device:04x}");
        // Another block, which says nothing.
        fake.set(BLOCK + 0x20, 0x4e41_4843);
        assert_eq!(found.is_model(), None);
    }
}

/// Adds a description of descriptor bypass at 0x2000 of BAR0 to the feature list, with `registers` of it other than they should be.
fn describe_bypass(fake: &Fake, registers: &[(u32, u32)]) {
    const AT: u32 = BLOCK + 0x1000;
    fake.set(BLOCK, 0x1000_0002);
    fake.set(BLOCK + 4, 0x2000_0000);
    let right = [
        (0x00, 3),
        (0x04, 0x2000_0100),
        (0x08, 0xb6c0_f19a),
        (0x0c, 0x9d84_27e5),
        (0x10, 0x0b52_4c1e),
        (0x14, 0x8f3a_61d7),
        (0x18, 0x5350_5942),
        (0x1c, 0x0001_0000),
        (0x20, 1),
        (0x24, 1),
        (0x28, 0xff),
    ];
    right.iter().chain(registers).for_each(|(register, value)| fake.set(AT + register, *value));
}

#[test]
fn a_description_of_descriptor_bypass_is_checked() {
    for (registers, why) in [
        (&[(0x18_u32, 0_u32)] as &[(u32, u32)], "MAGIC of the descriptor bypass reads 0x0"),
        (&[(0x1c, 0x0002_0000)], "version of the description of the descriptor bypass"),
        (&[(0x20, 4)], "H2C_CHANNEL of the descriptor bypass"),
        (&[(0x24, u32::MAX)], "C2H_CHANNEL of the descriptor bypass"),
        (&[(0x28, 16)], "INTERRUPT of the descriptor bypass"),
    ] {
        let fake = Fake::new(64);
        describe_bypass(&fake, registers);
        let error = Card::open(fake.function()).unwrap_err();
        assert!(matches!(error, Error::BadCapability { .. } | Error::Version { .. }), "{error}");
        assert!(error.to_string().contains(why), "{why}: {error}");
    }
    // What is right leads to an engine, of which this card has none.
    let fake = Fake::new(64);
    describe_bypass(&fake, &[]);
    let error = Card::open(fake.function()).unwrap_err();
    let Error::Engine(engine) = &error else { panic!("{error}") };
    assert!(engine.to_string().starts_with("fake has no XDMA engine"), "{engine}");
    // Without the GUID there is no description, and the sequencer masters the bus by itself.
    let fake = Fake::new(64);
    describe_bypass(&fake, &[(0x08, 0)]);
    assert_eq!(Card::open(fake.function()).unwrap().feed(), fpga_driver::Feed::HostRing);
}

/// AMD's other engine has the same PCI ids.
#[test]
fn a_shell_with_qdma_is_refused_by_name() {
    let fake = Fake::new(4);
    let refusal = || Engine::open(fake.function(), Completion::Poll).unwrap_err().to_string();
    assert!(refusal().contains("BAR0 reads 0x00000000 at 0x2000"), "{}", refusal());
    fake.set(0, 0x1fd3_0000);
    assert!(refusal().contains("BAR0 is that of AMD's QDMA, which this driver does not drive (use"), "{}", refusal());
}

/// Cards with XRT's shell are not this driver's, and the ids say whose they are.
#[test]
fn a_shell_of_xrt_is_refused_by_name_before_anything_is_written() {
    for (device, is_xrt) in
        [(0x5000, true), (0x500d, true), (0x5021, true), (0xd00c, true), (0x4fff, false), (0x903f, false)]
    {
        let fake = Fake::new(4);
        fake.identify(0x10ee, device);
        // No feature list.
        fake.set(0, 0);
        fake.set(4, 0);
        let function = fake.function();
        fake.counts();
        for refusal in [
            find_sequencer(&function).unwrap_err().to_string(),
            Card::open(function.clone()).unwrap_err().to_string(),
            Loader::open(function.clone()).unwrap_err().to_string(),
        ] {
            let names = refusal.ends_with("it has AMD's shell for XRT: use and program it with XRT (xocl, xbmgmt)");
            assert_eq!(names, is_xrt, "{device:04x}: {refusal}");
        }
        assert_eq!(fake.counts().1, 0, "writes");
    }
}

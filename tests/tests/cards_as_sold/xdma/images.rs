//! Other logic behind the decoupler of an Alveo card: registers by number, loads, and every way that a load may fail.

use std::ops::ControlFlow;

use fpga_driver::alveo::{Error, Loader};
use fpga_driver::find_sequencer;
use fpga_hal::{BarIndex, Function, Window, in_process};
use fpga_mock::xdma::{IDCODE, INTERFACE, IcapFault, Shape, XdmaCards, stream};
use fpga_mock::{Fabric, Profile, Shell};
use fpga_tests::altered::altered;
use fpga_tests::run::domain;

use super::{attach, shape};

/// GUID of the card with a sequencer, and of other logic.
const CARD: u128 = 0x6fe0a4a1_5a0c_4d0e_9a57_7f1f4f8b2c10;
const OTHER: u128 = 0x11223344_5566_7788_99aa_bbccddeeff00;

fn fabric() -> (XdmaCards, Function) {
    let fabric = Fabric::new(Profile { shell: Shell::AlveoXdma, ..Profile::optweb(2) }).unwrap();
    let cards = XdmaCards::before(&fabric, Shape::default());
    let function = in_process::attach(cards.endpoint(0), &domain(), "card 0").unwrap();
    (cards, function)
}

fn load(loader: &mut Loader, stream: &[u8]) -> Result<(), Error> {
    loader.load(stream, |_| ControlFlow::Continue(()))
}

fn user_bar(function: &Function) -> Window {
    function.window(BarIndex::new(0).unwrap()).unwrap()
}

#[test]
fn logic_is_replaced_and_comes_back() {
    let (cards, function) = fabric();
    assert!(find_sequencer(&function).is_ok());
    let mut loader = Loader::open(function.clone()).unwrap();
    assert_eq!((loader.interface().unwrap(), loader.logic().unwrap()), (INTERFACE, Some(CARD)));
    for bytes in [64, 4096, 4097, 1 << 20] {
        for guid in [OTHER, CARD] {
            let stream = stream(guid, IDCODE, bytes);
            let mut last = 0;
            loader
                .load(&stream, |progress| {
                    assert!(progress.pushed > last && progress.total == stream.len() as u64);
                    last = progress.pushed;
                    ControlFlow::Continue(())
                })
                .unwrap();
            assert_eq!((last, loader.logic().unwrap()), (stream.len() as u64, Some(guid)));
            assert!(!loader.is_cut_off().unwrap());
            assert_eq!(find_sequencer(&function).is_ok(), guid == CARD);
        }
    }
    assert!(!cards.icap(0).take_coupled(), "the region was configured while it was connected");
}

/// Offsets and values typed from PG134, and from this shell's own page.
#[test]
fn every_register_has_its_value_and_its_access() {
    let cards = XdmaCards::new(1, shape(1, 1));
    let function = attach(cards.endpoint(0));
    let bar = user_bar(&function);
    let reads = [
        (0x1_001c, 0, Some(0x8000_0000)),
        (0x1_0020, 0, Some(0)),
        (0x1_0028, 0, Some(0xf)),
        (0x1_0104, 0, Some(0)),
        (0x1_0108, 0, Some(0xfff)),
        (0x1_010c, 0, None),
        (0x1_0110, 5, Some(5)),
        (0x1_0114, 1024, Some(1024)),
        (0x1_0118, 0, Some(0)),
        (0x1_011c, 0, Some(0)),
        (0x2_0000, u32::from_le_bytes(*b"DCPL"), Some(u32::from_le_bytes(*b"DCPL"))),
        (0x2_0008, 0, Some(0)),
        (0x2_000c, 0x14b7_d093, Some(0x14b7_d093)),
        (0x2_0010, 0x4f8b_2c10, Some(0x4f8b_2c10)),
        (0x2_001c, 0x6fe0_a4a1, Some(0x6fe0_a4a1)),
        (0x2_0020, 0x3b6a_9e04, Some(0x3b6a_9e04)),
        (0x2_002c, 0x5e0c_7a11, Some(0x5e0c_7a11)),
        (0x2_0004, 0, Some(1)),
    ];
    for (offset, value, after) in reads {
        assert_eq!(bar.read_u32(offset).unwrap(), value, "{offset:#x}");
        if let Some(after) = after {
            bar.write_u32(offset, !0).unwrap();
            assert_eq!(bar.read_u32(offset).unwrap(), after, "{offset:#x} after ones");
        }
    }
    assert_eq!(bar.read_u32(0x2_0008).unwrap(), 1);
    bar.write_u32(0x2_0004, 0).unwrap();
    // The queue takes 1024 words; what is more is lost.
    for word in 0..1030 {
        bar.write_u32(0x1_0100, word).unwrap();
    }
    assert_eq!((bar.read_u32(0x1_0100).unwrap(), bar.read_u32(0x1_0114).unwrap()), (0, 0));
    bar.write_u32(0x1_010c, 1).unwrap();
    assert_eq!(bar.read_u32(0x1_0110).unwrap(), 4);
    assert_eq!([(); 3].map(|()| bar.read_u32(0x1_010c).unwrap()), [1, 0, 0]);
    assert_eq!((bar.read_u32(0x1_0114).unwrap(), bar.read_u32(0x1_0110).unwrap()), (1024, 5));
    // The IDCODE: a read of register 12, through the configuration logic.
    for word in [0xaa99_5566, 0x2000_0000, 0x2801_8001, 0x2000_0000] {
        bar.write_u32(0x1_0100, word).unwrap();
    }
    bar.write_u32(0x1_010c, 1).unwrap();
    while bar.read_u32(0x1_010c).unwrap() != 0 {}
    bar.write_u32(0x1_0108, 1).unwrap();
    bar.write_u32(0x1_010c, 2).unwrap();
    while bar.read_u32(0x1_010c).unwrap() != 0 {}
    assert_eq!((bar.read_u32(0x1_0118).unwrap(), bar.read_u32(0x1_0104).unwrap()), (1, 0x14b7_d093));
    bar.write_u32(0x1_010c, 0xc).unwrap();
    assert_eq!(bar.read_u32(0x1_0118).unwrap(), 0);
}

#[test]
fn an_image_that_the_card_refuses_leaves_nothing_and_the_next_one_works() {
    let (_cards, function) = fabric();
    let mut loader = Loader::open(function.clone()).unwrap();
    let good = stream(OTHER, IDCODE, 8192);
    // Any bit of the data, of its length, and of the checksum behind it.
    let data = good.len() - 8192..good.len() - 24;
    for at in data.clone().step_by(1023).chain([data.end - 1, good.len() - 16]) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        let error = load(&mut loader, &bad).unwrap_err();
        assert!(matches!(error, Error::Failed { .. }), "{at}: {error}");
        assert_eq!((loader.logic().unwrap(), loader.is_cut_off().unwrap()), (None, true), "{at}");
        assert!(find_sequencer(&function).is_err());
        load(&mut loader, &good).unwrap();
        assert_eq!((loader.logic().unwrap(), loader.is_cut_off().unwrap()), (Some(OTHER), false));
    }
    let mut bad = good.clone();
    bad[good.len() - 16] ^= 1;
    let error = load(&mut loader, &bad).unwrap_err().to_string();
    assert_eq!(error, "card 0 refused the image: checksum of the image");
    // Cut short in the data: within a packet, the port takes the read of a register for data.
    for words in [19, 20, 500, good.len() / 4 - 6] {
        let error = load(&mut loader, &good[..4 * words]).unwrap_err();
        let text = error.to_string();
        let is_told = match error {
            Error::Failed { .. } => text.starts_with("card 0 refused the image: "),
            Error::BadReadback { words: 0, .. } => text.ends_with("0 words; expected 1: the image may end too early"),
            _ => false,
        };
        assert!(is_told, "{words} words: {text}");
        assert_eq!((loader.logic().unwrap(), loader.is_cut_off().unwrap()), (None, true), "{words} words");
    }
    let error = load(&mut loader, &good[..4 * 500]).unwrap_err();
    assert!(matches!(error, Error::BadReadback { .. }), "{error}");
    load(&mut loader, &stream(CARD, IDCODE, 4096)).unwrap();
    assert!(find_sequencer(&function).is_ok());
}

/// Tools write the IDCODE of a device without the revision of its silicon, which a card has.
#[test]
fn an_image_goes_on_any_revision_of_its_device() {
    let (_cards, function) = fabric();
    let mut loader = Loader::open(function).unwrap();
    for (guid, idcode) in [(OTHER, IDCODE & 0x0fff_ffff), (CARD, IDCODE | 0xf000_0000)] {
        load(&mut loader, &stream(guid, idcode, 4096)).unwrap();
        assert_eq!(loader.logic().unwrap(), Some(guid));
    }
}

#[test]
fn what_is_no_image_for_the_device_is_refused_before_anything_is_written() {
    let (_cards, function) = fabric();
    let mut loader = Loader::open(function.clone()).unwrap();
    let good = stream(OTHER, IDCODE, 64);
    let late = [vec![0xff; 1024], good.clone()].concat();
    let unnamed: Vec<u8> = good.chunks(4).filter(|word| **word != [0x30, 1, 0x80, 1]).flatten().copied().collect();
    for (stream, why) in [
        (vec![], "no sync word 0xaa995566 in the first 1024 bytes"),
        (vec![0xff; 4096], "no sync word"),
        (late, "no sync word"),
        (good[..good.len() - 1].to_vec(), "which are no whole words"),
        (stream(OTHER, 0x1234_5093, 64), "the image is for device 0x12345093; the card has 0x14b7d093"),
        (unnamed, "does not name the device"),
    ] {
        let error = load(&mut loader, &stream).unwrap_err();
        assert!(matches!(&error, Error::Refused { what, .. } if what.contains(why)), "{error}");
        assert_eq!((loader.logic().unwrap(), loader.is_cut_off().unwrap()), (Some(CARD), false));
    }
    assert!(find_sequencer(&function).is_ok());
}

#[test]
fn a_port_that_fails_is_told_and_works_afterwards() {
    let (cards, function) = fabric();
    let mut loader = Loader::open(function.clone()).unwrap();
    let good = stream(OTHER, IDCODE, 4096);
    for (fault, why) in [
        (IcapFault::Hangs, "write to its configuration port; last seen: CONTROL of HWICAP 0x1"),
        (IcapFault::Full, "the queue of the configuration port takes 0 words"),
        (IcapFault::NoStartup, "start with its new logic; last seen: STATUS of HWICAP 0x1"),
    ] {
        cards.icap(0).fail(fault);
        let error = load(&mut loader, &good).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(loader.is_cut_off().unwrap());
        cards.icap(0).fail(IcapFault::None);
        load(&mut loader, &good).unwrap();
        assert!(!loader.is_cut_off().unwrap());
    }
    cards.icap(0).stick_decoupler(true);
    let error = load(&mut loader, &good).unwrap_err().to_string();
    assert!(error.contains("cut its region off; last seen: STATUS of the decoupler 0x0"), "{error}");
    assert_eq!((loader.logic().unwrap(), loader.has_begun()), (Some(OTHER), false), "nothing was written");
    assert_eq!(user_bar(&function).read_u32(0x2_0004).unwrap(), 0, "it is told to connect the region again");
    cards.icap(0).stick_decoupler(false);
    load(&mut loader, &good).unwrap();
    assert!(loader.has_begun());
}

#[test]
fn a_port_that_is_not_reset_leaves_the_region_as_it_was() {
    let fabric = Fabric::new(Profile { shell: Shell::AlveoXdma, ..Profile::optweb(2) }).unwrap();
    let cards = XdmaCards::before(&fabric, Shape::default());
    let mut loader = Loader::open(attach(altered(cards.endpoint(0), 0, &[(0x1_010c, 8)]))).unwrap();
    let error = load(&mut loader, &stream(OTHER, IDCODE, 4096)).unwrap_err().to_string();
    assert!(error.contains("reset its configuration port; last seen: CONTROL of HWICAP 0x8"), "{error}");
    let is_cut_off = loader.is_cut_off().unwrap();
    assert_eq!((loader.logic().unwrap(), is_cut_off, loader.has_begun()), (Some(CARD), false, false));
}

/// A queue with room for fewer words than a read of STATUS has takes them in several pieces.
#[test]
fn a_queue_with_little_room_is_filled_again_and_again() {
    let fabric = Fabric::new(Profile { shell: Shell::AlveoXdma, ..Profile::optweb(2) }).unwrap();
    let cards = XdmaCards::before(&fabric, Shape::default());
    for (room, guid) in [(1, OTHER), (2, CARD), (3, OTHER)] {
        let mut loader = Loader::open(attach(altered(cards.endpoint(0), 0, &[(0x1_0114, room)]))).unwrap();
        load(&mut loader, &stream(guid, IDCODE, 256)).unwrap();
        assert_eq!(loader.logic().unwrap(), Some(guid));
    }
}

/// Registers of configuration space, by offset: base addresses, command, Device Control.
const CONFIG: [u16; 8] = [0x10, 0x14, 0x18, 0x1c, 0x20, 0x24, 0x04, 0x48];

#[test]
fn configuration_space_that_the_card_loses_is_restored() {
    let (cards, function) = fabric();
    for (offset, value) in [(0x10, 0xfe00_0000), (0x14, 0x38), (0x20, 0xf000_0000), (0x24, 0x38)] {
        function.config_write_u32(offset, value).unwrap();
    }
    function.config_write_u16(0x48, 0x2930).unwrap();
    function.set_bus_master(true).unwrap();
    let config = |function: &Function| CONFIG.map(|offset| function.config_read_u32(offset).unwrap());
    let before = config(&function);
    let mut loader = Loader::open(function.clone()).unwrap();
    cards.icap(0).fail(IcapFault::LosesConfiguration);
    for guid in [OTHER, CARD] {
        load(&mut loader, &stream(guid, IDCODE, 4096)).unwrap();
        assert_eq!((config(&function), loader.logic().unwrap()), (before, Some(guid)));
    }
    // The cause, without a driver that restores: the function is deaf.
    let saved = function.save_config().unwrap();
    function.config_write_u16(0x04, 0).unwrap();
    assert_eq!(user_bar(&function).read_u32(0).unwrap(), u32::MAX);
    assert_eq!(function.restore_config(&saved).unwrap().len(), 1);
    assert!(find_sequencer(&function).is_ok());
    // What is lost for good is told.
    cards.remove(0);
    assert!(load(&mut loader, &stream(OTHER, IDCODE, 4096)).is_err());
}

#[test]
fn whoever_breaks_off_leaves_nothing_and_the_next_load_works() {
    let (cards, function) = fabric();
    let mut loader = Loader::open(function.clone()).unwrap();
    let long = stream(OTHER, IDCODE, 1 << 16);
    for queues in [1, 2, 7] {
        let mut left = queues;
        let result = loader.load(&long, |_| {
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(result, Err(Error::Interrupted { pushed, .. }) if pushed == 4096 * queues));
        // As after a crash: another process, on a function that was reset.
        drop(loader);
        function.reset().unwrap();
        loader = Loader::open(function.clone()).unwrap();
        assert!(loader.is_cut_off().unwrap());
        load(&mut loader, &long).unwrap();
        assert_eq!(loader.logic().unwrap(), Some(OTHER));
    }
    cards.remove(0);
    assert!(load(&mut loader, &long).is_err());
}

//! Partial reconfiguration: images arrive whole, every failure is told, and the next image is taken.

use std::ops::ControlFlow;
use std::time::Duration;

use fpga_driver::dfl::{Control, Error};
use fpga_driver::region::Progress;
use fpga_driver::{Card, Error as CardError};
use fpga_mock::dfl::image;
use fpga_regs::feature_list::CARD_GUID;
use proptest::prelude::*;

use super::{Cards, bar_0};

const MIB: usize = 1 << 20;
/// GUID of an accelerator that the model does not have.
const OTHER: u128 = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;

fn load(control: &mut Control, image: &[u8]) -> Result<(), Error> {
    control.load(image, |_| ControlFlow::Continue(()))
}

/// The card with a sequencer can be loaded, and works.
fn check_usable(cards: &Cards, control: &mut Control) {
    load(control, &image(CARD_GUID, 4096)).unwrap();
    let mut card = Card::open(cards.accelerator()).unwrap();
    card.write_memory(0, &[9; 128]).unwrap();
    let mut back = [0; 128];
    card.read_memory(0, &mut back).unwrap();
    assert_eq!(back, [9; 128]);
}

#[test]
fn an_image_of_a_mebibyte_arrives_with_its_progress() {
    let cards = Cards::new();
    let mut control = cards.control();
    let image = image(OTHER, MIB);
    let mut seen: Vec<Progress> = Vec::new();
    control
        .load(&image, |progress| {
            seen.push(progress);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(seen.windows(2).all(|pair| pair[0].pushed < pair[1].pushed));
    assert!(seen.iter().all(|progress| progress.total == MIB as u64));
    assert_eq!(seen.last().unwrap().pushed, MIB as u64);
    // The queue holds 512 words: about as many reads of credits as it was filled.
    assert!((MIB / 4 / 511..MIB / 4 / 100).contains(&seen.len()), "{} rounds", seen.len());
    let accelerator = cards.accelerator();
    let list = bar_0(&accelerator);
    assert_eq!((list.read_u64(8).unwrap(), list.read_u64(16).unwrap()), (OTHER as u64, (OTHER >> 64) as u64));
    drop(list);
    let error = Card::open(accelerator).unwrap_err();
    assert!(matches!(error, CardError::NoSequencer { .. }), "{error:?}");
    check_usable(&cards, &mut control);
}

/// Base address, command, Device Control.
const CONFIG: [u16; 4] = [0x10, 0x14, 0x04, 0x48];

#[test]
fn configuration_space_that_the_card_loses_is_restored() {
    let cards = Cards::new();
    let mut control = cards.control();
    let function = control.function().clone();
    function.config_write_u32(0x10, 0xfe00_000c).unwrap();
    function.config_write_u32(0x14, 0x38).unwrap();
    function.config_write_u16(0x48, 0x2930).unwrap();
    function.set_bus_master(true).unwrap();
    let config = || CONFIG.map(|offset| function.config_read_u32(offset).unwrap());
    let before = config();
    cards.first.lose_configuration(true);
    for image in [image(OTHER, 64 << 10), image(CARD_GUID, 64 << 10)] {
        load(&mut control, &image).unwrap();
        assert_eq!(config(), before);
    }
    check_usable(&cards, &mut control);
    assert_eq!(config(), before);
}

#[test]
fn the_accelerator_is_cut_off_meanwhile() {
    let cards = Cards::new();
    let mut control = cards.control();
    control.reset_accelerator().unwrap();
    let accelerator = cards.accelerator();
    let list = bar_0(&accelerator);
    control
        .load(&image(CARD_GUID, MIB), |_| {
            assert_eq!(list.read_u64(0).unwrap(), u64::MAX);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(list.read_u64(0).unwrap() >> 60, 1);
}

#[test]
fn errors_of_the_engine_are_told_and_the_next_image_is_taken() {
    for (bits, text) in [
        (1 << 0, "operation failed, or an error was pending"),
        (1 << 3, "protocol of the controller"),
        (1 << 4, "a word was pushed into a full queue"),
        (1 << 1 | 1 << 5, "checksum of the image, the host took too long"),
    ] {
        for after_words in [1, 2, 511, 512, 1000, MIB as u64 / 8, MIB as u64 / 4] {
            let cards = Cards::new();
            let mut control = cards.control();
            cards.first.fail_reconfiguration(bits, after_words);
            let error = load(&mut control, &image(OTHER, MIB)).unwrap_err();
            let Error::Failed { errors, pushed, total, .. } = error else { panic!("{error:?}") };
            assert_eq!((errors, total), (bits, MIB as u64));
            assert!(
                pushed >= 4 * after_words && pushed < 4 * (after_words + 1100),
                "{pushed} bytes, {after_words} words"
            );
            assert!(error.to_string().ends_with(text), "{error}");
            assert!(control.is_held().unwrap(), "an empty region stays in reset");
            check_usable(&cards, &mut control);
        }
    }
}

#[test]
fn a_damaged_image_is_refused() {
    let cards = Cards::new();
    let mut control = cards.control();
    let whole = image(OTHER, 4096);
    for at in [0, 15, 16, 31, 32, 2000, 4091, 4092, 4095] {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        let error = load(&mut control, &damaged).unwrap_err();
        assert!(matches!(error, Error::Failed { errors: 1, pushed: 4096, .. }), "{error:?}");
    }
    for len in [1, 3, 4, 35, 36, 4092, 4095] {
        let error = load(&mut control, &whole[..len]).unwrap_err();
        assert!(matches!(error, Error::Failed { errors: 1, .. }), "{len} bytes: {error:?}");
    }
    let error = load(&mut control, &[]).unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    check_usable(&cards, &mut control);
}

#[test]
fn a_caller_may_break_off_anywhere() {
    let cards = Cards::new();
    let mut control = cards.control();
    for rounds in [1, 2, 100] {
        let mut seen = 0;
        let result = control.load(&image(OTHER, MIB), |_| {
            seen += 1;
            if seen == rounds { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(result, Err(Error::Interrupted { .. })), "{result:?}");
        assert_eq!(seen, rounds);
        assert_eq!(bar_0(&cards.accelerator()).read_u64(0).unwrap(), u64::MAX);
    }
    check_usable(&cards, &mut control);
}

#[test]
fn an_engine_that_never_acknowledges_is_a_timeout() {
    let cards = Cards::new();
    let mut control = cards.control();
    control.set_timeout(Duration::from_millis(50));
    cards.first.withhold_engine_acknowledge(true);
    let error = load(&mut control, &image(OTHER, 4096)).unwrap_err();
    assert!(matches!(error, Error::TimedOut { to: "reset its reconfiguration engine", .. }), "{error:?}");
    cards.first.withhold_engine_acknowledge(false);
    cards.first.withhold_port_acknowledge(true);
    let error = load(&mut control, &image(OTHER, 4096)).unwrap_err();
    assert!(matches!(error, Error::TimedOut { to: "hold the accelerator in reset", .. }), "{error:?}");
    cards.first.withhold_port_acknowledge(false);
    control.set_timeout(Duration::from_secs(60));
    check_usable(&cards, &mut control);
}

#[test]
fn a_card_that_vanishes_meanwhile_is_said_to_be_gone() {
    let cards = Cards::new();
    let mut control = cards.control();
    let mut rounds = 0;
    let result = control.load(&image(OTHER, MIB), |_| {
        rounds += 1;
        if rounds == 10 {
            cards.first.remove();
        }
        ControlFlow::Continue(())
    });
    assert!(matches!(result, Err(Error::Card(CardError::Removed { .. }))), "{result:?}");
    assert_eq!(rounds, 10);
}

/// The engine by its registers, as another driver might use it.
#[test]
fn the_engine_is_the_shells_to_the_register() {
    let cards = Cards::new();
    let function = cards.control_function();
    let bar = bar_0(&function);
    let (control, status, data, error) = (0x9_0008, 0x9_0010, 0x9_0018, 0x9_0020);
    let read = |register| bar.read_u64(register).unwrap();
    // Words without START are lost.
    bar.write_u32(data, 7).unwrap();
    assert_eq!(read(status), 0x1ff);
    // An operation, of which the queue overflows: 512 words, and a few that the controller took meanwhile.
    bar.write_u64(control, 1 << 12).unwrap();
    assert_eq!(read(control) & 0x3000, 1 << 12);
    assert_eq!((read(status) >> 20 & 7, read(status) >> 24), (4, 2), "in progress, busy");
    for _ in 0..4096 {
        bar.write_u32(data, 0).unwrap();
    }
    assert_eq!(read(error), 1 << 4);
    assert_eq!(read(status) & 0xf71_0000, 0x811_0000, "failed, error, error");
    // Cleared while START is set: the operation is over, but only a reset ends it.
    bar.write_u64(error, 0x7f).unwrap();
    assert_eq!((read(error), read(control) & 1 << 12), (0, 1 << 12));
    bar.write_u64(control, 1).unwrap();
    assert!((0..10_000).any(|_| read(control) & 1 << 4 != 0), "the reset is acknowledged");
    assert_eq!(read(control), 0x11, "neither START nor COMPLETE");
    assert_eq!(read(status) & 0x1ff, 0x1ff);
    bar.write_u64(control, 0).unwrap();
    assert!((0..10_000).any(|_| read(control) & 1 << 4 == 0), "the reset has ended");
    // START with an error pending is refused, and says so.
    cards.first.fail_reconfiguration(1 << 3, 1);
    bar.write_u64(control, 1 << 12).unwrap();
    bar.write_u64(data, 0xffff_ffff_0000_0000).unwrap();
    assert_eq!(read(error), 1 << 3);
    bar.write_u64(control, 1).unwrap();
    bar.write_u64(control, 0).unwrap();
    assert_eq!(read(error), 1 << 3, "a reset clears no errors");
    bar.write_u64(control, 1 << 12).unwrap();
    assert_eq!((read(control) & 1 << 12, read(error)), (0, 0b1001));
    bar.write_u64(error, 0x7f).unwrap();
    // A bad image leaves START set.
    bar.write_u64(control, 1 << 12).unwrap();
    for _ in 0..9 {
        bar.write_u32(data, 0).unwrap();
    }
    bar.write_u64(control, read(control) | 1 << 13).unwrap();
    assert_eq!((read(error), read(control) & 0x3000), (1, 0x3000));
    // The id of the region is ignored, and a region that is frozen says so.
    bar.write_u64(error, 0x7f).unwrap();
    bar.write_u64(control, 1).unwrap();
    bar.write_u64(control, 3 << 8).unwrap();
    bar.write_u64(control, 3 << 8 | 1 << 12).unwrap();
    assert_eq!(read(0x9_1040) & 1, 1);
    for word in image(OTHER, 40).chunks(4) {
        bar.write_u32(data, u32::from_le_bytes(word.try_into().unwrap())).unwrap();
    }
    bar.write_u64(control, 3 << 8 | 1 << 13).unwrap();
    assert_eq!((read(control), read(error), read(0x9_1040) & 1), (3 << 8, 0, 0));
    assert_eq!((read(status) >> 20 & 7, read(status) >> 24), (5, 7), "passed, done");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Images of any length, whole, damaged, or failing somewhere, one after the other on one card.
    #[test]
    fn after_any_sequence_of_images_the_last_good_one_is_there(
        images in prop::collection::vec((36..20_000_usize, any::<u128>(), 0..4_u8, any::<prop::sample::Index>()), 1..8)
    ) {
        let cards = Cards::new();
        let mut control = cards.control();
        let accelerator = cards.accelerator();
        for (bytes, guid, what, at) in images {
            let mut image = image(guid, bytes);
            let place = at.index(image.len());
            let mut break_at = u64::MAX;
            match what {
                0 => {}
                1 => image[place] ^= 1,
                2 => cards.first.fail_reconfiguration(1 << 3, place as u64 / 4 + 1),
                _ => break_at = place as u64,
            }
            let result = control.load(&image, |progress| match progress.pushed > break_at {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            });
            match what {
                0 => prop_assert!(result.is_ok(), "{result:?}"),
                3 => prop_assert!(matches!(result, Err(Error::Interrupted { .. })), "{result:?}"),
                _ => prop_assert!(matches!(result, Err(Error::Failed { .. })), "{result:?}"),
            }
            let list = bar_0(&accelerator);
            let found = (list.read_u64(8).unwrap(), list.read_u64(16).unwrap());
            let expected = if what == 0 { (guid as u64, (guid >> 64) as u64) } else { (u64::MAX, u64::MAX) };
            // The card with a sequencer has a list of its own, with the same beginning.
            prop_assert_eq!(found, expected);
        }
    }
}

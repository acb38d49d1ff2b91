//! Cards without OFS: one function with management engine, port and accelerator. Registers by number, typed from the sheets, without
//! this project's tables.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use fpga_driver::dfl::{Control, Error};
use fpga_driver::readings::Readings;
use fpga_driver::{Card, find_sequencer, msgdma};
use fpga_hal::vfio_user::{Server, connect};
use fpga_hal::{BarIndex, Domain, Function, Window, in_process};
use fpga_mock::dfl::D5005;
use fpga_mock::{Fabric, Profile, Shell};
use fpga_tests::run::domain;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const ANY: u64 = u64::MAX;
const PCIE: u64 = 0x1ef;
const PORT_ERRORS: u64 = 0x87fe_799e;
/// Place of an error register of the port: its BAR, and its offset.
const PORT_ERROR: u32 = 2 << 24 | 0x1010;

/// BAR, offset, value after power-up, bits that a write keeps. Registers that the card says, or that act, are not listed.
const REGISTERS: [(u8, u64, u64, u64); 62] = [
    // Management engine: port 0 is in BAR 2, and no virtual function has it.
    (0, 0x0000, 0x4000_0000_1000_0000, 0),
    (0, 0x0008, 0x82fe_38f0_f9e1_7764, 0),
    (0, 0x0010, 0xbfaf_2ae9_4a52_46e3, 0),
    (0, 0x0018, 0, 0),
    (0, 0x0020, 0, 0),
    (0, 0x0028, 0, ANY),
    (0, 0x0030, 0x1402_1000, 0),
    (0, 0x0038, 0x1000_0002_0000_0000, 0),
    (0, 0x0040, 0, 0),
    (0, 0x0048, 0, 0),
    (0, 0x0050, 0, 0),
    (0, 0x0058, 0, 0),
    (0, 0x0070, 0, 0),
    // Temperature, which is not measured here.
    (0, 0x1000, 0x3000_0000_2000_0001, 0),
    (0, 0x1008, 0x5d00_0000, 0xffff),
    (0, 0x1010, 0, 0),
    (0, 0x3000, 0x3000_0000_1000_0007, 0),
    (0, 0x3008, 0, 0),
    // Errors.
    (0, 0x4000, 0x3000_0000_1000_1004, 0),
    (0, 0x4008, 0, 0x1ff),
    (0, 0x4010, 0, 0),
    (0, 0x4018, 0, PCIE),
    (0, 0x4020, 0, 0),
    (0, 0x4028, 0, PCIE),
    (0, 0x4030, 0, 0),
    (0, 0x4038, 0, 0),
    (0, 0x4040, 0, 0),
    (0, 0x4048, 0, 1 << 6),
    (0, 0x4058, 0, 1 << 9 | 1 << 11),
    (0, 0x4070, 0xd, 0),
    // Partial reconfiguration.
    (0, 0x5000, 0x3000_0000_1000_1005, 0),
    (0, 0x50a8, 0x9f0e_64a6_b6c5_1f70, 0),
    (0, 0x50b0, 0xa1c4_ad5c_2b37_4d2e, 0),
    // The board's controller.
    (0, 0x6000, 0x3000_0100_1000_000e, 0),
    (0, 0x6008, 25 << 22 | 0x120, 0),
    // Port: the accelerator's list is 0x40000 further on.
    (2, 0x0000, 0x4000_0000_1000_1001, 0),
    (2, 0x0008, 0x9642_b06c_6b35_5b87, 0),
    (2, 0x0010, 0x3ab4_9893_138d_42eb, 0),
    (2, 0x0018, 0x4_0000, 0),
    (2, 0x0020, 0, ANY),
    (2, 0x0028, 0, ANY),
    (2, 0x0030, 0x4_0001_0000, 0),
    (2, 0x0048, 0, 0),
    // Its errors.
    (2, 0x1000, 0x3000_0000_2000_1010, 0),
    (2, 0x1008, 0, PORT_ERRORS),
    (2, 0x1010, 0, 0),
    (2, 0x1018, 0, 0),
    (2, 0x1020, 0, 0),
    (2, 0x1028, 0, 0),
    (2, 0x1030, 0, 0),
    // Interrupts of the accelerator: four, from vector 0 on.
    (2, 0x3000, 0x3000_0100_1000_0012, 0),
    (2, 0x3008, 4, 0),
    (2, 0x3010, 0, 0),
    // Where no feature is.
    (0, 0x2000, 0, 0),
    (0, 0x7000, 0, 0),
    (0, 0x4_0000, 0, 0),
    (0, 0x7_fff8, 0, 0),
    (2, 0x0080, 0, 0),
    (2, 0x2000, 0, 0),
    (2, 0x4000, 0, 0),
    (2, 0x2_0000, 0, 0),
    (2, 0x3_fff8, 0, 0),
];

struct Pac {
    fabric: Fabric,
    card: D5005,
}

impl Pac {
    fn new() -> Self {
        let fabric = Fabric::new(Profile { shell: Shell::S10Pac, ..Profile::optweb(2) }).unwrap();
        Pac { card: D5005::new(&fabric, 0), fabric }
    }

    fn function(&self) -> Function {
        in_process::attach(self.card.accelerator(), &domain(), "card 0").unwrap()
    }
}

/// BARs 0 and 2, by index.
fn bars(function: &Function) -> [Window; 3] {
    [0, 2, 2].map(|index| function.window(BarIndex::new(index).unwrap()).unwrap())
}

fn halves(bar: &Window, offset: u64) -> u64 {
    u64::from(bar.read_u32(offset).unwrap()) | u64::from(bar.read_u32(offset + 4).unwrap()) << 32
}

#[test]
fn every_register_has_its_value_after_power_up_in_both_widths() {
    let card = Pac::new();
    let function = card.function();
    let bars = bars(&function);
    for (bar, offset, value, _) in REGISTERS {
        let window = &bars[usize::from(bar)];
        assert_eq!(window.read_u64(offset).unwrap(), value, "BAR{bar} {offset:#x}");
        assert_eq!(halves(window, offset), value, "BAR{bar} {offset:#x} in halves");
    }
    // The port holds the accelerator in reset, with latency tolerance, and says so.
    assert_eq!(bars[2].read_u64(0x38).unwrap(), 0x15);
    assert_eq!(bars[0].read_u64(0x5010).unwrap(), 0x1ff);
    // The accelerator does not answer, which the port notes as a timeout.
    assert_eq!(bars[2].read_u64(0x4_0000).unwrap(), ANY);
    assert_eq!(bars[2].read_u64(0x1010).unwrap(), 1 << 7);
}

#[test]
fn every_register_keeps_what_it_may() {
    let card = Pac::new();
    let function = card.function();
    let bars = bars(&function);
    for (bar, offset, reset, mask) in REGISTERS {
        let window = &bars[usize::from(bar)];
        for value in [ANY, 0x5555_5555_5555_5555, 0xaaaa_aaaa_aaaa_aaaa, 0] {
            window.write_u64(offset, value).unwrap();
            let kept = reset & !mask | value & mask;
            assert_eq!(window.read_u64(offset).unwrap(), kept, "BAR{bar} {offset:#x} after {value:#x}");
            window.write_u32(offset + 4, (!value >> 32) as u32).unwrap();
            let upper = mask & 0xffff_ffff << 32;
            assert_eq!(halves(window, offset), kept & !upper | !value & upper, "BAR{bar} {offset:#x}, upper half");
        }
    }
}

#[test]
fn errors_are_cleared_by_ones_alone() {
    let card = Pac::new();
    let function = card.function();
    let bars = bars(&function);
    let registers = [(0, 0x4010, 0x1ff), (0, 0x4020, PCIE), (0, 0x4030, PCIE), (2, 0x1010, PORT_ERRORS)];
    for (bar, offset, mask) in registers {
        let window = &bars[bar as usize];
        card.card.set_errors(bar << 24 | offset as u32, ANY);
        assert_eq!(window.read_u64(offset).unwrap(), mask);
        window.write_u64(offset, 0).unwrap();
        window.write_u32(offset + 4, u32::MAX).unwrap();
        assert_eq!(halves(window, offset), mask);
        window.write_u32(offset, u32::MAX).unwrap();
        assert_eq!(window.read_u64(offset).unwrap(), 0, "BAR{bar} {offset:#x}");
    }
    assert_eq!(bars[2].read_u64(0x1018).unwrap(), PORT_ERRORS, "the first errors are cleared on their own");
    bars[2].write_u64(0x1018, ANY).unwrap();
    assert_eq!(bars[2].read_u64(0x1018).unwrap(), 0);
}

/// Random accesses of both widths in both BARs, up to the accelerator, and into it while it is held in reset.
#[test]
fn a_million_accesses_do_what_was_written_and_nothing_else() {
    let config = Config { cases: 1050, max_shrink_iters: 200, ..Config::default() };
    let near = prop::sample::select(REGISTERS.map(|(bar, offset, ..)| (bar, offset)).to_vec());
    let anywhere = (prop::sample::select(vec![0_u8, 2]), (0..0x1_0000_u64).prop_map(|word| word * 8));
    let access = (prop_oneof![8 => near, 1 => anywhere], any::<u64>(), 0..6_u8);
    // Those that act: the engine, and the port's reset.
    let acts = |bar, offset| matches!((bar, offset), (0, 0x5008..=0x5020 | 0x4068 | 0x6010..=0x6020) | (2, 0x38));
    TestRunner::new(config)
        .run(&prop::collection::vec(access, 900..1000), |accesses| {
            let card = Pac::new();
            let function = card.function();
            let bars = bars(&function);
            let mut kept: BTreeMap<(u8, u64), (u64, u64)> =
                REGISTERS.iter().map(|(bar, offset, reset, mask)| ((*bar, *offset), (*reset, *mask))).collect();
            for ((bar, offset), value, what) in accesses {
                let window = &bars[usize::from(bar)];
                if what > 2 || acts(bar, offset) {
                    let _ = window.read_u64(offset).unwrap();
                    let _ = window.read_u32(offset + u64::from(what & 1) * 4).unwrap();
                    continue;
                }
                let written = match what {
                    0 => ANY,
                    1 => 0xffff_ffff,
                    _ => 0xffff_ffff << 32,
                };
                match what {
                    0 => window.write_u64(offset, value).unwrap(),
                    1 => window.write_u32(offset, value as u32).unwrap(),
                    _ => window.write_u32(offset + 4, (value >> 32) as u32).unwrap(),
                }
                if let Some((kept, mask)) = kept.get_mut(&(bar, offset)) {
                    *kept = *kept & !(*mask & written) | value & *mask & written;
                }
            }
            for ((bar, offset), (value, _)) in kept {
                // An access of the accelerator in reset is an error of the port.
                if (bar, offset & !8) != (2, 0x1010) && (bar, offset) != (2, 0x1018) {
                    prop_assert_eq!(
                        bars[usize::from(bar)].read_u64(offset).unwrap(),
                        value,
                        "BAR{} {:#x}",
                        bar,
                        offset
                    );
                }
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn the_sequencer_is_found_behind_the_port() {
    let card = Pac::new();
    let function = card.function();
    let held = find_sequencer(&function).unwrap_err().to_string();
    assert!(held.contains("BAR2 + 0x40000: its port holds the accelerator in reset"), "{held}");
    card.card.release();
    let found = find_sequencer(&function).unwrap();
    assert_eq!((found.bar.index(), found.start, found.offset), (2, 0x4_0000, 0x1000));
}

/// Whoever takes the card or its engine into use after power-up finds the accelerator, and no error of the port.
#[test]
fn an_accelerator_that_its_own_port_holds_is_released() {
    let pac = Pac::new();
    let function = pac.function();
    drop(msgdma::Engine::open(function.clone(), msgdma::Completion::Poll).unwrap());
    Control::open(function.clone()).unwrap().hold_accelerator().unwrap();
    let mut card = Card::open(function.clone()).unwrap();
    card.write_memory(64, b"a word of memory").unwrap();
    // As a reset of the function holds it on a card whose reset of the port does so.
    bars(&function)[2].write_u32(0x38, 5).unwrap();
    card.reset().unwrap();
    card.write_memory(64, b"a word of memory").unwrap();
    drop(card);
    let control = Control::open(function).unwrap();
    assert_eq!((control.is_held().unwrap(), control.errors().unwrap()), (false, vec![]));
}

/// Nobody reads what a port holds in reset: the port would note an error.
#[test]
fn an_accelerator_in_reset_is_not_read() {
    let pac = Pac::new();
    let function = pac.function();
    assert!(find_sequencer(&function).is_err());
    assert!(Readings::of(&function).unwrap().alarms().next().is_none());
    let mut control = Control::open(function.clone()).unwrap();
    assert_eq!((control.accelerator().unwrap(), control.errors().unwrap()), (None, vec![]));
    // A region that holds nothing stays in reset, whoever looks for something in it, and the port notes nothing.
    pac.card.fail_reconfiguration(1 << 3, 100);
    let image = fpga_mock::dfl::image(7, 1 << 16);
    control.load(&image, |_| ControlFlow::Continue(())).unwrap_err();
    drop(control);
    assert!(matches!(Card::open(function.clone()), Err(fpga_driver::Error::NoSequencer { .. })));
    let engine = msgdma::Engine::open(function.clone(), msgdma::Completion::Poll);
    assert!(matches!(engine, Err(msgdma::Error::NoEngine { .. })));
    let control = Control::open(function).unwrap();
    assert_eq!((control.is_held().unwrap(), control.errors().unwrap()), (true, vec![]));
}

/// A load that has not begun leaves the accelerator as it was.
#[test]
fn an_engine_that_is_not_reset_leaves_the_accelerator() {
    let pac = Pac::new();
    let mut control = Control::open(pac.function()).unwrap();
    control.set_timeout(Duration::from_millis(50));
    let before = |control: &Control| (control.is_held().unwrap(), control.accelerator().unwrap());
    for is_held in [true, false] {
        if !is_held {
            control.reset_accelerator().unwrap();
        }
        let was = before(&control);
        pac.card.withhold_engine_acknowledge(true);
        let image = fpga_mock::dfl::image(7, 4096);
        let error = control.load(&image, |_| ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }) && !control.has_begun(), "{error}");
        assert_eq!((before(&control), was.1.is_some()), (was, !is_held));
        pac.card.withhold_engine_acknowledge(false);
    }
}

/// Who has finished with the function leaves it to the next: the control function's driver, the card's, and again.
#[test]
fn control_function_and_card_take_turns() {
    let pac = Pac::new();
    let function = pac.function();
    let mut control = Control::open(function.clone()).unwrap();
    let [all, in_bar_2] = [0, 2].map(|from| control.features().iter().filter(|(bar, _)| bar.index() >= from).count());
    assert_eq!((all, in_bar_2), (9, 3));
    let busy = Card::open(function.clone()).unwrap_err();
    assert!(matches!(busy, fpga_driver::Error::Bus(fpga_hal::Error::InUse { .. })), "{busy:?}");
    control.reset_accelerator().unwrap();
    drop(control);
    let mut card = Card::open(function.clone()).unwrap();
    card.write_memory(64, b"a word of memory").unwrap();
    assert!(Control::open(function.clone()).is_err());
    drop(card);
    let mut control = Control::open(function.clone()).unwrap();
    assert_eq!(control.errors().unwrap(), []);
    control.load(&fpga_mock::dfl::image(7, 1 << 16), |_| ControlFlow::Continue(())).unwrap();
    drop(control);
    let [_, _, port] = bars(&function);
    assert_eq!(port.read_u64(0x4_0008).unwrap(), 7);
    assert!(Card::open(function).is_err());
}

/// Of all errors of the engine, of a reset that is not acknowledged, and of an accelerator that does not answer.
#[test]
fn faults_are_reported_and_the_next_load_works() {
    let pac = Pac::new();
    let mut control = Control::open(pac.function()).unwrap();
    let image = fpga_mock::dfl::image(0x6fe0a4a1_5a0c_4d0e_9a57_7f1f4f8b2c10, 1 << 16);
    let whole = |_| ControlFlow::Continue(());
    for bit in [0, 3, 4] {
        pac.card.fail_reconfiguration(1 << bit, 100);
        let error = control.load(&image, whole).unwrap_err();
        assert!(matches!(error, Error::Failed { errors, .. } if errors & 1 << bit != 0), "{error}");
        control.load(&image, whole).unwrap();
    }
    pac.card.withhold_port_acknowledge(true);
    assert!(matches!(control.load(&image, whole), Err(Error::TimedOut { .. })));
    pac.card.withhold_port_acknowledge(false);
    control.hold_accelerator().unwrap();
    let [_, _, port] = bars(control.function());
    port.write_u64(0x1008, 0x10).unwrap();
    assert_eq!(port.read_u64(0x4_0000).unwrap(), ANY);
    let reported: Vec<_> = control.errors().unwrap().iter().map(|error| (error.part, error.bits)).collect();
    assert_eq!(reported, [("port", 1 << 7), ("port", 1 << 7)]);
    control.clear_errors().unwrap();
    assert_eq!(control.errors().unwrap(), []);
    assert_eq!(port.read_u64(0x1008).unwrap(), 0x10, "the mask is as before");
    control.reset_accelerator().unwrap();
    assert_eq!(port.read_u64(0x4_0000).unwrap() >> 60, 1);
}

#[test]
fn a_function_that_is_reset_or_gone_is_one_for_all() {
    let pac = Pac::new();
    pac.card.release();
    let function = pac.function();
    let [list, _, port] = bars(&function);
    list.write_u64(0x28, 5).unwrap();
    function.config_write_u16(4, 0).unwrap();
    // Without memory decoding nobody answers.
    assert_eq!(
        (list.read_u64(0).unwrap(), port.read_u64(0).unwrap(), port.read_u64(0x4_0000).unwrap()),
        (ANY, ANY, ANY)
    );
    function.config_write_u16(4, 2).unwrap();
    assert_eq!((list.read_u64(0x28).unwrap(), port.read_u64(0x1010).unwrap()), (5, 0));
    // The registers of the shell outlive a reset of the function.
    function.reset().unwrap();
    assert_eq!(list.read_u64(0x28).unwrap(), 5);
    drop(Card::open(function.clone()).unwrap());
    pac.fabric.plant(fpga_mock::Fault::Vanish { node: 0 });
    assert!(function.is_removed());
    assert_eq!(list.read_u64(0).unwrap_or(ANY), ANY);
    assert!(Control::open(function).is_err());
}

#[test]
fn over_vfio_user() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("0.sock");
    let pac = Pac::new();
    pac.card.release();
    let _clock = pac.fabric.start_clock();
    let _server = Server::bind(&socket, pac.card.accelerator()).unwrap().spawn().unwrap();
    let function = connect(&socket, &Domain::vfio_user()).unwrap();
    let mut control = Control::open(function.clone()).unwrap();
    control
        .load(&fpga_mock::dfl::image(0x6fe0a4a1_5a0c_4d0e_9a57_7f1f4f8b2c10, 4096), |_| ControlFlow::Continue(()))
        .unwrap();
    pac.card.set_errors(PORT_ERROR, 1 << 3);
    assert_eq!(control.errors().unwrap().len(), 2);
    control.clear_errors().unwrap();
    drop(control);
    let mut card = Card::open(function).unwrap();
    let (mut back, data) = ([0; 4096], [7; 4096]);
    card.write_memory(0, &data).unwrap();
    card.read_memory(0, &mut back).unwrap();
    assert_eq!(back, data);
}

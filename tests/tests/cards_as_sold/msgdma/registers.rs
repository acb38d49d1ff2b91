//! The registers of the building block, by hand.

use std::time::Duration;

use fpga_mock::msgdma::{Fault, Violation};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::raw::{
    BUSY, CONTROL, EARLY, EMPTY, ERROR, FILL, FULL, GO, GO_IRQ, HOST, IRQ, NO_RESPONSE, PAGE, RESETTING, ROM, Raw,
    SEQUENCE, STATUS, STOPPED, WINDOW,
};
use super::{Pac, pattern};

/// What an idle dispatcher reads.
const IDLE: u32 = EMPTY | NO_RESPONSE;

/// Offset, value after a reset, bits that a write keeps.
const REGISTERS: [(u64, u32, u32); 43] = [
    // Header: type 2, version 1, end of the list, id 0x765.
    (0x00, 0x0000_0765, 0),
    (0x04, 0x2010_0100, 0),
    // ef82def7-f6ec-40fc-a914-9a35bace01ea.
    (0x08, 0xbace_01ea, 0),
    (0x0c, 0xa914_9a35, 0),
    (0x10, 0xf6ec_40fc, 0),
    (0x14, 0xef82_def7, 0),
    // Registers from the header on, 8 KiB; parameters follow: MSI-X, the last; vector 1, one of them.
    (0x18, 0, 0),
    (0x1c, 0, 0),
    (0x20, 0x8000_0000, 0),
    (0x24, 0x2000, 0),
    (0x28, 1, 0),
    (0x2c, 1, 0),
    (0x30, 1, 0),
    (0x34, 1, 0),
    (0x38, 0, 0),
    (0x3c, 0, 0),
    // Dispatcher. Control keeps 0 and 2 to 5; a reset is tried on its own.
    (0x40, 0x0a, 0),
    (0x44, 0, 0x3d),
    (0x48, 0, 0),
    (0x4c, 0, 0),
    (0x50, 0, 0),
    (0x54, 0, 0),
    (0x58, 0, 0),
    (0x5c, 0, 0),
    // Descriptor: write only.
    (0x60, 0, 0),
    (0x64, 0, 0),
    (0x68, 0, 0),
    (0x6c, 0, 0),
    (0x70, 0, 0),
    (0x74, 0, 0),
    (0x78, 0, 0),
    (0x7c, 0, 0),
    // Nothing: no prefetcher, no response port, no valve.
    (0x80, 0, 0),
    (0xa0, 0, 0),
    (0x1fc, 0, 0),
    // Window on card memory: pages of 4 KiB, 48 address bits.
    (0x200, 0, 0xffff_f000),
    (0x204, 0, 0xffff),
    (0x208, 0, 0),
    (0x20c, 0, 0),
    (0x400, 0, 0),
    (0x800, 0, 0),
    (0xff8, 0, 0),
    (0xffc, 0, 0),
];

#[test]
fn every_register_has_its_value_after_power_up_in_both_widths() {
    let pac = Pac::new();
    let raw = Raw::new(&pac);
    for (offset, value, _) in REGISTERS {
        assert_eq!(raw.read(offset), value, "{offset:#x}");
        let whole = raw.block.read_u64(offset & !7).unwrap();
        assert_eq!((whole >> (offset % 8 * 8)) as u32, value, "{offset:#x} in 8 bytes");
    }
    // The list leads from the sequencer's header, at 0x41000, to the block's.
    assert_eq!(raw.port.read_u64(0x4_1000).unwrap(), 0x2000_0001_f000_0001);
}

/// Control without the bit for reset, the last word of a descriptor without GO.
#[test]
fn every_register_keeps_what_it_may() {
    let pac = Pac::new();
    let raw = Raw::new(&pac);
    for (offset, reset, mask) in REGISTERS {
        let allowed = match offset {
            CONTROL => !2,
            0x7c => !GO,
            _ => !0,
        };
        for value in [!0, 0x5555_5555, 0xaaaa_aaaa, 0] {
            raw.write(offset, value & allowed);
            let read = raw.read(offset);
            let stopped = if offset == STATUS { STOPPED } else { 0 };
            assert_eq!(read & !stopped, reset & !mask | value & mask, "{offset:#x} after {value:#x}");
        }
    }
    raw.block.write_u64(PAGE, 0x1234_5678_9abc_def0).unwrap();
    assert_eq!(raw.block.read_u64(PAGE).unwrap(), 0x5678_9abc_d000);
    raw.block.write_u64(STATUS, 0xffff_fffd_ffff_ffff).unwrap();
    assert_eq!(raw.read(CONTROL), 0x3d);
    assert_eq!(pac.card.engine_violations(), []);
}

/// Random accesses of both widths in all of the block, but no descriptors and no resets.
#[test]
fn a_million_accesses_do_what_was_written_and_nothing_else() {
    let near = prop::sample::select(REGISTERS.map(|(offset, ..)| offset & !7).to_vec());
    let offset = prop_oneof![6 => near, 1 => (0..0x200_u64).prop_map(|word| word * 8)];
    let config = Config { cases: 1050, max_shrink_iters: 200, ..Config::default() };
    TestRunner::new(config)
        .run(&prop::collection::vec((offset, any::<u64>(), 0..6_u8), 900..1000), |accesses| {
            let pac = Pac::new();
            let raw = Raw::new(&pac);
            let mut kept = REGISTERS;
            for (offset, value, what) in accesses {
                // Bits that reset, flush or commit are left out.
                let value = match offset {
                    STATUS => value & 0xffff_fe3d_ffff_ffff,
                    0x78 => value & !(u64::from(GO) << 32),
                    _ => value,
                };
                let written = match what {
                    0 => u64::MAX,
                    1 => 0xffff_ffff,
                    2 => 0xffff_ffff << 32,
                    _ => 0,
                };
                match what {
                    0 => raw.block.write_u64(offset, value).unwrap(),
                    1 => raw.write(offset, value as u32),
                    2 => raw.write(offset + 4, (value >> 32) as u32),
                    3 => drop(raw.block.read_u64(offset).unwrap()),
                    _ => drop(raw.read(offset + u64::from(what & 1) * 4)),
                }
                for (at, kept, mask) in &mut kept {
                    if *at & !7 == offset {
                        let mask = *mask & (written >> (*at % 8 * 8)) as u32;
                        *kept = *kept & !mask | (value >> (*at % 8 * 8)) as u32 & mask;
                    }
                }
            }
            for (offset, value, _) in kept {
                let stopped = if offset == STATUS { STOPPED } else { 0 };
                prop_assert_eq!(raw.read(offset) & !stopped, value, "{:#x}", offset);
            }
            prop_assert!(pac.fabric.read_memory(0, 0, 8192).unwrap().iter().all(|byte| *byte == 0));
            Ok(())
        })
        .unwrap();
}

/// Words in any order, in 4 and in 8 bytes: the last word commits.
#[test]
fn a_descriptor_is_committed_by_its_last_word() {
    let pac = Pac::new();
    let raw = Raw::new(&pac);
    let data = pattern(4, 256);
    raw.buffer.write(0, &data).unwrap();
    let source = raw.host(0);
    raw.block.write_u64(0x70, source >> 32 << 32 | 0x1_0001).unwrap();
    raw.write(0x68, 256);
    raw.write(0x6c, 0x0404_0005);
    raw.block.write_u64(0x60, 0x8000 << 32 | source & 0xffff_ffff).unwrap();
    raw.write(0x7c, 1 << 14);
    assert_eq!((raw.status(), raw.read(SEQUENCE)), (IDLE, 0), "without GO nothing is queued");
    raw.block.write_u64(0x78, u64::from(GO_IRQ) << 32).unwrap();
    assert_eq!((raw.status(), raw.read(SEQUENCE)), (IDLE | IRQ, 0x5_0005));
    assert!(pac.fabric.read_memory(0, 0x8000, 256).unwrap() == data);
    raw.write(STATUS, !IRQ);
    assert_eq!(raw.status(), IDLE | IRQ);
    raw.write(STATUS, IRQ);
    assert_eq!(raw.status(), IDLE);
    // The words are kept: the last one alone queues the same again.
    pac.fabric.write_memory(0, 0x8000, &[0; 256]).unwrap();
    raw.write(0x7c, GO);
    assert!(pac.fabric.read_memory(0, 0x8000, 256).unwrap() == data);
    assert_eq!(pac.card.engine_violations(), []);
}

#[test]
fn every_pair_of_memories_and_strides() {
    let pac = Pac::new();
    let raw = Raw::new(&pac);
    let (line, data) = (pattern(1, 64), pattern(2, 256));
    raw.buffer.write(0, &data).unwrap();
    // Host to host, and behind all writes before.
    raw.push(raw.host(0), raw.host(0x1000), 256, 1, GO);
    raw.push(raw.host(0), raw.host(0x2000) | 1 << 48, 256, 2, GO);
    assert!(raw.host_bytes(0x1000, 256) == data && raw.host_bytes(0x2000, 256) == data);
    // Card to card.
    pac.fabric.write_memory(0, 0x100, &data).unwrap();
    raw.push(0x100, 0x4000, 256, 3, GO);
    assert!(pac.fabric.read_memory(0, 0x4000, 256).unwrap() == data);
    // The magic number.
    raw.push(ROM, raw.host(0x3000), 64, 4, GO);
    assert_eq!(raw.host_bytes(0x3000, 8), 0x5772_745f_5379_6e63_u64.to_le_bytes());
    // One line again and again, and again and again to one line.
    pac.fabric.write_memory(0, 0x100, &line).unwrap();
    raw.push_with(0x100, raw.host(0x5000), 256, (0x0101_0005, 0x1_0000), GO);
    assert_eq!(raw.host_bytes(0x5000, 256), line.repeat(4));
    raw.push_with(raw.host(0), 0x6000, 256, (0x0101_0006, 0x0_0001), GO);
    assert_eq!(pac.fabric.read_memory(0, 0x6000, 128).unwrap(), [&data[192..], &[0; 64]].concat());
    assert_eq!((raw.status(), raw.read(SEQUENCE)), (IDLE, 0x6_0006));
    assert_eq!(pac.card.engine_violations(), []);
}

#[test]
fn the_queue_fills_and_what_is_too_much_is_lost_and_noted() {
    let pac = Pac::new();
    let raw = Raw::new(&pac);
    raw.write(CONTROL, 1);
    assert_eq!(raw.status(), IDLE | STOPPED);
    for number in 0..128 {
        assert_eq!(raw.status() & FULL, 0);
        assert_eq!(raw.read(FILL), number << 16 | number);
        raw.push(0, 0x1_0000, 64, number as u16, GO);
    }
    assert_eq!(raw.status(), BUSY | FULL | NO_RESPONSE | STOPPED);
    assert_eq!(pac.card.engine_violations(), []);
    raw.push(0, 0x1_0000, 64, 999, GO);
    assert_eq!((raw.read(FILL), pac.card.engine_violations()), (0x80_0080, vec![Violation::QueueFull]));
    raw.write(CONTROL, 0);
    assert_eq!((raw.status(), raw.read(SEQUENCE), raw.read(FILL)), (IDLE, 0x7f_007f, 0));
}

#[test]
fn it_stops_in_the_middle_or_behind_a_descriptor() {
    let pac = Pac::new();
    let raw = Raw::new(&pac);
    // No further descriptor begins.
    raw.write(CONTROL, 1 << 5);
    raw.push(0, 0x1000, 64, 1, GO);
    assert_eq!(raw.status(), BUSY | NO_RESPONSE | STOPPED);
    raw.write(CONTROL, 0);
    assert_eq!(raw.status(), IDLE);
    // The queue is emptied, the rest goes on.
    raw.write(CONTROL, 1);
    raw.push(0, 0x1000, 64, 2, GO);
    raw.write(CONTROL, 1 | 1 << 6);
    assert_eq!((raw.status(), raw.read(CONTROL)), (IDLE | STOPPED, 1));
    raw.write(CONTROL, 0);
    assert_eq!(raw.read(SEQUENCE), 0x1_0001);
}

#[test]
fn a_reset_takes_its_time_and_clears_all() {
    let pac = Pac::new();
    let raw = Raw::new(&pac);
    raw.write(CONTROL, 1 | 1 << 2 | 1 << 4);
    raw.push(0, 0x1000, 64, 1, GO_IRQ);
    raw.write(CONTROL, 2);
    assert_eq!(raw.status() & RESETTING, RESETTING);
    raw.push(0, 0x1000, 64, 2, GO);
    assert_eq!(pac.card.engine_violations(), [Violation::DuringReset]);
    let reads = (0..100).take_while(|_| raw.status() & RESETTING != 0).count();
    assert!(reads < 100, "the reset ends");
    assert_eq!((raw.status(), raw.read(CONTROL), raw.read(SEQUENCE), raw.read(FILL)), (IDLE, 0, 0, 0));
}

/// Linux clears the command register before it resets a function.
#[test]
fn a_reset_of_the_function_clears_all_whatever_it_may_do() {
    for command in [0_u16, 6] {
        let pac = Pac::new();
        let raw = Raw::new(&pac);
        let card = pac.endpoint();
        raw.write(CONTROL, 1);
        raw.push(0, 0x1000, 64, 1, GO);
        card.config_write(4, &command.to_le_bytes());
        card.config_write(0x48, &[0x00, 0x80]);
        card.config_write(4, &[6, 0]);
        assert_eq!((raw.status(), raw.read(CONTROL), raw.read(FILL)), (IDLE, 0, 0), "{command}");
    }
}

/// The level is IRQ and the enable bit; its rising edge is sent, and so again when it is enabled while it is high.
#[test]
fn the_interrupt_is_the_rising_edge_of_a_level() {
    const SOON: Duration = Duration::from_secs(20);
    const NOT: Duration = Duration::from_millis(20);
    let pac = Pac::new();
    let raw = Raw::new(&pac);
    let interrupts = raw.interrupts();
    let [_, line] = &interrupts[..] else { panic!("two vectors") };
    let comes = |within: Duration| line.wait(within).unwrap();
    raw.push(0, 0x1000, 64, 1, GO_IRQ);
    assert!(!comes(NOT), "it is not enabled");
    raw.write(CONTROL, 1 << 4);
    assert!(comes(SOON), "enabled while it is high");
    raw.push(0, 0x1000, 64, 2, GO_IRQ);
    assert!(!comes(NOT), "it is high still");
    raw.write(CONTROL, 0);
    raw.write(CONTROL, 1 << 4);
    assert!(comes(SOON));
    raw.write(STATUS, IRQ);
    raw.push(0, 0x1000, 64, 3, GO);
    assert!(!comes(NOT), "the descriptor wants none");
    raw.push(0, 0x1000, 64, 4, GO_IRQ);
    assert!(comes(SOON));
}

/// Errors stop the dispatcher if CONTROL says so, and interrupt if the descriptor does.
#[test]
fn errors_and_early_ends_stop_if_they_may() {
    let pac = Pac::new();
    let raw = Raw::new(&pac);
    let cases = [(Fault::Error, 1 << 2, 1 << 16, ERROR), (Fault::EarlyTermination, 1 << 3, 1 << 15, EARLY)];
    for (fault, stops, interrupts, seen) in cases {
        for (control, wanted) in [(0, 0), (0, interrupts), (stops, 0), (stops, interrupts)] {
            raw.write(CONTROL, control);
            pac.card.plant_engine_fault(fault);
            raw.push(0, 0x1000, 64, 1, GO | wanted);
            raw.push(0x40, 0x2000, 64, 2, GO);
            let irq = if wanted == 0 { 0 } else { IRQ };
            match control {
                0 => assert_eq!((raw.status(), raw.read(SEQUENCE)), (IDLE | irq, 0x2_0002), "{fault:?}"),
                _ => {
                    assert_eq!(raw.status(), BUSY | NO_RESPONSE | seen | irq, "{fault:?}");
                    assert_eq!((raw.read(FILL), raw.read(SEQUENCE)), (0x1_0001, 0x1_0001));
                    raw.write(STATUS, !0);
                    assert_eq!(raw.status() & seen, seen, "only a reset clears it");
                }
            }
            raw.write(CONTROL, 2);
            while raw.status() & RESETTING != 0 {}
            assert_eq!(raw.status(), IDLE);
        }
    }
}

/// The checker: what the documents forbid is noted, and ends with an error.
#[test]
fn what_the_documents_forbid_is_noted() {
    let pac = Pac::new();
    let raw = Raw::new(&pac);
    let host = raw.host(0);
    // Source, destination, bytes, burst and stride.
    let cases = [
        (host + 32, 0, 64, 0x0101_0000, 0x1_0001, Violation::Misaligned),
        (host, 1, 64, 0x0101_0000, 0x1_0001, Violation::Misaligned),
        (host, 0, 63, 0x0101_0000, 0x1_0001, Violation::Misaligned),
        (host, 0, 1024 << 10, 0x0101_0000, 0x1_0001, Violation::TooLong),
        (host, 0, 64, 0x0101_0000, 0x1_0002, Violation::Stride),
        (host, 0, 64, 0x0101_0000, 0x7_0001, Violation::Stride),
        (host, 0, 320, 0x0104_0000, 0x1_0001, Violation::Burst),
        (host + 64, 0, 256, 0x0104_0000, 0x1_0001, Violation::Burst),
        (0, host + 64, 256, 0x0401_0000, 0x1_0001, Violation::Burst),
        (0, host, 256, 0x0801_0000, 0x1_0001, Violation::Burst),
        (0, ROM, 64, 0x0101_0000, 0x1_0001, Violation::Address),
        (0, 4 << 48, 64, 0x0101_0000, 0x1_0001, Violation::Address),
    ];
    for (source, destination, bytes, burst, stride, violation) in cases {
        raw.write(CONTROL, 1 << 2);
        let before = pac.card.engine_violations().len();
        raw.push_with(source, destination, bytes, (burst, stride), GO);
        assert_eq!(pac.card.engine_violations()[before..], [violation], "{source:#x} {destination:#x} {bytes}");
        assert_eq!(raw.status(), IDLE | ERROR);
        raw.write(CONTROL, 2);
        while raw.status() & RESETTING != 0 {}
    }
    raw.push(host, 0, 0, 1, GO_IRQ);
    assert_eq!(pac.card.engine_violations().last(), Some(&Violation::NoBytes));
    assert_eq!(raw.status(), IDLE | IRQ, "a descriptor without bytes completes");
}

/// Memory that is not there, for either side. A lost write is told to nobody.
#[test]
fn addresses_without_memory() {
    let pac = Pac::new();
    let raw = Raw::new(&pac);
    let unmapped = HOST | 0x7fff_f000_0000;
    let end = 1_u64 << 46;
    let cases = [(unmapped, 0, ERROR), (end, 0, ERROR), (0, end, ERROR), (ROM | 64, 0, ERROR), (0, unmapped, 0)];
    for (source, destination, seen) in cases {
        raw.write(CONTROL, 1 << 2);
        raw.push(source, destination, 64, 1, GO);
        assert_eq!(raw.status(), IDLE | seen, "{source:#x} to {destination:#x}");
        raw.write(CONTROL, 2);
        while raw.status() & RESETTING != 0 {}
    }
    // Nor may the engine read what the function may not.
    raw.function.set_bus_master(false).unwrap();
    raw.write(CONTROL, 1 << 2);
    raw.push(raw.host(0), 0, 64, 1, GO);
    assert_eq!(raw.status(), IDLE | ERROR);
    assert_eq!(pac.card.engine_violations(), []);
}

#[test]
fn the_window_shows_card_memory() {
    let pac = Pac::new();
    let raw = Raw::new(&pac);
    let data = pattern(1, 8192);
    pac.fabric.write_memory(0, 0x7_0000, &data).unwrap();
    for page in 0..2 {
        raw.write(PAGE, 0x7_0abc + page * 0x1000);
        let shown: Vec<u8> = (0..512).flat_map(|n| raw.block.read_u64(WINDOW + 8 * n).unwrap().to_le_bytes()).collect();
        assert!(shown == data[page as usize * 4096..][..4096]);
    }
    raw.write(WINDOW + 0xffc, 0x0403_0201);
    assert_eq!(pac.fabric.read_memory(0, 0x7_1ffc, 8).unwrap(), [1, 2, 3, 4, 0, 0, 0, 0]);
    // Behind the end of card memory nothing answers.
    raw.write(PAGE + 4, 0x4000);
    assert_eq!(raw.read(WINDOW), !0);
    raw.write(WINDOW, 5);
}

//! The control function as any driver sees it: registers by number, typed from OFS' sheets, without this project's tables.

use std::collections::BTreeMap;

use fpga_hal::Window;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{Cards, bar_0};

/// How a register behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Reads its reset value, always.
    Ro,
    /// Reads what the card says.
    Said,
    /// Keeps these bits.
    Rw(u64),
    /// Writing ones clears these bits.
    W1c(u64),
    /// Takes words, reads 0.
    Wo,
}
use Kind::{Ro, Rw, Said, W1c, Wo};

const ANY: u64 = u64::MAX;
const PCIE: u64 = 0x1ef;

/// Offset in BAR 0, value after power-up, behaviour.
const REGISTERS: [(u64, u64, Kind); 83] = [
    // Management engine.
    (0x0_0000, 0x4000_0000_1000_0000, Ro),
    (0x0_0008, 0x82fe_38f0_f9e1_7764, Ro),
    (0x0_0010, 0xbfaf_2ae9_4a52_46e3, Ro),
    (0x0_0018, 0, Ro),
    (0x0_0020, 0, Ro),
    (0x0_0028, 0, Rw(ANY)),
    (0x0_0030, 0x1402_1000, Ro),
    (0x0_0038, 0x1080_0007_0009_1000, Ro),
    (0x0_0040, 0, Ro),
    (0x0_0048, 0, Ro),
    (0x0_0050, 0, Ro),
    (0x0_0058, 0, Ro),
    (0x0_0060, 0, Said),
    (0x0_0068, 0, Said),
    (0x0_0070, 0, Ro),
    // Temperature.
    (0x0_1000, 0x3000_0000_2000_0001, Ro),
    (0x0_1008, 0x5d00_0000, Rw(0xffff)),
    (0x0_1010, 0, Ro),
    // Performance, which counts nothing here.
    (0x0_3000, 0x3000_0000_1000_0007, Ro),
    (0x0_3008, 0, Ro),
    // Errors.
    (0x0_4000, 0x3000_0000_c000_1004, Ro),
    (0x0_4008, 0, Rw(0x1ff)),
    (0x0_4010, 0, W1c(0x1ff)),
    (0x0_4018, 0, Rw(PCIE)),
    (0x0_4020, 0, W1c(PCIE)),
    (0x0_4028, 0, Rw(PCIE)),
    (0x0_4030, 0, W1c(PCIE)),
    (0x0_4038, 0, Ro),
    (0x0_4040, 0, Ro),
    (0x0_4048, 0, Rw(1 << 6)),
    // Said: they show what is injected.
    (0x0_4050, 0, Said),
    (0x0_4058, 0, Rw(1 << 9 | 1 << 11)),
    (0x0_4060, 0, Said),
    (0x0_4068, 0, Rw(7)),
    (0x0_4070, 0xd, Ro),
    // The board's controller.
    (0x1_0000, 0x3000_0001_0000_000e, Ro),
    (0x1_0008, 25 << 22 | 0x120, Ro),
    (0x1_0010, 0, Rw(7)),
    // Said: what the serial core holds.
    (0x1_0018, 0, Said),
    (0x1_0020, 0, Rw(0xffff_ffff)),
    // PCIe.
    (0x2_0000, 0x3000_0001_0000_0020, Ro),
    (0x2_0008, 0, Ro),
    (0x2_0010, 0, Ro),
    (0x2_0018, 0, Ro),
    (0x2_0020, 0, W1c(PCIE)),
    // Serial and memory interfaces.
    (0x3_0000, 0x3000_0001_0000_100f, Ro),
    (0x4_0000, 0x3000_0005_0000_0009, Ro),
    // Partial reconfiguration. START and COMPLETE are not kept: without reset they begin an operation.
    (0x9_0000, 0x3000_0000_1000_1005, Ro),
    (0x9_0008, 0, Rw(0x4381)),
    (0x9_0010, 0x1ff, Said),
    (0x9_0018, 0, Wo),
    (0x9_0020, 0, W1c(0x7f)),
    (0x9_0028, 0, Ro),
    (0x9_00a0, 0, Ro),
    (0x9_00a8, 0x9f0e_64a6_b6c5_1f70, Ro),
    (0x9_00b0, 0xa1c4_ad5c_2b37_4d2e, Ro),
    // Port: after power-up in reset, with latency tolerance.
    (0x9_1000, 0x4000_0000_1000_2001, Ro),
    (0x9_1008, 0x9642_b06c_6b35_5b87, Ro),
    (0x9_1010, 0x3ab4_9893_138d_42eb, Ro),
    (0x9_1018, 0, Ro),
    (0x9_1020, 0, Rw(ANY)),
    (0x9_1028, 0, Rw(ANY)),
    (0x9_1030, 0x4_0001_0000, Ro),
    (0x9_1038, 5, Rw(5)),
    (0x9_1040, 0, Ro),
    (0x9_1048, 0, Ro),
    // The accelerator's clock.
    (0x9_2000, 0x3000_0000_1000_0014, Ro),
    (0x9_2008, 0, Rw(0x0313_13ff_ffff_ffff)),
    (0x9_2010, 0, Rw(1 << 32)),
    (0x9_2018, 1 << 60, Ro),
    (0x9_2020, 0, Said),
    (0x9_2028, 0, Ro),
    (0x9_3000, 0x3000_0000_d000_2013, Ro),
    // Errors of the port.
    (0xa_0000, 0x3000_0100_0000_2010, Ro),
    (0xa_0008, 0, Rw(ANY)),
    (0xa_0010, 0, W1c(0x87fe_799e)),
    (0xa_0018, 0, W1c(0x87fe_799e)),
    (0xa_0020, 0, Ro),
    // Where no feature is.
    (0x0_2000, 0, Ro),
    (0x5_0000, 0, Ro),
    (0x8_fff8, 0, Ro),
    (0xb_0000, 0, Ro),
    (0xf_fff8, 0, Ro),
];

/// Bits that the card adds: acknowledged resets.
fn added(offset: u64) -> u64 {
    if matches!(offset, 0x9_0008 | 0x9_1038) { 1 << 4 } else { 0 }
}

fn halves(bar: &Window, offset: u64) -> u64 {
    u64::from(bar.read_u32(offset).unwrap()) | u64::from(bar.read_u32(offset + 4).unwrap()) << 32
}

#[test]
fn every_register_has_its_value_after_power_up_in_both_widths() {
    let cards = Cards::new();
    let function = cards.control_function();
    let bar = bar_0(&function);
    for (offset, value, kind) in REGISTERS {
        let read = bar.read_u64(offset).unwrap();
        if kind != Said {
            assert_eq!(read & !added(offset), value, "{offset:#x}");
        }
        assert_eq!(halves(&bar, offset) & !added(offset), read & !added(offset), "{offset:#x} in halves");
    }
    // A soft reset that is in force is acknowledged.
    assert_eq!(bar.read_u64(0x9_1038).unwrap(), 0x15);
    assert_eq!(bar.read_u64(0x9_0010).unwrap(), 0x1ff);
}

#[test]
fn every_register_keeps_what_it_may() {
    for offset_of_half in [0, 4] {
        let cards = Cards::new();
        let function = cards.control_function();
        let bar = bar_0(&function);
        for (offset, reset, kind) in REGISTERS {
            let before = bar.read_u64(offset).unwrap();
            for value in [ANY, 0x5555_5555_5555_5555, 0xaaaa_aaaa_aaaa_aaaa, 0] {
                let Rw(mut mask) = kind else {
                    // What cannot be written is written too: nothing is to happen.
                    if matches!(kind, Ro | Said) {
                        bar.write_u64(offset, value).unwrap();
                        assert_eq!(bar.read_u64(offset).unwrap(), before, "{offset:#x} after {value:#x}");
                    }
                    continue;
                };
                if offset == 0x9_0008 {
                    // Without reset, START would begin an operation.
                    mask &= !1;
                    bar.write_u64(offset, value & !0x3000 | 1).unwrap();
                } else {
                    bar.write_u64(offset, value).unwrap();
                }
                let kept = reset & !mask | value & mask;
                let ignored = added(offset) | u64::from(offset == 0x9_0008);
                assert_eq!(bar.read_u64(offset).unwrap() & !ignored, kept & !ignored, "{offset:#x} after {value:#x}");
                // A half alone leaves the other.
                let half = if offset_of_half == 0 { 0xffff_ffff } else { 0xffff_ffff << 32 };
                let other = !value & mask & half;
                let written = if offset == 0x9_0008 { !value & !0x3000 | 1 } else { !value };
                bar.write_u32(offset + offset_of_half, (written >> (8 * offset_of_half)) as u32).unwrap();
                let both = kept & !(mask & half) | other;
                assert_eq!(halves(&bar, offset) & !ignored, both & !ignored, "{offset:#x}, half of {written:#x}");
            }
        }
    }
}

#[test]
fn errors_are_cleared_by_ones_alone() {
    let cards = Cards::new();
    let function = cards.control_function();
    let bar = bar_0(&function);
    for (offset, _, kind) in REGISTERS {
        let W1c(mask) = kind else { continue };
        if offset == 0x9_0020 {
            continue; // Of the reconfiguration engine: see there.
        }
        cards.first.set_errors(offset as u32, ANY);
        assert_eq!(bar.read_u64(offset).unwrap(), mask, "{offset:#x}");
        bar.write_u64(offset, 0).unwrap();
        assert_eq!(halves(&bar, offset), mask);
        let lowest = mask & mask.wrapping_neg();
        bar.write_u64(offset, lowest).unwrap();
        assert_eq!(bar.read_u64(offset).unwrap(), mask & !lowest, "{offset:#x}");
        bar.write_u32(offset + 4, u32::MAX).unwrap();
        assert_eq!(bar.read_u64(offset).unwrap(), mask & !lowest, "{offset:#x}: the upper half has no errors");
        bar.write_u32(offset, u32::MAX).unwrap();
        assert_eq!(bar.read_u64(offset).unwrap(), 0, "{offset:#x}");
    }
}

#[test]
fn injected_errors_show_while_they_are_injected() {
    let cards = Cards::new();
    let function = cards.control_function();
    let bar = bar_0(&function);
    for (inject, nonfatal, catfat) in [(1, 0, 1 << 11), (2, 0, 1 << 9), (4, 1 << 6, 0), (7, 1 << 6, 0xa00), (0, 0, 0)] {
        bar.write_u64(0x4068, inject).unwrap();
        assert_eq!((bar.read_u64(0x4050).unwrap(), bar.read_u64(0x4060).unwrap()), (nonfatal, catfat), "{inject}");
    }
}

/// The bits that the card itself adds to or takes from what is written, left out of comparisons.
fn is_compared(offset: u64) -> bool {
    !matches!(offset, 0x9_0008..=0x9_0020)
}

/// Random accesses of both widths, on registers and between them; whatever was not written, or not to be kept, is as before.
#[test]
fn a_million_accesses_do_what_was_written_and_nothing_else() {
    let config = Config { cases: 1050, max_shrink_iters: 200, ..Config::default() };
    let near = prop::sample::select(REGISTERS.map(|(offset, ..)| offset).to_vec());
    let offset = prop_oneof![8 => near, 1 => (0..0x2_0000_u64).prop_map(|word| word * 8)];
    let access = (offset, any::<u64>(), 0..6_u8);
    let accesses = prop::collection::vec(access, 900..1000);
    TestRunner::new(config)
        .run(&accesses, |accesses| {
            let cards = Cards::new();
            let function = cards.control_function();
            let bar = bar_0(&function);
            let mut kept: BTreeMap<u64, u64> = REGISTERS.iter().map(|(offset, reset, _)| (*offset, *reset)).collect();
            for (offset, value, what) in accesses {
                let mask = match what {
                    0 => ANY,
                    1 => 0xffff_ffff,
                    2 => 0xffff_ffff << 32,
                    3 => {
                        let _ = bar.read_u64(offset).unwrap();
                        continue;
                    }
                    _ => {
                        let _ = bar.read_u32(offset + u64::from(what & 1) * 4).unwrap();
                        continue;
                    }
                };
                match mask {
                    ANY => bar.write_u64(offset, value).unwrap(),
                    0xffff_ffff => bar.write_u32(offset, value as u32).unwrap(),
                    _ => bar.write_u32(offset + 4, (value >> 32) as u32).unwrap(),
                }
                if let Some((_, _, Rw(bits))) = REGISTERS.iter().find(|(register, ..)| *register == offset) {
                    let kept = kept.get_mut(&offset).unwrap();
                    *kept = *kept & !(bits & mask) | value & bits & mask;
                }
            }
            for (offset, _, kind) in REGISTERS.iter().filter(|(offset, ..)| is_compared(*offset)) {
                if matches!(kind, Ro | Rw(_)) && *offset != 0x9_1040 {
                    prop_assert_eq!(bar.read_u64(*offset).unwrap() & !added(*offset), kept[offset], "{:#x}", offset);
                }
            }
            Ok(())
        })
        .unwrap();
}

/// Drivers read a register, change a bit, and write all of it back.
#[test]
fn read_only_bits_written_back_do_no_harm() {
    let cards = Cards::new();
    let function = cards.control_function();
    let bar = bar_0(&function);
    for (offset, _, kind) in REGISTERS {
        if kind == Wo {
            continue;
        }
        let before = bar.read_u64(offset).unwrap();
        bar.write_u64(offset, before).unwrap();
        assert_eq!(bar.read_u64(offset).unwrap(), before, "{offset:#x}");
    }
}

//! Conversions of narrow floats.

use super::fold::{BF16_NAN, F16_NAN, f16_to_f32, f32_to_bf16, f32_to_f16};

#[test]
fn every_half_comes_back() {
    for half in 0..=u16::MAX {
        let wide = f16_to_f32(half);
        assert_eq!(f32_to_f16(wide), if wide.is_nan() { F16_NAN } else { half });
        let wide = f32::from_bits(u32::from(half) << 16);
        assert_eq!(f32_to_bf16(wide), if wide.is_nan() { BF16_NAN } else { half });
    }
}

#[test]
fn halves_round_to_even() {
    for (value, half) in [
        (1.0 + 1.0 / 2048.0, 0x3c00),
        (1.0 + 3.0 / 2048.0, 0x3c02),
        (65519.0, 0x7bff),
        (65520.0, 0x7c00),
        (-1e30, 0xfc00),
        (f32::from_bits(0x3300_0000), 0),
        (f32::from_bits(0x3300_0001), 1),
        (f32::from_bits(1), 0),
    ] {
        assert_eq!(f32_to_f16(value), half, "{value}");
    }
    assert_eq!(f32_to_bf16(f32::MAX), 0x7f80);
    assert_eq!(f32_to_bf16(f32::from_bits(0x3f80_8000)), 0x3f80);
    assert_eq!(f32_to_bf16(f32::from_bits(0x3f81_8000)), 0x3f82);
}

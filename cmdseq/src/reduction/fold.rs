//! Arithmetic of reductions: one function for each element type and reduction.

use std::cmp::Ordering;

use super::{Element, Reduction};

/// Folds the second operand into the first, element by element.
pub(super) type Fold = fn(&mut [u8], &[u8]);

fn each<const N: usize>(accumulator: &mut [u8], operand: &[u8], combine: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
    let (accumulator, _) = accumulator.as_chunks_mut::<N>();
    let (operand, _) = operand.as_chunks::<N>();
    for (one, other) in accumulator.iter_mut().zip(operand) {
        *one = combine(*one, *other);
    }
}

macro_rules! elementwise {
    ($type:ty, |$a:ident, $b:ident| $result:expr) => {
        (|accumulator, operand| {
            each(accumulator, operand, |one, other| {
                let ($a, $b) = (<$type>::from_le_bytes(one), <$type>::from_le_bytes(other));
                let result: $type = $result;
                result.to_le_bytes()
            });
        }) as Fold
    };
}

macro_rules! integer {
    ($type:ty, $reduction:expr) => {
        match $reduction {
            Reduction::Sum => elementwise!($type, |a, b| a.wrapping_add(b)),
            Reduction::Prod => elementwise!($type, |a, b| a.wrapping_mul(b)),
            Reduction::Min => elementwise!($type, |a, b| a.min(b)),
            Reduction::Max => elementwise!($type, |a, b| a.max(b)),
            Reduction::And => elementwise!($type, |a, b| a & b),
            Reduction::Or => elementwise!($type, |a, b| a | b),
            Reduction::Xor => elementwise!($type, |a, b| a ^ b),
            Reduction::Land => elementwise!($type, |a, b| (a != 0 && b != 0).into()),
            Reduction::Lor => elementwise!($type, |a, b| (a != 0 || b != 0).into()),
            Reduction::Lxor => elementwise!($type, |a, b| ((a != 0) != (b != 0)).into()),
            Reduction::Minloc | Reduction::Maxloc => return None,
        }
    };
}

pub(super) const F32_NAN: f32 = f32::from_bits(0x7fc0_0000);
pub(super) const F64_NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);
pub(super) const F16_NAN: u16 = 0x7e00;
pub(super) const BF16_NAN: u16 = 0x7fc0;

macro_rules! float {
    ($type:ty, $nan:ident, $reduction:expr) => {
        match $reduction {
            Reduction::Sum => elementwise!($type, |a, b| if (a + b).is_nan() { $nan } else { a + b }),
            Reduction::Prod => elementwise!($type, |a, b| if (a * b).is_nan() { $nan } else { a * b }),
            Reduction::Min => elementwise!($type, |a, b| match (a.is_nan() || b.is_nan(), a.total_cmp(&b)) {
                (true, _) => $nan,
                (false, Ordering::Greater) => b,
                (false, _) => a,
            }),
            Reduction::Max => elementwise!($type, |a, b| match (a.is_nan() || b.is_nan(), a.total_cmp(&b)) {
                (true, _) => $nan,
                (false, Ordering::Less) => b,
                (false, _) => a,
            }),
            _ => return None,
        }
    };
}

/// A value of a pair.
trait Extreme: Copy {
    /// Whether it is a NaN, which is beyond all others in both directions.
    fn is_unordered(self) -> bool;
    fn order(self, other: Self) -> Ordering;
    /// Returns the value, or the canonical NaN.
    fn canonical(self) -> Self;
}

macro_rules! extreme {
    ($($integer:ty)*; $($float:ty, $nan:ident);*) => {
        $(impl Extreme for $integer {
            fn is_unordered(self) -> bool {
                false
            }
            fn order(self, other: Self) -> Ordering {
                self.cmp(&other)
            }
            fn canonical(self) -> Self {
                self
            }
        })*
        $(impl Extreme for $float {
            fn is_unordered(self) -> bool {
                self.is_nan()
            }
            fn order(self, other: Self) -> Ordering {
                self.total_cmp(&other)
            }
            fn canonical(self) -> Self {
                if self.is_nan() { $nan } else { self }
            }
        })*
    };
}

extreme!(i16 i32 i64; f32, F32_NAN; f64, F64_NAN);

/// Returns the pair that wins; `wins` is how the winner's value compares to the other's.
fn locate<T: Extreme>(one: (T, i32), other: (T, i32), wins: Ordering) -> (T, i32) {
    let order = match (one.0.is_unordered(), other.0.is_unordered()) {
        (true, true) => Ordering::Equal,
        (true, false) => wins,
        (false, true) => wins.reverse(),
        (false, false) => one.0.order(other.0),
    };
    let (value, index) = match order {
        Ordering::Equal => (one.0, one.1.min(other.1)),
        order if order == wins => one,
        _ => other,
    };
    (value.canonical(), index)
}

macro_rules! pair {
    ($type:ty, $index_at:literal, $bytes:literal, $wins:expr) => {
        (|accumulator, operand| {
            each::<$bytes>(accumulator, operand, |one, other| {
                let read = |pair: [u8; $bytes]| {
                    let mut value = [0; size_of::<$type>()];
                    let mut index = [0; 4];
                    value.copy_from_slice(&pair[..size_of::<$type>()]);
                    index.copy_from_slice(&pair[$index_at..$index_at + 4]);
                    (<$type>::from_le_bytes(value), i32::from_le_bytes(index))
                };
                let (value, index) = locate(read(one), read(other), $wins);
                let mut pair = [0; $bytes];
                pair[..size_of::<$type>()].copy_from_slice(&value.to_le_bytes());
                pair[$index_at..$index_at + 4].copy_from_slice(&index.to_le_bytes());
                pair
            });
        }) as Fold
    };
}

macro_rules! located {
    ($type:ty, $index_at:literal, $bytes:literal, $reduction:expr) => {
        match $reduction {
            Reduction::Minloc => pair!($type, $index_at, $bytes, Ordering::Less),
            Reduction::Maxloc => pair!($type, $index_at, $bytes, Ordering::Greater),
            _ => return None,
        }
    };
}

pub(super) fn fold(reduction: Reduction, element: Element) -> Option<Fold> {
    Some(match element {
        Element::I8 => integer!(i8, reduction),
        Element::U8 => integer!(u8, reduction),
        Element::I16 => integer!(i16, reduction),
        Element::U16 => integer!(u16, reduction),
        Element::I32 => integer!(i32, reduction),
        Element::U32 => integer!(u32, reduction),
        Element::I64 => integer!(i64, reduction),
        Element::U64 => integer!(u64, reduction),
        Element::F16 | Element::Bf16 => return None,
        Element::F32 => float!(f32, F32_NAN, reduction),
        Element::F64 => float!(f64, F64_NAN, reduction),
        Element::I16Index => located!(i16, 4, 8, reduction),
        Element::I32Index => located!(i32, 4, 8, reduction),
        Element::I64Index => located!(i64, 8, 16, reduction),
        Element::F32Index => located!(f32, 4, 8, reduction),
        Element::F64Index => located!(f64, 8, 16, reduction),
    })
}

pub(super) fn widen(element: Element, from: &[u8], to: &mut Vec<u8>) {
    let (halves, _) = from.as_chunks::<2>();
    let wide = |half: &[u8; 2]| match element {
        Element::F16 => f16_to_f32(u16::from_le_bytes(*half)),
        _ => f32::from_bits(u32::from(u16::from_le_bytes(*half)) << 16),
    };
    to.clear();
    to.extend(halves.iter().flat_map(|half| wide(half).to_le_bytes()));
}

pub(super) fn narrow(element: Element, from: &[u8], to: &mut [u8]) {
    let (words, _) = from.as_chunks::<4>();
    let (halves, _) = to.as_chunks_mut::<2>();
    for (half, word) in halves.iter_mut().zip(words) {
        let value = f32::from_le_bytes(*word);
        *half = match element {
            Element::F16 => f32_to_f16(value),
            _ => f32_to_bf16(value),
        }
        .to_le_bytes();
    }
}

/// Exact.
pub(super) fn f16_to_f32(half: u16) -> f32 {
    let (sign, exponent, fraction) =
        (u32::from(half >> 15) << 31, u32::from(half >> 10 & 0x1f), u32::from(half & 0x3ff));
    match exponent {
        // Subnormals are multiples of 2^-24.
        0 => f32::from_bits((fraction as f32 * f32::from_bits(0x3380_0000)).to_bits() | sign),
        0x1f => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

/// To nearest, ties to even.
pub(super) fn f32_to_f16(value: f32) -> u16 {
    let sign = (value.to_bits() >> 16 & 0x8000) as u16;
    let magnitude = value.to_bits() & 0x7fff_ffff;
    if value.is_nan() {
        return F16_NAN;
    }
    let rounded = match magnitude {
        // 2^16 and more.
        0x4780_0000.. => 0x7c00,
        // Normal in f16: what the rounding carries over goes into the exponent, up to infinity.
        0x3880_0000.. => ((magnitude - (112 << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13) as u16,
        // In units of 2^-24, of which 1024 are the smallest normal number.
        _ => (f32::from_bits(magnitude) * 16_777_216.0).round_ties_even() as u16,
    };
    sign | rounded
}

/// To nearest, ties to even.
pub(super) fn f32_to_bf16(value: f32) -> u16 {
    if value.is_nan() {
        return BF16_NAN;
    }
    let bits = value.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

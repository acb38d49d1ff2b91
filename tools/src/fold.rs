//! Expected results of reductions, computed by value from `docs/isa.md`, independent of the cards' arithmetic.

use cmdseq::plan::Folding;
use cmdseq::{Combine, Element, Reduction};

/// Returns the left fold of `contributions`, all of one length in whole elements. Returns no bytes if there are no
/// contributions, or if the reduction is undefined for the element type.
pub(crate) fn fold(combine: Combine, contributions: &[Vec<u8>]) -> Vec<u8> {
    let Combine { reduction, element } = combine;
    let [first, rest @ ..] = contributions else { return Vec::new() };
    if rest.is_empty() {
        return first.clone();
    }
    if !combine.is_defined() {
        return Vec::new();
    }
    let bytes = element.bytes() as usize;
    let mut result = Vec::with_capacity(first.len());
    for at in (0..first.len()).step_by(bytes) {
        let elements = contributions.iter().filter_map(|one| one.get(at..at + bytes));
        match element {
            Element::F16 | Element::Bf16 => {
                let format = if element == Element::F16 { F16 } else { BF16 };
                let wide = elements.map(|half| format.read(half));
                let folded = wide.reduce(|a, b| f64::from(reduce_floats(reduction, a, b) as f32)).unwrap_or(0.0);
                result.extend(format.write(folded).to_le_bytes());
            }
            // Sum and product in f64, rounded to f32, equal those in f32: f64 has more than twice the bits.
            Element::F32 => {
                let wide = elements.map(|one| f64::from(f32::from_le_bytes(array(one))));
                let folded = wide.reduce(|a, b| f64::from(reduce_floats(reduction, a, b) as f32)).unwrap_or(0.0) as f32;
                result.extend(if folded.is_nan() { 0x7fc0_0000 } else { folded.to_bits() }.to_le_bytes());
            }
            Element::F64 => {
                let folded =
                    elements.map(|one| f64::from_le_bytes(array(one))).reduce(|a, b| reduce_floats(reduction, a, b));
                result.extend(f64_bits(folded.unwrap_or(0.0)).to_le_bytes());
            }
            Element::I16Index | Element::I32Index | Element::I64Index | Element::F32Index | Element::F64Index => {
                let folded =
                    elements.map(|pair| Pair::read(element, pair)).reduce(|a, b| reduce_pairs(reduction, a, b));
                result.extend(folded.map(|pair| pair.write(element, bytes)).unwrap_or_default());
            }
            _ => {
                // Results are exact modulo 2^128, and so modulo any smaller power.
                let folded =
                    elements.map(|one| read_integer(element, one)).reduce(|a, b| reduce_integers(reduction, a, b));
                result.extend_from_slice(&folded.unwrap_or(0).to_le_bytes()[..bytes]);
            }
        }
    }
    result
}

/// Folds the contributions of all ranks in the order of `folding`.
pub(crate) fn fold_as(combine: Combine, folding: &Folding, contributions: &[Vec<u8>]) -> Vec<u8> {
    match folding {
        Folding::Rank(rank) => contributions.get(*rank as usize).cloned().unwrap_or_default(),
        Folding::Left(parts) => {
            let parts: Vec<Vec<u8>> = parts.iter().map(|part| fold_as(combine, part, contributions)).collect();
            fold(combine, &parts)
        }
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    array
}

fn read_integer(element: Element, bytes: &[u8]) -> i128 {
    let value = i128::from(u64::from_le_bytes(array(bytes)));
    let is_signed = matches!(element, Element::I8 | Element::I16 | Element::I32 | Element::I64);
    let range = 1_i128 << (8 * bytes.len());
    if is_signed && value >= range / 2 { value - range } else { value }
}

fn reduce_integers(reduction: Reduction, a: i128, b: i128) -> i128 {
    match reduction {
        Reduction::Sum => a.wrapping_add(b),
        Reduction::Prod => a.wrapping_mul(b),
        Reduction::Min => a.min(b),
        Reduction::Max => a.max(b),
        Reduction::And => a & b,
        Reduction::Or => a | b,
        Reduction::Xor => a ^ b,
        Reduction::Land => i128::from(a != 0 && b != 0),
        Reduction::Lor => i128::from(a != 0 || b != 0),
        Reduction::Lxor => i128::from((a != 0) != (b != 0)),
        Reduction::Minloc | Reduction::Maxloc => 0,
    }
}

fn reduce_floats(reduction: Reduction, a: f64, b: f64) -> f64 {
    match reduction {
        Reduction::Sum => a + b,
        Reduction::Prod => a * b,
        _ if a.is_nan() || b.is_nan() => f64::NAN,
        Reduction::Min => {
            if is_less(a, b) {
                a
            } else {
                b
            }
        }
        _ => {
            if is_less(a, b) {
                b
            } else {
                a
            }
        }
    }
}

/// Compares numbers, not NaN; -0.0 is less than +0.0.
fn is_less(a: f64, b: f64) -> bool {
    a < b || (a == b && a.is_sign_negative() && b.is_sign_positive())
}

const fn f64_bits(value: f64) -> u64 {
    if value.is_nan() { 0x7ff8 << 48 } else { value.to_bits() }
}

const F64_FRACTION_BITS: i32 = 52;
const F64_BIAS: i32 = 1023;

/// Returns 2^`exponent`, which is a normal number. `powi` multiplies, and this is done for every element.
const fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + F64_BIAS) as u64) << F64_FRACTION_BITS)
}

/// A 16-bit floating-point format.
#[derive(Clone, Copy)]
struct Format {
    fraction_bits: i32,
    /// Exponent of the smallest normal number.
    least: i32,
}

const F16: Format = Format { fraction_bits: 10, least: -14 };
const BF16: Format = Format { fraction_bits: 7, least: -126 };

impl Format {
    const fn exponents(self) -> i32 {
        (1 << (15 - self.fraction_bits)) - 1
    }

    fn read(self, half: &[u8]) -> f64 {
        let bits = i32::from(u16::from_le_bytes(array(half)));
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        let (exponent, fraction) =
            (bits >> self.fraction_bits & self.exponents(), bits & ((1 << self.fraction_bits) - 1));
        let unit = |exponent: i32| power_of_two(self.least + exponent - self.fraction_bits);
        match exponent {
            0 => sign * f64::from(fraction) * unit(0),
            all if all == self.exponents() => {
                if fraction == 0 {
                    sign * f64::INFINITY
                } else {
                    f64::NAN
                }
            }
            _ => sign * f64::from(fraction + (1 << self.fraction_bits)) * unit(exponent - 1),
        }
    }

    fn write(self, value: f64) -> u16 {
        let infinity = (self.exponents() << self.fraction_bits) as u16;
        if value.is_nan() {
            return infinity | 1 << (self.fraction_bits - 1);
        }
        let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
        // That of an f32, or of infinity.
        let exponent = ((value.abs().to_bits() >> F64_FRACTION_BITS) as i32 - F64_BIAS).clamp(self.least, 128);
        // Rounding up to the next power of two carries into the exponent.
        let units = (value.abs() / power_of_two(exponent - self.fraction_bits)).round_ties_even();
        let bits = f64::from((exponent - self.least) << self.fraction_bits) + units;
        sign | if bits < f64::from(infinity) { bits as u16 } else { infinity }
    }
}

#[derive(Clone, Copy)]
struct Pair {
    value: Value,
    index: i32,
}

#[derive(Clone, Copy)]
enum Value {
    Integer(i64),
    Float(f64),
}

impl Pair {
    fn read(element: Element, bytes: &[u8]) -> Pair {
        let (value, index_at) = match element {
            Element::I16Index => (Value::Integer(i16::from_le_bytes(array(bytes)).into()), 4),
            Element::I32Index => (Value::Integer(i32::from_le_bytes(array(bytes)).into()), 4),
            Element::I64Index => (Value::Integer(i64::from_le_bytes(array(bytes))), 8),
            Element::F32Index => (Value::Float(f32::from_le_bytes(array(bytes)).into()), 4),
            _ => (Value::Float(f64::from_le_bytes(array(bytes))), 8),
        };
        Pair { value, index: i32::from_le_bytes(array(&bytes[index_at..])) }
    }

    fn write(self, element: Element, bytes: usize) -> Vec<u8> {
        let value = match (self.value, element) {
            (Value::Integer(value), Element::I16Index) => u64::from(value as u16),
            (Value::Integer(value), Element::I32Index) => u64::from(value as u32),
            (Value::Integer(value), _) => value as u64,
            (Value::Float(value), Element::F32Index) if value.is_nan() => 0x7fc0_0000,
            (Value::Float(value), Element::F32Index) => (value as f32).to_bits().into(),
            (Value::Float(value), _) => f64_bits(value),
        };
        let index = u64::from(self.index as u32);
        match bytes {
            8 => (value | index << 32).to_le_bytes().to_vec(),
            _ => [value.to_le_bytes(), index.to_le_bytes()].concat(),
        }
    }
}

fn reduce_pairs(reduction: Reduction, a: Pair, b: Pair) -> Pair {
    let least = reduction == Reduction::Minloc;
    // Whether the result prefers the first value to the second.
    let is_before = |one: Value, other: Value| match (one, other) {
        (Value::Integer(one), Value::Integer(other)) => {
            if least {
                one < other
            } else {
                one > other
            }
        }
        (Value::Float(one), Value::Float(other)) if one.is_nan() || other.is_nan() => !other.is_nan(),
        (Value::Float(one), Value::Float(other)) => {
            if least {
                is_less(one, other)
            } else {
                is_less(other, one)
            }
        }
        _ => false,
    };
    match (is_before(a.value, b.value), is_before(b.value, a.value)) {
        (true, _) => a,
        (_, true) => b,
        _ => Pair { index: a.index.min(b.index), ..a },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let two = |reduction, element, one: &[u8], other: &[u8]| {
            fold(Combine::new(reduction, element), &[one.to_vec(), other.to_vec()])
        };
        assert_eq!(two(Reduction::Sum, Element::U8, &[200, 1], &[100, 2]), [44, 3]);
        assert_eq!(two(Reduction::Min, Element::I8, &[0xff], &[1]), [0xff]);
        assert_eq!(two(Reduction::Lxor, Element::I16, &[1, 0, 0, 2], &[1, 0, 0, 0]), [0, 0, 1, 0]);
        assert_eq!(
            two(Reduction::Prod, Element::F32, &2_f32.to_le_bytes(), &0.5_f32.to_le_bytes()),
            1_f32.to_le_bytes()
        );
        // 1 + 2^-11 is half way and rounds to the even 1.
        assert_eq!(two(Reduction::Sum, Element::F16, &[0x00, 0x3c], &[0x00, 0x10]), [0x00, 0x3c]);
        assert_eq!(two(Reduction::Sum, Element::F16, &[0xff, 0x7b], &[0xff, 0x7b]), [0x00, 0x7c]);
        assert_eq!(two(Reduction::Max, Element::Bf16, &[0x80, 0xff], &[0x01, 0xff]), [0x01, 0xff]);
        assert_eq!(two(Reduction::Max, Element::Bf16, &[0x81, 0xff], &[0x01, 0xff]), [0xc0, 0x7f]);
        let (one, other) = ([5, 0, 9, 9, 3, 0, 0, 0], [5, 0, 8, 8, 2, 0, 0, 0]);
        assert_eq!(two(Reduction::Maxloc, Element::I16Index, &one, &other), [5, 0, 0, 0, 2, 0, 0, 0]);
        assert!(two(Reduction::And, Element::F64, &[0; 8], &[0; 8]).is_empty());
    }

    #[test]
    fn every_half_is_read_and_written_unchanged() {
        for format in [F16, BF16] {
            for bits in 0..=u16::MAX {
                let value = format.read(&bits.to_le_bytes());
                let expected = if value.is_nan() { format.write(f64::NAN) } else { bits };
                assert_eq!(format.write(value), expected, "{bits:#06x}");
            }
        }
    }
}

//! What reductions compute: element types, operators, and how contributions are folded.
//!
//! Card models and hosts take the arithmetic from here. It is defined bit for bit: see [`Accumulator`].

use std::cmp::Ordering;
use std::fmt;

use crate::named::by_name;

macro_rules! coded {
    (
        $(#[$doc:meta])* $name:ident($what:literal, $error:ident)
        { $($(#[doc = $item_doc:literal])* $item:ident = $code:literal, $text:literal;)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name {
            $($(#[doc = $item_doc])* $item = $code,)*
        }

        impl $name {
            /// All that this version defines, by code.
            pub const ALL: &[$name] = &[$($name::$item,)*];

            /// The one with this code; 0 stands for none.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some($name::$item),)*
                    _ => None,
                }
            }

            /// Name in programs, on the command line and in messages.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$item => $text,)*
                }
            }

            /// What it is, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $($name::$item => concat!($($item_doc),*).trim_ascii(),)*
                }
            }

            /// Its bit in the registers that say what a card has.
            pub const fn bit(self) -> u32 {
                1 << self as u8
            }
        }

        by_name! { $name($what, $error) { $($text),* } }
    };
}

coded! {
    /// Type of the elements of a vector. All are little-endian; the code is the one in the instruction.
    Element("element type", UnknownElement) {
        /// Two's complement, 1 byte.
        I8 = 1, "i8";
        /// Unsigned, 1 byte.
        U8 = 2, "u8";
        /// Two's complement, 2 bytes.
        I16 = 3, "i16";
        /// Unsigned, 2 bytes.
        U16 = 4, "u16";
        /// Two's complement, 4 bytes.
        I32 = 5, "i32";
        /// Unsigned, 4 bytes.
        U32 = 6, "u32";
        /// Two's complement, 8 bytes.
        I64 = 7, "i64";
        /// Unsigned, 8 bytes.
        U64 = 8, "u64";
        /// IEEE 754 binary16, 2 bytes.
        F16 = 9, "f16";
        /// The upper half of a binary32, 2 bytes.
        Bf16 = 10, "bf16";
        /// IEEE 754 binary32, 4 bytes.
        F32 = 11, "f32";
        /// IEEE 754 binary64, 8 bytes.
        F64 = 12, "f64";
        /// Value i16 at byte 0, index i32 at byte 4, 8 bytes (MPI_SHORT_INT).
        I16Index = 16, "i16i32";
        /// Value i32 at byte 0, index i32 at byte 4, 8 bytes (MPI_2INT).
        I32Index = 17, "i32i32";
        /// Value i64 at byte 0, index i32 at byte 8, 16 bytes (MPI_LONG_INT).
        I64Index = 18, "i64i32";
        /// Value f32 at byte 0, index i32 at byte 4, 8 bytes (MPI_FLOAT_INT).
        F32Index = 19, "f32i32";
        /// Value f64 at byte 0, index i32 at byte 8, 16 bytes (MPI_DOUBLE_INT).
        F64Index = 20, "f64i32";
    }
}

coded! {
    /// How two elements become one. The code is the one in the instruction.
    Reduction("reduction", UnknownReduction) {
        /// Sum; integers wrap.
        Sum = 1, "sum";
        /// Product; integers wrap.
        Prod = 2, "prod";
        /// The smaller; of floats, minimum of IEEE 754-2019: a NaN if one is, and -0.0 is less than +0.0.
        Min = 3, "min";
        /// The larger; of floats, maximum of IEEE 754-2019: a NaN if one is, and -0.0 is less than +0.0.
        Max = 4, "max";
        /// Bitwise and.
        And = 5, "and";
        /// Bitwise or.
        Or = 6, "or";
        /// Bitwise exclusive or.
        Xor = 7, "xor";
        /// 1 if both are not zero, else 0.
        Land = 8, "land";
        /// 1 if one is not zero, else 0.
        Lor = 9, "lor";
        /// 1 if exactly one is not zero, else 0.
        Lxor = 10, "lxor";
        /// The pair with the smaller value; of equal values, the smaller index.
        Minloc = 11, "minloc";
        /// The pair with the larger value; of equal values, the smaller index.
        Maxloc = 12, "maxloc";
    }
}

/// What kind of number an element is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Integer,
    Float,
    Pair,
}

impl Element {
    /// Its length.
    pub const fn bytes(self) -> u64 {
        match self {
            Element::I8 | Element::U8 => 1,
            Element::I16 | Element::U16 | Element::F16 | Element::Bf16 => 2,
            Element::I32 | Element::U32 | Element::F32 => 4,
            Element::I64 | Element::U64 | Element::F64 => 8,
            Element::I16Index | Element::I32Index | Element::F32Index => 8,
            Element::I64Index | Element::F64Index => 16,
        }
    }

    const fn kind(self) -> Kind {
        match self {
            Element::F16 | Element::Bf16 | Element::F32 | Element::F64 => Kind::Float,
            Element::I16Index | Element::I32Index | Element::I64Index | Element::F32Index | Element::F64Index => {
                Kind::Pair
            }
            _ => Kind::Integer,
        }
    }

    /// Whether it is accumulated in f32 and rounded at the end.
    pub(crate) const fn is_narrow(self) -> bool {
        matches!(self, Element::F16 | Element::Bf16)
    }
}

impl Reduction {
    /// Whether it is defined for elements of this type.
    pub const fn takes(self, element: Element) -> bool {
        match self {
            Reduction::Sum | Reduction::Prod | Reduction::Min | Reduction::Max => {
                matches!(element.kind(), Kind::Integer | Kind::Float)
            }
            Reduction::And | Reduction::Or | Reduction::Xor | Reduction::Land | Reduction::Lor | Reduction::Lxor => {
                matches!(element.kind(), Kind::Integer)
            }
            Reduction::Minloc | Reduction::Maxloc => matches!(element.kind(), Kind::Pair),
        }
    }
}

/// A reduction of elements of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Combine {
    /// What is done with them.
    pub reduction: Reduction,
    /// Their type.
    pub element: Element,
}

impl Combine {
    /// Whether folding in another order can give other bits: only sums and products of floats are rounded. All else is the
    /// same in any order, NaNs and zeros with their signs too.
    pub const fn depends_on_order(self) -> bool {
        matches!(self.reduction, Reduction::Sum | Reduction::Prod)
            && matches!(self.element, Element::F16 | Element::Bf16 | Element::F32 | Element::F64)
    }

    /// `reduction` of `element`s, defined or not.
    pub const fn new(reduction: Reduction, element: Element) -> Self {
        Combine { reduction, element }
    }

    /// Every reduction with every type it takes.
    pub fn all() -> impl Iterator<Item = Combine> {
        let one = |reduction: &Reduction| {
            let reduction = *reduction;
            Element::ALL.iter().map(move |element| Combine::new(reduction, *element))
        };
        Reduction::ALL.iter().flat_map(one).filter(|one| one.is_defined())
    }

    /// Whether the reduction takes such elements.
    pub const fn is_defined(self) -> bool {
        self.reduction.takes(self.element)
    }
}

impl fmt::Display for Combine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.reduction, self.element)
    }
}

/// Folds contributions, given in order: `(((c0 . c1) . c2) . c3)`, element by element.
///
/// - f16 and bf16 are widened to f32, folded in f32, and rounded once at the end, to nearest, ties to even. All other
///   types are folded in themselves; every operation on f32 and f64 rounds to nearest, ties to even. Subnormals are kept.
/// - A NaN that comes out of a fold is the quiet NaN with a positive sign and no payload, whatever went in.
/// - minloc and maxloc take a NaN for beyond all values, and -0.0 for less than +0.0; the bytes between value and index and
///   behind the index come out as zero.
/// - One contribution alone comes out as it went in, bit for bit.
#[derive(Debug)]
pub struct Accumulator {
    element: Element,
    fold: Fold,
    /// What was folded so far; in f32 for narrow floats, once there are two.
    value: Vec<u8>,
    /// A contribution of narrow floats in f32.
    wide: Vec<u8>,
    count: u32,
}

/// Folds the second operand into the first, element by element.
type Fold = fn(&mut [u8], &[u8]);

impl Accumulator {
    /// `None` if the reduction does not take such elements.
    pub fn new(combine: Combine) -> Option<Self> {
        let element = if combine.element.is_narrow() { Element::F32 } else { combine.element };
        let fold = fold(combine.reduction, element).filter(|_| combine.is_defined())?;
        Some(Accumulator { element: combine.element, fold, value: Vec::new(), wide: Vec::new(), count: 0 })
    }

    /// Forgets everything. Buffers are kept.
    pub fn clear(&mut self) {
        self.value.clear();
        self.count = 0;
    }

    /// Takes the next contribution. All must be of one length, in whole elements.
    pub fn add(&mut self, contribution: &[u8]) {
        if self.count == 0 {
            self.value.extend_from_slice(contribution);
        } else if self.element.is_narrow() {
            if self.count == 1 {
                widen(self.element, &self.value, &mut self.wide);
                std::mem::swap(&mut self.value, &mut self.wide);
            }
            widen(self.element, contribution, &mut self.wide);
            (self.fold)(&mut self.value, &self.wide);
        } else {
            (self.fold)(&mut self.value, contribution);
        }
        self.count += 1;
    }

    /// Puts the result into `result`, which is as long as a contribution.
    pub fn result(&self, result: &mut [u8]) {
        if self.element.is_narrow() && self.count > 1 {
            narrow(self.element, &self.value, result);
        } else {
            result.iter_mut().zip(&self.value).for_each(|(to, from)| *to = *from);
        }
    }
}

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

const F32_NAN: f32 = f32::from_bits(0x7fc0_0000);
const F64_NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);
const F16_NAN: u16 = 0x7e00;
const BF16_NAN: u16 = 0x7fc0;

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

/// A value that a pair can have.
trait Extreme: Copy {
    /// Whether it is beyond all others, in both directions.
    fn is_beyond(self) -> bool;
    fn order(self, other: Self) -> Ordering;
    /// The one value that stands for all that are beyond.
    fn canonical(self) -> Self;
}

macro_rules! extreme {
    ($($integer:ty)*; $($float:ty, $nan:ident);*) => {
        $(impl Extreme for $integer {
            fn is_beyond(self) -> bool {
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
            fn is_beyond(self) -> bool {
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

/// The pair that wins if `wins` is how the winner's value compares to the other's.
fn locate<T: Extreme>(one: (T, i32), other: (T, i32), wins: Ordering) -> (T, i32) {
    let order = match (one.0.is_beyond(), other.0.is_beyond()) {
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

fn fold(reduction: Reduction, element: Element) -> Option<Fold> {
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

fn widen(element: Element, from: &[u8], to: &mut Vec<u8>) {
    let (halves, _) = from.as_chunks::<2>();
    let wide = |half: &[u8; 2]| match element {
        Element::F16 => f16_to_f32(u16::from_le_bytes(*half)),
        _ => f32::from_bits(u32::from(u16::from_le_bytes(*half)) << 16),
    };
    to.clear();
    to.extend(halves.iter().flat_map(|half| wide(half).to_le_bytes()));
}

fn narrow(element: Element, from: &[u8], to: &mut [u8]) {
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
fn f16_to_f32(half: u16) -> f32 {
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
fn f32_to_f16(value: f32) -> u16 {
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
fn f32_to_bf16(value: f32) -> u16 {
    if value.is_nan() {
        return BF16_NAN;
    }
    let bits = value.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduce(reduction: Reduction, element: Element, contributions: &[&[u8]]) -> Vec<u8> {
        let mut accumulator = Accumulator::new(Combine::new(reduction, element)).unwrap();
        contributions.iter().for_each(|one| accumulator.add(one));
        let mut result = vec![0; contributions[0].len()];
        accumulator.result(&mut result);
        result
    }

    #[test]
    fn accumulators_are_there_for_what_is_defined() {
        for reduction in Reduction::ALL {
            for element in Element::ALL {
                let combine = Combine::new(*reduction, *element);
                assert_eq!(Accumulator::new(combine).is_some(), combine.is_defined(), "{combine}");
            }
        }
        // 8 integers with 10, 4 floats with 4, 5 pairs with 2.
        assert_eq!(Combine::all().count(), 80 + 16 + 10);
    }

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

    /// 2048 + 1 + 1 in f16 would be 2048 if each sum were rounded.
    #[test]
    fn halves_are_rounded_once() {
        let (large, one) = (0x6800_u16.to_le_bytes(), 0x3c00_u16.to_le_bytes());
        assert_eq!(reduce(Reduction::Sum, Element::F16, &[&large, &one, &one]), 0x6801_u16.to_le_bytes());
    }

    #[test]
    fn the_order_is_that_of_the_contributions() {
        let [large, small] = [1e8_f32, 1.0].map(f32::to_le_bytes);
        let minus = (-1e8_f32).to_le_bytes();
        assert_eq!(reduce(Reduction::Sum, Element::F32, &[&large, &small, &minus]), 0.0_f32.to_le_bytes());
        assert_eq!(reduce(Reduction::Sum, Element::F32, &[&large, &minus, &small]), small);
    }

    #[test]
    fn nans_are_one_and_zeros_are_two() {
        let nan = f32::from_bits(0xff80_0001).to_le_bytes();
        let (plus, minus) = (0.0_f32.to_le_bytes(), (-0.0_f32).to_le_bytes());
        for reduction in [Reduction::Sum, Reduction::Prod, Reduction::Min, Reduction::Max] {
            assert_eq!(reduce(reduction, Element::F32, &[&plus, &nan]), F32_NAN.to_le_bytes());
            assert_eq!(reduce(reduction, Element::F32, &[&nan]), nan, "alone it stays what it was");
        }
        assert_eq!(reduce(Reduction::Min, Element::F32, &[&plus, &minus]), minus);
        assert_eq!(reduce(Reduction::Max, Element::F32, &[&minus, &plus]), plus);
    }

    #[test]
    fn pairs_have_indices_and_clean_gaps() {
        let pair = |value: f64, index: i32, gap: u8| {
            let mut pair = [gap; 16];
            pair[..8].copy_from_slice(&value.to_le_bytes());
            pair[8..12].copy_from_slice(&index.to_le_bytes());
            pair
        };
        let minloc = |one: [u8; 16], other: [u8; 16]| reduce(Reduction::Minloc, Element::F64Index, &[&one, &other]);
        assert_eq!(minloc(pair(1.0, 5, 9), pair(1.0, -2, 9)), pair(1.0, -2, 0));
        assert_eq!(minloc(pair(0.0, 1, 9), pair(-0.0, 2, 9)), pair(-0.0, 2, 0));
        let nan = pair(f64::from_bits(0xfff0_0000_0000_0001), 7, 9);
        assert_eq!(minloc(nan, pair(-1e300, 2, 9)), pair(F64_NAN, 7, 0));
        assert_eq!(minloc(pair(f64::INFINITY, 2, 9), nan), pair(F64_NAN, 7, 0));
    }
}

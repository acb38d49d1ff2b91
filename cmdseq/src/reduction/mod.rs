//! Reductions: element types, operators, and the fold of contributions, defined bit for bit ([`Accumulator`]).
//!
//! Card models and hosts use this arithmetic. The module uses nothing of the crate.

mod accumulator;
mod fold;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::named::{coded, parsed};

pub use accumulator::Accumulator;

coded! {
    /// Type of the elements of a vector, little-endian. The code is that in the instruction.
    Element in u32 {
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
    /// How two elements are combined. The code is that in the instruction.
    Reduction in u32 {
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

parsed! { Element("element type", UnknownElement) }

parsed! { Reduction("reduction", UnknownReduction) }

/// The kind of an element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Integer,
    Float,
    Pair,
}

impl Element {
    /// Returns its length.
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
    /// How elements are combined.
    pub reduction: Reduction,
    /// Their type.
    pub element: Element,
}

impl Combine {
    /// Whether the order of a fold can change the bits: only sums and products of floats are rounded. All others are the same in
    /// any order, including NaNs and signs of zeros.
    pub const fn depends_on_order(self) -> bool {
        matches!(self.reduction, Reduction::Sum | Reduction::Prod)
            && matches!(self.element, Element::F16 | Element::Bf16 | Element::F32 | Element::F64)
    }

    /// `reduction` of `element`s, defined or not.
    pub const fn new(reduction: Reduction, element: Element) -> Self {
        Combine { reduction, element }
    }

    /// Returns every reduction with every element type that it accepts.
    pub fn all() -> impl Iterator<Item = Combine> {
        let one = |reduction: &Reduction| {
            let reduction = *reduction;
            Element::ALL.iter().map(move |element| Combine::new(reduction, *element))
        };
        Reduction::ALL.iter().flat_map(one).filter(|one| one.is_defined())
    }

    /// Whether the reduction accepts the element type.
    pub const fn is_defined(self) -> bool {
        self.reduction.takes(self.element)
    }
}

impl fmt::Display for Combine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.reduction, self.element)
    }
}

//! Types of words: OpenCL's scalars and vectors.

use std::fmt;

/// Widest word in bits: OpenCL's `uint16`, as in the published pipeline. Wider ones do not fit a channel of the mock.
pub const BITS_MAX: u32 = 512;

/// A scalar type of OpenCL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are OpenCL's")]
pub enum Scalar {
    Char,
    Uchar,
    Short,
    Ushort,
    Int,
    Uint,
    Long,
    Ulong,
    Half,
    Float,
    Double,
}

impl Scalar {
    /// All scalar types.
    pub const ALL: [Scalar; 11] = [
        Scalar::Char,
        Scalar::Uchar,
        Scalar::Short,
        Scalar::Ushort,
        Scalar::Int,
        Scalar::Uint,
        Scalar::Long,
        Scalar::Ulong,
        Scalar::Half,
        Scalar::Float,
        Scalar::Double,
    ];

    /// Returns OpenCL's name.
    pub const fn name(self) -> &'static str {
        match self {
            Scalar::Char => "char",
            Scalar::Uchar => "uchar",
            Scalar::Short => "short",
            Scalar::Ushort => "ushort",
            Scalar::Int => "int",
            Scalar::Uint => "uint",
            Scalar::Long => "long",
            Scalar::Ulong => "ulong",
            Scalar::Half => "half",
            Scalar::Float => "float",
            Scalar::Double => "double",
        }
    }

    /// Returns the size in bits.
    pub const fn bits(self) -> u32 {
        match self {
            Scalar::Char | Scalar::Uchar => 8,
            Scalar::Short | Scalar::Ushort | Scalar::Half => 16,
            Scalar::Int | Scalar::Uint | Scalar::Float => 32,
            Scalar::Long | Scalar::Ulong | Scalar::Double => 64,
        }
    }
}

/// The type of a channel's words: a scalar or a vector of 2, 4, 8 or 16.
///
/// OpenCL's vectors of 3 are not accepted: they take the room of 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Word {
    scalar: Scalar,
    elements: u32,
}

impl Word {
    /// Returns the type with OpenCL's name `text`, such as `float` or `uint16`; `None` if it is none of these types.
    pub fn named(text: &str) -> Option<Word> {
        let split = text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len());
        let (scalar, elements) = text.split_at(split);
        let scalar = Scalar::ALL.into_iter().find(|one| one.name() == scalar)?;
        let elements = match elements {
            "" => 1,
            "2" => 2,
            "4" => 4,
            "8" => 8,
            "16" => 16,
            _ => return None,
        };
        Some(Word { scalar, elements })
    }

    /// Returns the type of an element.
    pub const fn scalar(self) -> Scalar {
        self.scalar
    }

    /// Returns the number of elements.
    pub const fn elements(self) -> u32 {
        self.elements
    }

    /// Returns the size in bits.
    pub const fn bits(self) -> u32 {
        self.scalar.bits() * self.elements
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.elements {
            1 => f.write_str(self.scalar.name()),
            elements => write!(f, "{}{elements}", self.scalar.name()),
        }
    }
}

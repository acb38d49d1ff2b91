//! Types of elements: what formats of Python say, and which of the cards' types they are.

use fpga_collective::element_bytes;

use crate::error::{Error, Result};

/// The cards' types that NumPy has, with their names there.
const NUMBERS: [(&str, &str); 11] = [
    ("i8", "i1"),
    ("u8", "u1"),
    ("i16", "i2"),
    ("u16", "u2"),
    ("i32", "i4"),
    ("u32", "u4"),
    ("i64", "i8"),
    ("u64", "u8"),
    ("f16", "f2"),
    ("f32", "f4"),
    ("f64", "f8"),
];

/// The cards' pairs of a value and an index: name, type of the value, offset of the index, and the dtype.
const PAIRS: [(&str, &str, usize, &str); 5] = [
    ("i16i32", "i16", 4, "numpy.dtype(\"i2,i4\", align=True)"),
    ("i32i32", "i32", 4, "\"i4,i4\""),
    ("i64i32", "i64", 8, "numpy.dtype(\"i8,i4\", align=True)"),
    ("f32i32", "f32", 4, "\"f4,i4\""),
    ("f64i32", "f64", 8, "numpy.dtype(\"f8,i4\", align=True)"),
];

const TO_NATIVE: &str = "are in another byte order: convert them, such as x.astype(x.dtype.newbyteorder(\"=\"))";

/// Format and size of an array's elements, by the buffer protocol.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elements<'a> {
    pub(crate) format: &'a str,
    pub(crate) bytes: usize,
}

impl Elements<'_> {
    /// The name of the type on the cards, if elements are plain numbers in the cards' byte order.
    pub(crate) fn number(self) -> Option<&'static str> {
        match self.format.as_bytes() {
            [letter] | [b'@' | b'=' | b'<', letter] => number(*letter, self.bytes),
            [b'>' | b'!', letter] if self.bytes == 1 => number(*letter, 1),
            _ => None,
        }
    }

    /// The name of the type on the cards, if elements are records of a value and an index as the cards have them.
    fn pair(self) -> Option<&'static str> {
        let [(0, value), (at, "i32")] = fields(self.format)?[..] else { return None };
        let found = PAIRS.iter().find(|(_, of, index_at, _)| *of == value && *index_at == at);
        found.map(|(name, ..)| *name).filter(|_| self.bytes == at + at.max(4))
    }

    /// Returns the name of the type for a reduction.
    pub(crate) fn of_reduction(self, reduction: &str) -> Result<&'static str> {
        let named = self.number().or_else(|| self.pair());
        named.ok_or_else(|| {
            let Elements { format, bytes } = self;
            let hint = match format.trim_start_matches(['@', '=', '<']) {
                _ if self.is_foreign() => TO_NATIVE.to_owned(),
                _ if self.is_record() || ["minloc", "maxloc"].contains(&reduction) => {
                    "are not reduced: pass numbers, or for minloc and maxloc records of a value (i2, i4, i8, f4 or f8) and an index \
                     (i4), such as numpy.dtype(\"f8,i4\", align=True)"
                        .to_owned()
                }
                "?" => "are not reduced: view them as numbers, such as x.view(\"u1\")".to_owned(),
                "Zf" | "Zd" if reduction == "sum" => {
                    format!("are not reduced: view them as their parts, such as x.view(\"f{}\")", bytes / 2)
                }
                _ => {
                    let bf16 = if bytes == 2 { ", or name a type that NumPy lacks: element=\"bf16\"" } else { "" };
                    format!("are not reduced: pass an array of i1 to i8, u1 to u8 or f2 to f8{bf16}")
                }
            };
            Error::usage(format!("elements of format {format:?} {hint}"))
        })
    }

    /// Refuses elements that cannot be of the type `name`. Raw bytes may be of any type that NumPy lacks.
    pub(crate) fn check(self, name: &str) -> Result<()> {
        let Elements { format, bytes: found } = self;
        let bytes = element_bytes(name)?;
        let refuse = |expected: String| {
            let text =
                format!("element {name:?} {expected}, and the array has elements of format {format:?}, {found} bytes");
            Err(Error::usage(text))
        };
        if let Some((_, dtype)) = NUMBERS.iter().find(|(one, _)| *one == name) {
            return if self.number() == Some(name) { Ok(()) } else { refuse(format!("is dtype \"{dtype}\"")) };
        }
        if found as u64 != bytes {
            return refuse(format!("has {bytes} bytes"));
        }
        if self.is_foreign() {
            return Err(Error::usage(format!("elements of format {format:?} {TO_NATIVE}")));
        }
        match PAIRS.iter().find(|(one, ..)| *one == name) {
            Some((.., dtype)) if !self.is_raw() && self.pair() != Some(name) => refuse(format!("is dtype {dtype}")),
            _ => Ok(()),
        }
    }

    fn is_record(self) -> bool {
        self.format.starts_with("T{")
    }

    /// Whether elements, or fields of them, have not the byte order of the cards.
    fn is_foreign(self) -> bool {
        // Names of fields are between colons.
        self.bytes > 1 && self.format.split(':').step_by(2).any(|types| types.contains(['>', '!']))
    }

    /// Whether elements are bytes of no type: those of NumPy are padding, and ctypes gives unions as bytes.
    fn is_raw(self) -> bool {
        self.format == "B" || self.format.trim_start_matches(|c: char| c.is_ascii_digit()) == "x"
    }
}

fn number(letter: u8, bytes: usize) -> Option<&'static str> {
    match (letter, bytes) {
        (b'b', 1) => Some("i8"),
        (b'B', 1) => Some("u8"),
        (b'h' | b'i' | b'l' | b'q', 2) => Some("i16"),
        (b'H' | b'I' | b'L' | b'Q', 2) => Some("u16"),
        (b'i' | b'l' | b'q', 4) => Some("i32"),
        (b'I' | b'L' | b'Q', 4) => Some("u32"),
        (b'i' | b'l' | b'q' | b'n', 8) => Some("i64"),
        (b'I' | b'L' | b'Q' | b'N', 8) => Some("u64"),
        (b'e', 2) => Some("f16"),
        (b'f', 4) => Some("f32"),
        (b'd', 8) => Some("f64"),
        _ => None,
    }
}

/// Returns offsets and types of the fields of a record, if all are numbers in the cards' byte order.
fn fields(format: &str) -> Option<Vec<(usize, &'static str)>> {
    let mut fields = Vec::new();
    let mut rest = format.strip_prefix("T{")?.strip_suffix('}')?;
    // A byte order is that of all that follows.
    let (mut at, mut order) = (0, b'@');
    while let Some(letter) = rest.bytes().next() {
        if letter == b':' {
            rest = rest[1..].split_once(':')?.1;
            continue;
        }
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let count = if digits > 0 { rest[..digits].parse::<usize>().ok()? } else { 1 };
        let letter = *rest.as_bytes().get(digits)?;
        rest = rest.get(digits + 1..)?;
        match letter {
            b'@' | b'=' | b'<' => order = letter,
            b'x' => at = count.checked_add(at)?,
            _ => {
                let bytes = match letter {
                    b'b' | b'B' => 1,
                    b'h' | b'H' | b'e' => 2,
                    b'l' | b'L' if order == b'@' => size_of::<std::ffi::c_long>(),
                    b'i' | b'I' | b'l' | b'L' | b'f' => 4,
                    _ => 8,
                };
                // NumPy writes '=' before what is not aligned. ctypes writes '<', and leaves the padding out.
                at = if order == b'=' { at } else { at.next_multiple_of(bytes) };
                fields.push((at, number(letter, bytes).filter(|_| count == 1)?));
                at += bytes;
            }
        }
    }
    Some(fields)
}

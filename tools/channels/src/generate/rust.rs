//! Rust: typed handles for the host's ends of channels.

use std::collections::HashMap;

use crate::ends::Direction;
use crate::generate::ends::Generated;
use crate::generate::names::camel_case;
use crate::generate::refusal::Refusal;
use crate::generate::template::fill;
use crate::word::Scalar;

/// Returns a module with a type for each of these ends.
pub(super) fn module(application: &str, ends: &[Generated<'_>]) -> Result<String, Refusal> {
    let mut text = fill(include_str!("templates/head.rs"), &[("APP", application.into())]);
    let mut names: HashMap<String, &str> = HashMap::new();
    for end in ends {
        let name = &end.end.name;
        let (suffix, template) = match end.direction {
            Direction::Write => ("Writer", include_str!("templates/writer.rs")),
            Direction::Read => ("Reader", include_str!("templates/reader.rs")),
        };
        let type_name = camel_case(name) + suffix;
        if let Some(first) = names.insert(type_name.clone(), name) {
            return Err(Refusal::SameType { first: first.into(), second: name.clone(), type_name });
        }
        text += &of_end(template, end, type_name);
    }
    Ok(text)
}

fn of_end(template: &str, end: &Generated<'_>, type_name: String) -> String {
    let element = element(end.word.scalar());
    let (word, encode, decode) = match end.word.elements() {
        1 => (
            element.to_owned(),
            "self.bytes.extend_from_slice(&word.to_le_bytes());".to_owned(),
            format!("*word = {element}::from_le_bytes(*part);"),
        ),
        elements => (
            format!("[{element}; {elements}]"),
            "word.iter().for_each(|element| self.bytes.extend_from_slice(&element.to_le_bytes()));".to_owned(),
            format!("*word = std::array::from_fn(|at| {element}::from_le_bytes(part.as_chunks().0[at]));"),
        ),
    };
    let note = if end.word.scalar() == Scalar::Half { "; here they are the bits of each number" } else { "" };
    let values = [
        ("STRUCT", type_name.into()),
        ("NAME", end.end.name.as_str().into()),
        ("ID", end.id.to_string().into()),
        ("TYPE", end.word.to_string().into()),
        ("NOTE", note.into()),
        ("WORD", word.into()),
        ("WORD_BYTES", end.word_bytes().to_string().into()),
        ("DEPTH", end.end.depth.to_string().into()),
        ("ENCODE", encode.into()),
        ("DECODE", decode.into()),
    ];
    fill(template, &values)
}

/// Returns Rust's type for an element.
const fn element(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Char => "i8",
        Scalar::Uchar => "u8",
        Scalar::Short => "i16",
        Scalar::Ushort | Scalar::Half => "u16",
        Scalar::Int => "i32",
        Scalar::Uint => "u32",
        Scalar::Long => "i64",
        Scalar::Ulong => "u64",
        Scalar::Float => "f32",
        Scalar::Double => "f64",
    }
}

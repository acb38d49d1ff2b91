//! Errors of definitions, with their places.

use crate::definition::BYTES_MAX;
use crate::word::BITS_MAX;

/// The first error of a definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", channel.as_ref().map(|name| format!("channel {name}: ")).unwrap_or_default())]
pub struct Error {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Name of the tag `channel` in question, if it is known.
    pub channel: Option<String>,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file is too large.
    #[error("a definition has at most {BYTES_MAX} bytes")]
    Large,
    /// The file is not UTF-8.
    #[error("invalid UTF-8")]
    Utf8,
    /// The file declares another encoding than UTF-8.
    #[error("unknown encoding {0:?}: expected UTF-8")]
    Encoding(String),
    /// The file is not XML.
    #[error("invalid XML: {0}")]
    Xml(String),
    /// A part of XML that definitions do not have.
    #[error("a definition has no {0}")]
    Unused(&'static str),
    /// Something else stands here than the form of a definition asks for.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// What may stand here.
        expected: String,
        /// What stands here.
        found: String,
    },
    /// A tag has an attribute that it may not have.
    #[error("unknown attribute {attribute:?} of tag {tag:?}")]
    Attribute {
        /// The attribute.
        attribute: String,
        /// The tag.
        tag: &'static str,
    },
    /// A tag appears twice in a channel.
    #[error("second tag {0:?}")]
    Repeated(&'static str),
    /// A tag or attribute is missing.
    #[error("missing {0}")]
    Missing(&'static str),
    /// A channel has both `read-from` and `write-to`.
    #[error("both \"read-from\" and \"write-to\": a kernel reads a channel or writes it")]
    Both,
    /// A name is not an identifier.
    #[error("invalid name {0:?}: expected a letter or _, then at most 62 letters, digits or _")]
    Name(String),
    /// Two channels have one name.
    #[error("second channel of this name; the first is on line {0}")]
    SameName(u32),
    /// A type is unknown.
    #[error("unknown type {0:?}: expected a scalar type of OpenCL, or a vector of 2, 4, 8 or 16")]
    Type(String),
    /// A word is too wide.
    #[error("{word} has {bits} bits: a word has at most {BITS_MAX}")]
    Wide {
        /// Name of the type.
        word: String,
        /// Its bits.
        bits: u32,
    },
    /// A number is not in its range.
    #[error("invalid {tag} {text:?}: expected {least} to {most}")]
    Number {
        /// The tag.
        tag: &'static str,
        /// Its content.
        text: String,
        /// The smallest valid number.
        least: u32,
        /// The largest valid number.
        most: u32,
    },
    /// The width is not that of the type.
    #[error("width {width} does not fit {word}, which has {bits} bits")]
    Width {
        /// The width given.
        width: u32,
        /// Name of the type.
        word: String,
        /// Its bits.
        bits: u32,
    },
    /// Two channels write or two read one id.
    #[error("second \"{tag}\" {id}; the first is channel {first}")]
    Shared {
        /// `write-to` or `read-from`.
        tag: &'static str,
        /// The id.
        id: u8,
        /// Name of the first.
        first: String,
    },
    /// No channel has the other end.
    #[error("no channel has \"{missing}\" {id}")]
    Alone {
        /// `write-to` or `read-from`.
        missing: &'static str,
        /// The id.
        id: u8,
    },
    /// The ends of a channel have different types.
    #[error("reads {reads} from {id}, which {writer} writes as {writes}")]
    Types {
        /// The id.
        id: u8,
        /// Type of the reader.
        reads: String,
        /// Name of the writer.
        writer: String,
        /// Type of the writer.
        writes: String,
    },
    /// There is no channel.
    #[error("no channels")]
    Empty,
}

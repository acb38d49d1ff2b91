//! The channels of a definition.

use std::fmt;

use crate::word::Word;

/// Largest definition in bytes.
pub const BYTES_MAX: usize = 1 << 20;

/// The channels of an application. Every channel has one writer and one reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// By ascending id.
    pub(crate) channels: Vec<Channel>,
}

/// A channel: its two ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// Id that packets carry.
    pub id: u8,
    /// Type of the words.
    pub word: Word,
    /// The end that a kernel writes.
    pub writer: End,
    /// The end that a kernel reads.
    pub reader: End,
}

/// An end of a channel: an OpenCL channel of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Its name in OpenCL, unique in the definition.
    pub name: String,
    /// Words that it buffers, at least 1.
    pub depth: u32,
}

impl Definition {
    /// Returns the channels, by ascending id.
    pub fn channels(&self) -> &[Channel] {
        &self.channels
    }
}

/// Prints the definition as XML, which [`parse`](crate::parse) reads.
impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "<channels>")?;
        for Channel { id, word, writer, reader } in &self.channels {
            for (End { name, depth }, tag) in [(writer, "write-to"), (reader, "read-from")] {
                writeln!(f, "  <channel name=\"{name}\">")?;
                writeln!(f, "    <type>{word}</type>")?;
                writeln!(f, "    <width>{}</width>", word.bits())?;
                writeln!(f, "    <depth>{depth}</depth>")?;
                writeln!(f, "    <{tag}>{id}</{tag}>")?;
                writeln!(f, "  </channel>")?;
            }
        }
        writeln!(f, "</channels>")
    }
}

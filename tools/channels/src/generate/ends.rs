//! The ends of channels that code is generated for.

use crate::definition::{Definition, End};
use crate::ends::Direction;
use crate::generate::names;
use crate::generate::refusal::Refusal;
use crate::word::Word;

/// Bytes of a packet's payload.
const PAYLOAD_BYTES: u32 = 60;

/// One end of a channel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Generated<'a> {
    pub(super) id: u8,
    pub(super) word: Word,
    pub(super) end: &'a End,
    pub(super) direction: Direction,
}

/// Returns the ends of these names, or all, by ascending id.
pub(super) fn select<'a>(definition: &'a Definition, names: &[String]) -> Result<Vec<Generated<'a>>, Refusal> {
    let mut ends = Vec::new();
    for channel in definition.channels() {
        for (end, direction) in [(&channel.writer, Direction::Write), (&channel.reader, Direction::Read)] {
            ends.push(Generated { id: channel.id, word: channel.word, end, direction });
        }
    }
    if let Some(unknown) = names.iter().find(|name| ends.iter().all(|end| end.end.name != **name)) {
        let available = ends.iter().map(|end| end.end.name.clone()).collect();
        return Err(Refusal::NoEnd { name: unknown.clone(), available });
    }
    ends.retain(|end| names.is_empty() || names.contains(&end.end.name));
    match ends.iter().find_map(|end| Some((end, names::reserved(&end.end.name)?))) {
        Some((end, why)) => Err(Refusal::Reserved { name: end.end.name.clone(), why }),
        None => Ok(ends),
    }
}

/// Returns the ends that kernels write.
pub(super) fn writers<'a>(ends: &[Generated<'a>]) -> Vec<Generated<'a>> {
    ends.iter().copied().filter(|end| end.direction == Direction::Write).collect()
}

/// Returns the ends that kernels read.
pub(super) fn readers<'a>(ends: &[Generated<'a>]) -> Vec<Generated<'a>> {
    ends.iter().copied().filter(|end| end.direction == Direction::Read).collect()
}

impl Generated<'_> {
    /// Returns the bytes of a word.
    pub(super) fn word_bytes(&self) -> u32 {
        self.word.bits() / 8
    }

    /// Returns the bytes of the largest unit of which words and payloads are whole multiples, as a type of OpenCL.
    pub(super) fn unit_bytes(&self) -> u32 {
        self.word_bytes().min(4)
    }

    /// Returns the units of a word.
    pub(super) fn units(&self) -> u32 {
        self.word_bytes() / self.unit_bytes()
    }

    /// Returns the units of a payload.
    pub(super) fn payload_units(&self) -> u32 {
        PAYLOAD_BYTES / self.unit_bytes()
    }
}

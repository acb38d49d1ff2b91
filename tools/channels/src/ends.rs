//! Joins ends to channels.

use std::collections::{BTreeMap, HashMap};

use crate::definition::{Channel, Definition, End};
use crate::error::{Error, Problem};
use crate::word::Word;
use crate::xml::Xml;

/// Which way words go through an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Write,
    Read,
}

impl Direction {
    pub(crate) const fn tag(self) -> &'static str {
        match self {
            Direction::Write => "write-to",
            Direction::Read => "read-from",
        }
    }
}

/// A tag `channel`.
pub(crate) struct Parsed {
    /// Where the tag begins.
    pub(crate) offset: usize,
    pub(crate) end: End,
    pub(crate) word: Word,
    pub(crate) direction: Direction,
    pub(crate) id: u8,
}

/// Joins the ends of each id. `xml` knows the lines.
pub(crate) fn join(ends: Vec<Parsed>, xml: &Xml<'_>) -> Result<Definition, Error> {
    let refused = |of: &Parsed, problem| xml.error_at(of.offset, Some(&of.end.name), problem);
    let mut names: HashMap<&str, usize> = HashMap::new();
    for one in &ends {
        if let Some(first) = names.insert(&one.end.name, one.offset) {
            let line = xml.error_at(first, None, Problem::Empty).line;
            return Err(refused(one, Problem::SameName(line)));
        }
    }
    let mut by_id: BTreeMap<u8, (Option<Parsed>, Option<Parsed>)> = BTreeMap::new();
    for one in ends {
        let (writer, reader) = by_id.entry(one.id).or_default();
        let place = if one.direction == Direction::Write { writer } else { reader };
        if let Some(first) = place {
            let (tag, first) = (one.direction.tag(), first.end.name.clone());
            return Err(refused(&one, Problem::Shared { tag, id: one.id, first }));
        }
        *place = Some(one);
    }
    let mut channels = Vec::with_capacity(by_id.len());
    for (id, ends) in by_id {
        let (writer, reader) = match ends {
            (Some(writer), Some(reader)) => (writer, reader),
            (Some(alone), None) => {
                return Err(refused(&alone, Problem::Alone { missing: Direction::Read.tag(), id }));
            }
            (None, Some(alone)) => {
                return Err(refused(&alone, Problem::Alone { missing: Direction::Write.tag(), id }));
            }
            (None, None) => continue,
        };
        if writer.word != reader.word {
            let (reads, writes) = (reader.word.to_string(), writer.word.to_string());
            let problem = Problem::Types { id, reads, writer: writer.end.name, writes };
            return Err(refused(&reader, problem));
        }
        channels.push(Channel { id, word: writer.word, writer: writer.end, reader: reader.end });
    }
    Ok(Definition { channels })
}

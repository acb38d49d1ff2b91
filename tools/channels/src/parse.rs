//! Reads a definition from XML.

use quick_xml::events::BytesStart;

use crate::definition::{BYTES_MAX, Definition, End};
use crate::ends::{Direction, Parsed, join};
use crate::error::{Error, Problem};
use crate::word::{BITS_MAX, Word};
use crate::xml::{self, Piece, Xml};

/// Longest name in characters. OpenCL C takes it from C99, 5.2.4.1: so many are significant.
const NAME_MAX: usize = 63;

/// What some editors write in front of UTF-8.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Tags of a channel; each holds a text.
const TAGS: [&str; 5] = ["type", "width", "depth", "read-from", "write-to"];

/// Reads a definition.
///
/// # Errors
/// The first [`Error`], with its place.
pub fn parse(bytes: &[u8]) -> Result<Definition, Error> {
    if bytes.len() > BYTES_MAX {
        return Err(xml::error("", 0, None, Problem::Large));
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(cause) => {
            let valid = String::from_utf8_lossy(&bytes[..cause.valid_up_to()]);
            return Err(xml::error(&valid, valid.len(), None, Problem::Utf8));
        }
    };
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    // The reader would leave out another one, and count it in no offset.
    if text.starts_with(BYTE_ORDER_MARK) {
        return Err(xml::error(text, 0, None, Problem::Unused("second byte order mark")));
    }
    let mut parser = Parser { xml: Xml::new(text) };
    let ends = parser.document()?;
    if ends.is_empty() {
        return Err(parser.refused(Problem::Empty));
    }
    join(ends, &parser.xml)
}

struct Parser<'a> {
    xml: Xml<'a>,
}

/// The tags of a channel that have been read, each with its place.
#[derive(Default)]
struct Fields<'a>([Option<(usize, &'a str)>; TAGS.len()]);

impl<'a> Parser<'a> {
    fn document(&mut self) -> Result<Vec<Parsed>, Error> {
        match self.xml.next()? {
            Piece::Start(tag) if tag.name().as_ref() == "channels" => self.check_attributes(&tag, "channels")?,
            other => return Err(self.unexpected("tag \"channels\"", &other)),
        }
        let mut ends = Vec::new();
        loop {
            match self.xml.next()? {
                Piece::Start(tag) if tag.name().as_ref() == "channel" => ends.push(self.channel(&tag)?),
                Piece::End => break,
                other => return Err(self.unexpected("tag \"channel\" or the end of \"channels\"", &other)),
            }
        }
        match self.xml.next()? {
            Piece::EndOfFile => Ok(ends),
            other => Err(self.unexpected("the end of the file", &other)),
        }
    }

    fn channel(&mut self, tag: &BytesStart<'_>) -> Result<Parsed, Error> {
        let offset = self.xml.offset();
        let name = self.name(tag)?;
        let of_channel = |error: Error| Error { channel: Some(name.clone()), ..error };
        let fields = self.fields().map_err(of_channel)?;
        let refused = |at, problem| self.xml.error_at(at, Some(&name), problem);
        let required = |tag: &'static str| {
            let place = TAGS.iter().position(|one| *one == tag).and_then(|place| fields.0[place]);
            place.ok_or_else(|| refused(offset, Problem::Missing(tag)))
        };
        let number = |tag, (at, text): (usize, &str), least, most| {
            number(text, least, most)
                .ok_or_else(|| refused(at, Problem::Number { tag, text: text.into(), least, most }))
        };
        let (type_at, type_name) = required("type")?;
        let word = Word::named(type_name).ok_or_else(|| refused(type_at, Problem::Type(type_name.into())))?;
        let bits = word.bits();
        if bits > BITS_MAX {
            return Err(refused(type_at, Problem::Wide { word: word.to_string(), bits }));
        }
        let given = required("width")?;
        let width = number("width", given, 1, BITS_MAX)?;
        if width != bits {
            return Err(refused(given.0, Problem::Width { width, word: word.to_string(), bits }));
        }
        let depth = number("depth", required("depth")?, 1, u32::MAX)?;
        let (direction, given) = match (required("read-from"), required("write-to")) {
            (Ok(_), Ok((at, _))) => return Err(refused(at, Problem::Both)),
            (Ok(id), Err(_)) => (Direction::Read, id),
            (Err(_), Ok(id)) => (Direction::Write, id),
            (Err(_), Err(_)) => return Err(refused(offset, Problem::Missing("read-from or write-to"))),
        };
        let id = number(direction.tag(), given, 0, u8::MAX.into())? as u8;
        Ok(Parsed { offset, end: End { name, depth }, word, direction, id })
    }

    /// Reads the attribute of a tag `channel`.
    fn name(&self, tag: &BytesStart<'_>) -> Result<String, Error> {
        let mut name = None;
        for attribute in tag.attributes() {
            let attribute = attribute.map_err(|cause| self.refused(Problem::Xml(cause.to_string())))?;
            match attribute.key.as_ref() {
                "name" => name = Some(attribute.value.into_owned()),
                other => return Err(self.refused(Problem::Attribute { attribute: other.into(), tag: "channel" })),
            }
        }
        let name = name.ok_or_else(|| self.refused(Problem::Missing("attribute \"name\"")))?;
        if is_identifier(&name) { Ok(name) } else { Err(self.refused(Problem::Name(name))) }
    }

    /// Reads the tags of a channel, and its end.
    fn fields(&mut self) -> Result<Fields<'a>, Error> {
        let mut fields = Fields::default();
        loop {
            let piece = self.xml.next()?;
            let known = match &piece {
                Piece::End => return Ok(fields),
                Piece::Start(tag) => TAGS.iter().position(|one| *one == tag.name().as_ref()).map(|known| (known, tag)),
                Piece::Text(_) | Piece::EndOfFile => None,
            };
            let Some((place, tag)) = known else {
                return Err(self.unexpected("a tag of a channel (type, width, depth, read-from, write-to)", &piece));
            };
            self.check_attributes(tag, TAGS[place])?;
            if fields.0[place].is_some() {
                return Err(self.refused(Problem::Repeated(TAGS[place])));
            }
            fields.0[place] = Some(self.text()?);
        }
    }

    /// Reads a text and the end of its tag.
    fn text(&mut self) -> Result<(usize, &'a str), Error> {
        let text = match self.xml.next()? {
            Piece::Text(text) => (self.xml.offset(), text),
            other => return Err(self.unexpected("a text", &other)),
        };
        match self.xml.next()? {
            Piece::End => Ok(text),
            other => Err(self.unexpected("the end of the tag", &other)),
        }
    }

    fn check_attributes(&self, of: &BytesStart<'_>, tag: &'static str) -> Result<(), Error> {
        match of.attributes().next() {
            None => Ok(()),
            Some(Ok(one)) => Err(self.refused(Problem::Attribute { attribute: one.key.as_ref().into(), tag })),
            Some(Err(cause)) => Err(self.refused(Problem::Xml(cause.to_string()))),
        }
    }

    /// An error at the last piece.
    fn refused(&self, problem: Problem) -> Error {
        self.xml.error_at(self.xml.offset(), None, problem)
    }

    fn unexpected(&self, expected: &str, found: &Piece<'_>) -> Error {
        let found = match found {
            Piece::Start(tag) => format!("tag {:?}", tag.name().as_ref()),
            Piece::End => "the end of a tag".into(),
            Piece::Text(text) => format!("text {:?}", text.chars().take(NAME_MAX).collect::<String>()),
            Piece::EndOfFile => "the end of the file".into(),
        };
        self.refused(Problem::Unexpected { expected: expected.into(), found })
    }
}

/// Reads a decimal number without a sign.
fn number(text: &str, least: u32, most: u32) -> Option<u32> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_decimal && (least..=most).contains(number))
}

fn is_identifier(name: &str) -> bool {
    let is_inner = |c: char| c == '_' || c.is_ascii_alphanumeric();
    name.len() <= NAME_MAX && name.chars().all(is_inner) && name.starts_with(|c: char| !c.is_ascii_digit())
}

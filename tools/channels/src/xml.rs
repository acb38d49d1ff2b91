//! The part of XML that definitions use: tags, attributes, text and comments.
//!
//! There is no DTD and no reference, so nothing in a file can expand to more than stands there.

use quick_xml::Reader;
use quick_xml::events::{BytesDecl, BytesStart, Event};

use crate::error::{Error, Problem};

/// A piece of a file. White space and comments between pieces are left out.
pub(crate) enum Piece<'a> {
    Start(BytesStart<'a>),
    End,
    /// Without the white space around it.
    Text(&'a str),
    EndOfFile,
}

/// Reads pieces.
pub(crate) struct Xml<'a> {
    text: &'a str,
    reader: Reader<&'a [u8]>,
    /// Offset of the last piece.
    at: usize,
}

impl<'a> Xml<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let mut reader = Reader::from_str(text);
        let config = reader.config_mut();
        config.expand_empty_elements = true;
        config.check_comments = true;
        Xml { text, reader, at: 0 }
    }

    /// Returns the offset of the last piece in bytes.
    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    /// Returns an error at `offset`.
    pub(crate) fn error_at(&self, offset: usize, channel: Option<&str>, problem: Problem) -> Error {
        error(self.text, offset, channel, problem)
    }

    /// Returns the next piece.
    pub(crate) fn next(&mut self) -> Result<Piece<'a>, Error> {
        loop {
            let begin = self.position();
            self.at = begin;
            let event = match self.reader.read_event() {
                Ok(event) => event,
                Err(cause) => {
                    self.at = begin.max(self.reader.error_position() as usize);
                    return Err(self.error_at(self.at, None, Problem::Xml(cause.to_string())));
                }
            };
            let unused = match event {
                Event::Start(tag) | Event::Empty(tag) => return Ok(Piece::Start(tag)),
                Event::End(_) => return Ok(Piece::End),
                Event::Eof => return Ok(Piece::EndOfFile),
                Event::Text(_) => {
                    let text = &self.text[begin..self.position()];
                    if text.trim().is_empty() {
                        continue;
                    }
                    self.at += text.len() - text.trim_start().len();
                    return Ok(Piece::Text(text.trim()));
                }
                Event::Comment(_) => continue,
                Event::Decl(declaration) if begin == 0 => {
                    self.check(&declaration)?;
                    continue;
                }
                Event::Decl(_) => "XML declaration after its beginning",
                Event::DocType(_) => "document type and no entities",
                Event::GeneralRef(_) => "references such as &amp;",
                Event::CData(_) => "CDATA sections",
                Event::PI(_) => "processing instructions",
            };
            return Err(self.error_at(self.at, None, Problem::Unused(unused)));
        }
    }

    fn check(&self, declaration: &BytesDecl<'_>) -> Result<(), Error> {
        let refused = |problem| Err(self.error_at(0, None, problem));
        if let Err(cause) = declaration.version() {
            return refused(Problem::Xml(cause.to_string()));
        }
        match declaration.encoding() {
            Some(Err(cause)) => refused(Problem::Xml(cause.to_string())),
            Some(Ok(name)) if !name.eq_ignore_ascii_case("utf-8") => refused(Problem::Encoding(name.into_owned())),
            _ => Ok(()),
        }
    }

    fn position(&self) -> usize {
        (self.reader.buffer_position() as usize).min(self.text.len())
    }
}

/// Returns an error at an offset of `text`.
pub(crate) fn error(text: &str, offset: usize, channel: Option<&str>, problem: Problem) -> Error {
    let offset = (0..=offset.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let before = &text[..offset];
    let line = before.rsplit('\n').next().unwrap_or_default();
    // A definition has at most a mebibyte.
    let (lines, characters) = (before.matches('\n').count() as u32, line.chars().count() as u32);
    Error { line: lines + 1, column: characters + 1, channel: channel.map(String::from), problem }
}

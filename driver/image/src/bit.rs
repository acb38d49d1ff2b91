//! AMD's .bit files: a header with names, and a configuration stream.
//!
//! All numbers are big-endian. Source: XRT, `xrt_xclbin.c`.

use crate::error::Result;
use crate::reader::Reader;

/// What a file begins with: a length, and what AMD writes before everything.
pub const MAGIC: [u8; 11] = [0, 9, 0x0f, 0xf0, 0x0f, 0xf0, 0x0f, 0xf0, 0x0f, 0xf0, 0];
/// Most bytes of the header.
const HEADER_MAX: u64 = 1024;

/// A file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bit<'a> {
    /// Name of the design, with options of the tool behind semicolons.
    pub design: &'a str,
    /// The device, such as `xcu250-figd2104-2L-e`.
    pub part: &'a str,
    /// The day it was made, as the tool wrote it.
    pub date: &'a str,
    /// The time of that day.
    pub time: &'a str,
    /// The configuration stream.
    pub stream: &'a [u8],
}

impl<'a> Bit<'a> {
    /// Takes a file apart.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid), with the place in the file. Bytes behind the stream are refused.
    pub fn parse(file: &'a [u8]) -> Result<Self> {
        Bit::read(Reader::new(".bit", file))
    }

    pub(crate) fn read(file: Reader<'a>) -> Result<Self> {
        let begin: [u8; MAGIC.len()] = file.array(0, "the header")?;
        if begin != MAGIC {
            return Err(file.error(0, "it does not begin as .bit files do"));
        }
        let mut offset = MAGIC.len() as u64;
        let one = u16::from_be_bytes(file.array(offset, "the header")?);
        if one != 1 {
            return Err(file.error(offset, format!("the header continues with {one}; expected 1")));
        }
        offset += 2;
        let mut field = |tag: u8, what: &str| {
            let found = file.u8(offset, what)?;
            if found != tag {
                return Err(file.error(offset, format!("field {found:#04x}; expected {what} ({:?})", char::from(tag))));
            }
            let bytes = u64::from(u16::from_be_bytes(file.array(offset + 1, what)?));
            let text = file.text(offset + 3, bytes, what)?;
            if text.is_empty() || text.len() as u64 + 1 != bytes {
                return Err(file.error(offset + 3, format!("{what} is empty or ends before its {bytes} bytes")));
            }
            offset += 3 + bytes;
            Ok(text)
        };
        let design = field(b'a', "the design's name")?;
        let part = field(b'b', "the device")?;
        let date = field(b'c', "the date")?;
        let time = field(b'd', "the time")?;
        let tag = file.u8(offset, "the stream's length")?;
        if tag != b'e' {
            return Err(file.error(offset, format!("field {tag:#04x}; expected the stream's length ('e')")));
        }
        let bytes = u64::from(u32::from_be_bytes(file.array(offset + 1, "the stream's length")?));
        offset += 5;
        if offset > HEADER_MAX {
            return Err(file.error(0, format!("the header has {offset} bytes, more than {HEADER_MAX}")));
        }
        let stream = file.slice(offset, bytes, "the stream")?;
        if stream.is_empty() {
            return Err(file.error(offset, "the stream is empty"));
        }
        let rest = file.len() - offset - bytes;
        if rest > 0 {
            return Err(file.error(offset + bytes, format!("{rest} bytes behind the stream")));
        }
        Ok(Bit { design, part, date, time, stream })
    }
}

//! What ranks send: frames of a length of four bytes, a kind of one byte, and a content. All integers are little-endian.
//!
//! Bytes come from outside: a length is checked before anything is kept, and a content that is not exactly one of a frame is invalid.

use cmdseq::text::printable;

/// First bytes of a greeting, and the version of what follows.
const MAGIC: [u8; 8] = *b"fpgameet";
/// Version of the frames, and of what ranks tell each other in them.
pub(crate) const VERSION: u32 = 2;
/// Longest data of one rank.
pub(crate) const DATA_MAX: usize = 4 << 20;
/// Longest frame of a stranger, who may send only a greeting.
pub(crate) const GREETING_MAX: usize = 256;
/// Longest text.
const TEXT_MAX: usize = 8 << 10;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The first of a rank.
    Hello { version: u32, program: String, rank: u32, of: u32 },
    /// All ranks have come.
    Welcome,
    /// A rank's data for the exchange of this number.
    Data { count: u64, data: Vec<u8> },
    /// Data of all ranks.
    All { count: u64, data: Vec<Vec<u8>> },
    /// A rank gives up before the exchange of this number.
    Raised { rank: u32, count: u64 },
    /// The job is over.
    End(End),
}

/// Why a job is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) rank: u32,
    pub(crate) kind: EndKind,
    pub(crate) why: String,
}

/// What became of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndKind {
    /// Its connection has ended.
    Gone,
    /// It did not answer for so many milliseconds.
    Late(u64),
    /// It is another job's, or of another version.
    Refused,
    /// It sent invalid bytes.
    Malformed,
}

/// Longest frame that rank 0 sends in a job of `of` ranks.
pub(crate) fn longest(of: u32) -> usize {
    64 + TEXT_MAX + of as usize * (DATA_MAX + 4)
}

impl Frame {
    /// Encodes the frame, with its length.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        let text = |bytes: &mut Vec<u8>, text: &str| {
            let end = (0..=TEXT_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            data_of(bytes, &text.as_bytes()[..end]);
        };
        match self {
            Frame::Hello { version, program, rank, of } => {
                bytes.push(0);
                bytes.extend(MAGIC);
                [*version, *rank, *of].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
                text(&mut bytes, program);
            }
            Frame::Welcome => bytes.push(1),
            Frame::Data { count, data } => {
                bytes.push(2);
                bytes.extend(count.to_le_bytes());
                data_of(&mut bytes, data);
            }
            Frame::All { count, data } => {
                bytes.push(3);
                bytes.extend(count.to_le_bytes());
                bytes.extend((data.len() as u32).to_le_bytes());
                data.iter().for_each(|data| data_of(&mut bytes, data));
            }
            Frame::Raised { rank, count } => {
                bytes.push(4);
                bytes.extend(rank.to_le_bytes());
                bytes.extend(count.to_le_bytes());
            }
            Frame::End(End { rank, kind, why }) => {
                bytes.push(5);
                bytes.extend(rank.to_le_bytes());
                let (kind, waited) = match kind {
                    EndKind::Gone => (0, 0),
                    EndKind::Late(waited) => (1, *waited),
                    EndKind::Refused => (2, 0),
                    EndKind::Malformed => (3, 0),
                };
                bytes.push(kind);
                bytes.extend(waited.to_le_bytes());
                text(&mut bytes, why);
            }
        }
        let length = (bytes.len() - 4) as u32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    /// Whether the first frame of `bytes` is complete, or longer than `limit`.
    pub(crate) fn is_complete(bytes: &[u8], limit: usize) -> bool {
        bytes.split_first_chunk().is_some_and(|(length, content)| {
            let length = u32::from_le_bytes(*length) as usize;
            length > limit || length <= content.len()
        })
    }

    /// Decodes the first frame of `bytes` if it is complete, with its length. A frame is at most `limit` bytes long.
    pub(crate) fn decode(bytes: &[u8], limit: usize) -> Result<Option<(Frame, usize)>, String> {
        let Some((length, rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > limit {
            return Err(format!("a frame of {length} bytes, expected at most {limit}"));
        }
        let Some(content) = rest.get(..length) else { return Ok(None) };
        let mut content = Content(content);
        let frame = content.frame().filter(|_| content.0.is_empty());
        let frame = frame.ok_or_else(|| format!("{length} bytes that are no frame"))?;
        Ok(Some((frame, 4 + length)))
    }
}

fn data_of(bytes: &mut Vec<u8>, data: &[u8]) {
    bytes.extend((data.len() as u32).to_le_bytes());
    bytes.extend(data);
}

/// What is left of a frame.
struct Content<'a>(&'a [u8]);

impl Content<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn data(&mut self, limit: usize) -> Option<Vec<u8>> {
        let length = self.u32()? as usize;
        let (data, rest) = self.0.split_at_checked(length).filter(|_| length <= limit)?;
        self.0 = rest;
        Some(data.to_vec())
    }

    /// Texts reach terminals: what could harm one is replaced.
    fn text(&mut self) -> Option<String> {
        Some(printable(std::str::from_utf8(&self.data(TEXT_MAX)?).ok()?))
    }

    fn frame(&mut self) -> Option<Frame> {
        let [kind] = self.take()?;
        Some(match kind {
            0 => {
                self.take().filter(|magic| *magic == MAGIC)?;
                let (version, rank, of) = (self.u32()?, self.u32()?, self.u32()?);
                Frame::Hello { version, rank, of, program: self.text()? }
            }
            1 => Frame::Welcome,
            2 => Frame::Data { count: self.u64()?, data: self.data(DATA_MAX)? },
            3 => {
                let (count, ranks) = (self.u64()?, self.u32()?);
                let data = (0..ranks).map(|_| self.data(DATA_MAX)).collect::<Option<_>>()?;
                Frame::All { count, data }
            }
            4 => Frame::Raised { rank: self.u32()?, count: self.u64()? },
            5 => {
                let (rank, [kind], waited) = (self.u32()?, self.take()?, self.u64()?);
                let kind = match (kind, waited) {
                    (0, 0) => EndKind::Gone,
                    (1, waited) => EndKind::Late(waited),
                    (2, 0) => EndKind::Refused,
                    (3, 0) => EndKind::Malformed,
                    _ => return None,
                };
                Frame::End(End { rank, kind, why: self.text()? })
            }
            _ => return None,
        })
    }
}

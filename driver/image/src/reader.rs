//! Reading at offsets, with a reason for what is not there.

use crate::error::{Error, Result};

/// Limit on the entries of a table: many times what the tools of the formats write.
const ENTRIES_MAX: i64 = 1 << 16;

/// A part of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    /// Where the part begins in the file.
    start: u64,
    format: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(format: &'static str, bytes: &'a [u8]) -> Self {
        Reader { bytes, start: 0, format }
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns an error at `offset`.
    pub(crate) fn error(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::Invalid { format: self.format, offset: self.start.saturating_add(offset), what: what.into() }
    }

    /// Returns `bytes` bytes at `offset`.
    pub(crate) fn slice(&self, offset: u64, bytes: u64, what: &str) -> Result<&'a [u8]> {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.len());
        match end {
            Some(end) => Ok(&self.bytes[offset as usize..end as usize]),
            None => {
                let len = self.len();
                Err(self.error(
                    offset,
                    format!("{what} has {bytes} bytes, but only {} are left", len.saturating_sub(offset)),
                ))
            }
        }
    }

    /// Returns a part of this one.
    pub(crate) fn part(&self, offset: u64, bytes: u64, what: &str) -> Result<Reader<'a>> {
        let part = self.slice(offset, bytes, what)?;
        Ok(Reader { bytes: part, start: self.start + offset, format: self.format })
    }

    pub(crate) fn array<const N: usize>(&self, offset: u64, what: &str) -> Result<[u8; N]> {
        let slice = self.slice(offset, N as u64, what)?;
        slice.try_into().map_err(|_| self.error(offset, what))
    }

    pub(crate) fn u8(&self, offset: u64, what: &str) -> Result<u8> {
        self.array(offset, what).map(|[byte]| byte)
    }

    pub(crate) fn u16(&self, offset: u64, what: &str) -> Result<u16> {
        self.array(offset, what).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&self, offset: u64, what: &str) -> Result<u32> {
        self.array(offset, what).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&self, offset: u64, what: &str) -> Result<u64> {
        self.array(offset, what).map(u64::from_le_bytes)
    }

    /// Returns a text that ends with a NUL within `bytes` bytes.
    pub(crate) fn text(&self, offset: u64, bytes: u64, what: &str) -> Result<&'a str> {
        let field = self.slice(offset, bytes, what)?;
        let Some(end) = field.iter().position(|byte| *byte == 0) else {
            return Err(self.error(offset, format!("{what} does not end within {bytes} bytes")));
        };
        let text = &field[..end];
        match std::str::from_utf8(text) {
            Ok(text) if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) => Ok(text),
            _ => Err(self.error(offset, format!("{what} is no printable ASCII text"))),
        }
    }

    /// Returns `count` entries of `each` bytes at `offset`, of a table.
    pub(crate) fn entries(
        &self,
        offset: u64,
        count: i64,
        each: u64,
        what: &str,
    ) -> Result<impl Iterator<Item = Reader<'a>>> {
        let whole = u64::try_from(count).ok().and_then(|count| count.checked_mul(each));
        let Some(whole) = whole else {
            return Err(self.error(0, format!("{what} has {count} entries")));
        };
        let table = self.part(offset, whole, what)?;
        if count > ENTRIES_MAX {
            return Err(self.error(0, format!("{what} has {count} entries, more than {ENTRIES_MAX}")));
        }
        let (format, start) = (table.format, table.start);
        Ok(table.bytes.chunks_exact(each as usize).enumerate().map(move |(index, bytes)| Reader {
            bytes,
            start: start + index as u64 * each,
            format,
        }))
    }
}

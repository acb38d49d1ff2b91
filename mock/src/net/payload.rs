//! Bytes as they lay in a card's memory when they left it.

use std::ops::Range;
use std::sync::Arc;

/// Bytes of a frame: the piece in which memory is allocated, charged and shared. Small blocks far from each other take a frame
/// each; to share a frame costs a hundredth of copying it.
pub(crate) const FRAME: usize = 4 << 10;

/// One frame of memory. Whoever writes a shared one gets a copy of its own.
pub(crate) type Frame = Arc<[u8; FRAME]>;

/// Frames of a table.
pub(crate) const TABLE: usize = 128;

/// Frames that follow each other; `None` was never written. Whoever changes a shared one gets a copy of its own.
pub(crate) type Table = Arc<Vec<Option<Frame>>>;

/// Fewer bytes than this are copied: sharing their frame would cost its next writer more.
const SMALL: u64 = FRAME as u64;

/// What a link carries. Clones share the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Payload {
    Copied(Arc<[u8]>),
    Shared {
        /// The tables with the frames that hold the bytes; what they do not have reads as zeros.
        tables: Arc<[Option<Table>]>,
        /// Of the first byte in the first table.
        offset: usize,
        bytes: u64,
    },
}

/// Some bytes of a payload that lie together.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Piece<'a> {
    Zeros(usize),
    Bytes(&'a [u8]),
    /// A whole frame.
    Frame(&'a Frame),
}

impl Piece<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Piece::Zeros(bytes) => *bytes,
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Frame(frame) => frame.len(),
        }
    }
}

impl Payload {
    pub(crate) fn empty() -> Self {
        Payload::Copied(Arc::default())
    }

    /// Whether `bytes` bytes are copied rather than shared.
    pub(crate) fn is_small(bytes: u64) -> bool {
        bytes < SMALL
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Payload::Copied(data) => data.len() as u64,
            Payload::Shared { bytes, .. } => *bytes,
        }
    }

    /// Returns the bytes of `range` that lie together from its beginning.
    pub(crate) fn piece(&self, range: Range<u64>) -> Piece<'_> {
        match self {
            Payload::Copied(data) => Piece::Bytes(&data[range.start as usize..range.end as usize]),
            Payload::Shared { tables, offset, .. } => {
                let (start, bytes) = (range.start as usize + offset, (range.end - range.start) as usize);
                let (number, start) = (start / FRAME, start % FRAME);
                let end = FRAME.min(start + bytes);
                let table = tables[number / TABLE].as_ref();
                match table.and_then(|table| table.get(number % TABLE)?.as_ref()) {
                    None => Piece::Zeros(end - start),
                    Some(frame) if end - start == FRAME => Piece::Frame(frame),
                    Some(frame) => Piece::Bytes(&frame[start..end]),
                }
            }
        }
    }

    /// Returns the bytes of `range`, which `scratch` holds if they do not lie together.
    pub(crate) fn view<'a>(&'a self, range: Range<u64>, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        match self.piece(range.clone()) {
            Piece::Bytes(bytes) if bytes.len() as u64 == range.end - range.start => bytes,
            Piece::Frame(frame) if frame.len() as u64 == range.end - range.start => &frame[..],
            _ => {
                scratch.clear();
                self.append_to(range, scratch);
                scratch
            }
        }
    }

    /// Appends the bytes of `range` to `data`.
    pub(crate) fn append_to(&self, range: Range<u64>, data: &mut Vec<u8>) {
        let mut start = range.start;
        while start < range.end {
            let piece = self.piece(start..range.end);
            match piece {
                Piece::Zeros(bytes) => data.resize(data.len() + bytes, 0),
                Piece::Bytes(bytes) => data.extend_from_slice(bytes),
                Piece::Frame(frame) => data.extend_from_slice(&frame[..]),
            }
            start += piece.len() as u64;
        }
    }
}

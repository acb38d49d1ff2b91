//! One end of a pipe, in a board.
//!
//! The bytes of a pipe are at the writer's board, under way, or at the reader's board: together at most the capacity. The
//! reader's unit tells the writer's unit how many it has given away.

use std::collections::VecDeque;

use super::address::Target;

/// Bytes of a pipe (pipe(7), "Pipe capacity").
pub const PIPE_BYTES: usize = 65_536;

/// Bytes of data in a flit; the highest byte says what the flit is.
const DATA_BYTES: usize = 7;
const KIND: u32 = 56;
const END: u64 = 0x10 << KIND;
const READ: u64 = 0x20 << KIND;
const CLOSED: u64 = 0x30 << KIND;

/// One end of a pipe, in a board.
#[derive(Debug)]
pub(super) struct PipeUnit {
    own: Target,
    other: Target,
    is_writer: bool,
    /// At the writer: bytes that are not sent. At the reader: bytes that are not read.
    bytes: VecDeque<u8>,
    /// At the writer: bytes that may be written.
    room: usize,
    /// At the reader: bytes read that the writer does not know of.
    unreported: u32,
    /// The software has closed this end.
    pub(super) is_closed: bool,
    /// The other end knows that.
    is_close_sent: bool,
    /// The other end is closed; at the reader, nothing comes after the bytes that are there.
    pub(super) is_other_closed: bool,
    /// A flit that is not of this pipe.
    pub(super) violation: Option<u64>,
}

impl PipeUnit {
    pub(super) fn new(own: Target, other: Target, is_writer: bool) -> Self {
        PipeUnit {
            own,
            other,
            is_writer,
            bytes: VecDeque::new(),
            room: PIPE_BYTES,
            unreported: 0,
            is_closed: false,
            is_close_sent: false,
            is_other_closed: false,
            violation: None,
        }
    }

    pub(super) fn channel(&self) -> usize {
        self.own.channel.into()
    }

    /// Takes a flit of the other end.
    pub(super) fn push(&mut self, flit: u64) {
        let count = (flit >> KIND) as usize;
        let low = (flit & 0xffff_ffff) as usize;
        match flit {
            CLOSED if self.is_writer => self.is_other_closed = true,
            END if !self.is_writer => self.is_other_closed = true,
            _ if self.is_writer && flit == READ | low as u64 && self.room + low <= PIPE_BYTES => self.room += low,
            _ if !self.is_writer && (1..=DATA_BYTES).contains(&count) && self.bytes.len() + count <= PIPE_BYTES => {
                // A reader that has closed its end loses what comes, as on Linux.
                if !self.is_closed {
                    self.bytes.extend(&flit.to_le_bytes()[..count]);
                }
            }
            _ => self.violation = self.violation.or(Some(flit)),
        }
    }

    /// Returns the next flit for the other end.
    pub(super) fn peek(&self) -> Option<(Target, u64)> {
        let flit = match (self.is_writer, self.is_closed && !self.is_close_sent) {
            // The reader is not there to read.
            (true, _) if self.is_other_closed => None,
            (true, _) if !self.bytes.is_empty() => {
                let count = DATA_BYTES.min(self.bytes.len());
                let data = self.bytes.iter().take(count).rev().fold(0, |data, byte| data << 8 | u64::from(*byte));
                Some(data | (count as u64) << KIND)
            }
            (true, true) => Some(END),
            (false, true) => Some(CLOSED),
            (false, false) if self.unreported > 0 && !self.is_closed => Some(READ | u64::from(self.unreported)),
            _ => None,
        };
        flit.map(|flit| (self.other, flit))
    }

    /// Removes the flit that [`PipeUnit::peek`] returns.
    pub(super) fn pop(&mut self) {
        if self.is_writer && !self.bytes.is_empty() {
            self.bytes.drain(..DATA_BYTES.min(self.bytes.len()));
        } else if self.is_closed {
            self.is_close_sent = true;
        } else {
            self.unreported = 0;
        }
    }

    /// Takes the bytes of a write that have room, and returns how many: with `is_whole`, all or none.
    pub(super) fn write(&mut self, data: &[u8], is_whole: bool) -> usize {
        let count = if is_whole && data.len() > self.room { 0 } else { data.len().min(self.room) };
        self.bytes.extend(&data[..count]);
        self.room -= count;
        count
    }

    /// Returns the bytes that are there, up to `most`.
    pub(super) fn read(&mut self, most: usize) -> Vec<u8> {
        let data: Vec<u8> = self.bytes.drain(..most.min(self.bytes.len())).collect();
        // No more than the capacity is ever there.
        self.unreported += data.len() as u32;
        data
    }

    /// Returns whether bytes can be read.
    pub(super) fn has_bytes(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// The software closes this end.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        if !self.is_writer {
            self.bytes.clear();
        }
    }
}

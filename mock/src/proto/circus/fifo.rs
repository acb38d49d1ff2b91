//! FIFOs between the modules of a card's kernel region, and the words on CIRCUS channels.

use std::collections::VecDeque;

use crate::engine::{Cycle, Time};
use crate::proto::circus::packet::Packet;

/// Widest word of a channel, in bytes: OpenCL's uint16.
pub(crate) const WORD_BYTES_MAX: usize = 64;

/// A word of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    bytes: [u8; WORD_BYTES_MAX],
    length: usize,
    is_last: bool,
}

impl Word {
    /// Returns a word of up to 64 bytes. A message ends with it if it `is_last`: what the send kernel has is sent then.
    ///
    /// # Panics
    /// If there are more bytes.
    pub fn new(bytes: &[u8], is_last: bool) -> Self {
        let mut word = Word { bytes: [0; WORD_BYTES_MAX], length: bytes.len(), is_last };
        word.bytes[..bytes.len()].copy_from_slice(bytes);
        word
    }

    /// Returns the bytes of the word. Only the last word of a message is shorter than its channel is wide.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Returns the word with each of its little-endian u32 changed by `f`, in order. Bytes after the last whole one stay.
    pub fn map_u32(mut self, mut f: impl FnMut(u32) -> u32) -> Self {
        for number in self.bytes[..self.length].as_chunks_mut().0 {
            *number = f(u32::from_le_bytes(*number)).to_le_bytes();
        }
        self
    }

    /// Returns whether a message ends with this word.
    pub fn is_last(&self) -> bool {
        self.is_last
    }
}

/// A queue of limited length.
#[derive(Debug)]
pub(crate) struct Fifo<T> {
    items: VecDeque<T>,
    depth: usize,
}

impl<T> Fifo<T> {
    pub(crate) fn new(depth: usize) -> Self {
        Fifo { items: VecDeque::new(), depth }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.items.len() < self.depth
    }

    pub(crate) fn push(&mut self, item: T) {
        self.items.push_back(item);
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }
}

/// What went through one end of a channel. Times are in picoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Bytes put in.
    pub bytes: u64,
    /// When the first word was put in.
    pub first_put: Option<Time>,
    /// When the last word was put in.
    pub last_put: Option<Time>,
    /// When the first word was taken out.
    pub first_taken: Option<Time>,
    /// When the last word was taken out.
    pub last_taken: Option<Time>,
}

/// What the modules of a card's kernel region share.
#[derive(Debug, Default)]
pub(crate) struct Wires {
    /// Words between user logic and the send or receive kernel of a channel, and what went through.
    pub(crate) words: Vec<(Fifo<Word>, Traffic)>,
    /// Packets between send kernels and multiplexer, and between demultiplexer and receive kernels.
    pub(crate) packets: Vec<Fifo<Packet>>,
    /// Packets for which the router has room, and those given to it in this cycle.
    pub(crate) room_out: usize,
    pub(crate) outgoing: Vec<Packet>,
    /// Packets from the router, with the cycle from which the kernels see each.
    pub(crate) arriving: VecDeque<(Cycle, Packet)>,
    /// Packets dropped because no channel of this card has their id.
    pub(crate) lost_no_channel: u64,
    /// Packets dropped because packets before them in their message are missing.
    pub(crate) lost_cut: u64,
    /// The present time.
    pub(crate) now: Time,
}

impl Wires {
    /// Adds a FIFO of words and returns its number.
    pub(crate) fn add_words(&mut self, depth: usize) -> usize {
        self.words.push((Fifo::new(depth), Traffic::default()));
        self.words.len() - 1
    }

    /// Adds a FIFO of packets and returns its number.
    pub(crate) fn add_packets(&mut self, depth: usize) -> usize {
        self.packets.push(Fifo::new(depth));
        self.packets.len() - 1
    }

    pub(crate) fn put_word(&mut self, fifo: usize, word: Word) {
        let (fifo, traffic) = &mut self.words[fifo];
        traffic.bytes += word.bytes().len() as u64;
        traffic.first_put.get_or_insert(self.now);
        traffic.last_put = Some(self.now);
        fifo.push(word);
    }

    pub(crate) fn take_word(&mut self, fifo: usize) -> Option<Word> {
        let (fifo, traffic) = &mut self.words[fifo];
        let word = fifo.pop()?;
        traffic.first_taken.get_or_insert(self.now);
        traffic.last_taken = Some(self.now);
        Some(word)
    }
}

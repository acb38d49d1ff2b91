//! Remote DMA: reads and writes of a memory on another board, in packets.
//!
//! A request is the operation and the length in one word of eight bytes, the address in another, and the data of a write. The
//! unit at the memory makes operations of the memory's own width of it, with byte enables where a burst does not begin or end
//! with a word. The requester need not know that width.

use std::collections::VecDeque;

use super::address::Target;
use super::packet::{PACKET_BYTES_MAX, Packet, PacketReader};

/// Bytes of operation, length and address.
const HEAD: usize = 16;
/// Most bytes of a burst; longer accesses are several.
pub(super) const BURST: usize = PACKET_BYTES_MAX - HEAD;

/// Operations.
pub(super) const READ: u8 = 1;
pub(super) const WRITE: u8 = 2;
/// Answers.
pub(super) const DONE: u8 = 0;
pub(super) const REFUSED: u8 = 0xff;

/// What a memory has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryStatistics {
    /// Words read.
    pub reads: u64,
    /// Words written.
    pub writes: u64,
    /// Of these, with some bytes disabled.
    pub partial_writes: u64,
    /// Requests refused, with those that could not be understood.
    pub refused: u64,
}

/// An operation under way.
#[derive(Debug)]
struct Burst {
    from: Target,
    is_write: bool,
    address: usize,
    /// The first byte that is not done, from the address.
    next: usize,
    data: Vec<u8>,
}

/// A memory with its unit for remote DMA, on a channel of a board. It does one operation a cycle.
#[derive(Debug)]
pub(super) struct MemoryUnit {
    own: Target,
    /// Bytes of a word.
    width: usize,
    bytes: Vec<u8>,
    reader: PacketReader,
    running: Option<Burst>,
    answer: VecDeque<(Target, u64)>,
    statistics: MemoryStatistics,
}

impl MemoryUnit {
    pub(super) fn new(own: Target, bytes: usize, width: usize) -> Self {
        MemoryUnit {
            own,
            width: width.max(1),
            bytes: vec![0; bytes],
            reader: PacketReader::default(),
            running: None,
            answer: VecDeque::new(),
            statistics: MemoryStatistics::default(),
        }
    }

    /// Forgets its requests; the memory keeps its bytes.
    pub(super) fn restart(&mut self) {
        self.reader = PacketReader::default();
        self.running = None;
        self.answer.clear();
    }

    pub(super) fn channel(&self) -> usize {
        self.own.channel.into()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn statistics(&self) -> MemoryStatistics {
        self.statistics
    }

    /// Returns the next flit of an answer.
    pub(super) fn peek(&self) -> Option<(Target, u64)> {
        self.answer.front().copied()
    }

    pub(super) fn pop(&mut self) {
        self.answer.pop_front();
    }

    /// Returns whether the unit takes a flit: it has neither an operation nor an answer to send.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_none() && self.answer.is_empty()
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Takes a flit of a request.
    pub(super) fn push(&mut self, flit: u64) {
        match self.reader.push(flit) {
            Ok(None) => {}
            Ok(Some(packet)) => self.begin(packet),
            // No sender to answer: it is counted.
            Err(_) => self.statistics.refused += 1,
        }
    }

    /// Does one operation on a word.
    pub(super) fn run(&mut self) {
        let Some(mut burst) = self.running.take() else { return };
        let at = burst.address + burst.next;
        let word_end = (at / self.width + 1) * self.width;
        let bytes = (word_end - at).min(burst.data.len() - burst.next);
        let here = burst.next..burst.next + bytes;
        if burst.is_write {
            self.bytes[at..at + bytes].copy_from_slice(&burst.data[here]);
            self.statistics.writes += 1;
            self.statistics.partial_writes += u64::from(bytes < self.width);
        } else {
            burst.data[here].copy_from_slice(&self.bytes[at..at + bytes]);
            self.statistics.reads += 1;
        }
        burst.next += bytes;
        if burst.next < burst.data.len() {
            self.running = Some(burst);
        } else {
            self.reply(burst.from, DONE, if burst.is_write { &[] } else { &burst.data });
        }
    }

    fn begin(&mut self, packet: Packet) {
        match self.accept(&packet) {
            Some(burst) if burst.data.is_empty() => self.reply(burst.from, DONE, &[]),
            Some(burst) => self.running = Some(burst),
            None => {
                self.statistics.refused += 1;
                self.reply(packet.from, REFUSED, &[]);
            }
        }
    }

    /// Returns the burst of a request that is well-formed and within the memory.
    fn accept(&self, packet: &Packet) -> Option<Burst> {
        let (head, data) = packet.bytes.split_first_chunk::<HEAD>()?;
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let address = usize::try_from(u64::from_le_bytes(*head.last_chunk()?)).ok()?;
        let is_inside = address.checked_add(length).is_some_and(|end| end <= self.bytes.len());
        let data = match head[0] {
            READ if data.is_empty() && length <= BURST => vec![0; length],
            WRITE if data.len() == length => data.to_vec(),
            _ => return None,
        };
        let is_valid = is_inside && head[1..4] == [0; 3];
        is_valid.then_some(Burst { from: packet.from, is_write: head[0] == WRITE, address, next: 0, data })
    }

    fn reply(&mut self, to: Target, status: u8, data: &[u8]) {
        let bytes = [&[status, 0, 0, 0, 0, 0, 0, 0], data].concat();
        // No burst is longer than a packet with a longer head.
        let flits = Packet { from: self.own, bytes }.flits().unwrap_or_default();
        self.answer.extend(flits.into_iter().map(|flit| (to, flit)));
    }
}

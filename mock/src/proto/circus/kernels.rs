//! The kernels that CIRCUS generates: send, receive, multiplexer and demultiplexer; and the host's ends of channels.

use std::collections::VecDeque;

use crate::engine::{Clocked, Cycle};
use crate::net::arbiter::RoundRobin;
use crate::proto::circus::fifo::{WORD_BYTES_MAX, Wires, Word};
use crate::proto::circus::packet::{PAYLOAD_BYTES, Packet};
use crate::proto::circus::pipe::Pipe;
use crate::proto::circus::user_logic::User;

/// A module of a card's kernel region.
pub(crate) enum Module {
    /// Half of an end that the host has not opened.
    Idle,
    Source(Source),
    Sink(Sink),
    Send(Send),
    Receive(Receive),
    Multiplexer(Multiplexer),
    Demultiplexer(Demultiplexer),
    User(User),
}

impl Clocked<Wires> for Module {
    fn consume(&mut self, cycle: Cycle, wires: &mut Wires) {
        match self {
            Module::Idle | Module::Source(_) => {}
            Module::Sink(sink) => sink.consume(wires),
            Module::Send(send) => send.consume(cycle, wires),
            Module::Receive(receive) => receive.consume(cycle, wires),
            Module::Multiplexer(multiplexer) => multiplexer.consume(wires),
            Module::Demultiplexer(demultiplexer) => demultiplexer.consume(cycle, wires),
            Module::User(user) => user.consume(cycle, wires),
        }
    }

    fn produce(&mut self, cycle: Cycle, wires: &mut Wires) -> Option<Cycle> {
        match self {
            Module::Idle => None,
            Module::Source(source) => source.produce(wires).then_some(cycle + 1),
            Module::Sink(sink) => std::mem::take(&mut sink.is_active).then_some(cycle + 1),
            Module::Send(send) => send.produce(cycle, wires),
            Module::Receive(receive) => receive.produce(cycle, wires),
            Module::Multiplexer(multiplexer) => multiplexer.produce(wires).then_some(cycle + 1),
            Module::Demultiplexer(demultiplexer) => demultiplexer.produce(cycle, wires),
            Module::User(user) => user.produce(cycle, wires),
        }
    }
}

impl Module {
    /// Returns whether something that the module holds or is to take has not reached its end.
    pub(crate) fn is_busy(&self, wires: &Wires) -> bool {
        match self {
            Module::Idle => false,
            Module::Source(source) => !source.is_empty(),
            Module::Sink(sink) => wires.words[sink.from].0.len() > 0,
            Module::Send(send) => !send.pipe.is_empty() || send.is_ending,
            Module::Receive(receive) => !receive.pipe.is_empty() || receive.is_ending,
            Module::Multiplexer(multiplexer) => multiplexer.held.is_some(),
            Module::Demultiplexer(demultiplexer) => demultiplexer.held.is_some(),
            Module::User(user) => user.is_busy(),
        }
    }
}

/// The host's end of a channel that it writes.
pub(crate) struct Source {
    pub(crate) to: usize,
    pub(crate) word_bytes: usize,
    /// What is still to be put in.
    pub(crate) bytes: VecDeque<u8>,
    /// Bytes put in so far, and at which numbers of bytes messages end.
    pub(crate) put: u64,
    pub(crate) ends: VecDeque<u64>,
    /// Whether words were added that no message ends with.
    pub(crate) is_within: bool,
}

impl Source {
    pub(crate) fn new(to: usize, word_bytes: usize) -> Self {
        Source { to, word_bytes, bytes: VecDeque::new(), put: 0, ends: VecDeque::new(), is_within: false }
    }

    /// Adds bytes of words, of which the last one may end a message.
    pub(crate) fn push(&mut self, bytes: &[u8], is_last: bool) {
        self.bytes.extend(bytes);
        self.is_within = !is_last && (self.is_within || !bytes.is_empty());
        if is_last {
            self.ends.push_back(self.put + self.bytes.len() as u64);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.ends.is_empty()
    }

    fn produce(&mut self, wires: &mut Wires) -> bool {
        if !wires.words[self.to].0.has_room() {
            return false;
        }
        let to_end = self.ends.front().map(|end| (end - self.put) as usize);
        let length = match to_end {
            Some(left) if left <= self.word_bytes => left,
            _ if self.bytes.len() >= self.word_bytes => self.word_bytes,
            _ => return false,
        };
        let is_last = to_end == Some(length);
        let mut word = [0; WORD_BYTES_MAX];
        word.iter_mut().zip(self.bytes.drain(..length)).for_each(|(place, byte)| *place = byte);
        wires.put_word(self.to, Word::new(&word[..length], is_last));
        self.put += length as u64;
        if is_last {
            self.ends.pop_front();
        }
        true
    }
}

/// The host's end of a channel that it reads.
pub(crate) struct Sink {
    pub(crate) from: usize,
    /// What the host has not taken yet, and how much that can be.
    pub(crate) received: VecDeque<u8>,
    pub(crate) most: usize,
    pub(crate) is_active: bool,
}

impl Sink {
    pub(crate) fn new(from: usize, most: usize) -> Self {
        Sink { from, received: VecDeque::new(), most, is_active: false }
    }

    fn consume(&mut self, wires: &mut Wires) {
        if self.received.len() < self.most
            && let Some(word) = wires.take_word(self.from)
        {
            self.received.extend(word.bytes());
            self.is_active = true;
        }
    }
}

/// Packs words into packets. Payloads are full, but at the end of a message.
pub(crate) struct Send {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) destination: u32,
    pub(crate) channel: u8,
    pub(crate) buffer: VecDeque<u8>,
    /// Whether a message ends with what is in the buffer.
    pub(crate) is_ending: bool,
    /// Whether a message begins with the next packet, and its number.
    pub(crate) is_first: bool,
    pub(crate) number: u8,
    pub(crate) pipe: Pipe<Packet>,
    pub(crate) is_active: bool,
}

impl Send {
    pub(crate) fn new((from, to): (usize, usize), (destination, channel): (u32, u8), cycles: u64) -> Self {
        Send {
            from,
            to,
            destination,
            channel,
            buffer: VecDeque::new(),
            is_ending: false,
            is_first: true,
            number: 0,
            pipe: Pipe::new(cycles),
            is_active: false,
        }
    }

    /// Returns whether it has nothing to send, not even with the end of a message.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.pipe.is_empty() && !self.is_ending
    }

    fn consume(&mut self, cycle: Cycle, wires: &mut Wires) {
        self.is_active = false;
        if !self.pipe.has_room() {
            return;
        }
        if self.buffer.len() < PAYLOAD_BYTES
            && !self.is_ending
            && let Some(word) = wires.take_word(self.from)
        {
            self.buffer.extend(word.bytes());
            self.is_ending = word.is_last();
            self.is_active = true;
        }
        if self.buffer.len() >= PAYLOAD_BYTES || self.is_ending {
            let length = self.buffer.len().min(PAYLOAD_BYTES);
            let mut payload = [0; PAYLOAD_BYTES];
            payload.iter_mut().zip(self.buffer.drain(..length)).for_each(|(place, byte)| *place = byte);
            let is_last = self.is_ending && self.buffer.is_empty();
            self.is_ending &= !is_last;
            let Send { destination, channel, is_first, number, .. } = *self;
            let packet = Packet { destination, channel, payload, length: length as u8, is_last, is_first, number };
            self.pipe.put(cycle, packet);
            self.is_first = is_last;
            self.number = number.wrapping_add(1);
            self.is_active = true;
        }
    }

    fn produce(&mut self, cycle: Cycle, wires: &mut Wires) -> Option<Cycle> {
        if wires.packets[self.to].has_room()
            && let Some(packet) = self.pipe.take(cycle)
        {
            wires.packets[self.to].push(packet);
            self.is_active = true;
        }
        if self.is_active { Some(cycle + 1) } else { self.pipe.next(cycle) }
    }
}

/// Takes payloads out of packets, and cuts them into words. Words that cross packets begin nowhere known behind a packet that is
/// missing, so the rest of the message is dropped.
pub(crate) struct Receive {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) word_bytes: usize,
    pub(crate) buffer: VecDeque<u8>,
    /// Number of the packet that goes on with the message; `None` unless one has begun.
    pub(crate) next: Option<u8>,
    /// Whether a message ends with what is in the buffer.
    pub(crate) is_ending: bool,
    pub(crate) pipe: Pipe<Word>,
    pub(crate) is_active: bool,
}

impl Receive {
    pub(crate) fn new((from, to): (usize, usize), word_bytes: usize, cycles: u64) -> Self {
        let (buffer, pipe) = (VecDeque::new(), Pipe::new(cycles));
        Receive { from, to, word_bytes, buffer, next: None, is_ending: false, pipe, is_active: false }
    }

    fn consume(&mut self, cycle: Cycle, wires: &mut Wires) {
        self.is_active = false;
        if !self.pipe.has_room() {
            return;
        }
        if self.buffer.len() < self.word_bytes
            && !self.is_ending
            && let Some(packet) = wires.packets[self.from].pop()
        {
            wires.lost_cut += u64::from(!self.unpack(&packet));
            self.is_active = true;
        }
        if self.buffer.len() >= self.word_bytes || self.is_ending {
            let length = self.buffer.len().min(self.word_bytes);
            let is_last = self.is_ending && self.buffer.len() == length;
            let word = Word::new(&self.buffer.make_contiguous()[..length], is_last);
            self.buffer.drain(..length);
            self.is_ending &= !is_last;
            self.pipe.put(cycle, word);
            self.is_active = true;
        }
    }

    /// Takes the payload of a packet that begins with a word or goes on with the message. Drops any other one, and returns `false`.
    fn unpack(&mut self, packet: &Packet) -> bool {
        let goes_on = !packet.is_first && self.next == Some(packet.number);
        if !goes_on {
            // Part of a word of which the rest is missing.
            self.buffer.clear();
            self.next = None;
        }
        if !goes_on && !packet.is_first && !PAYLOAD_BYTES.is_multiple_of(self.word_bytes) {
            return false;
        }
        // A bit error can give any length.
        let length = PAYLOAD_BYTES.min(packet.length.into());
        self.buffer.extend(&packet.payload[..length]);
        self.is_ending = packet.is_last;
        self.next = (!packet.is_last).then_some(packet.number.wrapping_add(1));
        true
    }

    fn produce(&mut self, cycle: Cycle, wires: &mut Wires) -> Option<Cycle> {
        if wires.words[self.to].0.has_room()
            && let Some(word) = self.pipe.take(cycle)
        {
            wires.put_word(self.to, word);
            self.is_active = true;
        }
        if self.is_active { Some(cycle + 1) } else { self.pipe.next(cycle) }
    }
}

/// Gives the packets of all send kernels to the router, in turn.
#[derive(Default)]
pub(crate) struct Multiplexer {
    pub(crate) from: Vec<usize>,
    pub(crate) arbiter: RoundRobin,
    pub(crate) held: Option<Packet>,
    pub(crate) is_active: bool,
}

impl Multiplexer {
    fn consume(&mut self, wires: &mut Wires) {
        self.is_active = false;
        if self.held.is_some() {
            return;
        }
        let from = &self.from;
        let granted = self.arbiter.grant(from.len(), |request| wires.packets[from[request]].len() > 0);
        self.held = granted.and_then(|request| wires.packets[from[request]].pop());
        self.is_active = self.held.is_some();
    }

    fn produce(&mut self, wires: &mut Wires) -> bool {
        if wires.room_out > 0
            && let Some(packet) = self.held.take()
        {
            wires.room_out -= 1;
            wires.outgoing.push(packet);
            self.is_active = true;
        }
        self.is_active
    }
}

/// Gives each packet from the router to the receive kernel of its channel; the packets behind one that waits wait too.
#[derive(Default)]
pub(crate) struct Demultiplexer {
    /// FIFO of packets, by channel; `None` for a channel that nobody reads.
    pub(crate) to: Vec<Option<usize>>,
    pub(crate) held: Option<Packet>,
    pub(crate) is_active: bool,
}

impl Demultiplexer {
    fn consume(&mut self, cycle: Cycle, wires: &mut Wires) {
        self.is_active = false;
        if self.held.is_none() && wires.arriving.front().is_some_and(|arriving| arriving.0 <= cycle) {
            self.held = wires.arriving.pop_front().map(|arriving| arriving.1);
            self.is_active = true;
        }
    }

    fn produce(&mut self, cycle: Cycle, wires: &mut Wires) -> Option<Cycle> {
        if let Some(packet) = self.held {
            let fifo = self.to.get(usize::from(packet.channel)).copied().flatten().map(|fifo| &mut wires.packets[fifo]);
            let is_gone = match fifo {
                Some(fifo) if fifo.has_room() => {
                    fifo.push(packet);
                    true
                }
                Some(_) => false,
                None => {
                    wires.lost_no_channel += 1;
                    true
                }
            };
            if is_gone {
                self.held = None;
                self.is_active = true;
            }
        }
        let next = wires.arriving.front().map(|arriving| arriving.0).filter(|at| *at > cycle);
        if self.is_active { Some(cycle + 1) } else { next }
    }
}

//! The kernels that CIRCUS generates: send, receive, multiplexer and demultiplexer; and the host's ends of channels.

use std::collections::VecDeque;

use crate::engine::{Clocked, Cycle};
use crate::net::arbiter::RoundRobin;
use crate::proto::circus::fifo::{Wires, Word};
use crate::proto::circus::packet::{PAYLOAD_BYTES, Packet};
use crate::proto::circus::pipe::Pipe;
use crate::proto::circus::user_logic::User;

/// A module of a card's kernel region.
pub(crate) enum Module {
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
            Module::Source(_) => {}
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
            Module::Source(source) => !source.messages.is_empty(),
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
    /// What is still to be put in, message by message; the first one's bytes before the number were put in.
    pub(crate) messages: VecDeque<Vec<u8>>,
    pub(crate) put: usize,
}

impl Source {
    fn produce(&mut self, wires: &mut Wires) -> bool {
        let Some(message) = self.messages.front().filter(|_| wires.words[self.to].0.has_room()) else { return false };
        let end = message.len().min(self.put + self.word_bytes);
        let is_last = end == message.len();
        wires.put_word(self.to, Word::new(&message[self.put..end], is_last));
        self.put = end;
        if is_last {
            self.messages.pop_front();
            self.put = 0;
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
    pub(crate) pipe: Pipe<Packet>,
    pub(crate) is_active: bool,
}

impl Send {
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
            let (destination, channel, length) = (self.destination, self.channel, length as u8);
            self.pipe.put(cycle, Packet { destination, channel, payload, length, is_last });
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

/// Takes payloads out of packets, and cuts them into words.
pub(crate) struct Receive {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) word_bytes: usize,
    pub(crate) buffer: VecDeque<u8>,
    /// Whether a message ends with what is in the buffer.
    pub(crate) is_ending: bool,
    pub(crate) pipe: Pipe<Word>,
    pub(crate) is_active: bool,
}

impl Receive {
    fn consume(&mut self, cycle: Cycle, wires: &mut Wires) {
        self.is_active = false;
        if !self.pipe.has_room() {
            return;
        }
        if self.buffer.len() < self.word_bytes
            && !self.is_ending
            && let Some(packet) = wires.packets[self.from].pop()
        {
            // A bit error can give any length.
            let length = PAYLOAD_BYTES.min(packet.length.into());
            self.buffer.extend(&packet.payload[..length]);
            self.is_ending = packet.is_last;
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
    /// FIFO of packets, by channel.
    pub(crate) to: Vec<usize>,
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
            let fifo = self.to.get(usize::from(packet.channel)).map(|fifo| &mut wires.packets[*fifo]);
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

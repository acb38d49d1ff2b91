//! One card: a router on the clock of the links, and kernels on a clock of their own.

use crate::engine::{Clock, Component, ComponentId, Context, Cycle, Region, Time};
use crate::net::flit::{FLIT_BYTES, Flit, train};
use crate::net::noise::BitErrors;
use crate::net::replay::{Answer, InOrder, Window};
use crate::net::router::{Exits, Router};
use crate::net::serial::Transmitter;
use crate::profile::circus::PACKET_BYTES;
use crate::proto::circus::fifo::Wires;
use crate::proto::circus::kernels::Module;
use crate::proto::circus::packet::{Format, Packet};

/// Virtual channel on which a packet enters a router from its own card.
const ENTRY: usize = 0;

/// What happens to a card.
#[derive(Debug)]
pub(crate) enum Message {
    /// A cycle of the router.
    RouterCycle,
    /// A cycle of the kernels.
    KernelCycle,
    /// The host gave or took data.
    Host,
    /// A flit comes out of a link, with its number there; it is not good if its CRC is wrong.
    Flit { port: usize, number: u64, is_good: bool, flit: Flit },
    /// The card at the other end of a link has room for one more flit.
    Credit { port: usize, virtual_channel: usize },
    /// The card at the other end of a link has taken flits, or misses one.
    Answer { port: usize, answer: Answer },
}

/// One link of a card: the way out, and what it remembers of the way in.
#[derive(Debug)]
pub(crate) struct Line {
    /// The card at the other end, and the port there.
    pub(crate) peer: ComponentId,
    pub(crate) peer_port: usize,
    pub(crate) latency: Time,
    pub(crate) transmitter: Transmitter,
    pub(crate) errors: BitErrors,
    /// With retransmission, flits that may have to be sent again.
    pub(crate) window: Option<Window>,
    /// Flits sent, without retransmission.
    pub(crate) sent: u64,
    pub(crate) in_order: InOrder,
    /// Flits that came in with a wrong CRC.
    pub(crate) bad_flits: u64,
    /// Flits sent again.
    pub(crate) sent_again: u64,
}

impl Line {
    /// Sends a flit, and returns when it arrives and as what.
    fn send(&mut self, now: Time, number: u64, mut flit: Flit) -> (Time, Message) {
        let arrives = self.transmitter.send(now) + self.latency;
        let is_good = self.errors.pass(&mut flit.word) == 0;
        (arrives, Message::Flit { port: self.peer_port, number, is_good, flit })
    }
}

/// What is around the router: links, and the card's own kernels.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) lines: Vec<Option<Line>>,
    pub(crate) format: Format,
    pub(crate) has_credits: bool,
    /// Messages to other cards, with the time at which each arrives.
    outbox: Vec<(ComponentId, Time, Message)>,
    /// Bytes of the packet that leaves the router toward the kernels.
    partial: Vec<u8>,
    ejected: Vec<Packet>,
    /// Packets for which the kernels have room.
    room: usize,
    /// Whether the router took something that came from the kernels.
    is_local_freed: bool,
}

impl Exits for Surroundings {
    fn room_at(&mut self, port: usize, now: Time) -> Option<Time> {
        match self.lines.get_mut(port) {
            Some(Some(line)) if line.window.as_ref().is_some_and(|window| !window.has_room()) => None,
            Some(Some(line)) => Some(line.transmitter.room_at(now)),
            _ => (self.room > 0 || !self.partial.is_empty()).then_some(now),
        }
    }

    fn give(&mut self, port: usize, now: Time, flit: Flit) {
        if let Some(Some(line)) = self.lines.get_mut(port) {
            let number = line.window.as_mut().map_or(line.sent, |window| window.keep(flit));
            line.sent += 1;
            let (arrives, message) = line.send(now, number, flit);
            self.outbox.push((line.peer, arrives, message));
            return;
        }
        if flit.is_head {
            self.room = self.room.saturating_sub(1);
        }
        self.partial.extend(flit.word);
        if flit.is_tail {
            if let Some(bytes) = self.partial.first_chunk::<PACKET_BYTES>() {
                self.ejected.push(self.format.decode(bytes));
            }
            self.partial.clear();
        }
    }

    fn freed(&mut self, now: Time, port: usize, virtual_channel: usize) {
        match self.lines.get(port) {
            Some(Some(line)) if self.has_credits => {
                let message = Message::Credit { port: line.peer_port, virtual_channel };
                self.outbox.push((line.peer, now + line.latency, message));
            }
            Some(_) => {}
            None => self.is_local_freed = true,
        }
    }

    fn destination(&self, head: &Flit) -> usize {
        let mut bytes = [0; PACKET_BYTES];
        bytes[..FLIT_BYTES].copy_from_slice(&head.word);
        self.format.decode(&bytes).destination as usize
    }
}

/// A card of a network.
pub(crate) struct Card {
    pub(crate) router: Region<Router>,
    pub(crate) surroundings: Surroundings,
    pub(crate) kernels: Region<Module>,
    pub(crate) wires: Wires,
    /// Cycles of the reading clock through an I/O channel, and packets behind the one from the router.
    io_cycles: Cycle,
    io_packets: usize,
}

impl Component for Card {
    type Message = Message;

    fn receive(&mut self, message: Message, context: &mut Context<'_, Message>) {
        match message {
            Message::RouterCycle => self.run_router(context),
            Message::KernelCycle => self.run_kernels(context),
            Message::Host => self.wake_kernels(context.now(), context),
            Message::Flit { port, number, is_good, flit } => self.arrive(port, number, is_good, flit, context),
            Message::Credit { port, virtual_channel } => {
                self.router_mut().add_credit(port, virtual_channel);
                self.wake_router(context.now(), context);
            }
            Message::Answer { port, answer } => self.answered(port, answer, context),
        }
    }
}

impl Card {
    /// Returns a card without links.
    pub(crate) fn new(
        (router_clock, router): (Clock, Router),
        (kernel_clock, modules): (Clock, Vec<Module>),
        wires: Wires,
        (format, has_credits): (Format, bool),
        (io_cycles, io_packets): (u64, usize),
    ) -> Self {
        Card {
            router: Region::new(router_clock, [router]),
            surroundings: Surroundings {
                lines: Vec::new(),
                format,
                has_credits,
                outbox: Vec::new(),
                partial: Vec::new(),
                ejected: Vec::new(),
                room: 0,
                is_local_freed: false,
            },
            kernels: Region::new(kernel_clock, modules),
            wires,
            io_cycles: io_cycles.into(),
            io_packets,
        }
    }

    pub(crate) fn router(&self) -> &Router {
        &self.router.modules()[0]
    }

    pub(crate) fn router_mut(&mut self) -> &mut Router {
        &mut self.router.modules_mut()[0]
    }

    /// The port between router and kernels.
    pub(crate) fn local(&self) -> usize {
        self.surroundings.lines.len()
    }

    /// Returns whether data is in the card that has not reached user logic or the host.
    pub(crate) fn is_busy(&self) -> bool {
        self.router().is_busy()
            || !self.wires.arriving.is_empty()
            || self.wires.packets.iter().any(|fifo| fifo.len() > 0)
            || self.kernels.modules().iter().any(|module| module.is_busy(&self.wires))
    }

    fn wake_router(&mut self, at: Time, context: &mut Context<'_, Message>) {
        if let Some(edge) = self.router.wake(at) {
            context.wake(edge - context.now(), Message::RouterCycle);
        }
    }

    fn wake_kernels(&mut self, at: Time, context: &mut Context<'_, Message>) {
        if let Some(edge) = self.kernels.wake(at) {
            context.wake(edge - context.now(), Message::KernelCycle);
        }
    }

    fn run_router(&mut self, context: &mut Context<'_, Message>) {
        let now = context.now();
        self.surroundings.room = self.io_packets.saturating_sub(self.wires.arriving.len());
        if let Some(edge) = self.router.run(now, &mut self.surroundings) {
            context.wake(edge - now, Message::RouterCycle);
        }
        for (to, at, message) in self.surroundings.outbox.drain(..) {
            context.send(to, at - now, message);
        }
        if !self.surroundings.ejected.is_empty() {
            let clock = self.kernels.clock();
            let cycle = clock.cycle_at_or_after(now) + self.io_cycles;
            self.wires.arriving.extend(self.surroundings.ejected.drain(..).map(|packet| (cycle, packet)));
            self.wake_kernels(clock.edge(cycle), context);
        }
        if std::mem::take(&mut self.surroundings.is_local_freed) {
            self.wake_kernels(now, context);
        }
    }

    fn run_kernels(&mut self, context: &mut Context<'_, Message>) {
        let (now, local) = (context.now(), self.local());
        self.wires.now = now;
        self.wires.room_out = self.router().room(local, ENTRY) / PACKET_BYTES.div_ceil(FLIT_BYTES);
        let arriving = self.wires.arriving.len();
        if let Some(edge) = self.kernels.run(now, &mut self.wires) {
            context.wake(edge - now, Message::KernelCycle);
        }
        if self.wires.arriving.len() < arriving {
            self.wake_router(now, context);
        }
        let clock = self.router.clock();
        let first = clock.cycle_at_or_after(now) + self.io_cycles;
        let format = self.surroundings.format;
        let flits: Vec<Flit> = self.wires.outgoing.drain(..).flat_map(|packet| flits(format, &packet)).collect();
        for (cycle, flit) in (first..).zip(flits) {
            if let Some(ready) = self.router_mut().accept(local, clock.edge(cycle), flit) {
                self.wake_router(ready, context);
            }
        }
    }

    fn arrive(&mut self, port: usize, number: u64, is_good: bool, flit: Flit, context: &mut Context<'_, Message>) {
        let Some(Some(line)) = self.surroundings.lines.get_mut(port) else { return };
        line.bad_flits += u64::from(!is_good);
        if line.window.is_some() {
            let (is_next, answer) = line.in_order.take(number, is_good);
            if let Some(answer) = answer {
                let message = Message::Answer { port: line.peer_port, answer };
                context.send(line.peer, line.latency, message);
            }
            if !is_next {
                return;
            }
        }
        if let Some(ready) = self.router_mut().accept(port, context.now(), flit) {
            self.wake_router(ready, context);
        }
    }

    fn answered(&mut self, port: usize, answer: Answer, context: &mut Context<'_, Message>) {
        let Some(Some(line)) = self.surroundings.lines.get_mut(port) else { return };
        let again: Vec<(u64, Flit)> =
            line.window.as_mut().map(|window| window.answer(answer).collect()).unwrap_or_default();
        line.sent_again += again.len() as u64;
        for (number, flit) in again {
            let (arrives, message) = line.send(context.now(), number, flit);
            context.send(line.peer, arrives - context.now(), message);
        }
        self.wake_router(context.now(), context);
    }
}

fn flits(format: Format, packet: &Packet) -> Vec<Flit> {
    train(&format.encode(packet)).collect()
}

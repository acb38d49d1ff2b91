//! A switch: a virtual channel router, packet converters, and collective units beside the crossbar.
//!
//! A packet for this switch goes from its input to the collective units, of all inputs at once. What the units make enters
//! the router at an input of its own for each output, so they can feed all outputs in one cycle.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cmdseq::switch::{Call, Chunk, Head, Member, PROCESSOR, PROCESSOR_HEADER_BYTES, Step, SwitchPosition};

use crate::engine::{Clock, Component, ComponentId, Context, Region, Time};
use crate::net::flit::{FLIT_BYTES, Flit};
use crate::net::router::{Exits, Router};
use crate::net::serial::Transmitter;
use crate::proto::communicator_table::Table;
use crate::proto::mpi_fpga::header::{Packet, destination_of, era_of, leader_of, read_processor_header};
use crate::proto::mpi_fpga::host::Host;
use crate::proto::mpi_fpga::message::Message;
use crate::proto::mpi_fpga::units::{Emitted, Units};

/// A component of a network.
#[derive(Debug)]
pub(crate) enum Node {
    Host(Box<Host>),
    Switch(Box<Switch>),
}

impl Component for Node {
    type Message = Message;

    fn receive(&mut self, message: Message, context: &mut Context<'_, Message>) {
        match self {
            Node::Host(host) => host.receive(message, context),
            Node::Switch(switch) => switch.receive(message, context),
        }
    }
}

/// What a switch knows of communicators.
#[derive(Debug)]
pub(crate) enum Members {
    /// The published table of a card; its processor and the first address of a switch.
    Card { table: Arc<Table>, processor: u16, switches: u16 },
    /// Processors by rank, for each entry and lowest processor.
    Tree { position: SwitchPosition, groups: BTreeMap<(u8, u16), Vec<u16>> },
}

impl Members {
    /// Returns rank and size of a processor in the communicator of an entry.
    fn rank(&self, context: u8, number: u32, processor: u16) -> Option<(u32, u32)> {
        match self {
            Members::Card { table, .. } => table.occupant(context.into()).map(|entry| (entry.own_rank(), entry.size())),
            Members::Tree { groups, .. } => {
                let members = groups.get(&(context, leader_of(number)))?;
                let rank = members.iter().position(|member| *member == processor)?;
                Some((rank as u32, members.len() as u32))
            }
        }
    }

    fn steps(&self, head: &Head) -> Option<Vec<Step>> {
        match self {
            Members::Card { table, processor, switches } => {
                let entry = table.occupant(head.context.into())?;
                let peer = |bit: u32| entry.peer(bit).map(|peer| peer.node);
                let (rank, size) = (entry.own_rank(), entry.size());
                let member = Member { rank, size, peer: &peer, processor: *processor, switches: *switches };
                Some(member.steps(head))
            }
            Members::Tree { position, groups } => {
                Some(position.steps(head, groups.get(&(head.context, leader_of(head.number)))?))
            }
        }
    }

    /// Returns the tag of the processor at a port.
    fn tag(&self, port: usize) -> u8 {
        match self {
            Members::Card { .. } => PROCESSOR,
            Members::Tree { .. } => port as u8,
        }
    }
}

/// One cable of a switch.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) peer: ComponentId,
    pub(crate) peer_port: usize,
    pub(crate) latency: Time,
    pub(crate) transmitter: Transmitter,
    /// The processor there, if it is one.
    pub(crate) processor: Option<u16>,
}

/// What is around the router.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) lines: Vec<Option<Line>>,
    outbox: Vec<(ComponentId, Time, Message)>,
    /// Outputs whose input for results has room again.
    refill: Vec<usize>,
}

impl Exits for Surroundings {
    fn room_at(&mut self, port: usize, now: Time) -> Option<Time> {
        self.lines.get_mut(port)?.as_mut().map(|line| line.transmitter.room_at(now))
    }

    fn give(&mut self, port: usize, now: Time, flit: Flit) {
        let Some(Some(line)) = self.lines.get_mut(port) else { return };
        let arrives = line.transmitter.send(now) + line.latency;
        self.outbox.push((line.peer, arrives, Message::Flit { port: line.peer_port, flit }));
    }

    fn freed(&mut self, now: Time, port: usize, virtual_channel: usize) {
        match self.lines.get(port) {
            Some(Some(line)) => {
                let message = Message::Credit { port: line.peer_port, virtual_channel, phits: 1 };
                self.outbox.push((line.peer, now + line.latency, message));
            }
            Some(None) => {}
            None => self.refill.push(port - self.lines.len()),
        }
    }

    fn destination(&self, head: &Flit) -> usize {
        destination_of(head).into()
    }
}

/// Port, entry of the communicator table, and number of the call.
type StreamId = (usize, u8, u32);

/// A message that comes from a processor.
#[derive(Debug)]
struct Stream {
    call: Call,
    number: u32,
    blocks: std::ops::Range<u32>,
    /// Chunk of the first block that comes next.
    index: u32,
    bytes: Vec<u8>,
    /// Bytes that the units used, and phits of the FIFO given back.
    used: usize,
    total: usize,
    given_back: usize,
}

#[derive(Debug)]
pub(crate) struct Switch {
    pub(crate) address: u16,
    pub(crate) router: Region<Router>,
    pub(crate) surroundings: Surroundings,
    pub(crate) members: Members,
    pub(crate) units: Units,
    table: Vec<Option<u8>>,
    /// Packets for the units that have not fully arrived, by port and virtual channel.
    arriving: BTreeMap<(usize, usize), Vec<u8>>,
    /// Messages of processors of which the units have not used all.
    streams: BTreeMap<StreamId, Stream>,
    /// What comes from a processor, by port.
    incoming: BTreeMap<usize, StreamId>,
    /// By entry and lowest member, the era of the calls that are not over.
    pub(crate) eras: BTreeMap<(u8, u16), u16>,
    /// Flits of results, by output.
    results: Vec<VecDeque<Flit>>,
    /// Packets of communicators that are not in the table.
    pub(crate) unknown: u64,
}

impl Switch {
    pub(crate) fn new(
        address: u16,
        (clock, router): (Clock, Router),
        members: Members,
        units: Units,
        table: Vec<Option<u8>>,
    ) -> Self {
        let surroundings = Surroundings { lines: Vec::new(), outbox: Vec::new(), refill: Vec::new() };
        Switch {
            address,
            router: Region::new(clock, [router]),
            surroundings,
            members,
            units,
            table,
            arriving: BTreeMap::new(),
            streams: BTreeMap::new(),
            incoming: BTreeMap::new(),
            eras: BTreeMap::new(),
            results: Vec::new(),
            unknown: 0,
        }
    }

    /// Lays the cables.
    pub(crate) fn connect(&mut self, lines: Vec<Option<Line>>) {
        self.results = lines.iter().map(|_| VecDeque::new()).collect();
        self.surroundings.lines = lines;
    }

    /// Whether anything is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.router.modules()[0].is_busy() || self.units.busy() > 0 || self.results.iter().any(|one| !one.is_empty())
    }

    fn receive(&mut self, message: Message, context: &mut Context<'_, Message>) {
        match message {
            Message::Cycle => {
                let now = context.now();
                if let Some(edge) = self.router.run(now, &mut self.surroundings) {
                    context.wake(edge - now, Message::Cycle);
                }
                for output in std::mem::take(&mut self.surroundings.refill) {
                    self.feed(output, context);
                }
            }
            Message::Credit { port, virtual_channel, .. } => {
                self.router.modules_mut()[0].add_credit(port, virtual_channel);
                self.wake(context.now(), context);
            }
            Message::Emit(emitted) => self.emit(*emitted, context),
            Message::Flit { port, flit } => self.arrive(port, flit, context),
            Message::EndCalls { entry, era } => self.end_calls(entry, era, context),
            Message::Start => {}
        }
        let now = context.now();
        for (to, at, message) in self.surroundings.outbox.drain(..) {
            context.send(to, at - now, message);
        }
    }

    fn wake(&mut self, at: Time, context: &mut Context<'_, Message>) {
        if let Some(edge) = self.router.wake(at) {
            context.wake(edge - context.now(), Message::Cycle);
        }
    }

    fn arrive(&mut self, port: usize, flit: Flit, context: &mut Context<'_, Message>) {
        let now = context.now();
        let processor = self.surroundings.lines.get(port).and_then(|line| line.as_ref()?.processor);
        if let Some(processor) = processor {
            return self.arrive_from_processor(port, processor, &flit, context);
        }
        let key = (port, flit.virtual_channel);
        let is_own =
            if flit.is_head { destination_of(&flit) == self.address } else { self.arriving.contains_key(&key) };
        if !is_own {
            if let Some(ready) = self.router.modules_mut()[0].accept(port, now, flit) {
                self.wake(ready, context);
            }
            return;
        }
        self.surroundings.freed(now, port, flit.virtual_channel);
        let bytes = self.arriving.entry(key).or_default();
        bytes.extend(flit.word);
        if flit.is_tail
            && let Some(bytes) = self.arriving.remove(&key)
            && let Some(packet) = Packet::read(&bytes)
        {
            self.collect(packet.head, packet.tag, packet.payload, context);
        }
    }

    /// Begins the message of a processor whose head `flit` is, if the switch knows its communicator.
    fn begin_stream(&mut self, port: usize, processor: u16, flit: &Flit) {
        let header = flit.word.first_chunk::<PROCESSOR_HEADER_BYTES>();
        let Some((call, number)) = header.and_then(|header| read_processor_header(*header)) else { return };
        let entry = call.context.index() as u8;
        let Some((rank, size)) = self.members.rank(entry, number, processor) else {
            self.unknown += 1;
            return;
        };
        let blocks = call.inputs(rank, size);
        let total = blocks.len() * call.bytes as usize;
        let stream = Stream { call, number, blocks, index: 0, bytes: Vec::new(), used: 0, total, given_back: 0 };
        let id = (port, entry, number);
        self.streams.insert(id, stream);
        self.incoming.insert(port, id);
    }

    /// Converts a processor packet: cuts its data into chunks as they arrive.
    fn arrive_from_processor(&mut self, port: usize, processor: u16, flit: &Flit, context: &mut Context<'_, Message>) {
        let mut bytes = &flit.word[..];
        if flit.is_head {
            self.incoming.remove(&port);
            self.begin_stream(port, processor, flit);
            bytes = &flit.word[PROCESSOR_HEADER_BYTES..];
        }
        let Some(stream) = self.incoming.get(&port).and_then(|id| self.streams.get_mut(id)) else {
            // The message is of no communicator that the switch knows.
            return self.free(port, 1, context);
        };
        stream.bytes.extend(bytes);
        let mut ready = Vec::new();
        while let Some(block) = stream.blocks.clone().next() {
            let place = stream.call.place(stream.index as u16);
            if stream.bytes.len() < place.len() {
                break;
            }
            let Call { context, collective, form, combine, root, .. } = stream.call;
            let chunk = Chunk { block: block as u16, index: stream.index as u16 };
            let (context, number) = (context.index() as u8, stream.number);
            let head = Head { context, collective, form, combine, root, number, chunk };
            ready.push((head, stream.bytes.drain(..place.len()).collect::<Vec<u8>>()));
            stream.index += 1;
            if stream.index == stream.call.chunks() {
                (stream.blocks.start, stream.index) = (block + 1, 0);
            }
        }
        let tag = self.members.tag(port);
        for (head, payload) in ready {
            self.collect(head, tag, payload, context);
        }
    }

    /// Gives a packet to the units.
    fn collect(&mut self, head: Head, tag: u8, payload: Vec<u8>, context: &mut Context<'_, Message>) {
        if self.eras.get(&(head.context, leader_of(head.number))).is_some_and(|era| *era != era_of(head.number)) {
            // Of a call that was ended.
            self.give_back_of(&head, tag, payload.len(), context);
            return;
        }
        let Some(steps) = self.members.steps(&head) else {
            self.unknown += 1;
            return self.give_back_of(&head, tag, payload.len(), context);
        };
        let (now, mut emitted, mut used) = (context.now(), Vec::new(), Vec::new());
        self.units.accept(now, &head, (tag, payload), || steps, (&mut emitted, &mut used));
        for one in emitted {
            context.wake(one.at.saturating_sub(now), Message::Emit(Box::new(one)));
        }
        for (tag, bytes) in used {
            self.give_back_of(&head, tag, bytes, context);
        }
    }

    /// Ends all calls on the communicator of an entry that are of another era: what the units hold of them is dropped.
    fn end_calls(&mut self, entry: u8, era: u16, context: &mut Context<'_, Message>) {
        self.eras.insert((entry, leader_of(u32::from(era) << 16)), era);
        for (head, tag, bytes) in self.units.end_calls(entry, era) {
            self.give_back_of(&head, tag, bytes, context);
        }
    }

    /// The units used, or dropped, so many bytes with this tag.
    fn give_back_of(&mut self, head: &Head, tag: u8, bytes: usize, context: &mut Context<'_, Message>) {
        let port = match self.members {
            Members::Card { .. } if tag == PROCESSOR => self.surroundings.lines.len() - 1,
            Members::Card { .. } => return,
            Members::Tree { .. } => tag.into(),
        };
        self.give_back((port, head.context, head.number), bytes, context);
    }

    /// The units used so many bytes of a processor's FIFO.
    fn give_back(&mut self, id: StreamId, bytes: usize, context: &mut Context<'_, Message>) {
        let Some(Some(line)) = self.surroundings.lines.get(id.0) else { return };
        let Some(stream) = self.streams.get_mut(&id).filter(|_| line.processor.is_some()) else { return };
        stream.used += bytes;
        let whole = PROCESSOR_HEADER_BYTES + stream.used;
        let phits = if stream.used == stream.total { whole.div_ceil(FLIT_BYTES) } else { whole / FLIT_BYTES };
        let free = phits - stream.given_back;
        stream.given_back = phits;
        if stream.used == stream.total {
            self.streams.remove(&id);
        }
        self.free(id.0, free, context);
    }

    /// Tells a processor that its FIFO has room for so many phits more.
    fn free(&self, port: usize, phits: usize, context: &mut Context<'_, Message>) {
        if let (Some(Some(line)), 1..) = (self.surroundings.lines.get(port), phits) {
            let message = Message::Credit { port: line.peer_port, virtual_channel: 0, phits };
            context.send(line.peer, line.latency, message);
        }
    }

    /// Multiplies a result.
    fn emit(&mut self, emitted: Emitted, context: &mut Context<'_, Message>) {
        for target in &emitted.to {
            let Some(output) = self.table.get(usize::from(target.address)).copied().flatten() else { continue };
            let packet = Packet {
                head: emitted.head,
                destination: target.address,
                tag: target.tag,
                payload: emitted.payload.clone(),
            };
            self.results[usize::from(output)].extend(packet.flits());
            self.feed(output.into(), context);
        }
    }

    /// Gives results to the router as far as it has room.
    fn feed(&mut self, output: usize, context: &mut Context<'_, Message>) {
        let (now, input) = (context.now(), self.surroundings.lines.len() + output);
        let mut first = None;
        let router = &mut self.router.modules_mut()[0];
        while router.room(input, 0) > 0
            && let Some(flit) = self.results[output].pop_front()
        {
            let ready = router.accept(input, now, flit);
            first = first.or(ready);
        }
        if let Some(ready) = first {
            self.wake(ready, context);
        }
    }
}

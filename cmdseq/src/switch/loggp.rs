//! The LogGP model of section 5, with L from the steps of each form and the distances, and without a simulation.
//!
//! `Os + k G + L + Or`: the longest way of a chunk through units and links is L, and what it waits for others at the FIFO of its
//! processor, at inputs, outputs and units is k G. Os and Or are the caller's: they are times of a processor.
//!
//! Pieces of blocks are followed one by one, if they are not too many. Of longer blocks only the first ones are
//! followed; each later one adds as much time as one in the second half of these.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use super::fat::SwitchPosition;
use super::forms::{Member, PROCESSOR, Source, Step, Target};
use super::ports::{Exit, Input, Leaving, Packet, Ports, RESULTS};
use super::{Call, Chunk, Head, PHIT_BYTES, PROCESSOR_HEADER_BYTES, Shape, phits, unit_cycles};

/// Times of the parts of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parameters {
    /// A cycle of the switches: a port takes a phit in each. Picoseconds.
    pub cycle_ps: u64,
    /// Through a router, picoseconds.
    pub router_ps: u64,
    /// Through a router, and over the link to the next switch, picoseconds.
    pub hop_ps: u64,
    /// Between a processor and its switch, picoseconds.
    pub entry_ps: u64,
    /// From one phit that a processor gives to the next, picoseconds.
    pub phit_ps: u64,
    /// Phits of the FIFO of a switch for each processor, and for each virtual channel of a link; 0 if it holds any number.
    pub input_phits: u64,
    /// Cycles of the collective control.
    pub control_cycles: u64,
    /// Cycles of an aggregation unit on floats.
    pub float_cycles: u64,
}

/// When each rank has sent and got its data, in picoseconds, and what it got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome<V> {
    /// By rank, when its data has left the processor.
    pub sent_ps: Vec<u64>,
    /// By rank, when its data is there; 0 if it gets none.
    pub got_ps: Vec<u64>,
    /// By rank and block.
    pub values: BTreeMap<(u32, u32), V>,
    /// For how long the output that sends most is occupied, in picoseconds.
    busiest_ps: u64,
}

/// Where a piece of a block is worked on: switch, block, piece.
type Place = (u32, u16, u16);

/// A packet: the address that it goes to, its tag there, and the number of its value.
type Bound = (Place, u32, u8, u32);

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A packet is at a switch: all of it if it goes to this switch, and else its first phit. It waits at the input, if there is one,
    /// and can have left at the given time.
    There(Bound, Option<Input>, u64),
    /// A packet has left by this exit, if the number is not out of date.
    Left((Exit, u64)),
    /// The switch behind this exit took so many phits out of its FIFO.
    Freed(Exit, u64),
}

/// What will happen, by time, and of the same time in the order of events. Switches have a common clock, so many events have one time.
#[derive(Debug, Default)]
struct Events {
    at: u64,
    now: BinaryHeap<Reverse<Event>>,
    later: BTreeMap<u64, Vec<Event>>,
}

impl Events {
    /// Adds an event at a time that is not over.
    fn push(&mut self, at: u64, event: Event) {
        if at == self.at {
            self.now.push(Reverse(event));
        } else {
            self.later.entry(at).or_default().push(event);
        }
    }

    fn pop(&mut self) -> Option<(u64, Event)> {
        if self.now.is_empty() {
            let (at, events) = self.later.pop_first()?;
            self.at = at;
            self.now.extend(events.into_iter().map(Reverse));
        }
        self.now.pop().map(|Reverse(event)| (self.at, event))
    }
}

/// What a switch does with a piece, how far it is, and when the last result was there.
struct Doing {
    steps: Rc<[Step]>,
    next: usize,
    ready: u64,
    /// The number of the value of the last step.
    value: u32,
    /// Tags of packets that wait, when each arrived, and the number of its value; of each tag in their order.
    arrived: Vec<(u8, u64, u32)>,
}

/// A switch that has something to do.
struct Working {
    radix: usize,
    /// When each of its units is free.
    units: Vec<u64>,
    /// By block and piece.
    doing: Vec<Doing>,
}

/// What a processor has to give. It waits while the FIFO of its switch is full.
struct Sender {
    /// The pieces in their order.
    pieces: VecDeque<(u16, u16)>,
    begin: u64,
    /// Bytes given, with the header, and phits that these were.
    given: u64,
    phits: u64,
    /// Bytes that the units used, with the header.
    used: u64,
    /// When it can give the next packet; each counts as a phit at least.
    free: u64,
    /// When the next phit can be on the line.
    line: u64,
}

/// The way of pieces of every block of a call through a network. Values are what packets carry: `fold` combines them in the
/// order of the units.
pub struct Model<'a, V, F> {
    shape: Shape,
    call: &'a Call,
    /// Nodes by rank.
    nodes: &'a [u32],
    parameters: Parameters,
    /// The pieces of each block that are followed.
    pieces: Range<u16>,
    fold: F,
    values: Vec<V>,
    /// By switch, those that have something to do.
    working: Vec<Option<Working>>,
    events: Events,
    /// Where packets wait for what leaves before them: the gaps, k G.
    ports: Ports<Bound>,
    /// By rank.
    senders: Vec<Sender>,
    outcome: Outcome<V>,
    /// By node.
    ranks: Vec<Option<u32>>,
}

impl<'a, V: Clone, F: FnMut(Vec<V>) -> V> Model<'a, V, F> {
    /// Prepares a checked call on `nodes` of the shape, by rank, of whose blocks these pieces are followed, as if there were no others.
    pub fn new(
        (shape, parameters): (Shape, Parameters),
        call: &'a Call,
        nodes: &'a [u32],
        pieces: Range<u16>,
        fold: F,
    ) -> Self {
        let size = nodes.len() as u32;
        let switches = shape.switches() as usize;
        let mut working: Vec<Option<Working>> = (0..switches).map(|_| None).collect();
        for block in 0..blocks(call, size) {
            let plan = |index| plans(shape, call, nodes, Chunk { block: block as u16, index });
            let period = pieces.clone().take(period(shape, call, size) as usize);
            let plans: Vec<_> = period.map(plan).collect();
            for (_, plan) in pieces.clone().zip(plans.iter().cycle()) {
                for (switch, steps) in plan {
                    let empty = Doing { steps: Rc::clone(steps), next: 0, ready: 0, value: 0, arrived: Vec::new() };
                    let (radix, units) = shape.units(*switch);
                    let idle = || Working { radix, units: vec![0; units], doing: Vec::new() };
                    working[*switch as usize].get_or_insert_with(idle).doing.push(empty);
                }
            }
        }
        let ports = (0..shape.switches()).map(|switch| shape.ends(switch).len()).max().unwrap_or(0);
        let mut ranks = vec![None; shape.processors() as usize];
        (0..).zip(nodes).for_each(|(rank, node)| ranks[*node as usize] = Some(rank));
        Model {
            shape,
            call,
            nodes,
            parameters,
            pieces,
            fold,
            values: Vec::new(),
            working,
            events: Events::default(),
            ports: Ports::new((switches, ports), parameters.input_phits, parameters.cycle_ps),
            senders: Vec::new(),
            outcome: Outcome {
                sent_ps: vec![0; nodes.len()],
                got_ps: vec![0; nodes.len()],
                values: BTreeMap::new(),
                busiest_ps: 0,
            },
            ranks,
        }
    }

    /// Runs the call: rank r has its data at the processor at `begins[r]`, where `give` says what it carries.
    pub fn run(mut self, begins: &[u64], give: impl Fn(u32, u32) -> V) -> Outcome<V> {
        let size = self.nodes.len() as u32;
        for rank in 0..size {
            let begin = begins.get(rank as usize).copied().unwrap_or(0);
            let inputs = self.call.inputs(rank, size);
            let pieces = inputs.flat_map(|block| self.pieces.clone().map(move |index| (block as u16, index))).collect();
            let given = PROCESSOR_HEADER_BYTES as u64;
            self.senders.push(Sender { pieces, begin, given, phits: 0, used: given, free: begin, line: begin });
            self.outcome.sent_ps[rank as usize] = begin;
            self.send(rank, begin, &give);
        }
        while let Some((at, event)) = self.events.pop() {
            match event {
                Event::There(bound, input, whole_at) => {
                    let ((switch, ..), to, ..) = bound;
                    if to == self.shape.processors() + switch {
                        // Until a processor knows that places are free, it takes as long as its data to its switch.
                        let freed = at + self.parameters.entry_ps.saturating_sub(self.parameters.phit_ps);
                        for rank in self.arrive(at, bound) {
                            self.send(rank, freed, &give);
                        }
                    } else {
                        self.enter(bound, input, whole_at);
                    }
                }
                Event::Left(due) => {
                    if let Some(leaving) = self.ports.left(at, due) {
                        self.leave(at, &leaving);
                    }
                }
                Event::Freed(exit, phits) => self.ports.freed(exit, phits),
            }
            if !self.events.now.is_empty() {
                continue;
            }
            self.ports.settle(at);
            for (at, due) in self.ports.due.drain(..) {
                self.events.push(at, Event::Left(due));
            }
        }
        self.outcome.busiest_ps = self.ports.most_sent * self.parameters.cycle_ps;
        self.outcome
    }

    /// Lets a processor give pieces as far as the FIFO of its switch holds them; places in it became free at `freed`.
    fn send(&mut self, rank: u32, freed: u64, give: &impl Fn(u32, u32) -> V) {
        let Parameters { cycle_ps, entry_ps, phit_ps, input_phits, .. } = self.parameters;
        let (_, _, below) = self.shape.levels();
        let (node, is_direct) = (self.nodes[rank as usize], self.shape.is_direct());
        let (switch, tag) = if is_direct { (node, PROCESSOR) } else { (node / below, (node % below) as u8) };
        let is_limited = input_phits > 0;
        loop {
            let sender = &mut self.senders[rank as usize];
            let Some((block, index)) = sender.pieces.front().copied() else { return };
            let given = sender.given + self.call.place(index).len() as u64;
            let phits = given.div_ceil(PHIT_BYTES as u64);
            if is_limited && phits > sender.used / PHIT_BYTES as u64 + input_phits {
                return;
            }
            let new = phits - sender.phits;
            // The first phits find room in the FIFO.
            let room_at = if is_limited && phits > input_phits { freed } else { sender.begin };
            let last = (sender.free + new.saturating_sub(1) * phit_ps).max(room_at);
            if new > 0 {
                let on_line = (sender.line + (new - 1) * phit_ps).max(room_at);
                sender.line = on_line + phit_ps;
                self.outcome.sent_ps[rank as usize] = on_line.saturating_sub(QUEUED_PHITS * phit_ps).max(room_at);
            }
            sender.pieces.pop_front();
            (sender.given, sender.phits, sender.free) = (given, phits, last + phit_ps);
            let at = sender.begin + (last - sender.begin + entry_ps).next_multiple_of(cycle_ps.max(1));
            let to = self.shape.processors() + switch;
            let bound = ((switch, block, index), to, tag, self.values.len() as u32);
            self.events.push(at, Event::There(bound, None, 0));
            self.values.push(give(rank, block.into()));
        }
    }

    /// Takes a packet. Returns the ranks whose data the units used.
    fn arrive(&mut self, at: u64, (place, _, tag, value): Bound) -> Vec<u32> {
        let mut used = Vec::new();
        let (switch, block, index) = place;
        let number = block as usize * self.pieces.len() + usize::from(index - self.pieces.start);
        let Some(Working { radix, units, doing }) = &mut self.working[switch as usize] else { return used };
        let Some(doing) = doing.get_mut(number) else { return used };
        doing.arrived.push((tag, at, value));
        let Parameters { cycle_ps, control_cycles, float_cycles, .. } = self.parameters;
        let length = self.call.place(index).len();
        // A unit takes a phit in a cycle.
        let occupied = length.div_ceil(PHIT_BYTES).max(1) as u64;
        while let Some(step) = doing.steps.get(doing.next) {
            let Some((at, inputs)) = take(step, &mut doing.arrived, doing.value) else { break };
            used.extend(givers(self.shape, switch, step).filter_map(|node| *self.ranks.get(node as usize)?));
            let combined = self.call.combine.filter(|_| inputs.len() > 1);
            let mut begins = at.max(doing.ready);
            if inputs.len() > 1
                && let Some(unit) = units.iter_mut().min()
            {
                begins = begins.max(*unit);
                *unit = begins + occupied * cycle_ps;
            }
            doing.ready = begins + unit_cycles(*radix, combined, control_cycles, float_cycles) * cycle_ps;
            doing.next += 1;
            doing.value = match inputs[..] {
                [only] => only,
                _ => {
                    let inputs = inputs.iter().filter_map(|input| self.values.get(*input as usize).cloned()).collect();
                    self.values.push((self.fold)(inputs));
                    self.values.len() as u32 - 1
                }
            };
            for Target { address, tag } in &step.to {
                let bound = (place, (*address).into(), *tag, doing.value);
                self.events.push(doing.ready, Event::There(bound, None, 0));
            }
        }
        for rank in &used {
            self.senders[*rank as usize].used += length as u64;
        }
        used
    }

    /// Puts a packet behind what waits at its input. Results of the units have inputs of their own.
    fn enter(&mut self, bound: Bound, input: Option<Input>, whole_at: u64) {
        let ((switch, _, index), to, ..) = bound;
        let processors = self.shape.processors();
        let port = match to.checked_sub(processors) {
            Some(to) => self.shape.toward_switch(switch, to),
            None => self.shape.toward(switch, to),
        };
        let output = port.unwrap_or(0);
        let input = input.unwrap_or((switch, RESULTS + output, 0));
        let packet = Packet {
            exit: (switch, output, self.channel(input, output)),
            phits: phits(self.call.place(index).len()),
            whole_at,
            is_limited: self.has_fifos() && to >= processors,
            of: bound,
        };
        self.ports.enter(input, packet);
    }

    /// Whether FIFOs behind links hold packets back.
    fn has_fifos(&self) -> bool {
        self.shape.is_direct() && self.parameters.input_phits > 0
    }

    /// A packet has left: to a processor of this switch, or to another switch.
    fn leave(&mut self, at: u64, Leaving { input, packet, began, .. }: &Leaving<Bound>) {
        let Packet { exit, phits, of: ((switch, block, _), to, _, value), .. } = *packet;
        let Parameters { cycle_ps, router_ps, hop_ps, entry_ps, .. } = self.parameters;
        let (_, port, channel) = *input;
        if self.has_fifos()
            && port < RESULTS
            && let Some(before) = self.shape.behind(switch, port)
        {
            self.events.push(at + hop_ps - router_ps, Event::Freed((before, port ^ 1, channel), phits));
        }
        if to >= self.shape.processors() {
            return self.pass(*began, at, exit, packet);
        }
        let Some(rank) = self.ranks[to as usize] else { return };
        let got = &mut self.outcome.got_ps[rank as usize];
        *got = (*got).max(at + router_ps + entry_ps - cycle_ps);
        if let Some(value) = self.values.get(value as usize) {
            self.outcome.values.insert((rank, block.into()), value.clone());
        }
    }

    /// A packet passes a link: to the switch that it goes to, or to the next one on its way.
    fn pass(&mut self, began: u64, left: u64, (switch, output, channel): Exit, packet: &Packet<Bound>) {
        let Packet { phits, is_limited, of: ((_, block, index), to, tag, value), .. } = *packet;
        let Parameters { cycle_ps, router_ps, hop_ps, .. } = self.parameters;
        let target = to - self.shape.processors();
        let is_direct = self.shape.is_direct();
        let next = self.shape.behind(switch, output).filter(|_| is_direct).unwrap_or(target);
        let bound = ((next, block, index), to, tag, value);
        if next != target {
            let there = Event::There(bound, Some((next, output ^ 1, channel)), left + hop_ps);
            self.events.push((began + hop_ps).max(left), there);
            return;
        }
        let arrives = left + hop_ps - cycle_ps;
        self.events.push(arrives, Event::There(bound, None, 0));
        if is_limited {
            self.events.push(arrives + hop_ps - router_ps, Event::Freed((switch, output, channel), phits));
        }
    }

    /// Returns the virtual channel of a packet from an input at an output of a torus. It changes at the dateline of a ring.
    fn channel(&self, (switch, port, channel): Input, output: u8) -> u8 {
        let Some(torus) = self.shape.torus() else { return 0 };
        let axis = usize::from(output / 2);
        let Some(side) = torus.sides().get(axis).copied() else { return 0 };
        let edge = if output.is_multiple_of(2) { side - 1 } else { 0 };
        if torus.place(switch)[axis] == edge { 1 } else { channel * u8::from(port / 2 == output / 2) }
    }
}

/// Returns after how many pieces of a block the steps of switches are the same again.
fn period(shape: Shape, call: &Call, size: u32) -> u32 {
    // Pieces go to the spines in turn.
    let (_, spines, _) = shape.levels();
    call.period(size).next_multiple_of(spines.max(1))
}

/// Returns the blocks that any rank of a call gives or gets.
pub(super) fn blocks(call: &Call, size: u32) -> u32 {
    (0..size).map(|rank| call.inputs(rank, size).end.max(call.outputs(rank, size).end)).max().unwrap_or(0)
}

/// Returns when each rank has sent and got the data of a checked call, whose ranks have it at the processor at `begins`.
pub fn times(network: (Shape, Parameters), call: &Call, nodes: &[u32], begins: &[u64]) -> Outcome<()> {
    followed(network, call, nodes, begins).0
}

/// As [`times`], and by rank when the first piece of each block would be there if there were no others.
pub(crate) fn times_and_first(
    network: (Shape, Parameters),
    call: &Call,
    nodes: &[u32],
    begins: &[u64],
) -> (Outcome<()>, Vec<u64>) {
    let (whole, first) = followed(network, call, nodes, begins);
    let alone = || Model::new(network, call, nodes, 0..1, |_| ()).run(begins, |_, _| ()).got_ps;
    (whole, first.unwrap_or_else(alone))
}

/// As [`times_and_first`], without the second if the first pieces were not followed by themselves.
fn followed(
    network: (Shape, Parameters),
    call: &Call,
    nodes: &[u32],
    begins: &[u64],
) -> (Outcome<()>, Option<Vec<u64>>) {
    // A block has up to 65536 pieces, one more than this range can hold. The last one hardly changes the time.
    let first = |count: u32| 0..u16::try_from(count).unwrap_or(u16::MAX);
    let of = |count| Model::new(network, call, nodes, first(count), |_| ()).run(begins, |_, _| ());
    let (size, chunks) = (nodes.len() as u32, call.chunks());
    let most = FOLLOWED / (size * blocks(call, size)).max(1);
    let few = most.clamp(1, FOLLOWED_MAX).next_multiple_of(period(network.0, call, size));
    if chunks <= 2 * most.max(few) {
        let whole = of(chunks);
        let first = (chunks == 1).then(|| whole.got_ps.clone());
        return (whole, first);
    }
    let (one, two) = (of(few), of(2 * few));
    // While the first pieces are on their way, later ones wait in no output: then the busiest output says what more of them take.
    let least = two.busiest_ps - one.busiest_ps;
    // The last piece may be shorter than the others.
    let of = |indices: Range<u32>| indices.map(|index| phits(call.place(index as u16).len())).sum::<u64>();
    let (rest, step) = (of(2 * few..chunks), of(0..few).max(1));
    let on = |(one, two): (&u64, &u64)| match two {
        0 => 0,
        two => two + two.saturating_sub(*one).max(least) * rest / step,
    };
    let got_ps = one.got_ps.iter().zip(&two.got_ps).map(on).collect();
    let sent = |(one, two): (&u64, &u64)| two + two.saturating_sub(*one) * rest / step;
    let sent_ps = one.sent_ps.iter().zip(&two.sent_ps).map(sent).collect();
    (Outcome { sent_ps, got_ps, ..two }, (few == 1).then_some(one.got_ps))
}

/// Returns the nodes whose processors give inputs of a step of a switch.
fn givers(shape: Shape, switch: u32, step: &Step) -> impl Iterator<Item = u32> {
    let (leaves, _, below) = shape.levels();
    let node = move |source: &Source| match source {
        Source::Tag(tag) if shape.is_direct() => (*tag == PROCESSOR).then_some(switch),
        Source::Tag(tag) if switch < leaves && u32::from(*tag) < below => Some(switch * below + u32::from(*tag)),
        Source::Tag(_) | Source::Value => None,
    };
    step.from.iter().filter_map(node)
}

/// Phits that the transmitter of a processor holds besides the one on the line. Data has left the processor once its last phit is
/// there.
const QUEUED_PHITS: u64 = 4;

/// All pieces are followed if pieces times ranks times blocks are at most twice this number.
const FOLLOWED: u32 = 1 << 15;
/// Else at most twice so many pieces of each block are followed.
const FOLLOWED_MAX: u32 = 256;

/// Takes the inputs of a step in their order, and returns when the last of them is there; `None` if one is missing.
fn take(step: &Step, arrived: &mut Vec<(u8, u64, u32)>, value: u32) -> Option<(u64, Vec<u32>)> {
    let is_there = |source: &Source| match source {
        Source::Value => true,
        Source::Tag(wanted) => arrived.iter().any(|(tag, ..)| tag == wanted),
    };
    if !step.from.iter().all(is_there) {
        return None;
    }
    let mut last = 0;
    let mut one = |source: &Source| match source {
        Source::Value => Some(value),
        Source::Tag(wanted) => {
            let first = arrived.iter().position(|(tag, ..)| tag == wanted)?;
            let (_, at, value) = arrived.remove(first);
            last = at.max(last);
            Some(value)
        }
    };
    let inputs = step.from.iter().filter_map(&mut one).collect();
    Some((last, inputs))
}

/// What each switch that has to do with a chunk does.
pub(super) fn plans(shape: Shape, call: &Call, nodes: &[u32], chunk: Chunk) -> Vec<(u32, Rc<[Step]>)> {
    let Call { collective, form, combine, root, .. } = *call;
    let head = Head { context: call.context.index() as u8, collective, form, combine, root, number: 0, chunk };
    let size = nodes.len() as u32;
    if shape.is_direct() {
        let plan = |(rank, node): (u32, &u32)| {
            let peer = |bit: u32| {
                let other = 1u32.checked_shl(bit).map(|mask| rank ^ mask)?;
                nodes.get(other as usize).map(|node| *node as u16)
            };
            let switches = shape.processors() as u16;
            let member = Member { rank, size, peer: &peer, processor: *node as u16, switches };
            (*node, member.steps(&head).into())
        };
        return (0..size).zip(nodes).map(plan).collect();
    }
    let members: Vec<u16> = nodes.iter().map(|node| *node as u16).collect();
    (0..shape.switches())
        .map(|switch| (switch, SwitchPosition::of(shape, switch).steps(&head, &members).into()))
        .collect()
}

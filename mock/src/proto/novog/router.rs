//! The router of one card: inputs with virtual output queues, in seven stages.

use std::collections::VecDeque;

use cmdseq::routing::{NodeTables, RouteKind, Torus3};

use crate::profile::novog::ROUTER_CYCLES;

/// Outputs: six links, and the node itself. Inputs: six links, and one or more of the node.
const PORTS: usize = Torus3::LINKS + 1;
/// IC, RL and ML, before VA.
const LOOKUP_CYCLES: u64 = 3;
/// SA, ReL and ReW, after VA.
pub(super) const SWITCH_CYCLES: u64 = 3;
const _: () = assert!(LOOKUP_CYCLES + 1 + SWITCH_CYCLES == ROUTER_CYCLES, "VA takes a cycle");

/// The 256 bits of a packet, as numbers that reductions add.
pub type Payload = [u64; 4];

/// A packet: the index of its header, and its data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet {
    pub(super) index: u16,
    pub(super) payload: Payload,
}

/// A packet that a node got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// The node.
    pub node: u32,
    /// The cycle in which it left the router.
    pub cycle: u64,
    /// Its data.
    pub payload: Payload,
}

/// A packet that waits for an output.
#[derive(Debug, Clone, Copy)]
struct Queued {
    since: u64,
    priority: u8,
    /// Index at the next node.
    next: u16,
    /// The reduction entry in which it is combined first.
    reduction: Option<u16>,
    payload: Payload,
}

#[derive(Debug, Default)]
struct Input {
    buffer: VecDeque<Packet>,
    /// Packets in IC, RL and ML, with the cycle of their VA.
    lookup: VecDeque<(u64, Packet)>,
    queues: [VecDeque<Queued>; PORTS],
}

#[derive(Debug)]
pub(super) struct Router {
    inputs: Vec<Input>,
    /// Partial results: packets and their sum, by reduction entry.
    partial: Vec<(u8, Payload)>,
    /// Packets in all buffers and queues.
    held: usize,
    /// The most packets that ever waited in one buffer of a link.
    pub(super) depth_max: usize,
    /// Packets that found a buffer full.
    pub(super) lost: u64,
    /// Packets without entry.
    pub(super) stray: u64,
}

impl Router {
    /// Returns a router with `locals` inputs of the node itself.
    pub(super) fn new(tables: &NodeTables, locals: usize) -> Self {
        Router {
            inputs: (0..Torus3::LINKS + locals).map(|_| Input::default()).collect(),
            partial: vec![(0, [0; 4]); tables.reductions.len()],
            held: 0,
            depth_max: 0,
            lost: 0,
            stray: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Puts a packet in the buffer of an input; those after the links' are of the node itself. The buffer of a link holds `depth`
    /// packets; there is no backpressure.
    pub(super) fn receive(&mut self, input: usize, packet: Packet, depth: usize) {
        let buffer = &mut self.inputs[input].buffer;
        if input < Torus3::LINKS && buffer.len() >= depth {
            self.lost += 1;
            return;
        }
        buffer.push_back(packet);
        self.held += 1;
        if input < Torus3::LINKS {
            self.depth_max = self.depth_max.max(buffer.len());
        }
    }

    /// Runs a cycle; `send` gets what leaves by each port.
    pub(super) fn run(
        &mut self,
        cycle: u64,
        tables: &NodeTables,
        queue_packets: usize,
        mut send: impl FnMut(usize, Packet),
    ) {
        for output in 0..Torus3::LINKS {
            let heads = (0..self.inputs.len()).filter_map(|input| Some((input, self.head(input, output, cycle)?)));
            // Of equal priorities the longest-waiting one, so that none starves.
            let winner = heads.min_by_key(|(_, head)| (u8::MAX - head.priority, head.since));
            if let Some(packet) = winner.and_then(|(input, head)| self.take(input, output, head, tables)) {
                send(output, packet);
            }
        }
        // A node can consume more than one packet in a cycle (section 5.2.2): one from each input.
        for input in 0..self.inputs.len() {
            let head = self.head(input, Torus3::LOCAL, cycle);
            if let Some(packet) = head.and_then(|head| self.take(input, Torus3::LOCAL, head, tables)) {
                send(Torus3::LOCAL, packet);
            }
        }
        for input in &mut self.inputs {
            let ready = input.lookup.front().filter(|(at, _)| *at <= cycle).map(|(_, packet)| *packet);
            if let Some(packet) = ready {
                match allocate(input, packet, cycle, tables, queue_packets) {
                    Allocated::Stalled => continue,
                    Allocated::Copies(copies) => self.held = self.held + copies - 1,
                    Allocated::Nowhere => {
                        self.held -= 1;
                        self.stray += 1;
                    }
                }
                input.lookup.pop_front();
            }
            if (input.lookup.len() as u64) < LOOKUP_CYCLES
                && let Some(packet) = input.buffer.pop_front()
            {
                input.lookup.push_back((cycle + LOOKUP_CYCLES, packet));
            }
        }
    }

    /// Returns the packet that an input has for an output.
    fn head(&self, input: usize, output: usize, cycle: u64) -> Option<Queued> {
        self.inputs[input].queues[output].front().copied().filter(|head| head.since < cycle)
    }

    /// Lets a queued packet through to its output; returns what leaves.
    fn take(&mut self, input: usize, output: usize, head: Queued, tables: &NodeTables) -> Option<Packet> {
        self.inputs[input].queues[output].pop_front();
        self.held -= 1;
        let Some(entry) = head.reduction else { return Some(Packet { index: head.next, payload: head.payload }) };
        let place = usize::from(entry);
        let (arrived, sum) = self.partial.get_mut(place)?;
        *arrived += 1;
        sum.iter_mut().zip(head.payload).for_each(|(sum, number)| *sum = sum.wrapping_add(number));
        let entry = tables.reductions[place];
        if *arrived < entry.expected {
            return None;
        }
        let payload = std::mem::take(sum);
        *arrived = 0;
        Some(Packet { index: entry.next, payload })
    }
}

enum Allocated {
    /// A queue is full.
    Stalled,
    /// In so many queues.
    Copies(usize),
    /// It has no entry.
    Nowhere,
}

/// Puts the copies of a packet in the queues of their outputs, all in one cycle.
fn allocate(input: &mut Input, packet: Packet, cycle: u64, tables: &NodeTables, queue_packets: usize) -> Allocated {
    let Packet { index, payload } = packet;
    let Some(route) = tables.routes.get(usize::from(index)) else { return Allocated::Nowhere };
    let mut queued = Queued { since: cycle, priority: route.priority, next: route.next, reduction: None, payload };
    if route.kind == RouteKind::Multicast {
        let Some(entry) = tables.multicasts.get(usize::from(route.next)) else { return Allocated::Nowhere };
        if entry.children.iter().any(|child| input.queues[usize::from(child.port)].len() >= queue_packets) {
            return Allocated::Stalled;
        }
        for child in &entry.children {
            queued.next = child.next;
            input.queues[usize::from(child.port)].push_back(queued);
        }
        return Allocated::Copies(entry.children.len());
    }
    let queue = &mut input.queues[usize::from(route.port)];
    if queue.len() >= queue_packets {
        return Allocated::Stalled;
    }
    if route.kind == RouteKind::Reduction {
        if usize::from(route.next) >= tables.reductions.len() {
            return Allocated::Nowhere;
        }
        queued.reduction = Some(route.next);
    }
    queue.push_back(queued);
    Allocated::Copies(1)
}

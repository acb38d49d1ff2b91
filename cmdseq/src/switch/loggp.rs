//! The LogGP model of section 5, with L from the steps of each form and the distances, and without a simulation.
//!
//! `Os + k G + L + Or`: the longest way of a chunk through units and links is L, and the phits that one port has to take after
//! another are k G. Os and Or are the caller's: they are times of a processor.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::fat::Stand;
use super::forms::{Member, PROCESSOR, Source, Step, Target};
use super::{Call, Chunk, Head, PAYLOAD_BYTES, PHIT_BYTES, PROCESSOR_HEADER_BYTES, Shape, phits, unit_cycles};
use crate::Hop;

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
    /// Packets of this piece over each link between cards and switches, by its place in the topology.
    pub(crate) carried: BTreeMap<u32, u64>,
}

/// A packet that reaches a switch: when, the switch, its tag and block, and the number of its value.
type Arrival = Reverse<(u64, u32, u8, u32, usize)>;

/// What a switch does with a block, how far it is, and when the last result was there.
struct Doing {
    steps: Vec<Step>,
    next: usize,
    ready: u64,
    /// The number of the value of the last step.
    value: usize,
    /// When packets arrived and the numbers of their values, by tag.
    arrived: BTreeMap<u8, VecDeque<(u64, usize)>>,
}

/// The way of one chunk of every block of a call through a network. Values are what packets carry: `fold` combines them in the
/// order of the units.
pub struct Model<'a, V, F> {
    shape: Shape,
    call: &'a Call,
    /// Nodes by rank.
    nodes: &'a [u32],
    parameters: Parameters,
    /// The piece of each block.
    index: u16,
    /// Phits that a port takes of a block.
    phits: u64,
    fold: F,
    values: Vec<V>,
    doing: BTreeMap<(u32, u32), Doing>,
    arrivals: BinaryHeap<Arrival>,
    /// By switch and output: when it has sent what was there before (the gaps, k G).
    free: BTreeMap<(u32, u8), u64>,
    outcome: Outcome<V>,
    /// Rank of each node, if it has one.
    ranks: BTreeMap<u32, u32>,
}

impl<'a, V: Clone, F: FnMut(Vec<V>) -> V> Model<'a, V, F> {
    /// Prepares a checked call on `nodes`, by rank: piece `index` of each block. If `is_short`, a block is no longer than this
    /// piece, so that the time is L alone.
    pub fn new(
        (shape, parameters): (Shape, Parameters),
        call: &'a Call,
        nodes: &'a [u32],
        (index, is_short): (u16, bool),
        fold: F,
    ) -> Self {
        let size = nodes.len() as u32;
        let blocks = (0..size).flat_map(|rank| [call.inputs(rank, size).end, call.outputs(rank, size).end]).max();
        let mut doing = BTreeMap::new();
        for block in 0..blocks.unwrap_or(0) {
            for (switch, steps) in plans(shape, call, nodes, Chunk { block: block as u16, index }) {
                let empty = Doing { steps, next: 0, ready: 0, value: 0, arrived: BTreeMap::new() };
                doing.insert((switch, block), empty);
            }
        }
        let all = if is_short { index.into()..u32::from(index) + 1 } else { 0..call.chunks() };
        let phits = all.map(|index| phits(call.place(index as u16).len())).sum();
        Model {
            shape,
            call,
            nodes,
            parameters,
            index,
            phits,
            fold,
            values: Vec::new(),
            doing,
            arrivals: BinaryHeap::new(),
            free: BTreeMap::new(),
            outcome: Outcome {
                sent_ps: vec![0; nodes.len()],
                got_ps: vec![0; nodes.len()],
                values: BTreeMap::new(),
                carried: BTreeMap::new(),
            },
            ranks: nodes.iter().copied().zip(0..).collect(),
        }
    }

    /// Runs the call: rank r has its data at the processor at `begins[r]`, where `give` says what it carries.
    pub fn run(mut self, begins: &[u64], give: impl Fn(u32, u32) -> V) -> Outcome<V> {
        let (size, (_, _, below)) = (self.nodes.len() as u32, self.shape.levels());
        let Parameters { cycle_ps, entry_ps, .. } = self.parameters;
        let chunk = (self.call.bytes as usize).min(PAYLOAD_BYTES);
        let up =
            entry_ps + (chunk + PROCESSOR_HEADER_BYTES).div_ceil(PHIT_BYTES).saturating_sub(1) as u64 * cycle_ps / 2;
        let up = up.next_multiple_of(cycle_ps.max(1));
        for (rank, node) in (0..size).zip(self.nodes) {
            let begin = begins.get(rank as usize).copied().unwrap_or(0);
            let home = if self.shape.is_direct() { (*node, PROCESSOR) } else { (node / below, (node % below) as u8) };
            // The engine of a processor gives two phits in a cycle.
            let gap = |blocks: u64| (blocks * u64::from(self.call.bytes)).div_ceil(PHIT_BYTES as u64) * cycle_ps / 2;
            let inputs = self.call.inputs(rank, size);
            self.outcome.sent_ps[rank as usize] = begin + gap(inputs.len() as u64);
            for (before, block) in (0..).zip(inputs) {
                if !self.shape.is_direct() {
                    self.carry(Hop { node: *node, port: 0 });
                }
                // Blocks before this one leave the processor first.
                self.arrivals.push(Reverse((begin + up + gap(before), home.0, home.1, block, self.values.len())));
                self.values.push(give(rank, block));
            }
        }
        while let Some(Reverse((at, switch, tag, block, value))) = self.arrivals.pop() {
            self.arrive((switch, block), tag, (at, value));
        }
        self.outcome
    }

    fn arrive(&mut self, place: (u32, u32), tag: u8, packet: (u64, usize)) {
        let Some(doing) = self.doing.get_mut(&place) else { return };
        doing.arrived.entry(tag).or_default().push_back(packet);
        let mut sends = Vec::new();
        while let Some(step) = doing.steps.get(doing.next) {
            let Some((at, inputs)) = take(step, &mut doing.arrived, doing.value) else { break };
            let (radix, _) = self.shape.units(place.0);
            let combined = self.call.combine.filter(|_| inputs.len() > 1);
            let Parameters { cycle_ps, control_cycles, float_cycles, .. } = self.parameters;
            doing.ready = at.max(doing.ready) + unit_cycles(radix, combined, control_cycles, float_cycles) * cycle_ps;
            doing.next += 1;
            doing.value = match inputs[..] {
                [only] => only,
                _ => {
                    let inputs = inputs.iter().filter_map(|input| self.values.get(*input).cloned()).collect();
                    self.values.push((self.fold)(inputs));
                    self.values.len() - 1
                }
            };
            sends.extend(step.to.iter().map(|target| (doing.ready, *target, doing.value)));
        }
        sends.into_iter().for_each(|(ready, target, value)| self.send(place, ready, target, value));
    }

    fn carry(&mut self, hop: Hop) {
        *self.outcome.carried.entry(self.shape.link(hop)).or_default() += 1;
    }

    /// Sends a block to a switch, or to a processor.
    fn send(&mut self, (switch, block): (u32, u32), ready: u64, Target { address, tag }: Target, value: usize) {
        let (address, processors) = (u32::from(address), self.shape.processors());
        let port = match address.checked_sub(processors) {
            Some(to) => self.shape.toward_switch(switch, to),
            None => self.shape.toward(switch, address),
        };
        let Parameters { cycle_ps, router_ps, hop_ps, entry_ps, .. } = self.parameters;
        match address.checked_sub(processors) {
            Some(to) if self.shape.is_direct() => self.shape.way(switch, to).for_each(|hop| self.carry(hop)),
            None if self.shape.is_direct() => {}
            _ => self.carry(Hop { node: processors + switch, port: port.unwrap_or(0).into() }),
        }
        let free = self.free.entry((switch, port.unwrap_or(0))).or_insert(0);
        let begins = ready.max(*free);
        *free = begins + self.phits * cycle_ps;
        match address.checked_sub(processors) {
            Some(to) => {
                let hops = if self.shape.is_direct() { self.shape.hops(switch, to) } else { 1 };
                let tail = (phits(self.call.place(self.index).len()) - 1) * cycle_ps;
                let at = begins + u64::from(hops) * hop_ps + tail;
                self.arrivals.push(Reverse((at, to, tag, block, value)));
            }
            None => {
                let Some(rank) = self.ranks.get(&address).copied() else { return };
                let at = begins + router_ps + entry_ps + (self.phits - 1) * cycle_ps;
                let got = &mut self.outcome.got_ps[rank as usize];
                *got = at.max(*got);
                if let Some(value) = self.values.get(value) {
                    self.outcome.values.insert((rank, block), value.clone());
                }
            }
        }
    }
}

/// Takes the inputs of a step in their order, and returns when the last of them is there; `None` if one is missing.
fn take(step: &Step, arrived: &mut BTreeMap<u8, VecDeque<(u64, usize)>>, value: usize) -> Option<(u64, Vec<usize>)> {
    let is_there = |source: &Source| match source {
        Source::Value => true,
        Source::Tag(tag) => arrived.get(tag).is_some_and(|packets| !packets.is_empty()),
    };
    if !step.from.iter().all(is_there) {
        return None;
    }
    let mut last = 0;
    let mut one = |source: &Source| match source {
        Source::Value => Some(value),
        Source::Tag(tag) => {
            let (at, value) = arrived.get_mut(tag)?.pop_front()?;
            last = at.max(last);
            Some(value)
        }
    };
    let inputs = step.from.iter().filter_map(&mut one).collect();
    Some((last, inputs))
}

/// What each switch that has to do with a chunk does.
fn plans(shape: Shape, call: &Call, nodes: &[u32], chunk: Chunk) -> Vec<(u32, Vec<Step>)> {
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
            (*node, Member { rank, size, peer: &peer, processor: *node as u16, switches }.steps(&head))
        };
        return (0..size).zip(nodes).map(plan).collect();
    }
    let members: Vec<u16> = nodes.iter().map(|node| *node as u16).collect();
    (0..shape.switches()).map(|switch| (switch, Stand::of(shape, switch).steps(&head, &members))).collect()
}

//! The user logic of one card: memories for the three phases, cores that transform lines, and packets to the other cards.

use std::collections::{BTreeMap, VecDeque};

use cmdseq::routing::{FftAxis, FftMapping, FftPlace};
use rustfft::Fft;
use rustfft::num_complex::Complex32;

use super::packet::{Datum, POINTS, pack, unpack};
use crate::proto::novog::router::{Delivery, Packet};

/// Points of one phase, and which of them are there.
#[derive(Debug)]
pub(super) struct Memory {
    values: Vec<Complex32>,
    is_here: Vec<bool>,
    /// Points that each line lacks.
    missing: Vec<u32>,
}

impl Memory {
    fn new(mapping: FftMapping) -> Self {
        let points = mapping.points() as usize;
        let missing = vec![mapping.side(); mapping.lines() as usize];
        Memory { values: vec![Complex32::default(); points], is_here: vec![false; points], missing }
    }

    /// Stores a point; returns its line if that is complete now. A point that is here already, or of no line, changes nothing.
    fn store(&mut self, side: u32, datum: Datum) -> Option<u32> {
        let is_here = self.is_here.get_mut(datum.address as usize).filter(|is_here| !**is_here)?;
        *is_here = true;
        self.values[datum.address as usize] = datum.value;
        let line = datum.address / side;
        let missing = &mut self.missing[line as usize];
        *missing -= 1;
        (*missing == 0).then_some(line)
    }

    fn line(&self, side: u32, line: u32) -> &[Complex32] {
        &self.values[(line * side) as usize..][..side as usize]
    }

    /// Returns the addresses of the points that are not here.
    pub(super) fn missing(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.is_here).filter(|(_, is_here)| !**is_here).map(|(address, _)| address)
    }
}

/// A card to which points go, and those that wait for a full packet.
#[derive(Debug)]
struct Peer {
    index: u16,
    input: usize,
    /// Points to come after those that wait.
    left: u32,
    waiting: Vec<Datum>,
}

/// A core. It takes and gives one point in a cycle, and its first result comes as many cycles after its first input as a line
/// has points. Results come in the order of the line (section 7.2.1).
#[derive(Debug, Default)]
struct Core {
    /// From when on it takes the next line.
    free_at: u64,
    lines: VecDeque<Running>,
}

/// A line in a core.
#[derive(Debug)]
struct Running {
    first_at: u64,
    axis: FftAxis,
    line: u32,
    values: Vec<Complex32>,
}

/// What all cards have in common.
pub(super) struct Work<'a> {
    pub(super) mapping: FftMapping,
    pub(super) transform: &'a dyn Fft<f32>,
    /// Clocks of the cores and of the router.
    pub(super) core_hertz: u64,
    pub(super) router_hertz: u64,
}

/// First and last cycle of a phase, in cycles of the cores; of a corner turn, in cycles of the routers.
pub(crate) type Span = Option<(u64, u64)>;

/// Adds cycles to a span.
fn extend(span: &mut Span, first: u64, last: u64) {
    let (begin, end) = span.unwrap_or((first, last));
    *span = Some((begin.min(first), end.max(last)));
}

#[derive(Debug)]
pub(super) struct Card {
    node: u32,
    /// By phase, before the transform.
    pub(super) memories: [Memory; 3],
    /// Lines after the last phase.
    pub(super) result: Vec<Complex32>,
    /// Complete lines, in the order in which they became complete.
    ready: VecDeque<(FftAxis, u32)>,
    cores: Vec<Core>,
    inbox: VecDeque<Delivery>,
    peers: [BTreeMap<u32, Peer>; 2],
    /// Packets received, by corner turn.
    pub(super) seen: [u32; 2],
    pub(super) phases: [Span; 3],
    pub(super) turns: [Span; 2],
}

impl Card {
    pub(super) fn new(mapping: FftMapping, node: u32, cores: u32) -> Self {
        Card {
            node,
            memories: FftAxis::ALL.map(|_| Memory::new(mapping)),
            result: vec![Complex32::default(); mapping.points() as usize],
            ready: VecDeque::new(),
            cores: (0..cores).map(|_| Core::default()).collect(),
            inbox: VecDeque::new(),
            peers: Default::default(),
            seen: [0; 2],
            phases: [None; 3],
            turns: [None; 2],
        }
    }

    /// Adds a card to which `points` points go in a corner turn, in packets that begin with `index` and enter the router at `input`.
    pub(super) fn add_peer(&mut self, turn: usize, to: u32, points: u32, index: u16, input: usize) {
        self.peers[turn].insert(to, Peer { index, input, left: points, waiting: Vec::with_capacity(POINTS) });
    }

    /// Stores a point of a phase.
    pub(super) fn store(&mut self, side: u32, axis: FftAxis, datum: Datum) {
        let line = self.memories[axis as usize].store(side, datum);
        self.ready.extend(line.map(|line| (axis, line)));
    }

    pub(super) fn receive(&mut self, delivery: Delivery) {
        self.inbox.push_back(delivery);
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.inbox.is_empty() || !self.ready.is_empty() || self.cores.iter().any(|core| !core.lines.is_empty())
    }

    /// Runs a cycle of the cores. `send` gets what goes to the router's inputs.
    pub(super) fn run(&mut self, tick: u64, work: &Work<'_>, mut send: impl FnMut(usize, Packet)) {
        self.take_received(tick, work);
        self.start_lines(tick, work);
        for core in 0..self.cores.len() {
            let Some(running) = self.cores[core].lines.front() else { continue };
            let Some(order) = tick.checked_sub(running.first_at) else { continue };
            let (axis, slot) = (running.axis, order as u32);
            let place = FftPlace { node: self.node, line: running.line, slot };
            let value = running.values[slot as usize];
            if order + 1 == u64::from(work.mapping.side()) {
                self.cores[core].lines.pop_front();
            }
            extend(&mut self.phases[axis as usize], tick, tick);
            self.put((axis, place), value, tick, work, &mut send);
        }
    }

    fn take_received(&mut self, tick: u64, work: &Work<'_>) {
        let side = work.mapping.side();
        let is_here = |one: &Delivery| {
            u128::from(one.cycle) * u128::from(work.core_hertz) <= u128::from(tick) * u128::from(work.router_hertz)
        };
        while let Some(delivery) = self.inbox.front().copied().filter(is_here) {
            self.inbox.pop_front();
            let (is_second, points) = unpack(delivery.payload);
            let turn = usize::from(is_second);
            self.seen[turn] += 1;
            extend(&mut self.turns[turn], delivery.cycle, delivery.cycle);
            let axis = if is_second { FftAxis::Z } else { FftAxis::Y };
            points.into_iter().for_each(|datum| self.store(side, axis, datum));
        }
    }

    fn start_lines(&mut self, tick: u64, work: &Work<'_>) {
        let side = work.mapping.side();
        for core in self.cores.iter_mut().filter(|core| core.free_at <= tick) {
            let Some((axis, line)) = self.ready.pop_front() else { break };
            let mut values = self.memories[axis as usize].line(side, line).to_vec();
            work.transform.process(&mut values);
            core.free_at = tick + u64::from(side);
            core.lines.push_back(Running { first_at: core.free_at, axis, line, values });
            extend(&mut self.phases[axis as usize], tick, tick);
        }
    }

    /// Puts a result where the next phase needs it: in this card, or in a packet to another one.
    fn put(
        &mut self,
        (axis, place): (FftAxis, FftPlace),
        value: Complex32,
        tick: u64,
        work: &Work<'_>,
        send: &mut impl FnMut(usize, Packet),
    ) {
        let mapping = work.mapping;
        let Some(next) = axis.next() else {
            self.result[(place.line * mapping.side() + place.slot) as usize] = value;
            return;
        };
        let to = mapping.place(next, mapping.point(axis, place));
        let datum = Datum { address: to.line * mapping.side() + to.slot, value };
        if to.node == self.node {
            self.store(mapping.side(), next, datum);
            return;
        }
        let turn = axis as usize;
        let Some(peer) = self.peers[turn].get_mut(&to.node) else { return };
        peer.waiting.push(datum);
        peer.left -= 1;
        if peer.waiting.len() == POINTS || peer.left == 0 {
            send(peer.input, Packet { index: peer.index, payload: pack(turn == 1, &peer.waiting) });
            peer.waiting.clear();
            let cycle = (u128::from(tick) * u128::from(work.router_hertz)).div_ceil(u128::from(work.core_hertz)) as u64;
            extend(&mut self.turns[turn], cycle, cycle);
        }
    }
}

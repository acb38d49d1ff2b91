//! The collective units of a switch: collectors that wait for all inputs of a step, and the units that combine them.

use std::collections::{HashMap, VecDeque};

use cmdseq::reduction::{Accumulator, Combine};
use cmdseq::switch::{Chunk, Head, PHIT_BYTES, Source, Step, Target, fold_order, unit_cycles};

use crate::engine::{Clock, Cycle, Time};
use crate::proto::mpi_fpga::header::{era_of, leader_of};

/// Returns the aggregation logic units of 64 bits in a switch of `radix` ports with `units` gather reduction units (table 3):
/// a unit has one of 256 bits for each port.
pub fn logic_units(radix: u64, units: u64) -> u64 {
    units * radix * (PHIT_BYTES as u64 / 8)
}

/// What the units of a switch are made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) clock: Clock,
    /// Ports of the switch: a chain has half as many units.
    pub(crate) radix: usize,
    /// Gather reduction units: reductions at the same time.
    pub(crate) units: usize,
    pub(crate) control_cycles: u64,
    pub(crate) float_cycles: u64,
}

impl Settings {
    /// Returns the cycles from the last input of a step to its result.
    pub(crate) fn cycles(&self, combine: Option<Combine>) -> u64 {
        unit_cycles(self.radix, combine, self.control_cycles, self.float_cycles)
    }
}

/// Result of a step: what goes where, and when.
#[derive(Debug, Clone)]
pub(crate) struct Emitted {
    pub(crate) at: Time,
    pub(crate) head: Head,
    pub(crate) to: Vec<Target>,
    pub(crate) payload: Vec<u8>,
}

/// A chunk under way at this switch.
#[derive(Debug)]
struct Progress {
    head: Head,
    steps: Vec<Step>,
    next: usize,
    value: Vec<u8>,
    /// When the value is there.
    ready: Cycle,
    arrived: HashMap<u8, VecDeque<Vec<u8>>>,
}

#[derive(Debug)]
pub(crate) struct Units {
    pub(crate) settings: Settings,
    chunks: HashMap<(u8, u32, Chunk), Progress>,
    /// When each unit is free.
    free: Vec<Cycle>,
    /// Reductions that waited for a unit.
    pub(crate) waits_for_unit: u64,
    /// Bytes that wait in the collectors, and the most there were.
    held: usize,
    pub(crate) most_held: usize,
    /// Packets that no step took.
    pub(crate) strays: usize,
}

impl Units {
    pub(crate) fn new(settings: Settings) -> Self {
        let free = vec![0; settings.units.max(1)];
        Units { settings, chunks: HashMap::new(), free, waits_for_unit: 0, held: 0, most_held: 0, strays: 0 }
    }

    /// Returns the number of chunks under way.
    pub(crate) fn busy(&self) -> usize {
        self.chunks.len()
    }

    /// Takes a packet of `tag`. `steps` says what to do with its chunk. Adds what is due to `emitted`, and the tags and bytes of
    /// the inputs that it used to `used`.
    pub(crate) fn accept(
        &mut self,
        now: Time,
        head: &Head,
        (tag, payload): (u8, Vec<u8>),
        steps: impl FnOnce() -> Vec<Step>,
        (emitted, used): (&mut Vec<Emitted>, &mut Vec<(u8, usize)>),
    ) {
        let key = (head.context, head.number, head.chunk);
        let begin =
            || Progress { head: *head, steps: steps(), next: 0, value: Vec::new(), ready: 0, arrived: HashMap::new() };
        let progress = self.chunks.entry(key).or_insert_with(begin);
        self.held += payload.len();
        self.most_held = self.most_held.max(self.held);
        progress.arrived.entry(tag).or_default().push_back(payload);
        let settings = self.settings;
        while let Some(step) = progress.steps.get(progress.next) {
            let is_there = |source: &Source| match source {
                Source::Value => true,
                Source::Tag(tag) => progress.arrived.get(tag).is_some_and(|queue| !queue.is_empty()),
            };
            if !step.from.iter().all(is_there) {
                return;
            }
            let mut inputs = Vec::with_capacity(step.from.len());
            for source in &step.from {
                match source {
                    Source::Value => inputs.push(std::mem::take(&mut progress.value)),
                    Source::Tag(tag) => {
                        let input = progress.arrived.get_mut(tag).and_then(VecDeque::pop_front).unwrap_or_default();
                        self.held -= input.len();
                        used.push((*tag, input.len()));
                        inputs.push(input);
                    }
                }
            }
            let mut begins = settings.clock.cycle_at_or_after(now).max(progress.ready);
            let mut combined = None;
            if inputs.len() > 1 {
                combined = head.combine;
                let phits = inputs[0].len().div_ceil(PHIT_BYTES).max(1) as Cycle;
                if let Some(unit) = self.free.iter_mut().min() {
                    self.waits_for_unit += u64::from(*unit > begins);
                    begins = begins.max(*unit);
                    *unit = begins + phits;
                }
            }
            progress.ready = begins + Cycle::from(settings.cycles(combined));
            progress.value = fold(head.combine, inputs);
            if !step.to.is_empty() {
                let (at, payload) = (settings.clock.edge(progress.ready), progress.value.clone());
                emitted.push(Emitted { at, head: *head, to: step.to.clone(), payload });
            }
            progress.next += 1;
        }
        if let Some(done) = self.chunks.remove(&key) {
            self.strays += done.arrived.values().map(VecDeque::len).sum::<usize>();
        }
    }
}

impl Units {
    /// Drops chunks of the communicator of an era except those of `era` itself. Returns what packets there were: head, tag and bytes.
    pub(crate) fn end_calls(&mut self, entry: u8, era: u16) -> Vec<(Head, u8, usize)> {
        let is_over = |(context, number, _): &(u8, u32, Chunk)| {
            let is_its = leader_of(*number) == leader_of(u32::from(era) << 16);
            *context == entry && is_its && era_of(*number) != era
        };
        let over: Vec<(u8, u32, Chunk)> = self.chunks.keys().copied().filter(is_over).collect();
        let mut dropped = Vec::new();
        for progress in over.iter().filter_map(|key| self.chunks.remove(key)) {
            for (tag, packets) in progress.arrived {
                dropped.extend(packets.into_iter().map(|packet| (progress.head, tag, packet.len())));
            }
        }
        self.held -= dropped.iter().map(|(_, _, bytes)| bytes).sum::<usize>();
        dropped
    }
}

/// Combines inputs in two chains; see [`fold_order`]. What packets were filled up with is cut off.
fn fold(combine: Option<Combine>, mut inputs: Vec<Vec<u8>>) -> Vec<u8> {
    let Some(combine) = combine.filter(|_| inputs.len() > 1) else { return inputs.pop().unwrap_or_default() };
    let element = combine.element.bytes() as usize;
    let bytes = inputs.iter().map(Vec::len).min().unwrap_or(0) / element * element;
    let mut result = vec![0; bytes];
    let mut chain = |inputs: &[Vec<u8>]| {
        if let Some(mut accumulator) = Accumulator::new(combine) {
            inputs.iter().for_each(|input| accumulator.add(&input[..bytes]));
            accumulator.result(&mut result);
        }
        result.clone()
    };
    let (first, _) = fold_order(inputs.len());
    let chains = [chain(&inputs[..first]), chain(&inputs[first..])];
    chain(&chains)
}

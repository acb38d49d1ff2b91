//! The LogGP model of section 5, with L from the steps of each form and the distances, and without a simulation.
//!
//! `Os + k G + L + Or`: the longest way of a chunk through units and links is L, and the phits that one port has to take after
//! another are k G.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use crate::engine::{Clock, Time};
use crate::profile::mpi_fpga::Profile;
use crate::proto::communicator_table::Entry;
use crate::proto::mpi_fpga::call::{Call, Chunk, PAYLOAD_BYTES};
use crate::proto::mpi_fpga::fat::Stand;
use crate::proto::mpi_fpga::forms::{Member, PROCESSOR, Source, Step, Target};
use crate::proto::mpi_fpga::header::{Head, PHIT_BYTES, phits};
use crate::proto::mpi_fpga::network::NetworkError;
use crate::proto::mpi_fpga::shape::Shape;
use crate::proto::mpi_fpga::units::Settings;

/// Times of one packet, in picoseconds.
struct Terms {
    cycle: u64,
    /// Router and link to the next switch.
    hop: u64,
    /// To a processor, and from one to its switch.
    down: u64,
    up: u64,
    /// From the first phit of a packet to the last one.
    tail: u64,
}

/// Returns the predicted time of the last rank of a call on all nodes, each of rank as its number, in picoseconds.
///
/// # Errors
/// [`NetworkError`] for a call or shape that a network would refuse.
pub fn predicted_ps(profile: &Profile, shape: Shape, call: &Call) -> Result<Time, NetworkError> {
    shape.check()?;
    let size = shape.processors();
    call.check(size, shape.is_direct())?;
    let cycle = profile.cycle_ps();
    let whole = |ps: u64| (ps.div_ceil(cycle)) * cycle;
    let row = PHIT_BYTES as u64 * 8 * 1_000_000 / (profile.link_bps / 1_000_000).max(1);
    let router =
        (profile.route_cycles + profile.channel_cycles + profile.allocation_cycles + profile.traversal_cycles) * cycle;
    let host =
        if shape.is_direct() { profile.host_ps + cycle / profile.dma_phits.max(1) } else { profile.link_ps + row };
    let chunk = (call.bytes as usize).min(PAYLOAD_BYTES);
    let terms = Terms {
        cycle,
        hop: router + whole(profile.link_ps + row),
        down: router + host,
        up: whole(host + (chunk + 8).div_ceil(PHIT_BYTES).saturating_sub(1) as u64 * cycle / 2),
        tail: (phits(chunk) - 1) * cycle,
    };
    let mut model = Model::new(profile, shape, call, terms)?;
    let last = model.run();
    Ok(Time::from(profile.overhead_ps + last + profile.overhead_ps))
}

/// A packet that reaches a switch: when, the switch, its tag and block.
type Arrival = Reverse<(u64, u32, u8, u32)>;

/// What a switch does with a block, how far it is, and when the last result was there.
struct Doing {
    steps: Vec<Step>,
    next: usize,
    ready: u64,
    arrived: BTreeMap<u8, VecDeque<u64>>,
}

struct Model<'a> {
    shape: Shape,
    call: &'a Call,
    terms: Terms,
    settings: Vec<Settings>,
    /// Phits of a block.
    phits: u64,
    doing: BTreeMap<(u32, u32), Doing>,
    arrivals: BinaryHeap<Arrival>,
    /// By switch and output: when it has sent what was there before (the gaps, k G).
    free: BTreeMap<(u32, u8), u64>,
    tables: Vec<Vec<Option<u8>>>,
}

impl<'a> Model<'a> {
    fn new(profile: &Profile, shape: Shape, call: &'a Call, terms: Terms) -> Result<Self, NetworkError> {
        let (size, clock) = (shape.processors(), Clock::new(hertz(profile)?, 0));
        let (control_cycles, float_cycles) = (profile.control_cycles, profile.float_cycles);
        let settings = |switch| {
            let (radix, units) = shape.units(switch);
            Settings { clock, radix, units, control_cycles, float_cycles }
        };
        let (_, _, below) = shape.levels();
        let (mut arrivals, mut doing) = (BinaryHeap::new(), BTreeMap::new());
        for rank in 0..size {
            let home = if shape.is_direct() { (rank, PROCESSOR) } else { (rank / below, (rank % below) as u8) };
            for (before, block) in (0..).zip(call.inputs(rank, size)) {
                // Blocks before this one leave the processor first.
                let gap = (before * u64::from(call.bytes)).div_ceil(PHIT_BYTES as u64) * terms.cycle / 2;
                arrivals.push(Reverse((terms.up + gap, home.0, home.1, block)));
            }
        }
        let blocks = (0..size).flat_map(|rank| [call.inputs(rank, size).end, call.outputs(rank, size).end]).max();
        for block in 0..blocks.unwrap_or(0) {
            for (switch, steps) in (0..).zip(plans(shape, call, block)?) {
                doing.insert((switch, block), Doing { steps, next: 0, ready: 0, arrived: BTreeMap::new() });
            }
        }
        let phits = (0..call.chunks()).map(|index| phits(call.place(index as u16).len())).sum();
        let (switches, free) = (0..shape.switches(), BTreeMap::new());
        let (settings, tables) =
            (switches.clone().map(settings).collect(), switches.map(|one| shape.table(one)).collect());
        Ok(Model { shape, call, terms, settings, phits, doing, arrivals, free, tables })
    }

    /// Returns when the last processor has its data, since the first one has sent its own.
    fn run(&mut self) -> u64 {
        let mut last = 0;
        while let Some(Reverse((at, switch, tag, block))) = self.arrivals.pop() {
            let Some(doing) = self.doing.get_mut(&(switch, block)) else { continue };
            doing.arrived.entry(tag).or_default().push_back(at);
            let mut sends = Vec::new();
            while let Some(step) = doing.steps.get(doing.next) {
                let Some(inputs) = take(step, &mut doing.arrived) else { break };
                let combined = self.call.combine.filter(|_| step.from.len() > 1);
                let cycles = self.settings[switch as usize].cycles(combined);
                doing.ready = inputs.max(doing.ready) + cycles * self.terms.cycle;
                doing.next += 1;
                sends.extend(step.to.iter().map(|target| (doing.ready, *target)));
            }
            for (ready, target) in sends {
                last = self.send(switch, block, ready, target).max(last);
            }
        }
        last
    }

    /// Sends a block; returns when it is at a processor, if it goes to one.
    fn send(&mut self, switch: u32, block: u32, ready: u64, Target { address, tag }: Target) -> u64 {
        let port = self.tables[switch as usize].get(usize::from(address)).copied().flatten().unwrap_or(0);
        let free = self.free.entry((switch, port)).or_insert(0);
        let begins = ready.max(*free);
        *free = begins + self.phits * self.terms.cycle;
        match u32::from(address).checked_sub(self.shape.processors()) {
            Some(to) => {
                let hops = if self.shape.is_direct() { self.shape.hops(switch, to) } else { 1 };
                let at = begins + u64::from(hops) * self.terms.hop + self.terms.tail;
                self.arrivals.push(Reverse((at, to, tag, block)));
                0
            }
            None => begins + self.terms.down + (self.phits - 1) * self.terms.cycle,
        }
    }
}

fn hertz(profile: &Profile) -> Result<std::num::NonZeroU64, NetworkError> {
    profile.clock_hertz.try_into().map_err(|_| NetworkError::Profile("clock"))
}

/// Takes the inputs of a step, and returns when the last of them is there; `None` if one is missing.
fn take(step: &Step, arrived: &mut BTreeMap<u8, VecDeque<u64>>) -> Option<u64> {
    let tags = || {
        step.from.iter().filter_map(|source| match source {
            Source::Value => None,
            Source::Tag(tag) => Some(*tag),
        })
    };
    if !tags().all(|tag| arrived.get(&tag).is_some_and(|times| !times.is_empty())) {
        return None;
    }
    let times = tags().filter_map(|tag| arrived.get_mut(&tag)?.pop_front());
    Some(times.max().unwrap_or(0))
}

/// What each switch does with the first chunk of a block.
fn plans(shape: Shape, call: &Call, block: u32) -> Result<Vec<Vec<Step>>, NetworkError> {
    let Call { collective, form, combine, root, .. } = *call;
    let chunk = Chunk { block: block as u16, index: 0 };
    let head = Head { context: call.context.index() as u8, collective, form, combine, root, chunk };
    let size = shape.processors();
    let (leaves, spines, down) = shape.levels();
    let members: Vec<u16> = (0..size as u16).collect();
    let plan = |switch: u32| {
        if shape.is_direct() {
            let entry = Entry::new(call.context, size, switch, |rank| rank as u16)?;
            return Ok(Member { entry: &entry, processor: switch as u16, switches: size as u16 }.steps(&head));
        }
        let [switch, processors, leaves, spines, down] = [switch, size, leaves, spines, down].map(|one| one as u16);
        Ok(Stand { switch, processors, leaves, spines, down }.steps(&head, &members))
    };
    (0..shape.switches()).map(plan).collect()
}

//! What programs should take, from what the card says its parts take and nothing else.
//!
//! Every instruction is timed from its issue: it is dispatched, reads memory, waits for its partners if it must, puts its
//! beats on the links, and ends when the signals of its partners are back. The next is issued after the hand-over.

use std::collections::HashMap;

use super::{Communicator, Prediction, Program, Refusal};
use crate::matching::{Matching, Members, is_rendezvous};
use crate::ranges::{Transfers, transfers};
use crate::{Capabilities, Instruction, Operation, verify};

/// Predicts what verified programs take when all cards begin at the same time.
///
/// # Errors
/// As [`verify::verify`].
pub fn predict(
    programs: &[Program],
    communicators: &[Communicator],
    group: &[u32],
    capabilities: &Capabilities,
) -> Result<Prediction, Refusal> {
    let members = verify::check(programs, communicators, group, capabilities)?;
    predict_steps(programs, &members, capabilities)
}

/// As [`predict`], for programs that were checked.
pub(super) fn predict_steps(
    programs: &[Program],
    members: &Members,
    capabilities: &Capabilities,
) -> Result<Prediction, Refusal> {
    let clock = Clock { capabilities };
    let mut issue = vec![0_u64; programs.len()];
    let mut total = Prediction::default();
    let mut matching = Matching::new(programs, members, capabilities);
    while let Some(together) = matching.step()? {
        let parts: Vec<Part<'_>> = together
            .iter()
            .filter_map(|(rank, index)| {
                let instruction = programs.get(*rank)?.instructions.get(*index)?;
                Some(Part::new(*rank, instruction, issue[*rank], members, capabilities))
            })
            .collect();
        for (part, times) in parts.iter().zip(clock.run(&parts)) {
            total.t1_ps = total.t1_ps.max(times.t1_ps);
            total.t2_ps = total.t2_ps.max(times.t2_ps);
            total.arrival_ps = total.arrival_ps.max(times.arrival_ps);
            issue[part.rank] = times.t2_ps.saturating_add(clock.cycles(capabilities.timing.handover_cycles));
        }
    }
    if total.arrival_ps == 0 {
        total.arrival_ps = total.t2_ps;
    }
    Ok(total)
}

/// One rank's instruction among those that run together.
struct Part<'a> {
    rank: usize,
    instruction: &'a Instruction,
    issue_ps: u64,
    moved: Transfers,
    /// Rank of the programs by rank of the communicator, for the partners in `moved`.
    partner: HashMap<u32, usize>,
    /// Own rank in the communicator.
    own: u32,
    /// Bytes that go through each pseudo channel.
    load: HashMap<u64, u64>,
    /// Bytes that are written to each from the receive buffers.
    drains: HashMap<u64, u64>,
    is_rendezvous: bool,
}

impl<'a> Part<'a> {
    fn new(
        rank: usize,
        instruction: &'a Instruction,
        issue_ps: u64,
        members: &Members,
        capabilities: &Capabilities,
    ) -> Self {
        let stripe = capabilities.stripe_half_bytes.saturating_mul(2);
        let membership = members.of(rank, instruction);
        let (own, ranks) = membership.map_or((0, 1), |one| (one.own, one.nodes().len() as u32));
        let moved = transfers(instruction, own, ranks, stripe).unwrap_or_default();
        let is_rendezvous = is_rendezvous(instruction, capabilities);
        let partner = moved
            .sends
            .iter()
            .chain(&moved.receives)
            .filter_map(|other| Some((other.peer_rank, membership?.program_rank(other.peer_rank)?)))
            .collect();
        let (load, drains) = (HashMap::new(), HashMap::new());
        let mut part = Part { rank, instruction, issue_ps, moved, partner, own, load, drains, is_rendezvous };
        part.add_loads(capabilities);
        part
    }

    /// What goes through the pseudo channels while the beats are on the links. What was received eagerly is written from the
    /// receive buffer in its own time.
    fn add_loads(&mut self, capabilities: &Capabilities) {
        let streams = if self.moved.multicast { 1 } else { self.moved.sends.len() };
        let reads = self.moved.sends.iter().take(streams).map(|send| (send.address, send.bytes));
        let writes = self.moved.receives.iter().filter(|_| self.is_rendezvous).map(|one| (one.address, one.bytes));
        let own_read = self.moved.own.filter(|_| !self.moved.multicast || self.moved.sends.is_empty());
        let own_read = own_read.iter().map(|own| (own.source, own.bytes));
        let own_write = self.moved.own.iter().map(|own| (own.destination, own.bytes));
        for (address, bytes) in reads.chain(writes).chain(own_read).chain(own_write) {
            let load = self.load.entry(channel(address, capabilities)).or_insert(0);
            *load = load.saturating_add(whole_beats(bytes, capabilities));
        }
        for receive in self.moved.receives.iter().filter(|_| !self.is_rendezvous) {
            let drains = self.drains.entry(channel(receive.address, capabilities)).or_insert(0);
            *drains = drains.saturating_add(whole_beats(receive.bytes, capabilities));
        }
    }

    /// Bytes that share the pseudo channel of `address` with what is written there from a receive buffer.
    fn drain_load(&self, address: u64, capabilities: &Capabilities) -> u64 {
        let drains = self.drains.get(&channel(address, capabilities)).copied().unwrap_or(0);
        drains.saturating_add(self.load(address, capabilities))
    }

    /// Bytes that go through the pseudo channel of `address`.
    fn load(&self, address: u64, capabilities: &Capabilities) -> u64 {
        self.load.get(&channel(address, capabilities)).copied().unwrap_or(0)
    }
}

/// The pseudo channel of `address`. A block that goes on into the next is counted where it starts.
fn channel(address: u64, capabilities: &Capabilities) -> u64 {
    let bytes = capabilities.memory_bytes.checked_div(u64::from(capabilities.memory_channels)).unwrap_or(0);
    address.checked_div(bytes).unwrap_or(0)
}

fn whole_beats(bytes: u64, capabilities: &Capabilities) -> u64 {
    bytes.checked_next_multiple_of(u64::from(capabilities.timing.beat_bytes.max(1))).unwrap_or(u64::MAX)
}

/// Times of one instruction on one card, from the start of all programs.
#[derive(Clone, Copy, Default)]
struct Times {
    t1_ps: u64,
    t2_ps: u64,
    /// 0 if nothing came.
    arrival_ps: u64,
}

struct Clock<'a> {
    capabilities: &'a Capabilities,
}

impl Clock<'_> {
    fn cycles(&self, cycles: u32) -> u64 {
        u64::from(cycles) * 1_000_000_000 / u64::from(self.capabilities.clock_khz.max(1))
    }

    /// Picoseconds of `bytes` at `mbps`.
    fn wire(&self, bytes: u64, mbps: u32) -> u64 {
        let bits = u128::from(bytes) * 8_000_000;
        u64::try_from(bits.div_ceil(u128::from(mbps.max(1)))).unwrap_or(u64::MAX)
    }

    /// Times of instructions that run together, in the order of `parts`.
    fn run(&self, parts: &[Part<'_>]) -> Vec<Times> {
        match parts {
            [first, ..] if first.instruction.operation == Operation::Barrier => self.barrier(parts),
            _ => self.transfer(parts),
        }
    }

    fn barrier(&self, parts: &[Part<'_>]) -> Vec<Times> {
        let timing = &self.capabilities.timing;
        let out: Vec<u64> = parts.iter().map(|part| part.issue_ps + self.cycles(timing.dispatch_cycles + 1)).collect();
        let released = |own: usize| {
            let others = out.iter().enumerate().filter(|(other, _)| *other != own);
            others.map(|(_, out)| out + u64::from(timing.control_ps)).max().unwrap_or(0)
        };
        let times = |(own, t1_ps): (usize, &u64)| {
            let arrival_ps = released(own).max(*t1_ps);
            Times { t1_ps: *t1_ps, t2_ps: arrival_ps, arrival_ps }
        };
        out.iter().enumerate().map(times).collect()
    }

    fn transfer(&self, parts: &[Part<'_>]) -> Vec<Times> {
        let timing = &self.capabilities.timing;
        let place: HashMap<usize, usize> = parts.iter().enumerate().map(|(place, part)| (part.rank, place)).collect();
        let place_of = |part: &Part<'_>, other: u32| part.partner.get(&other).and_then(|rank| place.get(rank)).copied();
        let signals: Vec<u64> =
            parts.iter().map(|part| part.issue_ps.saturating_add(self.cycles(timing.dispatch_cycles + 1))).collect();
        let mut times: Vec<Times> = parts
            .iter()
            .zip(&signals)
            .map(|(part, out)| {
                let waits = match part.instruction.operation {
                    Operation::Delay => part.instruction.extent.min(u64::from(u32::MAX)) as u32,
                    _ => 0,
                };
                let t1_ps = out.saturating_add(self.cycles(waits));
                Times { t1_ps, t2_ps: t1_ps, arrival_ps: 0 }
            })
            .collect();
        for (own, part) in parts.iter().enumerate() {
            let mut start =
                part.issue_ps.saturating_add(self.cycles(timing.dispatch_cycles + timing.memory_read_cycles));
            let ready = part.moved.sends.iter().filter_map(|send| place_of(part, send.peer_rank));
            for destination in ready.filter(|_| part.is_rendezvous) {
                start = start.max(signals[destination].saturating_add(timing.control_ps.into()));
            }
            let header_out = start.saturating_add(self.cycles(1));
            if let Some(block) = part.moved.own {
                let load =
                    part.load(block.source, self.capabilities).max(part.load(block.destination, self.capabilities));
                let counted = header_out.saturating_add(self.duration(block.bytes, load));
                times[own].t2_ps = times[own].t2_ps.max(counted);
                if part.moved.sends.is_empty() {
                    times[own].t1_ps = times[own].t1_ps.max(counted);
                }
            }
            for send in &part.moved.sends {
                let destination = place_of(part, send.peer_rank);
                let into = destination.and_then(|place| {
                    let receives = &parts[place].moved.receives;
                    let receive = receives.iter().find(|receive| receive.peer_rank == part.own)?;
                    Some((&parts[place], receive.address))
                });
                let straight = into.filter(|_| part.is_rendezvous);
                let load = part
                    .load(send.address, self.capabilities)
                    .max(straight.map_or(0, |(other, address)| other.load(address, self.capabilities)));
                let out = header_out.saturating_add(self.duration(send.bytes, load));
                times[own].t1_ps = times[own].t1_ps.max(out);
                // From the receive buffer it goes to memory as fast as the pseudo channel lets all that go there, once the
                // destination is at the instruction.
                let drain = into.filter(|_| !part.is_rendezvous).map_or(0, |(other, address)| {
                    self.wire(other.drain_load(address, self.capabilities), timing.channel_mbps)
                });
                let ready = destination.map_or(0, |place| signals[place]);
                let drained = header_out.saturating_add(timing.data_ps.into()).max(ready).saturating_add(drain);
                let drained = if drain == 0 { ready } else { drained };
                let arrival = out.saturating_add(timing.data_ps.into()).max(drained);
                let back = arrival.saturating_add(timing.acknowledge_ps.into());
                times[own].t2_ps = times[own].t2_ps.max(back);
                if let Some(place) = destination {
                    times[place].arrival_ps = times[place].arrival_ps.max(arrival);
                    times[place].t2_ps = times[place].t2_ps.max(arrival);
                }
            }
            times[own].t2_ps = times[own].t2_ps.max(times[own].t1_ps);
        }
        times
    }

    /// Picoseconds of a block's beats: by the link, or by the fullest pseudo channel it passes if that takes longer.
    fn duration(&self, bytes: u64, load: u64) -> u64 {
        let timing = &self.capabilities.timing;
        let link = self.wire(whole_beats(bytes, self.capabilities), timing.link_mbps);
        link.max(self.wire(load, timing.channel_mbps))
    }
}

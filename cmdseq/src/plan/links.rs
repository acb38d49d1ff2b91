//! What programs send over each link.

use std::collections::BTreeSet;

use super::outcome::SharedLinks;
use crate::matching::{Job, Recent};
use crate::switch::{Call, each_hop};
use crate::{Capabilities, Hop, Topology};

/// Returns the bytes over the busiest link in one direction, and what is shared of links between routers.
pub(super) fn used(job: Job<'_>) -> (u64, Option<SharedLinks>) {
    let Capabilities { topology, nodes, .. } = *job.capabilities;
    if !topology.has_routers() {
        let mut busiest = 0;
        // Of one rank, by the node at the other end.
        let mut sent = vec![0u64; nodes as usize];
        for rank in 0..job.programs.len() {
            sent.fill(0);
            each_send(job, rank, |_, to, bytes| sent[to as usize] = sent[to as usize].saturating_add(bytes));
            busiest = sent.iter().copied().fold(busiest, u64::max);
        }
        return (busiest, None);
    }
    let links = topology.links(nodes) as usize;
    let place = |hop: Hop| topology.link(hop, nodes);
    let (mut sent, mut passing) = (vec![0u64; links], vec![0u32; links]);
    let mut pairs = BTreeSet::new();
    for rank in 0..job.programs.len() {
        each_send(job, rank, |from, to, bytes| {
            let is_new = pairs.insert((from, to));
            for link in topology.way(from, to, nodes).map(place) {
                sent[link] = sent[link].saturating_add(bytes);
                passing[link] += u32::from(is_new);
            }
        });
    }
    each_switched(job, |hop, bytes| {
        let link = place(hop);
        sent[link] = sent[link].saturating_add(bytes);
    });
    let farthest = pairs.iter().map(|(from, to)| topology.hops(*from, *to, nodes)).max().unwrap_or(0);
    let shared = SharedLinks { farthest, pairs: passing.into_iter().max().unwrap_or(0) };
    // What switches compute goes from switch to switch.
    (sent.into_iter().max().unwrap_or(0), Some(shared).filter(|_| !pairs.is_empty()))
}

/// Tells links and bytes of what switches compute.
fn each_switched(job: Job<'_>, mut tell: impl FnMut(Hop, u64)) {
    let Topology::Switched(shape) = job.capabilities.topology else { return };
    for (rank, program) in job.programs.iter().enumerate() {
        for instruction in &program.instructions {
            // Each of a communicator once.
            let Some(membership) = job.membership(rank, instruction).filter(|one| one.own == 0) else { continue };
            let Some(call) = Call::of(instruction) else { continue };
            let nodes = membership.nodes();
            let period = call.period(nodes.len() as u32);
            for index in 0..period {
                let alike = (index..call.chunks()).step_by(period as usize);
                let bytes: usize = alike.map(|piece| call.place(piece as u16).len()).sum();
                each_hop(shape, &call, nodes, index as u16, |hop| tell(hop, bytes as u64));
            }
        }
    }
}

/// Tells source, destination and bytes of all that rank `rank` sends.
fn each_send(job: Job<'_>, rank: usize, mut tell: impl FnMut(u32, u32, u64)) {
    let mut known: Recent<Vec<(u32, u64)>> = Recent::default();
    for instruction in &job.programs[rank].instructions {
        let Some(membership) = job.membership(rank, instruction).filter(|_| instruction.form().is_none()) else {
            continue;
        };
        let sends = known.of(instruction, || {
            let moved = job.moved(rank, instruction);
            moved.sends.iter().map(|send| (membership.nodes()[send.peer_rank as usize], send.bytes)).collect()
        });
        let here = membership.nodes()[membership.own as usize];
        sends.iter().for_each(|(to, bytes)| tell(here, *to, *bytes));
    }
}

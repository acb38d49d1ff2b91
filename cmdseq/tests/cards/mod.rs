//! Capabilities of cards as OPTWEB's, typed by hand.
#![allow(dead_code, reason = "each test takes what it needs")]

use cmdseq::capability::Timing;
use cmdseq::plan::{Algorithm, Collective, Request};
use cmdseq::{Capabilities, Operation, Topology};

pub(crate) const TIMING: Timing = Timing {
    dispatch_cycles: 7,
    memory_read_cycles: 54,
    handover_cycles: 12,
    control_ps: 360_000,
    data_ps: 390_000,
    acknowledge_ps: 390_000,
    link_mbps: 45_000,
    channel_mbps: 51_200,
    host_mbps: 100_000,
    beat_bytes: 32,
};

pub(crate) fn connected(nodes: u32) -> Capabilities {
    fabric(nodes, Topology::FullyConnected)
}

pub(crate) fn dragonfly(groups: u32, size: u32) -> Capabilities {
    fabric(groups * size, Topology::Dragonfly { groups })
}

fn fabric(nodes: u32, topology: Topology) -> Capabilities {
    let ports = topology.ports(nodes);
    let peers = u64::from(ports + 1).max(16);
    Capabilities {
        isa: 1,
        clock_khz: 200_000,
        nodes,
        topology,
        ports,
        memory_bytes: 8 << 30,
        memory_channels: 32,
        stripe_half_bytes: ((8 << 30) / (2 * peers)) >> 20 << 20,
        queue_depth_max: 1024,
        communicators: 32,
        communicator_ranks: 1024,
        resident_programs: 8,
        resident_words: 256,
        address_align: 1,
        eager_bytes: 16 << 10,
        eager_limit: 16 << 10,
        operations: Operation::ALL.iter().fold(0, |bits, operation| bits | 1 << *operation as u8),
        extrapolated: nodes > 16,
        timing: TIMING,
    }
}

pub(crate) fn request(collective: Collective, nodes: u32, bytes: u64, algorithm: Option<Algorithm>) -> Request {
    Request { collective, group: (0..nodes).collect(), bytes, root: 0, peer: nodes - 1, algorithm, eager_limit: None }
}

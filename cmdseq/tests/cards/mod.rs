//! Capabilities of cards as OPTWEB's, typed by hand.
#![allow(dead_code, reason = "each test takes what it needs")]

use cmdseq::capability::{SwitchUnits, Timing};
use cmdseq::plan::{Algorithm, Collective, Request};
use cmdseq::switch::{self, Form, Shape};
use cmdseq::{Capabilities, Combine, Element, Operation, Reduction, Topology};

pub(crate) const TIMING: Timing = Timing {
    dispatch_cycles: 7,
    memory_read_cycles: 54,
    handover_cycles: 12,
    switch_cycles: 10,
    control_ps: 360_000,
    data_ps: 390_000,
    acknowledge_ps: 390_000,
    hop_ps: 0,
    link_mbps: 45_000,
    channel_mbps: 51_200,
    host_mbps: 100_000,
    beat_bytes: 32,
    reduce_beat_cycles: 1,
    reduce_unit_cycles: 8,
};

pub(crate) fn connected(nodes: u32) -> Capabilities {
    fabric(nodes, Topology::FullyConnected)
}

pub(crate) fn dragonfly(groups: u32, size: u32) -> Capabilities {
    fabric(groups * size, Topology::Dragonfly { groups })
}

/// A torus with the links of CIRCUS.
pub(crate) fn circus(rows: u32, columns: u32) -> Capabilities {
    let nodes = rows * columns;
    let fabric = fabric(nodes, Topology::Torus { rows });
    let router_and_link_ps = 23_437 + 200_000;
    let timing = Timing {
        control_ps: 42 * 3_381 + 23_437 + router_and_link_ps,
        data_ps: 48 * 3_381 + 23_437 + router_and_link_ps,
        acknowledge_ps: 48 * 3_381 + 23_437 + router_and_link_ps,
        hop_ps: router_and_link_ps,
        link_mbps: 90_752,
        channel_mbps: 153_600,
        beat_bytes: 64,
        ..TIMING
    };
    Capabilities {
        clock_khz: 295_770,
        memory_bytes: 32 << 30,
        memory_channels: 4,
        stripe_half_bytes: ((32 << 30) / (2 * u64::from(nodes.max(2)))) >> 20 << 20,
        extrapolated: nodes > 64,
        timing,
        ..fabric
    }
}

/// Cards on the links and switches of MPI-FPGA. The paper has 250 MHz, routers of four stages, and links of 440 ns and 95.9 Gb/s.
pub(crate) fn mpi_fpga(shape: Shape) -> Capabilities {
    let nodes = shape.processors();
    let fabric = fabric(nodes, Topology::Switched(shape));
    let router_ps = 4 * 4_000;
    // A phit of 256 bits arrives at an edge of the clock.
    let (link_ps, to_leaf_ps) = (444_000, 440_000 + 2_669);
    let is_direct = shape.is_direct();
    let way_ps = link_ps + if is_direct { 2 * router_ps } else { 0 };
    let timing = Timing {
        control_ps: 42 * 4_000 + way_ps,
        data_ps: 48 * 4_000 + way_ps,
        acknowledge_ps: 48 * 4_000 + way_ps,
        hop_ps: router_ps + link_ps,
        link_mbps: 60_000,
        channel_mbps: 153_600,
        beat_bytes: 32,
        ..TIMING
    };
    let forms = |collective: switch::Collective| if is_direct { collective.forms() } else { &[Form::Tree] };
    let bits = |collective: switch::Collective| {
        forms(collective).iter().fold(0, |bits, form| bits | SwitchUnits::bit(collective, *form))
    };
    let reductions = [Reduction::Sum, Reduction::Min, Reduction::Max, Reduction::And, Reduction::Or, Reduction::Xor];
    let integers =
        [Element::I8, Element::U8, Element::I16, Element::U16, Element::I32, Element::U32, Element::I64, Element::U64];
    let elements = integers.iter().chain(&[Element::F32, Element::F64]);
    Capabilities {
        clock_khz: 250_000,
        memory_bytes: 32 << 30,
        memory_channels: 4,
        stripe_half_bytes: ((32 << 30) / (2 * u64::from(nodes.max(2)))) >> 20 << 20,
        extrapolated: nodes > 128,
        switch: Some(SwitchUnits {
            collectives: switch::Collective::ALL.iter().fold(0, |all, collective| all | bits(*collective)),
            reductions: reductions.iter().fold(0, |bits, one| bits | one.bit()),
            element_types: elements.fold(0, |bits, one| bits | one.bit()),
            control_cycles: 2,
            float_cycles: 8,
            router_cycles: 4,
            entry_ps: if is_direct { 8_000 + 2_000 } else { to_leaf_ps },
            phit_ps: if is_direct { 2_000 } else { 2_669 },
            input_phits: 1536,
        }),
        timing,
        ..fabric
    }
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
        communicator_generations: 256,
        resident_programs: 8,
        resident_words: 256,
        signals: 64,
        tables: 16,
        windows: 16,
        lanes: 1,
        address_align: 1,
        eager_bytes: 16 << 10,
        eager_limit: 16 << 10,
        operations: Operation::ALL.iter().fold(0, |bits, operation| bits | 1 << *operation as u8),
        element_types: u32::MAX,
        reductions: u32::MAX,
        host_memory: true,
        reductions_extend: true,
        extrapolated: nodes > 16,
        switch: None,
        timing: TIMING,
    }
}

pub(crate) fn request(collective: Collective, nodes: u32, bytes: u64, algorithm: Option<Algorithm>) -> Request {
    Request { algorithm, ..request_of(collective, (0..nodes).collect(), bytes, [0, nodes - 1]) }
}

/// A request of this group, with a reduction and lengths if the collective needs them. `ends`, root and peer, may be any numbers.
pub(crate) fn request_of(collective: Collective, group: Vec<u32>, bytes: u64, ends: [u32; 2]) -> Request {
    let ranks = group.len() as u32;
    let [root, peer] = ends.map(|end| end % ranks);
    let (combine, counts) = (combine(collective), counts(collective, ranks, bytes));
    Request { root, peer, combine, counts, ..Request::new(collective, group, bytes) }
}

/// Lengths about `bytes` for vector forms, some of them 0.
pub(crate) fn counts(collective: Collective, ranks: u32, bytes: u64) -> Vec<u64> {
    let number = match collective {
        Collective::Alltoallv => ranks * ranks,
        Collective::Scatterv | Collective::Gatherv | Collective::Allgatherv => ranks,
        _ => 0,
    };
    (0..u64::from(number)).map(|count| bytes.saturating_mul(count * 7 % 4) / 2).collect()
}

/// A reduction that takes any number of bytes, for collectives that need one.
pub(crate) fn combine(collective: Collective) -> Option<Combine> {
    collective.reduces().then_some(Combine::new(Reduction::Xor, Element::U8))
}

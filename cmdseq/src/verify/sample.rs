//! A small card for tests: 4 KiB of memory in stripes of 512 B.

use crate::capability::Timing;
use crate::matching::Members;
use crate::program::{Communicator, Program, ProgramSet};
use crate::table::Tables;
use crate::{Capabilities, Instruction, Operation, Topology};

pub(crate) const MEMORY: u64 = 4096;
pub(crate) const STRIPE: u64 = 512;
/// Sent at once up to here.
pub(crate) const EAGER_LIMIT: u64 = 32;
/// The receive buffer of a link.
pub(crate) const EAGER_BYTES: u64 = 64;

pub(crate) fn card(nodes: u32) -> Capabilities {
    let timing = Timing {
        dispatch_cycles: 1,
        memory_read_cycles: 1,
        handover_cycles: 1,
        switch_cycles: 1,
        control_ps: 1,
        data_ps: 1,
        acknowledge_ps: 1,
        hop_ps: 0,
        link_mbps: 1,
        channel_mbps: 1,
        host_mbps: 1,
        beat_bytes: 1,
        reduce_beat_cycles: 1,
        reduce_unit_cycles: 1,
    };
    Capabilities {
        isa: 1,
        clock_khz: 1,
        nodes,
        topology: Topology::FullyConnected,
        ports: nodes - 1,
        memory_bytes: MEMORY,
        memory_channels: 2,
        stripe_half_bytes: STRIPE / 2,
        queue_depth_max: 16,
        communicators: 8,
        communicator_ranks: nodes,
        communicator_generations: 4,
        resident_programs: 2,
        resident_words: 16,
        signals: 4,
        tables: 4,
        windows: 4,
        lanes: 1,
        address_align: 1,
        eager_bytes: EAGER_BYTES,
        eager_limit: EAGER_LIMIT,
        operations: Operation::ALL.iter().fold(0, |bits, operation| bits | operation.bit()),
        element_types: u32::MAX,
        reductions: u32::MAX,
        host_memory: true,
        reductions_extend: true,
        extrapolated: false,
        switch: None,
        timing,
    }
}

/// Programs of all cards, each of its own instructions.
pub(crate) fn programs(all: impl IntoIterator<Item = (Vec<Instruction>, Tables)>) -> Vec<Program> {
    all.into_iter().map(|(instructions, tables)| Program { instructions, tables, ..Program::default() }).collect()
}

/// Members of the world and of `communicators`, with a program on every card.
pub(crate) fn members(capabilities: &Capabilities, communicators: &[Communicator]) -> Members {
    let set = ProgramSet { nodes: (0..capabilities.nodes).collect(), ..ProgramSet::default() };
    Members::new(&set.with(communicators.to_vec()), capabilities).unwrap()
}

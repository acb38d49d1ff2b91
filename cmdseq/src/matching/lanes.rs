//! For which earlier instructions of its card an instruction waits: `docs/isa.md`, Lanes.

use std::cmp::Ordering;

use super::members::Members;
use crate::program::Program;
use crate::ranges::transfers;
use crate::{Capabilities, Flags};

/// The lanes that programs use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lanes<'a> {
    programs: &'a [Program],
    members: &'a Members,
    capabilities: &'a Capabilities,
    count: usize,
}

/// What an instruction occupies while it runs.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    lane: u8,
    is_fenced: bool,
    /// An operation that is no exchange runs alone.
    is_alone: bool,
    /// Directions of links, by the node at the other end, sorted: from this card, and to it.
    out: Vec<u32>,
    into: Vec<u32>,
}

impl<'a> Lanes<'a> {
    pub(crate) fn new(programs: &'a [Program], members: &'a Members, capabilities: &'a Capabilities) -> Self {
        let all = programs.iter().flat_map(|program| &program.instructions);
        let count = all.map(|instruction| usize::from(instruction.lane) + 1).max().unwrap_or(1);
        Lanes { programs, members, capabilities, count }
    }

    /// Their number; at least 1.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// What instruction `index` of `rank` occupies.
    pub(crate) fn claim(&self, rank: usize, index: usize) -> Claim {
        let program = &self.programs[rank];
        let instruction = &program.instructions[index];
        let mut claim = Claim {
            lane: instruction.lane,
            is_fenced: instruction.flags.contains(Flags::FENCE),
            // With one lane, each waits for the one before in any case.
            is_alone: self.count == 1 || !instruction.operation.fields().lane,
            out: Vec::new(),
            into: Vec::new(),
        };
        let Some(membership) = self.members.of(rank, instruction).filter(|_| !claim.is_alone) else { return claim };
        let moved = transfers(instruction, &membership.context(&program.tables, self.capabilities)).unwrap_or_default();
        let node = |rank: u32| membership.nodes().get(rank as usize).copied();
        claim.out = moved.sends.iter().filter_map(|block| node(block.peer_rank)).collect();
        claim.into = moved.receives.iter().filter_map(|block| node(block.peer_rank)).collect();
        claim.out.sort_unstable();
        claim.into.sort_unstable();
        claim
    }
}

impl Claim {
    /// Whether an instruction with this claim is issued only when an earlier one of its card, with claim `earlier`, has ended.
    pub(crate) fn waits_for(&self, earlier: &Claim) -> bool {
        self.is_fenced
            || self.is_alone
            || earlier.is_alone
            || self.lane == earlier.lane
            || have_common(&self.out, &earlier.out)
            || have_common(&self.into, &earlier.into)
    }
}

/// Whether two sorted lists have a common element.
fn have_common(mut one: &[u32], mut other: &[u32]) -> bool {
    while let ([first, rest @ ..], [second, others @ ..]) = (one, other) {
        match first.cmp(second) {
            Ordering::Less => one = rest,
            Ordering::Greater => other = others,
            Ordering::Equal => return true,
        }
    }
    false
}

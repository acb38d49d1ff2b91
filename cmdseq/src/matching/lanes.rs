//! For which earlier instructions of its card an instruction waits: `docs/isa.md`, Lanes.

use std::cmp::Ordering;
use std::rc::Rc;

use super::job::Job;
use super::recent::Recent;
use crate::ranges::Transfer;
use crate::{Flags, Instruction, Operation};

/// The lanes that programs use.
#[derive(Debug)]
pub(crate) struct Lanes<'a> {
    job: Job<'a>,
    count: usize,
    /// By rank.
    known: Vec<Recent<Rc<Directions>>>,
}

/// What an instruction occupies while it runs.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    lane: u8,
    is_fenced: bool,
    /// `None` for an operation that runs alone. A fold uses no link.
    directions: Option<Rc<Directions>>,
}

/// Directions of links, by the node at the other end, sorted: from this card, and to it.
#[derive(Debug, Default)]
struct Directions {
    out: Vec<u32>,
    into: Vec<u32>,
}

impl<'a> Lanes<'a> {
    pub(crate) fn new(job: Job<'a>) -> Self {
        let all = job.programs.iter().flat_map(|program| &program.instructions);
        let count = all.map(|instruction| usize::from(instruction.lane) + 1).max().unwrap_or(1);
        Lanes { job, count, known: vec![Recent::default(); job.programs.len()] }
    }

    /// Their number; at least 1.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// What instruction `index` of `rank` occupies.
    pub(crate) fn claim(&mut self, rank: usize, index: usize) -> Claim {
        let instruction = self.job.instruction(rank, index);
        Claim {
            lane: instruction.lane,
            is_fenced: instruction.flags.contains(Flags::FENCE),
            // With one lane, each waits for the one before in any case.
            directions: (self.count > 1).then(|| self.directions(rank, instruction)).flatten(),
        }
    }

    fn directions(&mut self, rank: usize, instruction: &Instruction) -> Option<Rc<Directions>> {
        if instruction.operation == Operation::Fold {
            return Some(Rc::default());
        }
        let membership = self.job.membership(rank, instruction).filter(|_| instruction.operation.fields().lane)?;
        let directions = self.known[rank].of(instruction, || {
            let moved = self.job.moved(rank, instruction);
            let nodes = |blocks: &[Transfer]| {
                let node = |block: &Transfer| membership.nodes().get(block.peer_rank as usize).copied();
                let mut nodes: Vec<u32> = blocks.iter().filter_map(node).collect();
                nodes.sort_unstable();
                nodes
            };
            Rc::new(Directions { out: nodes(&moved.sends), into: nodes(&moved.receives) })
        });
        Some(directions.clone())
    }
}

impl Claim {
    /// Whether an instruction with this claim is issued only when an earlier one of its card, with claim `earlier`, has ended.
    pub(crate) fn waits_for(&self, earlier: &Claim) -> bool {
        let (Some(own), Some(other)) = (&self.directions, &earlier.directions) else { return true };
        self.is_fenced
            || self.lane == earlier.lane
            || have_common(&own.out, &other.out)
            || have_common(&own.into, &other.into)
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

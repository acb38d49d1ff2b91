//! For which earlier instructions of its card an instruction waits: `docs/isa.md`, Lanes.

use super::kinds::directions;
use super::members::{Members, Membership};
use crate::instruction::is_collective;
use crate::program::Program;
use crate::{Flags, Instruction};

/// What an instruction occupies while it runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim<'m> {
    lane: u8,
    is_fenced: bool,
    links: Links<'m>,
}

/// Links, by the cards to which they lead: ranks of the programs.
#[derive(Debug, Clone, Copy)]
enum Links<'m> {
    /// An operation that is no exchange runs alone.
    Alone,
    Pair([Option<usize>; 2]),
    /// Those to the other members of a communicator.
    Members(Membership<'m>),
}

impl<'m> Claim<'m> {
    pub(crate) fn of(rank: usize, instruction: &Instruction, members: &'m Members) -> Self {
        let links = match members.of(rank, instruction).filter(|_| instruction.operation.fields().lane) {
            None => Links::Alone,
            Some(all) if is_collective(instruction.operation) => Links::Members(all),
            Some(one) => Links::Pair(
                directions(instruction, one.own)
                    .map(|direction| direction.and_then(|(_, other)| one.program_rank(other))),
            ),
        };
        Claim { lane: instruction.lane, is_fenced: instruction.flags.contains(Flags::FENCE), links }
    }

    /// Whether an instruction of `rank` with this claim is issued only when an earlier one with claim `earlier` has ended.
    pub(crate) fn waits_for(&self, earlier: &Claim<'m>, rank: usize, members: &Members) -> bool {
        if self.is_fenced || self.lane == earlier.lane {
            return true;
        }
        match (&self.links, &earlier.links) {
            (Links::Alone, _) | (_, Links::Alone) => true,
            (Links::Pair(one), Links::Pair(other)) => one.iter().flatten().any(|link| other.contains(&Some(*link))),
            (Links::Pair(pair), Links::Members(all)) | (Links::Members(all), Links::Pair(pair)) => {
                pair.iter().flatten().any(|other| members.is_member(*other, all.index))
            }
            (Links::Members(one), Links::Members(other)) => {
                one.index == other.index
                    || one.program_ranks().any(|link| link != rank && members.is_member(link, other.index))
            }
        }
    }
}

/// Number of lanes that `programs` use.
pub(crate) fn used(programs: &[Program]) -> usize {
    let all = programs.iter().flat_map(|program| &program.instructions);
    all.map(|instruction| usize::from(instruction.lane) + 1).max().unwrap_or(1)
}

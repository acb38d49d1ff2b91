//! Programs that run together, with the members of their communicators.

use super::members::{Members, Membership};
use crate::program::Program;
use crate::ranges::{Transfers, transfers};
use crate::{Capabilities, Context, Instruction, Operation};

/// Programs that run together, the members of their communicators, and the cards.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) programs: &'a [Program],
    pub(crate) members: &'a Members,
    pub(crate) capabilities: &'a Capabilities,
}

/// A signal: rank of the programs, and number.
pub(crate) type Signal = (usize, u16);

impl<'a> Job<'a> {
    /// Returns instruction `index` of `rank`.
    pub(crate) fn instruction(&self, rank: usize, index: usize) -> &'a Instruction {
        &self.programs[rank].instructions[index]
    }

    /// Returns the membership of `rank` in the communicator of `instruction`; `None` if the operation has none, or the rank is no
    /// member.
    pub(crate) fn membership(&self, rank: usize, instruction: &Instruction) -> Option<Membership<'a>> {
        self.members.of(rank, instruction)
    }

    /// Whether all members of every communicator that the programs use are linked to each other.
    pub(crate) fn members_are_linked(&self) -> bool {
        let is_linked = |rank: usize, one: &Instruction| self.membership(rank, one).is_none_or(|own| own.is_linked());
        let mut programs = self.programs.iter().enumerate();
        programs.all(|(rank, program)| program.instructions.iter().all(|one| is_linked(rank, one)))
    }

    /// Returns the context of an instruction of `rank`: alone if the operation has no communicator.
    pub(crate) fn context(&self, rank: usize, instruction: &Instruction) -> Context<'a> {
        let tables = &self.programs[rank].tables;
        let alone = Context { rank: 0, ranks: 1, stripe_bytes: self.capabilities.stripe_bytes(), tables };
        self.membership(rank, instruction).map_or(alone, |own| self.context_in(rank, &own))
    }

    /// Returns the context of instructions of `rank` on the communicator of `membership`.
    pub(crate) fn context_in(&self, rank: usize, membership: &Membership<'_>) -> Context<'a> {
        membership.context(&self.programs[rank].tables, self.capabilities)
    }

    /// Returns what an instruction of `rank` moves; nothing if the instruction is wrong.
    pub(crate) fn moved(&self, rank: usize, instruction: &Instruction) -> Transfers {
        transfers(instruction, &self.context(rank, instruction)).unwrap_or_default()
    }

    /// Returns the rank whose memory or signals a one-sided instruction of `rank` reaches, if it has a program.
    pub(crate) fn peer(&self, rank: usize, instruction: &Instruction) -> Option<usize> {
        self.membership(rank, instruction)?.program_rank(instruction.peer.into())
    }

    /// Returns the signal that an instruction of `rank` adds to.
    pub(crate) fn signal_of_put(&self, rank: usize, instruction: &Instruction) -> Option<Signal> {
        let is_put = instruction.operation == Operation::PutSignal;
        is_put.then(|| Some((self.peer(rank, instruction)?, instruction.signal_id))).flatten()
    }
}

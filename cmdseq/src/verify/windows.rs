//! Windows: whether each one-sided operation that names a window finds it open, with its key, rights and range.
//!
//! Programs run here in a possible order. A window is open for an operation if its `open` has ended before the operation begins,
//! and its `close` begins after the operation has ended, in any order.

use std::collections::{BTreeMap, BTreeSet};

use super::order::Clocks;
use crate::instruction::Rights;
use crate::matching::Job;
use crate::ranges::{Range, remote};
use crate::refusal::{Reason, Refusal};
use crate::{Instruction, Operation};

/// The open windows of all ranks.
pub(super) struct Windows<'a> {
    job: Job<'a>,
    /// By rank and slot.
    open: BTreeMap<(usize, u16), Open>,
}

/// An open window.
struct Open {
    /// Index of its `open`.
    index: usize,
    /// By rank, the last instruction that goes through it.
    uses: BTreeMap<usize, usize>,
}

/// What windows have in common that can be joined: rank, communicator and rights.
pub(super) type Kind = (usize, u16, Rights);

/// Returns the range of the kinds of `rank`.
pub(super) fn of_rank(rank: usize) -> std::ops::Range<Kind> {
    (rank, 0, Rights::empty())..(rank + 1, 0, Rights::empty())
}

/// Refuses what needs more windows than `rank` has free.
pub(super) fn too_few(rank: usize, needed: usize, room: usize) -> Refusal {
    let cause = format!(
        "the one-sided operations of other ranks need {needed} windows of its card, one for each communicator and combination of \
         rights, but only {room} are free"
    );
    Refusal::of(rank, cause).because(Reason::Window)
}

/// Refuses programs that need more windows than the cards have, beside those that they open themselves. The programs are valid.
pub(super) fn check_room(job: Job<'_>) -> Result<(), Refusal> {
    if job.capabilities.windows == 0 {
        return Ok(());
    }
    let mut kinds: BTreeSet<Kind> = BTreeSet::new();
    for (rank, program) in job.programs.iter().enumerate() {
        // Most are of the kind of the one before.
        let mut last = None;
        for instruction in program.instructions.iter().filter(|one| one.needs_window()) {
            let rights = instruction.needed_rights();
            let named = (instruction.peer, instruction.communicator, rights);
            if last == Some(named) || instruction.bytes == 0 && rights != Rights::SIGNAL {
                continue;
            }
            last = Some(named);
            kinds.extend(job.peer(rank, instruction).map(|peer| (peer, instruction.communicator, rights)));
        }
    }
    for (rank, program) in job.programs.iter().enumerate() {
        let needed = kinds.range(of_rank(rank)).count();
        let room = job.capabilities.windows as usize - program.opened_slots().len();
        if needed > room {
            return Err(too_few(rank, needed, room));
        }
    }
    Ok(())
}

impl<'a> Windows<'a> {
    /// No window is open; `None` if no instruction names one.
    pub(super) fn of(job: Job<'a>) -> Option<Self> {
        let mut all = job.programs.iter().flat_map(|program| &program.instructions);
        let are_named = all.any(|instruction| instruction.window().is_some());
        are_named.then(|| Windows { job, open: BTreeMap::new() })
    }

    /// Runs instruction `index` of `rank`; returns why a card could refuse it, in the order known so far.
    pub(super) fn step(&mut self, rank: usize, index: usize, clocks: &Clocks) -> Option<Refusal> {
        let instruction = self.job.instruction(rank, index);
        let outcome = match instruction.operation {
            Operation::Open => self.begin(rank, index),
            Operation::Close => self.end(rank, instruction, clocks),
            _ => self.pass(rank, index, clocks),
        };
        let refusal =
            |cause| Refusal::at(rank, index, format!("{}: {cause}", instruction.operation)).because(Reason::Window);
        outcome.err().map(refusal)
    }

    /// Refuses windows that are open after all programs.
    pub(super) fn left(&self) -> Option<Refusal> {
        let ((rank, slot), open) = self.open.first_key_value()?;
        let cause = format!("open: window {slot} is open after the programs; close it");
        Some(Refusal::at(*rank, open.index, cause).because(Reason::Window))
    }

    fn begin(&mut self, rank: usize, index: usize) -> Result<(), String> {
        let Some(window) = self.job.instruction(rank, index).window() else { return Ok(()) };
        if let Some(open) = self.open.get(&(rank, window.slot)) {
            return Err(format!("instruction {} opened window {}; close it first", open.index, window.slot));
        }
        self.open.insert((rank, window.slot), Open { index, uses: BTreeMap::new() });
        Ok(())
    }

    fn end(&mut self, rank: usize, instruction: &Instruction, clocks: &Clocks) -> Result<(), String> {
        let Some(window) = instruction.window() else { return Ok(()) };
        let opened = |open: &Open| self.job.instruction(rank, open.index).window();
        let Some(open) = self.open.get(&(rank, window.slot)).filter(|open| opened(open) == Some(window)) else {
            return Err(format!("window {} with key {:#x} is not open", window.slot, window.key));
        };
        if let Some((user, index)) = open.uses.iter().find(|(user, index)| !clocks.is_over(**user, **index, rank)) {
            return Err(format!(
                "instruction {index} of rank {user} may still use window {}; add a barrier before the close",
                window.slot
            ));
        }
        self.open.remove(&(rank, window.slot));
        Ok(())
    }

    /// A one-sided operation goes through the window that it names.
    fn pass(&mut self, rank: usize, index: usize, clocks: &Clocks) -> Result<(), String> {
        let job = self.job;
        let instruction = job.instruction(rank, index);
        let Some(window) = instruction.window() else { return Ok(()) };
        let Some(membership) = job.membership(rank, instruction) else { return Ok(()) };
        let Some(peer) = membership.program_rank(instruction.peer.into()) else { return Ok(()) };
        let slot = window.slot;
        let opens = |one: &Instruction| one.operation == Operation::Open && one.window() == Some(window);
        let open = self.open.get_mut(&(peer, slot));
        let known = open.map(|open| (job.instruction(peer, open.index), open));
        let is_open = |open: &Open| clocks.is_over(peer, open.index, rank);
        let Some((opened, open)) = known.filter(|(opened, open)| opens(opened) && is_open(open)) else {
            return Err(match job.programs[peer].instructions.iter().any(opens) {
                true => format!(
                    "window {slot} of rank {peer} may be closed when this instruction runs; add a barrier after its open, and one \
                     before its close"
                ),
                false => format!("rank {peer} opens no window {slot} with key {:#x}", window.key),
            });
        };
        let missing = instruction.needed_rights() - opened.rights();
        if let Some(missing) = missing.name() {
            return Err(format!("window {slot} of rank {peer} has no right {missing}"));
        }
        let own = membership.nodes()[membership.own as usize];
        let allowed = job.members.membership(peer, opened.communicator);
        if !allowed.is_some_and(|allowed| allowed.nodes().contains(&own)) {
            return Err(format!(
                "window {slot} of rank {peer} is for members of communicator {} only",
                opened.communicator
            ));
        }
        let reached = remote(instruction, &job.context_in(rank, &membership)).ok().flatten();
        let range = Range { address: opened.destination.address, bytes: opened.bytes };
        if let Some(block) = reached
            && (block.address < range.address || block.address.saturating_add(block.bytes) > range.end())
        {
            return Err(format!(
                "{} B at {:#x} exceed window {slot} of rank {peer}, which has {} B at {:#x}",
                block.bytes, block.address, range.bytes, range.address
            ));
        }
        open.uses.insert(rank, index);
        Ok(())
    }
}

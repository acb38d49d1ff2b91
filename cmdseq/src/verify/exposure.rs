//! The memory and signals of other cards that programs reach by one-sided operations without a window: the windows to open before
//! the programs run.

use std::collections::BTreeMap;

use super::resident::Unrolled;
use super::windows::{Kind, of_rank, too_few};
use crate::instruction::{ARGUMENTS, Rights};
use crate::matching::{Job, Members};
use crate::program::ProgramSet;
use crate::ranges::{Range, remote};
use crate::refusal::Refusal;
use crate::{Capabilities, Instruction};

/// A window that programs need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exposed {
    /// The rank whose memory it is.
    pub rank: usize,
    /// The communicator whose members reach it.
    pub communicator: u16,
    /// The memory.
    pub range: Range,
    /// What they do there.
    pub rights: Rights,
}

/// The windows that programs need, and which instructions go through them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exposure {
    /// The windows.
    pub windows: Vec<Exposed>,
    /// Rank and index of an instruction, and the index of its window.
    pub through: Vec<(usize, usize, usize)>,
}

/// Finds the windows that the programs of `set` need: exactly the ranges that they reach, of each rank at most `room` of that
/// rank. If a rank has too few, the ranges with the smallest gaps between them share a window.
///
/// Resident programs are launched with these `arguments`, by rank. The rounds of a loop share a window, from the first byte that
/// they reach to the last. Other programs have no arguments.
///
/// An instruction that is invalid by itself, or reaches a card outside of the group or its own, gets none.
///
/// # Errors
/// Invalid communicators; [`Reason::Window`](crate::Reason::Window) if a rank needs more windows even so, because the
/// communicators or rights differ; and those of [`verify_resident`](super::verify_resident) for programs that a card refuses to
/// store.
pub fn exposure(
    set: &ProgramSet,
    arguments: Option<&[[u64; ARGUMENTS]]>,
    capabilities: &Capabilities,
    room: &[usize],
) -> Result<Exposure, Refusal> {
    if !set.instructions().any(Instruction::needs_window) {
        return Ok(Exposure::default());
    }
    let members = Members::new(set, capabilities)?;
    let unrolled = arguments.map(|all| Unrolled::of_resident(set, all, capabilities)).transpose()?;
    let programs = unrolled.as_ref().map_or(&set.programs, |unrolled| &unrolled.set.programs);
    let origin = |rank, index| unrolled.as_ref().and_then(|unrolled| unrolled.origin(rank, index)).unwrap_or(index);
    divide(&reached(Job { programs, members: &members, capabilities }, origin), room)
}

/// By kind, the range that each instruction reaches, and its rank and index. Of one kind, either all ranges have bytes or none has.
type Reached = BTreeMap<Kind, Vec<(Range, (usize, usize))>>;

/// Finds what the programs reach; `origin` is the index of the instruction that an unrolled one comes from.
fn reached(job: Job<'_>, origin: impl Fn(usize, usize) -> usize) -> Reached {
    let mut each: BTreeMap<(usize, usize), (Kind, Range)> = BTreeMap::new();
    for (rank, program) in job.programs.iter().enumerate() {
        for (index, instruction) in program.instructions.iter().enumerate().filter(|(_, one)| one.needs_window()) {
            let Some(peer) = job.peer(rank, instruction).filter(|peer| *peer != rank) else { continue };
            let Ok(block) = remote(instruction, &job.context(rank, instruction)) else { continue };
            let rights = instruction.needed_rights();
            let range = match block {
                Some(block) => block.range(),
                None if rights == Rights::SIGNAL => Range { address: 0, bytes: 0 },
                // It reaches nothing.
                None => continue,
            };
            if range.end() > job.capabilities.memory_bytes {
                continue;
            }
            let kind = (peer, instruction.communicator, rights);
            let known = each.entry((rank, origin(rank, index))).or_insert((kind, range));
            known.1 = known.1.hull(range);
        }
    }
    let mut reached = Reached::new();
    for (place, (kind, range)) in each {
        reached.entry(kind).or_default().push((range, place));
    }
    reached.values_mut().for_each(|ranges| ranges.sort_unstable_by_key(|(range, place)| (range.address, *place)));
    reached
}

/// Divides what is reached into windows, of each rank at most `room`.
fn divide(reached: &Reached, room: &[usize]) -> Result<Exposure, Refusal> {
    let mut exposure = Exposure::default();
    for (rank, room) in room.iter().enumerate() {
        let kinds = || reached.range(of_rank(rank));
        let least = kinds().count();
        let more = room.checked_sub(least).ok_or_else(|| too_few(rank, least, *room))?;
        // The widest gaps stay.
        let mut gaps: Vec<(u64, Kind, u64)> = kinds().flat_map(|(kind, ranges)| gaps(*kind, ranges)).collect();
        gaps.sort_unstable_by_key(|gap| std::cmp::Reverse(*gap));
        gaps.truncate(more);
        for (kind, ranges) in kinds() {
            let starts = gaps.iter().filter(|gap| gap.1 == *kind).map(|gap| gap.2).collect::<Vec<_>>();
            add(&mut exposure, *kind, ranges, &starts);
        }
    }
    Ok(exposure)
}

/// The gaps between ranges sorted by address: bytes, kind, and the address at which each ends.
fn gaps(kind: Kind, ranges: &[(Range, (usize, usize))]) -> Vec<(u64, Kind, u64)> {
    let mut end = ranges.first().map_or(0, |(range, _)| range.address);
    let mut gaps = Vec::new();
    for (range, _) in ranges {
        if range.address > end {
            gaps.push((range.address - end, kind, range.address));
        }
        end = end.max(range.end());
    }
    gaps
}

/// Adds windows of one kind; a new one begins at each of `starts`.
fn add(exposure: &mut Exposure, kind: Kind, ranges: &[(Range, (usize, usize))], starts: &[u64]) {
    let (rank, communicator, rights) = kind;
    let first = exposure.windows.len();
    for (range, (user, index)) in ranges {
        let is_first = exposure.windows.len() == first;
        match exposure.windows.last_mut() {
            Some(window)
                if !is_first && (window.range.address == range.address || !starts.contains(&range.address)) =>
            {
                window.range = window.range.hull(*range);
            }
            _ => exposure.windows.push(Exposed { rank, communicator, range: *range, rights }),
        }
        exposure.through.push((*user, *index, exposure.windows.len() - 1));
    }
}

//! Checks the programs of all ranks together before any card gets them.
//!
//! First each instruction by itself: fields, communicator, ranks, links, addresses. Then all programs side by side: whether
//! every instruction finds its partners. What passes here no card refuses and no card waits for in vain, as far as the
//! instructions say it: resident programs and user logic are beyond it.

use crate::matching::{Matching, Members, Membership, is_collective, is_one_sided, takes_partners};
use crate::plan::{Communicator, Program, Refusal};
use crate::ranges::{CardRanges, Range, Transfers, card_ranges, transfers};
use crate::{AddressSpace, Capabilities, Flags, Instruction, Layout, Operation};

/// Verifies one program for each rank of `group`, with `communicators` defined on their members.
///
/// # Errors
/// The first thing that a card would refuse or wait for in vain: which rank, which instruction, why, and what would be
/// right. Of partners that disagree, the one that is alone with what it says is named.
pub fn verify(
    programs: &[Program],
    communicators: &[Communicator],
    group: &[u32],
    capabilities: &Capabilities,
) -> Result<(), Refusal> {
    check(programs, communicators, group, capabilities).map(|_| ())
}

/// As [`verify`], and gives who is a member of what.
pub(crate) fn check(
    programs: &[Program],
    communicators: &[Communicator],
    group: &[u32],
    capabilities: &Capabilities,
) -> Result<Members, Refusal> {
    if programs.len() != group.len() {
        let cause = format!("{} programs for {} ranks; each rank needs one", programs.len(), group.len());
        return Err(Refusal::general(cause));
    }
    if let Some(rank) = group.iter().position(|node| *node >= capabilities.nodes) {
        let cause = format!("there is no node {}; the fabric has {}", group[rank], capabilities.nodes);
        return Err(Refusal::of(rank, cause));
    }
    let members = Members::new(communicators, group, capabilities)?;
    for (rank, program) in programs.iter().enumerate() {
        for (index, instruction) in program.instructions.iter().enumerate() {
            let membership = members.of(rank, instruction);
            check_instruction(instruction, membership, capabilities)
                .map_err(|cause| Refusal::at(rank, index, format!("{}: {cause}", instruction.operation)))?;
        }
    }
    let mut matching = Matching::new(programs, &members, capabilities);
    while matching.step()?.is_some() {}
    Ok(members)
}

/// What one card would refuse. Causes only; the caller says where.
fn check_instruction(
    instruction: &Instruction,
    membership: Option<Membership<'_>>,
    capabilities: &Capabilities,
) -> Result<(), String> {
    let operation = instruction.operation;
    instruction.check_fields().map_err(|error| error.to_string())?;
    if !capabilities.runs(operation) {
        return Err("the card does not run this operation".into());
    }
    if instruction.flags.contains(Flags::EAGER | Flags::RENDEZVOUS) {
        return Err("it is flagged eager and rendezvous; it can be one of them".into());
    }
    if instruction.flags.contains(Flags::EAGER) && instruction.bytes > capabilities.eager_bytes {
        return Err(format!(
            "{} B do not fit the receive buffer of a link, {} B; without the eager flag they are sent by rendezvous",
            instruction.bytes, capabilities.eager_bytes
        ));
    }
    check_alignment(instruction, capabilities)?;
    let stripe = capabilities.stripe_half_bytes.saturating_mul(2);
    let (own, ranks) = if takes_partners(operation) || is_one_sided(operation) {
        let id = instruction.communicator;
        let membership = membership
            .ok_or_else(|| format!("communicator {id} is not defined on this card, or it is not a member of it"))?;
        check_ranks(instruction, &membership)?;
        check_stripes(instruction, capabilities)?;
        let ranks = membership.nodes().len() as u32;
        let moved = transfers(instruction, membership.own, ranks, stripe).map_err(|error| error.to_string())?;
        check_links(instruction, &membership, &moved, capabilities)?;
        check_remote(&moved, capabilities)?;
        (membership.own, ranks)
    } else {
        (0, 1)
    };
    let touched = card_ranges(instruction, own, ranks, stripe).map_err(|error| error.to_string())?;
    check_memory(&touched, capabilities)?;
    check_overlap(instruction, &touched, ranks)
}

fn check_alignment(instruction: &Instruction, capabilities: &Capabilities) -> Result<(), String> {
    let align = u64::from(capabilities.address_align.max(1));
    for (name, operand) in [("source", &instruction.source), ("destination", &instruction.destination)] {
        // A launch passes values, not addresses, in these fields.
        let is_card = operand.space == AddressSpace::Card && instruction.operation != Operation::Launch;
        if is_card && !operand.address.is_multiple_of(align) {
            return Err(format!("{name} {:#x} is not a multiple of {align}", operand.address));
        }
    }
    Ok(())
}

fn check_ranks(instruction: &Instruction, membership: &Membership<'_>) -> Result<(), String> {
    let fields = instruction.operation.fields();
    let ranks = membership.nodes().len();
    for (is_read, name, rank) in [(fields.root, "root", instruction.root), (fields.peer, "peer", instruction.peer)] {
        if is_read && usize::from(rank) >= ranks {
            return Err(format!(
                "{name} {rank} is not a rank of communicator {}, whose last is {}",
                instruction.communicator,
                ranks - 1
            ));
        }
    }
    let own = membership.own;
    let is_self = |rank: u16| u32::from(rank) == own;
    let is_wrong = match instruction.operation {
        // A shift by nothing is a copy; anything else with oneself would wait for ever.
        Operation::Sendrecv => is_self(instruction.peer) != is_self(instruction.root),
        _ => fields.peer && is_self(instruction.peer),
    };
    if is_wrong {
        return Err(format!("peer {own} is this rank itself; a copy moves data within a card"));
    }
    let held = instruction.bytes.saturating_mul(ranks as u64);
    if fields.extent && is_collective(instruction.operation) && instruction.extent > held {
        return Err(format!(
            "{} B do not fit {ranks} blocks of {} B; blocks need at least {} B",
            instruction.extent,
            instruction.bytes,
            instruction.extent.div_ceil(ranks as u64)
        ));
    }
    Ok(())
}

fn check_stripes(instruction: &Instruction, capabilities: &Capabilities) -> Result<(), String> {
    let is_striped = [&instruction.source, &instruction.destination].iter().any(|one| one.layout == Layout::Striped);
    if is_striped && instruction.bytes > capabilities.stripe_half_bytes {
        return Err(format!(
            "a block of {} B does not fit half a stripe; striped blocks have at most {} B",
            instruction.bytes, capabilities.stripe_half_bytes
        ));
    }
    Ok(())
}

fn check_links(
    instruction: &Instruction,
    membership: &Membership<'_>,
    moved: &Transfers,
    capabilities: &Capabilities,
) -> Result<(), String> {
    let nodes = membership.nodes();
    let own = membership.own;
    let partners: Vec<u32> = match instruction.operation {
        Operation::Barrier => (0..nodes.len() as u32).filter(|rank| *rank != own).collect(),
        _ => moved.sends.iter().chain(&moved.receives).map(|transfer| transfer.peer_rank).collect(),
    };
    let here = nodes[own as usize];
    for partner in partners {
        let there = nodes[partner as usize];
        if !capabilities.topology.linked(here, there, capabilities.nodes) {
            return Err(format!(
                "there is no link from node {here} to node {there} (rank {partner}); a way over other cards is needed, \
                 such as two-level"
            ));
        }
    }
    Ok(())
}

fn check_remote(moved: &Transfers, capabilities: &Capabilities) -> Result<(), String> {
    let Some(remote) = moved.remote else { return Ok(()) };
    inside(Range { address: remote.address, bytes: remote.bytes }, capabilities)
        .map_err(|cause| format!("at rank {}, {cause}", remote.peer_rank))
}

fn check_memory(touched: &CardRanges, capabilities: &Capabilities) -> Result<(), String> {
    touched.reads.iter().chain(&touched.writes).try_for_each(|range| inside(*range, capabilities))
}

fn inside(range: Range, capabilities: &Capabilities) -> Result<(), String> {
    if range.end() <= capabilities.memory_bytes {
        return Ok(());
    }
    Err(format!(
        "{} B at {:#x} leave card memory, which ends at {:#x}",
        range.bytes, range.address, capabilities.memory_bytes
    ))
}

/// Nothing is written that is also read, or written twice. The own block may lie in place, except in an exchange.
fn check_overlap(instruction: &Instruction, touched: &CardRanges, ranks: u32) -> Result<(), String> {
    if instruction.operation == Operation::Alltoall && ranks > 1 && touched.in_place.is_some() {
        return Err("source and destination are the same; an exchange needs a destination of its own".into());
    }
    let mut spans: Vec<(Range, bool)> = touched.reads.iter().map(|range| (*range, false)).collect();
    spans.extend(touched.writes.iter().map(|range| (*range, true)));
    spans.sort_unstable_by_key(|(range, _)| range.address);
    let (mut read, mut written) = (None::<Range>, None::<Range>);
    for (range, is_write) in spans {
        let hit = |last: Option<Range>| last.filter(|last| last.overlaps(range));
        if let Some(last) = hit(written).or_else(|| if is_write { hit(read) } else { None }) {
            return Err(format!(
                "{} B at {:#x} and {} B at {:#x} overlap, and one of them is written; they must lie apart",
                last.bytes, last.address, range.bytes, range.address
            ));
        }
        let last = if is_write { &mut written } else { &mut read };
        if last.is_none_or(|last| last.end() < range.end()) {
            *last = Some(range);
        }
    }
    Ok(())
}

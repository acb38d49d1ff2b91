//! Checks of a single instruction: fields, communicator, ranks, links, addresses.
//!
//! Most instructions need only a short check of their bounds (`is_plainly_right`). The others are checked block by block.

use std::collections::HashSet;

use super::bounds::{Bounds, KnownDisjoint, OperandBounds};
use crate::instruction::{BYTES, DELAY_MAX, WORLD, has_address_in_extent, is_collective, takes_tables};
use crate::limits::{BLOCKS_MAX, too_long};
use crate::matching::{Members, Membership, directions, is_id, is_one_sided, is_paired, is_rendezvous, takes_partners};
use crate::ranges::{
    Access, Blocks, CardRanges, Context, Exchange, Range, RangeError, Spans, Transfers, alltoallv_slots, card_ranges,
    card_ranges_of, transfers,
};
use crate::refusal::{Reason, Refusal, refuse};
use crate::switch::Call;
use crate::table::{ENTRY_BYTES, Entry, Tables};
use crate::{AddressSpace, Capabilities, Combine, Element, Flags, Instruction, Layout, Operand, Operation, Topology};

/// Room for so many instructions is made at once.
const KNOWN_ROOM: usize = 4096;

/// Checks instructions one by one.
pub(super) struct Instructions<'a> {
    capabilities: &'a Capabilities,
    members: &'a Members,
    /// Instructions whose blocks were checked, by communicator and own rank: programs repeat instructions.
    known: HashSet<(usize, u32, Instruction)>,
    apart: KnownDisjoint,
    /// Blocks checked so far: one for each rank of the communicator, and those that `apart` compares.
    blocks: u64,
}

impl<'a> Instructions<'a> {
    /// For programs of `count` instructions.
    pub(super) fn new(members: &'a Members, capabilities: &'a Capabilities, count: usize) -> Self {
        let known = HashSet::with_capacity(count.min(KNOWN_ROOM));
        Instructions { capabilities, members, known, apart: KnownDisjoint::default(), blocks: 0 }
    }

    /// Checks `instruction` of rank `rank`, whose `tables` have these `spans`.
    pub(super) fn check(
        &mut self,
        rank: usize,
        instruction: &Instruction,
        tables: &Tables,
        spans: &Spans,
    ) -> Result<(), Refusal> {
        let capabilities = self.capabilities;
        check_form(instruction, capabilities)?;
        let operation = instruction.operation;
        if !takes_partners(operation) && !is_one_sided(operation) {
            if operation == Operation::Open && self.members.membership(rank, instruction.communicator).is_none() {
                return Err(not_a_member(instruction));
            }
            let context = Context { rank: 0, ranks: 1, stripe_bytes: capabilities.stripe_bytes(), tables };
            let touched = card_ranges(instruction, &context).map_err(range_refusal)?;
            check_memory(&touched, capabilities)?;
            check_places(instruction, capabilities)?;
            check_host_overlap(instruction)?;
            return check_overlap(instruction, &touched, 1);
        }
        let membership = self.members.of(rank, instruction).ok_or_else(|| not_a_member(instruction))?;
        check_ranks(instruction, &membership)?;
        check_peer(instruction, &membership)?;
        check_stripes(instruction, capabilities)?;
        check_switch(instruction, &membership, capabilities)?;
        let context = membership.context(tables, capabilities);
        let is_linked = membership.is_linked() || is_pair_linked(instruction, &membership, capabilities);
        if is_linked && self.is_plainly_right(instruction, &context, spans) {
            return self.check_work();
        }
        // If the check fails, nothing more is asked.
        if !self.known.insert((membership.index, membership.own, instruction.with_tag(0))) {
            return Ok(());
        }
        self.blocks += u64::from(context.ranks);
        self.check_work()?;
        check_blocks(instruction, &membership, &context, capabilities)
    }

    fn check_work(&self) -> Result<(), Refusal> {
        if self.blocks <= BLOCKS_MAX {
            return Ok(());
        }
        Err(too_long("BLOCKS_MAX", BLOCKS_MAX, "checks of single blocks"))
    }

    /// Whether the instruction is right by its bounds and tables alone: both sides are inside of memory, and disjoint except for an
    /// own block in place. If not, it may still be right.
    fn is_plainly_right(&mut self, instruction: &Instruction, context: &Context<'_>, spans: &Spans) -> bool {
        let capabilities = self.capabilities;
        let Instruction { operation, bytes, .. } = *instruction;
        // What a receive buffer has room for, if the blocks come there.
        let longest = if is_rendezvous(instruction, capabilities) { u64::MAX } else { capabilities.eager_bytes };
        if bytes > longest {
            return false;
        }
        let (memory, stripe) = (capabilities.memory_bytes, capabilities.stripe_bytes());
        if is_one_sided(operation) {
            // The two sides are on different cards.
            let sides = [&instruction.source, &instruction.destination];
            let is_striped = sides.iter().any(|side| side.layout == Layout::Striped);
            return !is_striped && sides.iter().all(|side| Bounds::of(side, 1, bytes, stripe).is_inside(memory));
        }
        let Some(OperandBounds { source, destination, own }) = OperandBounds::of(instruction, context, spans) else {
            return false;
        };
        if [source, destination, own].iter().flatten().any(|side| !side.is_inside(memory)) {
            return false;
        }
        if takes_tables(operation) && !are_listed_blocks_right(instruction, context, spans, longest) {
            return false;
        }
        let (Some(source), Some(destination)) = (source, destination) else { return true };
        let is_clear = match own {
            // The result may overwrite the own contribution: only the fold reads it.
            Some(own) => {
                own.is_apart_from(&destination, stripe) || instruction.destination.address == instruction.extent
            }
            None => true,
        };
        (is_clear && source.is_apart_from(&destination, stripe))
            || is_own_block_in_place(instruction, context)
            || self.are_lists_apart(instruction, context, spans)
    }

    fn are_lists_apart(&mut self, instruction: &Instruction, context: &Context<'_>, spans: &Spans) -> bool {
        if instruction.operation != Operation::Alltoallv {
            return false;
        }
        let (sends, receives) = alltoallv_slots(instruction.extent);
        let lists = spans.get(sends, context.ranks).zip(spans.get(receives, context.ranks));
        lists.is_some_and(|(sends, receives)| self.apart.are_apart(instruction, [sends, receives], &mut self.blocks))
    }
}

fn not_a_member(instruction: &Instruction) -> Refusal {
    let cause = format!("communicator {} is not defined on this card", instruction.communicator);
    Refusal::general(cause).because(Reason::Membership)
}

/// Checks each block that `instruction` moves and each range that it accesses.
fn check_blocks(
    instruction: &Instruction,
    membership: &Membership<'_>,
    context: &Context<'_>,
    capabilities: &Capabilities,
) -> Result<(), Refusal> {
    let moved = transfers(instruction, context).map_err(range_refusal)?;
    check_links(instruction, membership, &moved, capabilities)?;
    check_eager(instruction, &moved, capabilities)?;
    check_remote(&moved, capabilities)?;
    let touched = card_ranges_of(instruction, context, &moved).map_err(range_refusal)?;
    check_memory(&touched, capabilities)?;
    check_overlap(instruction, &touched, context.ranks)
}

fn range_refusal(error: RangeError) -> Refusal {
    let reason = match error {
        RangeError::Address { .. } => Reason::Memory,
        RangeError::NoTable { .. } => Reason::Stored,
        RangeError::Entries { .. } | RangeError::OwnBlock { .. } => Reason::TableMismatch,
    };
    Refusal::general(error.to_string()).because(reason)
}

/// Checks what does not depend on the communicator's members.
pub(super) fn check_form(instruction: &Instruction, capabilities: &Capabilities) -> Result<(), Refusal> {
    let operation = instruction.operation;
    if let Some(combine) = instruction.combine() {
        let extent = if is_collective(operation) { instruction.extent } else { 0 };
        check_combine(combine, [instruction.bytes, extent])?;
    }
    check_word(instruction, capabilities)?;
    if !capabilities.host_memory && instruction.names_host() {
        return refuse(Reason::Unsupported, "the card's sequencer reaches no host memory");
    }
    if let Some(combine) = instruction.combine().filter(|combine| !capabilities.combines(*combine)) {
        return refuse(Reason::Unsupported, format!("the card does not support {combine} elements"));
    }
    // Unrolling a launch has already added its arguments.
    if instruction.has_arguments() {
        return refuse(Reason::Field, "launch arguments are only valid in a resident program");
    }
    check_numbers(instruction, capabilities)?;
    check_alignment(instruction, capabilities)
}

/// Checks what a card checks of every word, also of a loop in a resident program: fields, operation, lane and flags.
pub(super) fn check_word(instruction: &Instruction, capabilities: &Capabilities) -> Result<(), Refusal> {
    instruction.check_fields().or_else(|error| refuse(Reason::Field, error.to_string()))?;
    if !capabilities.runs(instruction.operation) {
        return refuse(Reason::Unsupported, "the card does not support this operation");
    }
    if u32::from(instruction.lane) >= capabilities.lanes {
        let cause = format!("no lane {} (the card has {} lanes)", instruction.lane, capabilities.lanes);
        return refuse(Reason::Unsupported, cause);
    }
    if capabilities.lanes == 1 && instruction.flags.contains(Flags::FENCE) {
        return refuse(Reason::Unsupported, "the flag fence needs a card with more than one lane");
    }
    Ok(())
}

/// Checks slots, signals and lengths against the card's.
fn check_numbers(instruction: &Instruction, capabilities: &Capabilities) -> Result<(), Refusal> {
    let Instruction { operation, extent, bytes, signal_id, .. } = *instruction;
    let slot = |what: &str, slots: u32| match extent < u64::from(slots) {
        true => Ok(()),
        false => refuse(Reason::Unsupported, format!("no {what} slot {extent} (the card has {slots} slots)")),
    };
    let whole = |what: &str, each: u64, most: u64| match bytes % each == 0 && bytes > 0 && bytes / each <= most {
        true => Ok(()),
        false => refuse(Reason::Field, format!("invalid length {bytes} B: expected 1 to {most} {what} of {each} B")),
    };
    if let Some(window) = instruction.window().filter(|window| u32::from(window.slot) >= capabilities.windows) {
        let cause = format!("no window slot {} (the card has {} slots)", window.slot, capabilities.windows);
        return refuse(Reason::Unsupported, cause);
    }
    // A communicator has at most as many ranks as there are cards.
    let ranks = u64::from(capabilities.communicator_ranks.min(capabilities.nodes));
    match operation {
        Operation::Delay if extent > DELAY_MAX => {
            refuse(Reason::Field, format!("{extent} cycles exceed the longest delay of {DELAY_MAX}"))
        }
        Operation::PutSignal | Operation::WaitSignal if u32::from(signal_id) >= capabilities.signals => {
            let cause = format!("no signal {signal_id} (the card has {} signals)", capabilities.signals);
            refuse(Reason::Unsupported, cause)
        }
        Operation::Group if !is_id(instruction.communicator, capabilities) => {
            let cause = format!("the card's table has no entry for communicator id {}", instruction.communicator);
            refuse(Reason::Communicators, cause)
        }
        Operation::Free if instruction.communicator == WORLD => {
            refuse(Reason::Communicators, "communicator 0 is permanent and cannot be freed")
        }
        Operation::Group => whole("node numbers", 2, ranks),
        Operation::Store => {
            slot("program", capabilities.resident_programs)?;
            whole("instructions", BYTES as u64, capabilities.resident_words.into())
        }
        Operation::Launch => slot("program", capabilities.resident_programs),
        Operation::Table => {
            slot("table", capabilities.tables)?;
            whole("entries", ENTRY_BYTES as u64, ranks)
        }
        Operation::Loop => refuse(Reason::Stored, "only valid in a resident program"),
        _ => Ok(()),
    }
}

/// Whether this is a transfer to or from other ranks, and these are linked.
fn is_pair_linked(instruction: &Instruction, membership: &Membership<'_>, capabilities: &Capabilities) -> bool {
    let nodes = membership.nodes();
    let here = nodes[membership.own as usize];
    let is_linked = |partner: u32| capabilities.topology.reaches(here, nodes[partner as usize], capabilities.nodes);
    let mut partners = directions(instruction, membership.own).into_iter().flatten();
    is_paired(instruction.operation) && partners.all(|(_, partner)| is_linked(partner))
}

/// Whether a vector form with known tables moves blocks of at most `longest` bytes and writes disjoint ones, and its own block has the
/// right length.
fn are_listed_blocks_right(instruction: &Instruction, context: &Context<'_>, spans: &Spans, longest: u64) -> bool {
    let Some(exchange) = Exchange::of(instruction) else { return false };
    let span = |slot| spans.get(slot, context.ranks).filter(|span| span.longest <= longest);
    let own = |slot| listed_own(slot, context).filter(|_| span(slot).is_some()).map(|entry| entry.bytes);
    let is_apart = |slot| span(slot).is_some_and(|span| span.is_apart);
    let slot = |blocks| match blocks {
        Some(Blocks::Listed(slot)) => Some(slot),
        _ => None,
    };
    match (slot(exchange.source(context.rank)), slot(exchange.destination(context.rank))) {
        (None, None) => true,
        (Some(sends), None) => own(sends) == Some(instruction.bytes),
        (None, Some(receives)) => own(receives) == Some(instruction.bytes) && is_apart(receives),
        (Some(sends), Some(receives)) => own(sends).is_some() && own(sends) == own(receives) && is_apart(receives),
    }
}

/// Returns the table entry of the own block.
fn listed_own(slot: u64, context: &Context<'_>) -> Option<Entry> {
    context.tables.get(&u16::try_from(slot).ok()?)?.get(context.rank)
}

/// Whether the own block is in place, and the others are consecutive. This is right: the own block is not written, or only
/// after the fold read it.
fn is_own_block_in_place(instruction: &Instruction, context: &Context<'_>) -> bool {
    let Instruction { operation, source, destination, bytes, extent, .. } = *instruction;
    if source.layout != Layout::Block || destination.layout != Layout::Block {
        return false;
    }
    let within = |many: Operand| {
        let distance = bytes.checked_mul(u64::from(context.rank));
        distance.and_then(|distance| many.address.checked_add(distance))
    };
    let listed = |many: Operand| many.address.checked_add(listed_own(extent, context)?.displacement);
    // For roots only: other ranks have one side.
    match operation {
        Operation::Allgather | Operation::Gather => within(destination) == Some(source.address),
        Operation::Scatter | Operation::ReduceScatter => within(source) == Some(destination.address),
        Operation::Broadcast | Operation::Reduce | Operation::RecvReduce => source.address == destination.address,
        Operation::Allgatherv | Operation::Gatherv => listed(destination) == Some(source.address),
        Operation::Scatterv => listed(source) == Some(destination.address),
        _ => false,
    }
}

/// Checks that eager pieces fit the receive buffer of a link, which holds one piece at a time.
fn check_eager(instruction: &Instruction, moved: &Transfers, capabilities: &Capabilities) -> Result<(), Refusal> {
    if is_one_sided(instruction.operation) || is_rendezvous(instruction, capabilities) {
        return Ok(());
    }
    let longest = moved.longest().max(instruction.bytes);
    if longest <= capabilities.eager_bytes {
        return Ok(());
    }
    let cause = format!(
        "{longest} B exceed the receive buffer of a link, {} B; without the flag eager, they are sent by rendezvous",
        capabilities.eager_bytes
    );
    refuse(Reason::EagerOverrun, cause)
}

/// Checks that the switches of the network compute the instruction, if it asks for that.
fn check_switch(
    instruction: &Instruction,
    membership: &Membership<'_>,
    capabilities: &Capabilities,
) -> Result<(), Refusal> {
    let Some(form) = instruction.form() else { return Ok(()) };
    let ranks = membership.nodes().len() as u32;
    let Some(units) = capabilities.switch else {
        return refuse(
            Reason::Unsupported,
            format!("the switches of the network do not compute: remove the flag {form}"),
        );
    };
    let Some(call) = Call::of(instruction).filter(|call| units.has(call.collective, form)) else {
        let cause = format!("the switches have no form {form} of {}", instruction.operation);
        return refuse(Reason::Unsupported, cause);
    };
    if let Some(combine) = call.combine.filter(|combine| !units.combines(*combine)) {
        return refuse(Reason::Unsupported, format!("the units of the switches do not support {combine} elements"));
    }
    let is_direct = matches!(capabilities.topology, Topology::Switched(shape) if shape.is_direct());
    call.check(ranks, is_direct).or_else(|error| refuse(Reason::Field, error.to_string()))
}

/// Checks that the reduction accepts the element type, and that `sizes` are whole elements.
pub(crate) fn check_combine(combine: Combine, sizes: impl IntoIterator<Item = u64>) -> Result<(), Refusal> {
    let Combine { reduction, element } = combine;
    if !reduction.takes(element) {
        let fitting = Element::ALL.iter().filter(|element| reduction.takes(**element));
        let names: Vec<&str> = fitting.map(|element| element.name()).collect();
        let cause = format!("{reduction} is not defined for {element} (available: {})", names.join(", "));
        return refuse(Reason::Field, cause);
    }
    match sizes.into_iter().find(|bytes| !bytes.is_multiple_of(element.bytes())) {
        Some(bytes) => {
            let cause = format!("{bytes} B are not a whole number of {element} elements of {} B", element.bytes());
            refuse(Reason::Field, cause)
        }
        None => Ok(()),
    }
}

fn check_alignment(instruction: &Instruction, capabilities: &Capabilities) -> Result<(), Refusal> {
    let align = u64::from(capabilities.address_align.max(1));
    let extent = Operand::card(if has_address_in_extent(instruction.operation) { instruction.extent } else { 0 });
    let operands = [("source", &instruction.source), ("destination", &instruction.destination), ("extent", &extent)];
    for (name, operand) in operands {
        // A launch passes values, not addresses, in these fields.
        let is_card = operand.space == AddressSpace::Card && instruction.operation != Operation::Launch;
        if is_card && !operand.address.is_multiple_of(align) {
            let cause = format!("{name} {:#x} is misaligned: expected a multiple of {align}", operand.address);
            return refuse(Reason::Field, cause);
        }
    }
    Ok(())
}

fn check_ranks(instruction: &Instruction, membership: &Membership<'_>) -> Result<(), Refusal> {
    let operation = instruction.operation;
    let fields = operation.fields();
    let ranks = membership.nodes().len();
    for (is_read, name, rank) in [(fields.root, "root", instruction.root), (fields.peer, "peer", instruction.peer)] {
        if is_read && usize::from(rank) >= ranks {
            let cause = format!(
                "{name} {rank} is not a rank of communicator {} (the last is {})",
                instruction.communicator,
                ranks - 1
            );
            return refuse(Reason::Rank, cause);
        }
    }
    let own = membership.own;
    let is_self = |rank: u16| u32::from(rank) == own;
    let is_wrong = match instruction.operation {
        // A sendrecv with the own rank on both sides copies; with one side, it would wait forever.
        Operation::Sendrecv => is_self(instruction.peer) != is_self(instruction.root),
        // A fold with itself needs no transfer.
        Operation::SendrecvReduce => is_self(instruction.peer) || is_self(instruction.root),
        _ => fields.peer && is_self(instruction.peer),
    };
    if is_wrong {
        let cause = format!("peer {own} is the own rank; use `copy` within a card");
        return refuse(Reason::Rank, cause);
    }
    let held = instruction.bytes.saturating_mul(ranks as u64);
    if fields.extent && is_collective(operation) && !takes_tables(operation) && instruction.extent > held {
        let cause = format!(
            "extent {} B exceeds {ranks} blocks of {} B: expected blocks of at least {} B",
            instruction.extent,
            instruction.bytes,
            instruction.extent.div_ceil(ranks as u64)
        );
        return refuse(Reason::Field, cause);
    }
    Ok(())
}

/// Refuses one-sided access to a card without a program: its memory may be in use by others.
fn check_peer(instruction: &Instruction, membership: &Membership<'_>) -> Result<(), Refusal> {
    if !is_one_sided(instruction.operation) || membership.program_rank(instruction.peer.into()).is_some() {
        return Ok(());
    }
    let cause = format!(
        "rank {} of communicator {} has no program, so other uses of its memory and signals are unknown; give it an \
         empty program if it does nothing",
        instruction.peer, instruction.communicator
    );
    refuse(Reason::Programs, cause)
}

fn check_stripes(instruction: &Instruction, capabilities: &Capabilities) -> Result<(), Refusal> {
    let is_striped = [&instruction.source, &instruction.destination].iter().any(|one| one.layout == Layout::Striped);
    if is_striped && instruction.bytes > capabilities.stripe_half_bytes {
        let cause = format!(
            "a block of {} B exceeds half a stripe: striped blocks have at most {} B",
            instruction.bytes, capabilities.stripe_half_bytes
        );
        return refuse(Reason::Stripe, cause);
    }
    Ok(())
}

fn check_links(
    instruction: &Instruction,
    membership: &Membership<'_>,
    moved: &Transfers,
    capabilities: &Capabilities,
) -> Result<(), Refusal> {
    let nodes = membership.nodes();
    let own = membership.own;
    let partners: Vec<u32> = match instruction.operation {
        Operation::Barrier => (0..nodes.len() as u32).filter(|rank| *rank != own).collect(),
        // The card looks at its link even if no byte goes over it.
        operation if is_one_sided(operation) => {
            Some(instruction.peer.into()).filter(|rank| *rank != own).into_iter().collect()
        }
        _ => moved.sends.iter().chain(&moved.receives).map(|transfer| transfer.peer_rank).collect(),
    };
    let here = nodes[own as usize];
    for partner in partners {
        let there = nodes[partner as usize];
        if !capabilities.topology.reaches(here, there, capabilities.nodes) {
            let cause = format!(
                "no link from node {here} to node {there} (rank {partner}); use an algorithm over other cards, such as two-level, relay or ring"
            );
            return refuse(Reason::Link, cause);
        }
    }
    Ok(())
}

fn check_remote(moved: &Transfers, capabilities: &Capabilities) -> Result<(), Refusal> {
    let Some(remote) = moved.remote else { return Ok(()) };
    inside(remote.range(), capabilities)
        .map_err(|refusal| Refusal { cause: format!("at rank {}, {}", remote.peer_rank, refusal.cause), ..refusal })
}

fn check_memory(touched: &CardRanges, capabilities: &Capabilities) -> Result<(), Refusal> {
    touched.reads.iter().chain(&touched.writes).try_for_each(|range| inside(*range, capabilities))
}

/// Checks where copy, fill and fold begin, which a card checks even for 0 bytes, and the range of a window.
fn check_places(instruction: &Instruction, capabilities: &Capabilities) -> Result<(), Refusal> {
    let Instruction { operation, source, destination, bytes, extent, .. } = *instruction;
    if operation == Operation::Open {
        return inside(Range { address: destination.address, bytes }, capabilities);
    }
    if !matches!(operation, Operation::Copy | Operation::Fill | Operation::Fold) {
        return Ok(());
    }
    let second = (operation == Operation::Fold).then_some(Operand::card(extent));
    let on_card = [source, destination].into_iter().chain(second).filter(|it| it.space == AddressSpace::Card);
    on_card.into_iter().try_for_each(|it| inside(Range { address: it.address, bytes: 0 }, capabilities))
}

/// Refuses a copy between overlapping ranges of host memory: the result would depend on the pieces in which a card copies.
fn check_host_overlap(instruction: &Instruction) -> Result<(), Refusal> {
    let Instruction { source, destination, bytes, .. } = *instruction;
    let are_on_host = [source, destination].iter().all(|it| it.space == AddressSpace::Host);
    let [from, to] = [source, destination].map(|it| Range { address: it.address, bytes });
    if !are_on_host || !from.overlaps(to) {
        return Ok(());
    }
    let cause = format!(
        "{bytes} B of host memory at {:#x} and at {:#x} overlap, and one of them is written",
        from.address, to.address
    );
    refuse(Reason::Overlap, cause)
}

fn inside(range: Range, capabilities: &Capabilities) -> Result<(), Refusal> {
    if range.end() <= capabilities.memory_bytes {
        return Ok(());
    }
    let cause = format!(
        "{} B at {:#x} exceed card memory, which ends at {:#x}",
        range.bytes, range.address, capabilities.memory_bytes
    );
    refuse(Reason::Memory, cause)
}

/// Checks that no written range overlaps another. The own block may be in place, except in an alltoall.
fn check_overlap(instruction: &Instruction, touched: &CardRanges, ranks: u32) -> Result<(), Refusal> {
    if instruction.operation == Operation::Alltoall && ranks > 1 && touched.in_place.is_some() {
        let cause = "source and destination are the same; alltoall does not work in place";
        return refuse(Reason::Overlap, cause);
    }
    // Consecutive blocks never overlap the own block, but those of a table can.
    if let Some(own) = touched.in_place
        && let Some(other) = touched.writes.iter().find(|range| range.overlaps(own))
    {
        let cause = format!(
            "{} B at {:#x} overwrite the own block, which is in place at {:#x}",
            other.bytes, other.address, own.address
        );
        return refuse(Reason::Overlap, cause);
    }
    let mut accesses: Vec<Access> = touched.accesses().collect();
    accesses.sort_unstable_by_key(|access| access.range.address);
    let (mut read, mut written) = (None::<Range>, None::<Range>);
    for Access { range, is_write } in accesses {
        let hit = |last: Option<Range>| last.filter(|last| last.overlaps(range));
        if let Some(last) = hit(written).or_else(|| if is_write { hit(read) } else { None }) {
            let cause = format!(
                "{} B at {:#x} and {} B at {:#x} overlap, and one of them is written",
                last.bytes, last.address, range.bytes, range.address
            );
            return refuse(Reason::Overlap, cause);
        }
        let last = if is_write { &mut written } else { &mut read };
        if last.is_none_or(|last| last.end() < range.end()) {
            *last = Some(range);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

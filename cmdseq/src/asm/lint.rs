//! Warnings: valid but suspicious code.

use std::collections::{HashMap, HashSet};

use super::diagnostic::{Diagnostic, Errors, Finding, Span};
use super::names::defined_names;
use super::program::{Binding, Buffer, RankProgram};
use super::syntax::{Defined, ForText, RepeatText, Statement};
use super::{Options, Parts, Sources, assemble_parts};
use crate::instruction::{Side, has_address_in_extent, is_collective, takes_tables};
use crate::program::Communicator;
use crate::ranges::{Blocks, Exchange};
use crate::table::Table;
use crate::{AddressSpace, Flags, Instruction, Layout, Operation, instruction};

/// One suspicious place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Which check found it: `unused-constant`, `unused-buffer`, `unused-communicator`, `unused-table`, `unused-label`,
    /// `overlapping-buffers`, `past-buffer`, `no-effect`, `in-place`, `after-last`, `no-barrier`, `empty-program`,
    /// `dead-branch`.
    pub check: &'static str,
    /// Its place, and what is suspicious.
    pub diagnostic: Diagnostic,
}

/// The warnings about a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warnings {
    /// The first ones, in order of place: at most [`Limits::warnings`](super::Limits::warnings).
    pub warnings: Vec<Warning>,
    /// Number of warnings beyond these.
    pub more: usize,
}

/// Assembles `text` and searches it for suspicious code.
///
/// # Errors
/// Those of [`assemble`](super::assemble).
pub fn lint(name: &str, text: &str, sources: &mut Sources<'_>, options: &Options) -> Result<Warnings, Errors> {
    let parts = assemble_parts(name, text, sources, options)?;
    let mut found = Found::default();
    found.unused(&parts);
    if options.only.is_none() {
        found.dead(&parts, &parts.statements, false);
    }
    let assembly = &parts.assembled.assembly;
    let needs_barrier_after =
        |instruction: &Instruction| matches!(instruction.operation, Operation::RdmaRead | Operation::RdmaWrite);
    for (index, program) in assembly.programs.iter().enumerate() {
        let places = &parts.assembled.places[index];
        found.buffers(program, &parts.buffer_places[index]);
        found.instructions(program, places, &Ranges::new(program, &parts.on_card[index], assembly.ranks));
        let last = program.instructions.iter().rposition(needs_barrier_after);
        if let Some(last) = last
            && !program.instructions[last..].iter().any(|one| is_collective(one.operation))
        {
            let message = "no barrier or collective follows, so the other rank cannot know when its memory is free; \
                           end with `barrier`";
            found.add("no-barrier", places[last], Some(program.rank), message);
        }
        if program.instructions.is_empty() {
            let start = Span { file: 0, line: 1, column: 1, width: 1 };
            found.add("empty-program", start, Some(program.rank), "the rank runs no instruction");
        }
    }
    let Found { mut findings, .. } = found;
    findings.sort_by_key(|(check, finding)| (finding.span, *check));
    let more = findings.len().saturating_sub(options.limits.warnings);
    findings.truncate(options.limits.warnings);
    let warning = |(check, finding)| Warning { check, diagnostic: parts.assembled.files.diagnostic(finding) };
    Ok(Warnings { warnings: findings.into_iter().map(warning).collect(), more })
}

#[derive(Default)]
struct Found {
    findings: Vec<(&'static str, Finding)>,
    /// Checks, places and operands already noted, for the first rank with the warning.
    seen: HashSet<(&'static str, Span, Option<&'static str>)>,
}

impl Found {
    fn add(&mut self, check: &'static str, span: Span, rank: Option<u32>, message: impl Into<String>) {
        self.add_operand(check, span, None, rank, message);
    }

    /// Notes a warning about one operand of an instruction.
    fn add_operand(
        &mut self,
        check: &'static str,
        span: Span,
        operand: Option<&'static str>,
        rank: Option<u32>,
        message: impl Into<String>,
    ) {
        if self.seen.insert((check, span, operand)) {
            self.findings.push((check, Finding { rank, ..Finding::new(span, message) }));
        }
    }

    fn unused(&mut self, parts: &Parts) {
        for (what, name) in defined_names(&parts.statements) {
            let (check, what, used_as) = match what {
                Defined::Constant => ("unused-constant", "constant", name.text.clone()),
                Defined::Buffer => ("unused-buffer", "buffer", name.text.clone()),
                Defined::Communicator => ("unused-communicator", "communicator", name.text.clone()),
                Defined::Table => ("unused-table", "table", name.text.clone()),
                Defined::Label => ("unused-label", "label", format!("@{}", name.text)),
                Defined::LoopNumber => continue,
            };
            if !parts.used.contains(&used_as) {
                self.add(check, name.span, None, format!("{what} `{}` is never used", name.text));
            }
        }
    }

    fn dead(&mut self, parts: &Parts, statements: &[Statement], in_loop: bool) {
        for statement in statements {
            match statement {
                Statement::If(arms) => {
                    let is_reached = arms.iter().any(|arm| parts.taken.contains(&arm.span));
                    for arm in arms {
                        if parts.taken.contains(&arm.span) {
                            // The loop around it has rounds.
                            self.dead(parts, &arm.body, false);
                        } else if is_reached || arms.len() == 1 {
                            let why = match in_loop && !is_reached {
                                true => "its condition never holds, or the loop around it has no rounds",
                                false => "its condition never holds, or one before it always does",
                            };
                            self.add("dead-branch", arm.span, None, format!("no rank takes this branch: {why}"));
                        }
                    }
                }
                Statement::For(ForText { body, .. }) => self.dead(parts, body, true),
                Statement::Repeat(RepeatText { body, .. }) | Statement::Include(body) => {
                    self.dead(parts, body, in_loop);
                }
                _ => {}
            }
        }
    }

    fn buffers(&mut self, program: &RankProgram, places: &[Span]) {
        let mut on_card: Vec<(&Buffer, Span)> = program
            .buffers
            .iter()
            .zip(places)
            .filter(|(buffer, _)| buffer.space == AddressSpace::Card)
            .map(|(buffer, span)| (buffer, *span))
            .collect();
        on_card.sort_by_key(|(buffer, _)| buffer.address);
        let mut furthest: Option<&Buffer> = None;
        for (buffer, span) in on_card {
            if let Some(before) = furthest.filter(|before| before.address + before.bytes > buffer.address) {
                let shared = (before.address + before.bytes).min(buffer.address + buffer.bytes) - buffer.address;
                let message = format!("buffers `{}` and `{}` share {shared} B", buffer.name, before.name);
                self.add("overlapping-buffers", span, Some(program.rank), message);
            }
            if furthest.is_none_or(|before| before.address + before.bytes < buffer.address + buffer.bytes) {
                furthest = Some(buffer);
            }
        }
    }

    fn instructions(&mut self, program: &RankProgram, places: &[Span], ranges: &Ranges<'_>) {
        let rank = Some(program.rank);
        let mut is_over = false;
        for (index, (instruction, span)) in program.instructions.iter().zip(places).enumerate() {
            let fields = instruction.operation.fields();
            if std::mem::take(&mut is_over) {
                self.add(
                    "after-last",
                    *span,
                    rank,
                    "unreachable: the last instruction is flagged `last`, where a resident program ends",
                );
            }
            is_over = instruction.flags.contains(Flags::LAST);
            // A signal may carry no data, a window may be for signals, and some blocks of a vector form may be empty.
            let is_data = fields.bytes && !fields.signal && !fields.rights && !takes_tables(instruction.operation);
            if is_data && instruction.bytes == 0 && instruction.operation != Operation::Launch {
                self.add("no-effect", *span, rank, format!("`{}` of 0 bytes moves nothing", instruction.operation));
            }
            if instruction.operation == Operation::Copy
                && instruction.source == instruction.destination
                && program.buffer_of(index, Side::Source).map(|one| &one.name)
                    == program.buffer_of(index, Side::Destination).map(|one| &one.name)
            {
                self.add(
                    "in-place",
                    *span,
                    rank,
                    "source and destination are the same: this copies bytes onto themselves",
                );
            }
            for side in Side::ALL.iter().copied() {
                self.side_past_buffer(program, index, side, *span, ranges);
            }
            if has_address_in_extent(instruction.operation) && instruction.extent_argument.is_none() {
                let buffer = ranges.roomiest(instruction.extent);
                self.past_buffer("extent", instruction.extent, instruction.bytes, buffer, *span, rank);
            }
        }
    }

    /// Warns if a side begins in a card buffer and ends outside of it. Of a striped side, this is said of the first block alone:
    /// where the others are depends on the card.
    fn side_past_buffer(&mut self, program: &RankProgram, index: usize, side: Side, span: Span, ranges: &Ranges<'_>) {
        let instruction = &program.instructions[index];
        let operand = side.operand(instruction);
        let Some(bytes) = ranges.held(instruction, side) else { return };
        // The end of a host buffer is checked as an error, not a warning.
        let is_elsewhere = operand.space == AddressSpace::Host;
        if is_elsewhere || operand.argument.is_some() {
            return;
        }
        let bytes = if operand.layout == Layout::Striped { bytes.min(instruction.bytes) } else { bytes };
        let at = operand.address;
        let buffer = program.buffer_in(ranges.on_card, index, side).or_else(|| ranges.roomiest(at));
        self.past_buffer(side.name(), at, bytes, buffer, span, Some(program.rank));
    }

    /// Warns if `bytes` from address `at` on exceed `buffer`.
    fn past_buffer(
        &mut self,
        operand: &'static str,
        at: u64,
        bytes: u64,
        buffer: Option<&Buffer>,
        span: Span,
        rank: Option<u32>,
    ) {
        let Some(buffer) = buffer else { return };
        let left = (buffer.address + buffer.bytes).saturating_sub(at);
        if bytes > left {
            let name = &buffer.name;
            let message = format!("the {operand} of {bytes} B exceeds buffer `{name}`, which has {left} B left there");
            self.add_operand("past-buffer", span, Some(operand), rank, message);
        }
    }
}

/// An index of a rank's buffers and communicators.
struct Ranges<'p> {
    program: &'p RankProgram,
    /// The card buffers that operands name.
    on_card: &'p [Binding],
    /// Card buffers by address, each replaced by the one up to it that ends last.
    buffers: Vec<(u64, &'p Buffer)>,
    /// Own rank and number of members, by id.
    members: HashMap<u16, (u32, u32)>,
}

impl<'p> Ranges<'p> {
    fn new(program: &'p RankProgram, on_card: &'p [Binding], ranks: u32) -> Self {
        let cards = program.buffers.iter().filter(|buffer| buffer.space == AddressSpace::Card);
        let mut buffers: Vec<(u64, &Buffer)> = cards.map(|buffer| (buffer.address, buffer)).collect();
        buffers.sort_by_key(|(address, _)| *address);
        for at in 1..buffers.len() {
            let (last, here) = (buffers[at - 1].1, buffers[at].1);
            if last.address + last.bytes > here.address + here.bytes {
                buffers[at].1 = last;
            }
        }
        let place = |one: &'p Communicator| {
            let own = one.members.iter().position(|rank| *rank == program.rank)?;
            Some((one.id, (own as u32, one.members.len() as u32)))
        };
        let mut members: HashMap<_, _> = program.communicators.iter().filter_map(place).collect();
        members.insert(instruction::WORLD, (program.rank, ranks));
        Ranges { program, on_card, buffers, members }
    }

    /// Returns the card buffer with the byte at `address` that ends last.
    fn roomiest(&self, address: u64) -> Option<&'p Buffer> {
        let before = self.buffers.partition_point(|(start, _)| *start <= address);
        let (_, buffer) = *self.buffers.get(before.checked_sub(1)?)?;
        (buffer.address + buffer.bytes > address).then_some(buffer)
    }

    /// Returns the bytes of a side on this rank, if its blocks are consecutive; `None` if unknown.
    fn held(&self, instruction: &Instruction, side: Side) -> Option<u64> {
        let (own, members) = *self.members.get(&instruction.communicator)?;
        let fields = instruction.operation.fields();
        let is_read = if side == Side::Source { fields.source } else { fields.destination };
        if !is_read {
            return None;
        }
        if let Some(exchange) = Exchange::of(instruction) {
            let blocks = if side == Side::Source { exchange.source(own) } else { exchange.destination(own) };
            return match blocks? {
                Blocks::One => Some(instruction.block_bytes(own.into())),
                Blocks::Each if instruction.extent == 0 => instruction.bytes.checked_mul(members.into()),
                Blocks::Each => Some(instruction.extent),
                // To the end of the last block.
                Blocks::Listed(slot) => self.program.tables.get(&u16::try_from(slot).ok()?).map(Table::span),
            };
        }
        match (instruction.operation, side) {
            // Launch arguments, and memory of another card.
            (Operation::Launch, _)
            | (Operation::RdmaRead, Side::Source)
            | (Operation::RdmaWrite | Operation::PutSignal, Side::Destination) => None,
            _ => fields.bytes.then_some(instruction.bytes),
        }
    }
}

//! What a source says for one rank.

use std::collections::{HashMap, HashSet};

use super::diagnostic::{Finding, Span};
use super::fields::Place;
use super::options::{Limits, Options};
use super::program::{Binding, Buffer, RANKS_MAX, RankProgram, Side};
use super::syntax::*;
use crate::program::Communicator;
use crate::table::{Entry, Table};
use crate::{AddressSpace, Instruction, Layout, Operand, Operation};

/// A buffer without an address begins at a multiple of this.
const ALIGN: i128 = 4096;
/// Findings on one rank after which it is given up.
const FINDINGS_MAX: usize = 1000;
/// Bits of the largest shift.
const SHIFT_MAX: i128 = 127;

/// What an expression stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Number(i128),
    /// A place in a buffer.
    At {
        buffer: usize,
        offset: i128,
    },
}

/// What a name stands for; `None` if what was wrong with it has been said.
type Meaning = Option<Value>;
/// `Err(None)`: what is wrong has been said.
type Outcome<T> = Result<T, Option<Finding>>;

/// It is no use to go on: a limit has been reached.
pub(super) struct Abort;

/// What is left of the limits on all ranks together.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    steps: u64,
    instructions: u64,
    values: u64,
    buffers: u64,
    entries: u64,
}

impl Budget {
    pub(super) fn new(limits: &Limits) -> Self {
        let Limits { steps, all_instructions, values, buffers, entries, .. } = *limits;
        Budget { steps, instructions: all_instructions, values, buffers, entries }
    }
}

pub(super) struct Evaluator<'a> {
    options: &'a Options,
    limits: &'a Limits,
    budget: &'a mut Budget,
    /// A limit on what is computed or kept has been reached, and that has been said.
    is_spent: bool,
    ranks: u32,
    /// The first scope is that of the file; each round of a loop has one of its own.
    scopes: Vec<HashMap<&'a str, Meaning>>,
    /// Indices behind labels; `None` while they are being found out.
    known_labels: Option<HashMap<String, u32>>,
    pub(super) labels: HashMap<String, u32>,
    /// Ids of communicators that the rank is a member of.
    communicators: HashSet<u16>,
    is_in_field: bool,
    /// End of the last buffer in card memory.
    card_end: i128,
    pub(super) program: RankProgram,
    /// Of the instructions.
    pub(super) places: Vec<Span>,
    /// Of the buffers.
    pub(super) buffer_places: Vec<Span>,
    pub(super) findings: Vec<Finding>,
    /// Branches that were taken.
    pub(super) taken: HashSet<Span>,
}

fn refuse<T>(span: Span, message: impl Into<String>) -> Outcome<T> {
    Err(Some(Finding::new(span, message)))
}

impl<'a> Evaluator<'a> {
    pub(super) fn new(options: &'a Options, budget: &'a mut Budget, rank: u32, ranks: u32) -> Self {
        Evaluator {
            options,
            limits: &options.limits,
            budget,
            is_spent: false,
            ranks,
            scopes: vec![HashMap::new()],
            known_labels: None,
            labels: HashMap::new(),
            communicators: HashSet::new(),
            is_in_field: false,
            card_end: 0,
            program: RankProgram { rank, ..RankProgram::default() },
            places: Vec::new(),
            buffer_places: Vec::new(),
            findings: Vec::new(),
            taken: HashSet::new(),
        }
    }

    /// With the labels that a run before has found.
    pub(super) fn with_labels(mut self, labels: HashMap<String, u32>) -> Self {
        self.known_labels = Some(labels);
        self
    }

    /// The number that `expression` is, without any names.
    pub(super) fn constant(&mut self, expression: &'a Expression) -> Outcome<i128> {
        self.number(expression)
    }

    pub(super) fn block(&mut self, statements: &'a [Statement]) -> Result<(), Abort> {
        for statement in statements {
            let outcome = match statement {
                Statement::For(block) => self.repeat(block)?,
                Statement::Repeat(block) => self.rounds(block)?,
                Statement::If(arms) => self.choose(arms)?,
                Statement::Include(body) => {
                    self.block(body)?;
                    Ok(())
                }
                Statement::Instruction(text) => self.emit(text)?,
                other => self.declare(other),
            };
            if let Err(finding) = outcome {
                self.findings.extend(finding);
                // A loop may be wrong in every round.
                if self.findings.len() >= FINDINGS_MAX {
                    return Err(Abort);
                }
            }
            self.step(1, statement_place(statement))?;
        }
        Ok(())
    }

    fn step(&mut self, steps: u64, place: Option<Span>) -> Result<(), Abort> {
        if self.is_spent {
            return Err(Abort);
        }
        match self.budget.steps.checked_sub(steps) {
            Some(left) => {
                self.budget.steps = left;
                Ok(())
            }
            None => {
                let place = place.or_else(|| self.places.last().copied()).unwrap_or_default();
                let message = format!(
                    "the program takes more than {} steps to assemble (limit steps); its loops are too long",
                    self.limits.steps
                );
                self.findings.push(Finding::new(place, message));
                Err(Abort)
            }
        }
    }

    fn repeat(&mut self, block: &'a ForText) -> Result<Outcome<()>, Abort> {
        let (mut at, end, step) = match self.head(&block.head) {
            Ok(head) => head,
            Err(finding) => return Ok(Err(finding)),
        };
        while at < end {
            self.step(1, Some(block.head.name.span))?;
            self.open_scope(&block.head, at);
            let outcome = self.block(&block.body);
            self.scopes.pop();
            outcome?;
            let Some(next) = at.checked_add(step) else { break };
            at = next;
        }
        Ok(Ok(()))
    }

    /// The first number of a loop, the one it ends before, and the step.
    fn head(&mut self, head: &'a RoundText) -> Outcome<(i128, i128, i128)> {
        self.check_new(&head.name)?;
        let (from, end) = (self.number(&head.from)?, self.number(&head.end)?);
        let step = head.step.as_ref().map_or(Ok(1), |step| match self.number(step)? {
            value if value > 0 => Ok(value),
            value => refuse(step.span, format!("the step is {value}; it must be at least 1")),
        })?;
        Ok((from, end, step))
    }

    /// The scope of one round of a loop.
    fn open_scope(&mut self, head: &'a RoundText, at: i128) {
        self.scopes.push(HashMap::from([(head.name.text.as_str(), Some(Value::Number(at)))]));
    }

    fn choose(&mut self, arms: &'a [Arm]) -> Result<Outcome<()>, Abort> {
        for arm in arms {
            let is_taken = match &arm.condition {
                Some(condition) => match self.number(condition) {
                    Ok(value) => value != 0,
                    Err(finding) => return Ok(Err(finding)),
                },
                None => true,
            };
            if is_taken {
                self.taken.insert(arm.span);
                self.block(&arm.body)?;
                break;
            }
        }
        Ok(Ok(()))
    }

    fn declare(&mut self, statement: &'a Statement) -> Outcome<()> {
        match statement {
            Statement::Ranks(expression) => {
                let value = self.number(expression)?;
                if value != i128::from(self.ranks) {
                    let message = format!("the program is for {value} ranks, and it is assembled for {}", self.ranks);
                    return refuse(expression.span, message);
                }
                Ok(())
            }
            Statement::Const(name, expression) => {
                self.check_new(name)?;
                let outcome = self.value(expression);
                self.define(name, outcome.as_ref().ok().copied());
                outcome.map(drop)
            }
            Statement::Buffer(text) => {
                self.check_new(&text.name)?;
                let outcome = self.buffer(text);
                let value = outcome.as_ref().ok().map(|buffer| Value::At { buffer: *buffer, offset: 0 });
                self.define(&text.name, value);
                outcome.map(drop)
            }
            Statement::Communicator(name, id, members) => {
                self.check_new(name)?;
                let outcome = self.communicator(id, members);
                self.define(name, outcome.as_ref().ok().map(|id| Value::Number(i128::from(*id))));
                outcome.map(drop)
            }
            Statement::Blocks(name, slot, blocks) => {
                self.check_new(name)?;
                let outcome = self.table(slot, blocks);
                self.define(name, outcome.as_ref().ok().map(|slot| Value::Number(i128::from(*slot))));
                outcome.map(drop)
            }
            Statement::Label(name) => {
                let index = self.program.instructions.len() as u32;
                if self.labels.insert(name.text.clone(), index).is_some() {
                    return refuse(name.span, format!("there is a label `{}` already; labels differ", name.text));
                }
                Ok(())
            }
            Statement::Assert(condition, message) => {
                if self.number(condition)? == 0 {
                    return refuse(condition.span, format!("this does not hold: {message}"));
                }
                Ok(())
            }
            Statement::For(_)
            | Statement::Repeat(_)
            | Statement::If(_)
            | Statement::Include(_)
            | Statement::Instruction(_) => Ok(()),
        }
    }

    /// Takes `amount` of what `left` says is left of the limit `name`.
    ///
    /// # Errors
    /// That the limit is reached; then it is no use to go on.
    fn spend(
        &mut self,
        name: &str,
        left: fn(&mut Budget) -> &mut u64,
        limit: u64,
        amount: u64,
        place: Span,
    ) -> Outcome<()> {
        if self.is_spent {
            return Err(None);
        }
        let left = left(self.budget);
        let Some(rest) = left.checked_sub(amount) else {
            self.is_spent = true;
            return refuse(place, format!("the program has more than {limit} {name} to assemble (limit {name})"));
        };
        *left = rest;
        Ok(())
    }

    fn spend_values(&mut self, values: usize, place: Span) -> Outcome<()> {
        self.spend("values", |budget| &mut budget.values, self.limits.values, values as u64, place)
    }

    fn spend_entries(&mut self, entries: u64, place: Span) -> Outcome<()> {
        self.spend("entries", |budget| &mut budget.entries, self.limits.entries, entries, place)
    }

    fn find(&self, name: &str) -> Option<Meaning> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name).copied())
    }

    fn check_new(&mut self, name: &Name) -> Outcome<()> {
        self.spend_values(self.scopes.len(), name.span)?;
        match self.find(&name.text) {
            None => Ok(()),
            Some(_) => refuse(name.span, format!("there is a `{}` already; names differ", name.text)),
        }
    }

    fn define(&mut self, name: &'a Name, meaning: Meaning) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(&name.text, meaning);
        }
    }

    fn buffer(&mut self, text: &'a BufferText) -> Outcome<usize> {
        self.spend("buffers", |budget| &mut budget.buffers, self.limits.buffers, 1, text.name.span)?;
        let bytes = self.wide(&text.size, "size")?;
        if bytes == 0 {
            return refuse(text.size.span, "the size is 0; a buffer has at least one byte");
        }
        let align = match &text.align {
            Some(align) => match self.number(align)? {
                value if (1..=1 << 40).contains(&value) => value,
                value => return refuse(align.span, format!("the alignment is {value}; it must be from 1 to 1TiB")),
            },
            None => ALIGN,
        };
        let mut address = 0;
        if text.space == AddressSpace::Card {
            address = match &text.at {
                Some(at) => self.wide(at, "at")?,
                None => u64::try_from((self.card_end + align - 1).div_euclid(align) * align).unwrap_or(u64::MAX),
            };
            if let (Some(at), Some(_)) = (&text.at, &text.align)
                && i128::from(address) % align != 0
            {
                return refuse(at.span, format!("{address:#x} is not a multiple of {align}"));
            }
            let Some(end) = address.checked_add(bytes) else {
                return refuse(text.name.span, format!("{bytes} B at {address:#x} end past 64 bits"));
            };
            self.card_end = self.card_end.max(i128::from(end));
        }
        let buffer = Buffer { name: text.name.text.clone(), space: text.space, layout: text.layout, address, bytes };
        self.program.buffers.push(buffer);
        self.buffer_places.push(text.name.span);
        Ok(self.program.buffers.len() - 1)
    }

    fn communicator(&mut self, id: &'a Expression, members: &'a [MembersText]) -> Outcome<u16> {
        let number = self.short(id, "id")?;
        if number == crate::instruction::WORLD {
            return refuse(id.span, "communicator 0 always exists, of all cards; others begin with 1");
        }
        let mut listed: Vec<u32> = Vec::new();
        let mut seen = HashSet::new();
        for part in members {
            let first = self.number(&part.first)?;
            let (end, step) = match &part.end {
                None => (first.saturating_add(1), 1),
                Some((end, None)) => (self.number(end)?, 1),
                Some((end, Some(step))) => match self.number(step)? {
                    value if value > 0 => (self.number(end)?, value),
                    value => return refuse(step.span, format!("the step is {value}; it must be at least 1")),
                },
            };
            let mut at = first;
            while at < end {
                let member = u32::try_from(at).ok().filter(|rank| *rank < self.ranks);
                let Some(member) = member else {
                    let message = format!("{at} is not a rank; the last is {}", self.ranks - 1);
                    return refuse(part.first.span, message);
                };
                if !seen.insert(member) {
                    return refuse(part.first.span, format!("rank {member} is a member already; each is one once"));
                }
                listed.push(member);
                at = at.saturating_add(step);
            }
        }
        if listed.is_empty() {
            return refuse(id.span, "the communicator has no members; it needs at least one");
        }
        // The communicator itself is one entry more.
        self.spend_entries(listed.len() as u64 + 1, id.span)?;
        if seen.contains(&self.program.rank) {
            if !self.communicators.insert(number) {
                return refuse(id.span, format!("there is a communicator {number} on this rank already; ids differ"));
            }
            self.program.communicators.push(Communicator { id: number, members: listed });
        }
        Ok(number)
    }

    fn table(&mut self, slot: &'a Expression, blocks: &'a [BlockText]) -> Outcome<u16> {
        let number = self.short(slot, "slot")?;
        if self.program.tables.contains_key(&number) {
            return refuse(slot.span, format!("there is a table in slot {number} on this rank already; slots differ"));
        }
        let mut table = Table::default();
        for block in blocks {
            let Some(head) = &block.repeat else {
                self.block_of_table(block, &mut table)?;
                continue;
            };
            let (mut at, end, step) = self.head(head)?;
            while at < end {
                self.open_scope(head, at);
                let outcome = self.block_of_table(block, &mut table);
                self.scopes.pop();
                outcome?;
                at = at.saturating_add(step);
            }
        }
        if table.entries.is_empty() {
            return refuse(slot.span, "the table has no blocks; it has one for each rank of a communicator");
        }
        self.program.tables.insert(number, table);
        Ok(number)
    }

    /// Appends a block, behind the one before if nothing is said.
    fn block_of_table(&mut self, block: &'a BlockText, table: &mut Table) -> Outcome<()> {
        if table.entries.len() >= RANKS_MAX as usize {
            return refuse(block.bytes.span, format!("the table has more than {RANKS_MAX} blocks"));
        }
        self.spend_entries(1, block.bytes.span)?;
        let bytes = self.wide(&block.bytes, "the length of a block")?;
        let displacement = match (&block.at, table.entries.last()) {
            (Some(at), _) => self.wide(at, "at")?,
            (None, None) => 0,
            (None, Some(last)) => last.displacement.saturating_add(last.bytes),
        };
        if displacement.checked_add(bytes).is_none() {
            return refuse(block.bytes.span, format!("{bytes} B at {displacement} end past 64 bits"));
        }
        table.entries.push(Entry { displacement, bytes });
        Ok(())
    }

    /// A loop of the sequencer: its word, and behind it the body, once.
    fn rounds(&mut self, block: &'a RepeatText) -> Result<Outcome<()>, Abort> {
        let here = self.reserve(block.span)?;
        self.is_in_field = true;
        let head = self.loop_word(&block.head);
        self.is_in_field = false;
        self.append(head.as_ref().map_or_else(|_| Instruction::nop(), |word| *word), block.span);
        self.block(&block.body)?;
        let mut word = match head {
            Ok(word) => word,
            Err(finding) => return Ok(Err(finding)),
        };
        let body = &self.program.instructions[here + 1..];
        if body.iter().any(|one| one.operation == Operation::Loop) {
            let message =
                "there is a loop of the sequencer inside of this one; it has one at a time, and `for` unrolls";
            return Ok(refuse(block.span, message));
        }
        match u16::try_from(body.len()) {
            Ok(0) => Ok(refuse(block.span, "there is nothing to repeat; the body has at least one instruction")),
            Ok(length) => {
                word.loop_body = length;
                self.program.instructions[here] = word;
                Ok(Ok(()))
            }
            Err(_) => {
                let message = format!("the body has {} instructions; it can have {}", body.len(), u16::MAX);
                Ok(refuse(block.span, message))
            }
        }
    }

    fn loop_word(&mut self, head: &'a RepeatHead) -> Outcome<Instruction> {
        let count = self.short(&head.count, "count")?;
        if count == 0 {
            return refuse(head.count.span, "the count is 0; a loop of the sequencer has at least one round");
        }
        let mut word = Instruction::repeat(count, 0);
        if let Some((by, argument)) = &head.step {
            let value = self.number(by)?;
            let range = || format!("`step` is {value}; it must be from {} to {:#x}", i64::MIN, u64::MAX);
            // Arguments wrap, and so can be moved back.
            let moves = u64::try_from(value).or_else(|_| i64::try_from(value).map(|value| value as u64));
            word.extent = moves.or_else(|_| refuse(by.span, range()))?;
            word.extent_argument = Some(self.launch_argument(argument)?);
        }
        Ok(word)
    }

    /// Appends an instruction; one that is wrong leaves its place empty, so that labels stay right.
    fn emit(&mut self, text: &'a InstructionText) -> Result<Outcome<()>, Abort> {
        let here = self.reserve(text.span)?;
        self.is_in_field = true;
        let outcome = self.instruction(text, here as u32);
        self.is_in_field = false;
        Ok(match outcome {
            Ok((instruction, bindings)) => {
                self.append(instruction, text.span);
                self.program.bindings.extend(bindings);
                Ok(())
            }
            Err(finding) => {
                self.append(Instruction::nop(), text.span);
                Err(finding)
            }
        })
    }

    fn append(&mut self, instruction: Instruction, place: Span) {
        self.program.instructions.push(instruction);
        self.places.push(place);
    }

    /// Counts one more instruction, and gives its index.
    fn reserve(&mut self, place: Span) -> Result<usize, Abort> {
        let here = self.program.instructions.len();
        let left = self.budget.instructions.checked_sub(1);
        let Some(left) = left.filter(|_| here < self.limits.instructions) else {
            let message = match left {
                Some(_) => {
                    format!("the program has more than {} instructions (limit instructions)", self.limits.instructions)
                }
                None => format!(
                    "the programs have more than {} instructions together (limit all_instructions)",
                    self.limits.all_instructions
                ),
            };
            self.findings.push(Finding::new(place, message));
            return Err(Abort);
        };
        self.budget.instructions = left;
        Ok(here)
    }

    fn instruction(&mut self, text: &'a InstructionText, index: u32) -> Outcome<(Instruction, Vec<Binding>)> {
        let mut instruction = Instruction::new(text.operation).with_flags(text.flags);
        let mut bindings = Vec::new();
        if let Some(tag) = &text.tag {
            instruction.tag = self.short(tag, "tag")?;
        }
        // Where an operand stands, to point at it.
        let mut operands = [(Side::Source, None), (Side::Destination, None)];
        for (field, value) in &text.fields {
            match (&field.place, value) {
                (Place::Short(_, set), FieldValue::Number(value)) => {
                    set(&mut instruction, self.short(value, field.name)?)
                }
                (Place::Long(_, set), FieldValue::Number(value)) => {
                    set(&mut instruction, self.long(value, field.name)?)
                }
                (Place::Argument(_, set), FieldValue::Number(value)) => {
                    set(&mut instruction, self.launch_argument(value)?)
                }
                (Place::Wide(_, set), FieldValue::Number(value)) => {
                    set(&mut instruction, self.wide(value, field.name)?)
                }
                (Place::Word(_, _, set), FieldValue::Word(word)) => {
                    set(&mut instruction, &word.text);
                }
                (Place::Operand(_, place), FieldValue::Operand(operand)) => {
                    let (mut value, buffer) = self.operand(operand, field.name)?;
                    let side = if field.name == "source" { Side::Source } else { Side::Destination };
                    let plain = Operand { layout: Layout::Block, ..value };
                    // A striped buffer is bytes like any others to what knows no stripes.
                    if operand.layout.is_none()
                        && !takes(text.operation, side, value)
                        && takes(text.operation, side, plain)
                    {
                        value = plain;
                    }
                    *place(&mut instruction) = value;
                    operands[side as usize].1 = Some(operand.span);
                    bindings.extend(buffer.map(|buffer| Binding { instruction: index, side, buffer }));
                }
                // The parser goes by the same table.
                _ => {}
            }
        }
        if instruction.check_fields().is_err() {
            let operand = operands.iter().find_map(|(side, span)| Some(((*span)?, why_not(&instruction, *side)?)));
            let general = || {
                let cause = instruction.check_fields().err().map(|error| error.to_string());
                (text.span, cause.unwrap_or_default())
            };
            let (span, message) = operand.unwrap_or_else(general);
            return refuse(span, message);
        }
        let is_raw = |side: Side| {
            side.operand(&instruction).space == AddressSpace::Host && bindings.iter().all(|one| one.side != side)
        };
        if let Some((_, span)) = operands.iter().find(|(side, _)| is_raw(*side))
            && !self.options.raw_host
        {
            return refuse(span.unwrap_or(text.span), RAW_HOST);
        }
        bindings.sort_unstable();
        Ok((instruction, bindings))
    }

    /// The operand, and the host buffer it is in.
    fn operand(&mut self, text: &'a OperandText, field: &str) -> Outcome<(Operand, Option<u32>)> {
        let value = self.value(&text.value)?;
        let argument = match &text.argument {
            Some(argument) => Some(self.launch_argument(argument)?),
            None => None,
        };
        let layout = text.layout;
        let (buffer, offset) = match value {
            Value::Number(_) => {
                let address = self.wide(&text.value, field)?;
                let space = text.space.unwrap_or_default();
                return Ok((Operand { space, layout: layout.unwrap_or_default(), argument, address }, None));
            }
            Value::At { buffer, offset } => (buffer, offset),
        };
        let Some(known) = self.program.buffers.get(buffer) else { return Err(None) };
        if text.space.is_some() {
            let message = format!("a buffer says itself whose memory it is in; `{}` is enough", known.name);
            return refuse(text.span, message);
        }
        let Some(inside) = u64::try_from(offset).ok().filter(|offset| *offset <= known.bytes) else {
            let message = format!("byte {offset} is not in buffer `{}`, which has {} B", known.name, known.bytes);
            return refuse(text.value.span, message);
        };
        let layout = layout.unwrap_or(known.layout);
        let index = (known.space == AddressSpace::Host).then_some(buffer as u32);
        // That it does not overflow was checked with the buffer.
        let address = known.address.saturating_add(inside);
        Ok((Operand { space: known.space, layout, argument, address }, index))
    }

    fn launch_argument(&mut self, expression: &'a Expression) -> Outcome<u8> {
        let most = crate::instruction::ARGUMENTS as i128;
        match self.number(expression)? {
            value if (0..most).contains(&value) => Ok(value as u8),
            value => refuse(expression.span, format!("a launch has no argument {value}; they are 0 to {}", most - 1)),
        }
    }

    fn short(&mut self, expression: &'a Expression, what: &str) -> Outcome<u16> {
        let value = self.number(expression)?;
        u16::try_from(value)
            .or_else(|_| refuse(expression.span, format!("`{what}` is {value}; it must be from 0 to {}", u16::MAX)))
    }

    fn long(&mut self, expression: &'a Expression, what: &str) -> Outcome<u32> {
        let value = self.number(expression)?;
        u32::try_from(value)
            .or_else(|_| refuse(expression.span, format!("`{what}` is {value}; it must be from 0 to {}", u32::MAX)))
    }

    fn wide(&mut self, expression: &'a Expression, what: &str) -> Outcome<u64> {
        let value = self.number(expression)?;
        let range = || format!("`{what}` is {value}; it must be from 0 to {:#x}", u64::MAX);
        u64::try_from(value).or_else(|_| refuse(expression.span, range()))
    }

    fn number(&mut self, expression: &'a Expression) -> Outcome<i128> {
        match self.value(expression)? {
            Value::Number(value) => Ok(value),
            Value::At { .. } => {
                let message = "this is a buffer, and a number should stand here; address(..) and size(..) give one";
                refuse(expression.span, message)
            }
        }
    }

    fn value(&mut self, expression: &'a Expression) -> Outcome<Value> {
        let span = expression.span;
        let looked_at = if let Node::Name(_) = expression.node { self.scopes.len() } else { 1 };
        self.spend_values(looked_at, span)?;
        match &expression.node {
            Node::Number(value) => Ok(Value::Number(i128::from(*value))),
            Node::Rank => Ok(Value::Number(i128::from(self.program.rank))),
            Node::Ranks => Ok(Value::Number(i128::from(self.ranks))),
            Node::Name(name) => match self.find(name) {
                Some(meaning) => meaning.ok_or(None),
                None => {
                    let message = format!("there is no `{name}` before this line");
                    Err(Some(Finding::unknown(span, message, name, false)))
                }
            },
            Node::Label(name) => self.label(name, span),
            Node::Unary(unary, inner) => {
                let value = self.number(inner)?;
                match unary {
                    Unary::Negative => {
                        value.checked_neg().map_or_else(|| refuse(span, TOO_LARGE), |value| Ok(Value::Number(value)))
                    }
                    Unary::Not => Ok(Value::Number(i128::from(value == 0))),
                }
            }
            Node::Binary(operator, both) => self.binary(*operator, &both.0, &both.1, span),
            Node::Call(function, arguments) => self.call(*function, arguments),
        }
    }

    fn label(&mut self, name: &str, span: Span) -> Outcome<Value> {
        if !self.is_in_field {
            return refuse(span, "a label stands for an index only in the fields of an instruction");
        }
        let Some(known) = &self.known_labels else { return Ok(Value::Number(0)) };
        match known.get(name) {
            Some(index) => Ok(Value::Number(i128::from(*index))),
            None => {
                let message = format!("there is no label `{name}` on this rank");
                Err(Some(Finding::unknown(span, message, name, true)))
            }
        }
    }

    fn binary(&mut self, operator: Binary, left: &'a Expression, right: &'a Expression, span: Span) -> Outcome<Value> {
        // What stands behind need not be right if it does not count.
        if let Binary::And | Binary::Or = operator {
            let first = self.number(left)? != 0;
            let is_settled = first == (operator == Binary::Or);
            let value = if is_settled { first } else { self.number(right)? != 0 };
            return Ok(Value::Number(i128::from(value)));
        }
        match (operator, self.value(left)?, self.value(right)?) {
            (_, Value::Number(a), Value::Number(b)) => match compute(operator, a, b) {
                Ok(value) => Ok(Value::Number(value)),
                Err(message) => refuse(span, message),
            },
            (Binary::Add, Value::At { buffer, offset }, Value::Number(number))
            | (Binary::Add, Value::Number(number), Value::At { buffer, offset }) => {
                moved(buffer, offset, Some(number), span)
            }
            (Binary::Subtract, Value::At { buffer, offset }, Value::Number(number)) => {
                moved(buffer, offset, number.checked_neg(), span)
            }
            _ => {
                let message = format!("a buffer can be moved by + and - of a number, and has no `{}`", operator.sign());
                refuse(span, message)
            }
        }
    }

    fn call(&mut self, function: Function, arguments: &'a [Expression]) -> Outcome<Value> {
        let (first, rest) = match arguments {
            [first, rest @ ..] => (first, rest),
            [] => return Err(None),
        };
        match function {
            Function::Min | Function::Max => {
                let mut best = self.number(first)?;
                for argument in rest {
                    let value = self.number(argument)?;
                    best = if function == Function::Min { best.min(value) } else { best.max(value) };
                }
                Ok(Value::Number(best))
            }
            Function::Size | Function::Address => {
                let Value::At { buffer, offset } = self.value(first)? else {
                    return refuse(first.span, "the name of a buffer should stand here");
                };
                let Some(buffer) = self.program.buffers.get(buffer) else { return Err(None) };
                match (function, buffer.space) {
                    (Function::Size, _) => Ok(Value::Number(i128::from(buffer.bytes))),
                    (_, AddressSpace::Card) => Ok(Value::Number(i128::from(buffer.address) + offset)),
                    (_, AddressSpace::Host) => refuse(
                        first.span,
                        "a host buffer gets its address when the program is run; only a card buffer has one",
                    ),
                }
            }
        }
    }
}

/// Why an address in host memory is not taken.
const RAW_HOST: &str = "a number behind `host` is an address in host memory that nobody checks; name a host buffer \
                        (`buffer NAME = host size N`), or allow it with --allow-raw-host";

const TOO_LARGE: &str = "the number is too large to compute with";

fn moved(buffer: usize, offset: i128, by: Option<i128>, span: Span) -> Outcome<Value> {
    let offset = by.and_then(|by| offset.checked_add(by)).filter(|offset| offset.unsigned_abs() < 1 << 100);
    offset.map_or_else(|| refuse(span, TOO_LARGE), |offset| Ok(Value::At { buffer, offset }))
}

fn compute(operator: Binary, a: i128, b: i128) -> Result<i128, String> {
    let is = |condition: bool| Some(i128::from(condition));
    let shift = || u32::try_from(b).ok().filter(|_| b <= SHIFT_MAX);
    let value = match operator {
        Binary::Or => is(a != 0 || b != 0),
        Binary::And => is(a != 0 && b != 0),
        Binary::Equal => is(a == b),
        Binary::Unequal => is(a != b),
        Binary::Less => is(a < b),
        Binary::LessOrEqual => is(a <= b),
        Binary::Greater => is(a > b),
        Binary::GreaterOrEqual => is(a >= b),
        Binary::BitOr => Some(a | b),
        Binary::BitXor => Some(a ^ b),
        Binary::BitAnd => Some(a & b),
        Binary::ShiftLeft => {
            let shift = shift().ok_or_else(|| format!("{b} bits cannot be shifted by; 0 to {SHIFT_MAX} can"))?;
            a.checked_mul(1_i128.checked_shl(shift).filter(|factor| *factor > 0).unwrap_or(i128::MAX))
        }
        Binary::ShiftRight => {
            let shift = shift().ok_or_else(|| format!("{b} bits cannot be shifted by; 0 to {SHIFT_MAX} can"))?;
            a.checked_shr(shift)
        }
        Binary::Add => a.checked_add(b),
        Binary::Subtract => a.checked_sub(b),
        Binary::Multiply => a.checked_mul(b),
        Binary::Divide | Binary::Remainder if b == 0 => return Err("this divides by 0".into()),
        // Of a ring, (rank - 1) % ranks is the one before.
        Binary::Divide => a.checked_div_euclid(b),
        Binary::Remainder => a.checked_rem_euclid(b),
    };
    value.ok_or_else(|| TOO_LARGE.to_owned())
}

/// Whether `operation` could have `operand` on `side`, whatever is on the other.
fn takes(operation: Operation, side: Side, operand: Operand) -> bool {
    [AddressSpace::Card, AddressSpace::Host].into_iter().any(|space| {
        let mut alone = Instruction::new(operation);
        alone.source.space = space;
        *side.operand_mut(&mut alone) = operand;
        alone.check_fields().is_ok()
    })
}

/// Why an operation does not take the operand on `side`, if that is what is wrong with the instruction.
fn why_not(instruction: &Instruction, side: Side) -> Option<String> {
    let operation = instruction.operation;
    let operand = *side.operand(instruction);
    let name = match side {
        Side::Source => "source",
        Side::Destination => "destination",
    };
    let fits = |changed| takes(operation, side, changed);
    if fits(operand) {
        return None;
    }
    let other = match operand.space {
        AddressSpace::Card => AddressSpace::Host,
        AddressSpace::Host => AddressSpace::Card,
    };
    let plain = Operand { layout: Layout::Block, argument: None, ..operand };
    if !fits(plain) && fits(Operand { space: other, ..plain }) {
        return Some(match other {
            AddressSpace::Card => {
                format!("the {name} of `{operation}` is in card memory; only `copy` moves data of the host")
            }
            AddressSpace::Host => {
                format!("the {name} of `{operation}` is in host memory: a host buffer, or `host` and an address")
            }
        });
    }
    if operand.layout == Layout::Striped && !fits(Operand { argument: None, ..operand }) {
        return Some(format!(
            "the {name} of `{operation}` is not striped; only operations on a communicator have stripes"
        ));
    }
    (operand.argument.is_some()).then(|| format!("the {name} of `{operation}` takes no launch argument"))
}

fn statement_place(statement: &Statement) -> Option<Span> {
    match statement {
        Statement::Ranks(value) | Statement::Assert(value, _) => Some(value.span),
        Statement::Const(name, _) | Statement::Communicator(name, _, _) => Some(name.span),
        Statement::Blocks(name, _, _) | Statement::Label(name) => Some(name.span),
        Statement::Buffer(buffer) => Some(buffer.name.span),
        Statement::Instruction(instruction) => Some(instruction.span),
        Statement::For(block) => Some(block.head.name.span),
        Statement::Repeat(block) => Some(block.span),
        Statement::If(arms) => arms.first().map(|arm| arm.span),
        Statement::Include(_) => None,
    }
}

//! Instructions: their fields, operands, and the sequencer's own loops.

use super::{Evaluator, Outcome, Span, Stop, Value, refuse};
use crate::asm::program::Binding;
use crate::asm::syntax::*;
use crate::instruction::{ARGUMENTS, DecodeError, Rights, Side, Value as Member, Window};
use crate::reduction::{Element, Reduction};
use crate::{AddressSpace, Instruction, Layout, Operand, Operation};

/// Why a raw host address is refused.
const RAW_HOST: &str = "raw host address, which nobody checks: name a host buffer (`buffer NAME = host size N`), or allow it \
                        with --allow-raw-host";

/// The spans of both operands, to point at them.
type OperandSpans = [(Side, Option<Span>); 2];

impl<'a> Evaluator<'a> {
    /// Appends an instruction. A wrong one becomes a nop, so that the indices of labels stay right.
    pub(super) fn emit(&mut self, text: &'a InstructionText) -> Outcome<()> {
        let here = self.reserve(text.span)?;
        let outcome = self.in_fields(|all| all.instruction(text, here as u32));
        let (instruction, bindings) = match &outcome {
            Ok((instruction, bindings)) => (*instruction, bindings.as_slice()),
            Err(_) => (Instruction::nop(), &[][..]),
        };
        for binding in bindings {
            let is_host = binding.side.operand(&instruction).space == AddressSpace::Host;
            let bindings = if is_host { &mut self.program.bindings } else { &mut self.on_card };
            bindings.push(*binding);
        }
        self.append(instruction, text.span);
        outcome.map(drop)
    }

    /// Appends a loop of the sequencer: its word, then its body once.
    pub(super) fn repeat(&mut self, block: &'a RepeatText) -> Outcome<()> {
        let here = self.reserve(block.span)?;
        let head = self.in_fields(|all| all.loop_word(&block.head));
        self.append(head.as_ref().map_or_else(|_| Instruction::nop(), |word| *word), block.span);
        if let Err(Stop::Limit) = head {
            return Err(Stop::Limit);
        }
        self.block(&block.body)?;
        let word = head?;
        let body = &self.program.instructions[here + 1..];
        if body.iter().any(|one| one.operation == Operation::Loop) {
            let message =
                "nested `repeat`: the sequencer runs one loop at a time, use `for` for the other (it unrolls)";
            return refuse(block.span, message);
        }
        match u16::try_from(body.len()) {
            Ok(0) => refuse(block.span, "empty `repeat`: expected at least one instruction"),
            Ok(loop_body) => {
                self.program.instructions[here] = Instruction { loop_body, ..word };
                Ok(())
            }
            Err(_) => {
                refuse(block.span, format!("`repeat` of {} instructions: at most {} are allowed", body.len(), u16::MAX))
            }
        }
    }

    fn loop_word(&mut self, head: &'a RepeatHead) -> Outcome<Instruction> {
        let rounds = self.number(&head.count)?;
        let Some(count) = u16::try_from(rounds).ok().filter(|count| *count > 0) else {
            return refuse(head.count.span, format!("invalid `count` {rounds}: expected 1 to {}", u16::MAX));
        };
        let mut word = Instruction::repeat(count, 0);
        if let Some((step, argument)) = &head.step {
            let value = self.number(step)?;
            let range = || format!("invalid `step` {value}: expected {} to {:#x}", i64::MIN, u64::MAX);
            // Arguments wrap, so a negative step moves them back.
            let moves = u64::try_from(value).or_else(|_| i64::try_from(value).map(|value| value as u64));
            word.extent = moves.or_else(|_| refuse(step.span, range()))?;
            word.extent_argument = Some(self.launch_argument(argument)?);
        }
        Ok(word)
    }

    fn append(&mut self, instruction: Instruction, place: Span) {
        self.program.instructions.push(instruction);
        self.places.push(place);
    }

    /// Evaluates the fields of an instruction: only there, labels are valid.
    fn in_fields<T>(&mut self, evaluate: impl FnOnce(&mut Self) -> T) -> T {
        self.is_in_field = true;
        let outcome = evaluate(self);
        self.is_in_field = false;
        outcome
    }

    /// Evaluates an instruction, and finds the buffers that its operands name.
    fn instruction(&mut self, text: &'a InstructionText, index: u32) -> Outcome<(Instruction, Vec<Binding>)> {
        let mut instruction = Instruction::new(text.operation).with_flags(text.flags);
        let mut bindings = Vec::new();
        if let Some(tag) = &text.tag {
            instruction.tag = self.short(tag, "tag")?;
        }
        let mut spans: OperandSpans = [(Side::Source, None), (Side::Destination, None)];
        for (field, value) in &text.fields {
            match (&field.value, value) {
                (Member::Number { max, set, .. }, FieldValue::Number(value)) => {
                    let number = self.at_most(value, field.keyword, *max)?;
                    set(&mut instruction, number);
                }
                (Member::Argument { set, .. }, FieldValue::Number(value)) => {
                    set(&mut instruction, self.launch_argument(value)?);
                }
                (Member::Name { set, .. }, FieldValue::Word(word)) => set(&mut instruction, &word.text),
                (Member::Operand(side), FieldValue::Operand(operand)) => {
                    let (mut value, buffer) = self.operand(operand, field.keyword)?;
                    // An operation without stripes uses the bytes of a striped buffer like any others.
                    if operand.layout.is_none()
                        && value.layout == Layout::Striped
                        && !takes(text.operation, *side, Operand { argument: None, ..value })
                    {
                        value.layout = Layout::Block;
                    }
                    *side.operand_mut(&mut instruction) = value;
                    spans[*side as usize].1 = Some(operand.span);
                    bindings.extend(buffer.map(|buffer| Binding { instruction: index, side: *side, buffer }));
                }
                // The parser uses the same table of fields.
                _ => {}
            }
        }
        self.check(&instruction, &bindings, &spans, text)?;
        bindings.sort_unstable();
        Ok((instruction, bindings))
    }

    fn check(
        &self,
        instruction: &Instruction,
        bindings: &[Binding],
        spans: &OperandSpans,
        text: &InstructionText,
    ) -> Outcome<()> {
        if let Err(error) = instruction.check_fields() {
            let operand = spans.iter().find_map(|(side, span)| Some(((*span)?, why_not(instruction, *side)?)));
            let found = operand.or_else(|| why_no_key(text, &error));
            let (span, message) = found.unwrap_or_else(|| (text.span, error.to_string()));
            return refuse(span, message);
        }
        let is_raw = |side: Side| {
            side.operand(instruction).space == AddressSpace::Host && bindings.iter().all(|one| one.side != side)
        };
        match spans.iter().find(|(side, _)| is_raw(*side)) {
            Some((_, operand)) if !self.options.raw_host => refuse(operand.unwrap_or(text.span), RAW_HOST),
            _ => Ok(()),
        }
    }

    /// Returns the operand, and the index of the buffer that it names.
    fn operand(&mut self, text: &'a OperandText, field: &str) -> Outcome<(Operand, Option<u32>)> {
        let value = self.value(&text.value)?;
        let argument = text.argument.as_ref().map(|argument| self.launch_argument(argument)).transpose()?;
        let Value::Byte { buffer, offset } = value else {
            let (space, layout) = (text.space.unwrap_or_default(), text.layout.unwrap_or_default());
            let address = self.wide(&text.value, field)?;
            return Ok((Operand { space, layout, argument, address }, None));
        };
        let Some(known) = self.program.buffers.get(buffer) else { return Err(Stop::Noted) };
        if text.space.is_some() {
            let message = format!("`card` and `host` are for addresses: write `{}`, whose memory is known", known.name);
            return refuse(text.span, message);
        }
        let Some(inside) = u64::try_from(offset).ok().filter(|offset| *offset <= known.bytes) else {
            let message = format!("byte {offset} is outside of buffer `{}`, which has {} B", known.name, known.bytes);
            return refuse(text.value.span, message);
        };
        let layout = text.layout.unwrap_or(known.layout);
        // The declaration of the buffer checked that its end fits 64 bits.
        let address = known.address.saturating_add(inside);
        Ok((Operand { space: known.space, layout, argument, address }, Some(buffer as u32)))
    }

    fn launch_argument(&mut self, expression: &'a Expression) -> Outcome<u8> {
        match self.number(expression)? {
            value if (0..ARGUMENTS as i128).contains(&value) => Ok(value as u8),
            value => {
                refuse(expression.span, format!("invalid launch argument {value}: expected 0 to {}", ARGUMENTS - 1))
            }
        }
    }
}

/// Whether `operation` accepts `operand` on `side`, with some operand on the other side.
fn takes(operation: Operation, side: Side, operand: Operand) -> bool {
    [AddressSpace::Card, AddressSpace::Host].into_iter().any(|space| {
        let mut alone = valid(operation);
        alone.source.space = space;
        *side.operand_mut(&mut alone) = operand;
        alone.check_fields().is_ok()
    })
}

/// An instruction of `operation` of which at most the operands are invalid.
fn valid(operation: Operation) -> Instruction {
    let fields = operation.fields();
    let mut instruction = Instruction::new(operation);
    if fields.combine {
        (instruction.element, instruction.reduction) = (Some(Element::F32), Some(Reduction::Sum));
    }
    if fields.rights {
        let window = Window { slot: 0, key: 1 };
        instruction.extent = Instruction::open(window, Rights::READ, Operand::card(0), 0).extent;
    }
    instruction
}

/// Why the window of `text` is invalid. Key 0 is the only value that is left: the parser requires a key, and other values do not fit
/// their fields.
fn why_no_key(text: &InstructionText, error: &DecodeError) -> Option<(Span, String)> {
    if !matches!(error, DecodeError::Field { name: "window", .. }) {
        return None;
    }
    text.fields.iter().find_map(|(field, value)| match value {
        FieldValue::Number(value) if field.keyword == "key" => {
            Some((value.span, format!("invalid `key` 0: expected 1 to {}", u32::MAX)))
        }
        _ => None,
    })
}

/// Why the operation does not accept its operand on `side`; `None` if it does, or another field is wrong.
fn why_not(instruction: &Instruction, side: Side) -> Option<String> {
    let operation = instruction.operation;
    let operand = *side.operand(instruction);
    let fits = |changed| takes(operation, side, changed);
    if fits(operand) {
        return None;
    }
    let other = if operand.space == AddressSpace::Card { AddressSpace::Host } else { AddressSpace::Card };
    let plain = Operand { layout: Layout::Block, argument: None, ..operand };
    let expected = if !fits(plain) && fits(Operand { space: other, ..plain }) {
        match other {
            AddressSpace::Host => "expected host memory: a host buffer, or `host` and an address",
            _ => "expected card memory (only `copy` accepts both memories)",
        }
    } else if operand.layout == Layout::Striped && !fits(Operand { argument: None, ..operand }) {
        "expected no stripes (only operations between cards accept them, and not all)"
    } else if operand.argument.is_some() {
        "expected no launch argument"
    } else {
        return None;
    };
    Some(format!("invalid {} of `{operation}`: {expected}", side.name()))
}

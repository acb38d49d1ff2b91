//! Expressions: numbers of up to 127 bits, and bytes in buffers.

use super::{Evaluator, Outcome, Span, Stop, Value, refuse};
use crate::AddressSpace;
use crate::asm::diagnostic::Finding;
use crate::asm::syntax::*;

/// Bits of the largest shift.
const SHIFT_MAX: i128 = 127;
/// Largest distance from the begin of a buffer, while it is computed.
const OFFSET_MAX: u128 = 1 << 100;

const OVERFLOW: &str = "arithmetic overflow";

impl<'a> Evaluator<'a> {
    /// Evaluates a number of 16 bits; `what` names it in an error.
    pub(super) fn short(&mut self, expression: &'a Expression, what: &str) -> Outcome<u16> {
        self.at_most(expression, what, u16::MAX.into()).map(|value| value as u16)
    }

    /// Evaluates a number of 64 bits.
    pub(super) fn wide(&mut self, expression: &'a Expression, what: &str) -> Outcome<u64> {
        self.at_most(expression, what, u64::MAX)
    }

    /// Evaluates a number from 0 to `max`.
    pub(super) fn at_most(&mut self, expression: &'a Expression, what: &str, max: u64) -> Outcome<u64> {
        let value = self.number(expression)?;
        u64::try_from(value).ok().filter(|value| *value <= max).map_or_else(
            || {
                let last = if max == u64::MAX { format!("{max:#x}") } else { max.to_string() };
                refuse(expression.span, format!("invalid `{what}` {value}: expected 0 to {last}"))
            },
            Ok,
        )
    }

    /// Evaluates a number.
    pub(in crate::asm) fn number(&mut self, expression: &'a Expression) -> Outcome<i128> {
        match self.value(expression)? {
            Value::Number(value) => Ok(value),
            Value::Byte { .. } => {
                refuse(expression.span, "expected a number, found a buffer: use address(..) or size(..)")
            }
        }
    }

    pub(super) fn value(&mut self, expression: &'a Expression) -> Outcome<Value> {
        let span = expression.span;
        let looked_at = if let Node::Name(_) = expression.node { self.scopes.len() } else { 1 };
        self.spend_values(looked_at, span)?;
        match &expression.node {
            Node::Number(value) => Ok(Value::Number(i128::from(*value))),
            Node::Rank => Ok(Value::Number(i128::from(self.program.rank))),
            Node::Ranks => Ok(Value::Number(i128::from(self.ranks))),
            Node::Name(name) => match self.find(name) {
                Some(value) => value.ok_or(Stop::Noted),
                None => {
                    let message = format!("`{name}` is not defined before this line");
                    Err(Stop::Wrong(Finding::unknown(span, message, name, false)))
                }
            },
            Node::Label(name) => self.label(name, span),
            Node::Unary(unary, inner) => {
                let value = self.number(inner)?;
                let result = match unary {
                    Unary::Negative => value.checked_neg(),
                    Unary::Not => Some(i128::from(value == 0)),
                };
                result.map_or_else(|| refuse(span, OVERFLOW), |value| Ok(Value::Number(value)))
            }
            Node::Binary(operator, both) => self.binary(*operator, &both.0, &both.1, span),
            Node::Call(function, arguments) => self.call(*function, arguments),
        }
    }

    fn label(&mut self, name: &str, span: Span) -> Outcome<Value> {
        if !self.is_in_field {
            return refuse(span, "a label is only valid in a field of an instruction");
        }
        let Some(known) = &self.known_labels else { return Ok(Value::Number(0)) };
        match known.get(name) {
            Some(index) => Ok(Value::Number(i128::from(*index))),
            None => {
                let message = format!("undefined label `{name}` on this rank");
                Err(Stop::Wrong(Finding::unknown(span, message, name, true)))
            }
        }
    }

    fn binary(&mut self, operator: Binary, left: &'a Expression, right: &'a Expression, span: Span) -> Outcome<Value> {
        // The right side is not evaluated if the left side decides.
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
            (Binary::Add, Value::Byte { buffer, offset }, Value::Number(number))
            | (Binary::Add, Value::Number(number), Value::Byte { buffer, offset }) => {
                moved(buffer, offset, Some(number), span)
            }
            (Binary::Subtract, Value::Byte { buffer, offset }, Value::Number(number)) => {
                moved(buffer, offset, number.checked_neg(), span)
            }
            _ => {
                let message =
                    format!("invalid operator `{}` for a buffer: expected + or - and a number", operator.sign());
                refuse(span, message)
            }
        }
    }

    fn call(&mut self, function: Function, arguments: &'a [Expression]) -> Outcome<Value> {
        let [first, rest @ ..] = arguments else { return Err(Stop::Noted) };
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
                let Value::Byte { buffer, offset } = self.value(first)? else {
                    return refuse(first.span, "expected the name of a buffer");
                };
                let Some(buffer) = self.program.buffers.get(buffer) else { return Err(Stop::Noted) };
                match (function, buffer.space) {
                    (Function::Size, _) => Ok(Value::Number(i128::from(buffer.bytes))),
                    (_, AddressSpace::Card) => Ok(Value::Number(i128::from(buffer.address) + offset)),
                    _ => refuse(first.span, "a host buffer has no address before the run: expected a card buffer"),
                }
            }
        }
    }
}

fn moved(buffer: usize, offset: i128, by: Option<i128>, span: Span) -> Outcome<Value> {
    let offset = by.and_then(|by| offset.checked_add(by)).filter(|offset| offset.unsigned_abs() < OFFSET_MAX);
    offset.map_or_else(|| refuse(span, OVERFLOW), |offset| Ok(Value::Byte { buffer, offset }))
}

fn compute(operator: Binary, a: i128, b: i128) -> Result<i128, String> {
    let is = |condition: bool| Some(i128::from(condition));
    let shift = || {
        let bits = u32::try_from(b).ok().filter(|_| b <= SHIFT_MAX);
        bits.ok_or_else(|| format!("invalid shift by {b} bits: expected 0 to {SHIFT_MAX}"))
    };
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
            let bits = shift()?;
            let moved = a.wrapping_shl(bits);
            (moved >> bits == a).then_some(moved)
        }
        Binary::ShiftRight => a.checked_shr(shift()?),
        Binary::Add => a.checked_add(b),
        Binary::Subtract => a.checked_sub(b),
        Binary::Multiply => a.checked_mul(b),
        Binary::Divide | Binary::Remainder if b == 0 => return Err("division by 0".into()),
        // In a ring, (rank - 1) % ranks is the rank before.
        Binary::Divide => a.checked_div_euclid(b),
        Binary::Remainder => a.checked_rem_euclid(b),
    };
    value.ok_or_else(|| OVERFLOW.to_owned())
}

//! The names in a source: which are defined, which are used, and what one that is not defined was meant to be.

use std::collections::HashSet;

use super::diagnostic::{Span, Unknown, did_you_mean};
use super::syntax::*;

/// A name that a source defines.
pub(super) struct Defined<'a> {
    name: &'a Name,
    is_label: bool,
}

/// All names that `statements` define, on whatever ranks.
pub(super) fn defined_names<'a>(statements: &'a [Statement], all: &mut Vec<Defined<'a>>) {
    for statement in statements {
        let is_label = matches!(statement, Statement::Label(_));
        match statement {
            Statement::Const(name, _)
            | Statement::Communicator(name, ..)
            | Statement::Blocks(name, ..)
            | Statement::Label(name) => all.push(Defined { name, is_label }),
            Statement::Buffer(buffer) => all.push(Defined { name: &buffer.name, is_label }),
            Statement::For(block) => {
                all.push(Defined { name: &block.head.name, is_label });
                defined_names(&block.body, all);
            }
            Statement::If(arms) => arms.iter().for_each(|arm| defined_names(&arm.body, all)),
            Statement::Repeat(RepeatText { body, .. }) | Statement::Include(body) => defined_names(body, all),
            Statement::Ranks(_) | Statement::Instruction(_) | Statement::Assert(..) => {}
        }
    }
}

/// What `unknown`, which stands at `place`, was probably meant to be, for the end of a sentence.
pub(super) fn hint(defined: &[Defined<'_>], place: Span, unknown: &Unknown) -> String {
    let is_known = |one: &&Defined<'_>| {
        let span = one.name.span;
        // A label may come later; any other name has to come before.
        let is_before = span.file != place.file || span < place;
        one.is_label == unknown.is_label && (is_before || unknown.is_label) && one.name.text != unknown.name
    };
    did_you_mean(&unknown.name, defined.iter().filter(is_known).map(|one| one.name.text.as_str()))
}

/// Names that expressions of `statements` use: of constants, buffers, communicators, tables and, with `@`, of labels.
pub(super) fn used_names(statements: &[Statement], used: &mut HashSet<String>) {
    let mut all = |expressions: &[&Expression]| expressions.iter().for_each(|one| names(one, used));
    for statement in statements {
        match statement {
            Statement::Ranks(value) | Statement::Const(_, value) | Statement::Assert(value, _) => all(&[value]),
            Statement::Buffer(buffer) => {
                all(&[&buffer.size]);
                buffer.at.iter().chain(&buffer.align).for_each(|one| all(&[one]));
            }
            Statement::Communicator(_, id, members) => {
                all(&[id]);
                for part in members {
                    all(&[&part.first]);
                    if let Some((end, step)) = &part.end {
                        all(&[end]);
                        step.iter().for_each(|one| all(&[one]));
                    }
                }
            }
            Statement::Blocks(_, slot, blocks) => {
                all(&[slot]);
                for block in blocks {
                    all(&[&block.bytes]);
                    block.at.iter().for_each(|one| all(&[one]));
                    if let Some(RoundText { from, end, step, .. }) = &block.repeat {
                        all(&[from, end]);
                        step.iter().for_each(|one| all(&[one]));
                    }
                }
            }
            Statement::Repeat(block) => {
                all(&[&block.head.count]);
                block.head.step.iter().for_each(|(by, argument)| all(&[by, argument]));
            }
            Statement::Label(_) | Statement::For(_) | Statement::If(_) | Statement::Include(_) => {}
            Statement::Instruction(instruction) => {
                instruction.tag.iter().for_each(|one| all(&[one]));
                for (_, value) in &instruction.fields {
                    match value {
                        FieldValue::Word(_) => {}
                        FieldValue::Number(value) => all(&[value]),
                        FieldValue::Operand(operand) => {
                            all(&[&operand.value]);
                            operand.argument.iter().for_each(|one| all(&[one]));
                        }
                    }
                }
            }
        }
    }
    for statement in statements {
        match statement {
            Statement::For(block) => {
                [&block.head.from, &block.head.end]
                    .into_iter()
                    .chain(&block.head.step)
                    .for_each(|one| names(one, used));
                used_names(&block.body, used);
            }
            Statement::If(arms) => {
                for arm in arms {
                    arm.condition.iter().for_each(|one| names(one, used));
                    used_names(&arm.body, used);
                }
            }
            Statement::Repeat(RepeatText { body, .. }) | Statement::Include(body) => used_names(body, used),
            _ => {}
        }
    }
}

fn names(expression: &Expression, used: &mut HashSet<String>) {
    match &expression.node {
        Node::Number(_) | Node::Rank | Node::Ranks => {}
        Node::Name(name) => {
            used.insert(name.clone());
        }
        Node::Label(name) => {
            used.insert(format!("@{name}"));
        }
        Node::Unary(_, inner) => names(inner, used),
        Node::Binary(_, both) => {
            names(&both.0, used);
            names(&both.1, used);
        }
        Node::Call(_, arguments) => arguments.iter().for_each(|one| names(one, used)),
    }
}

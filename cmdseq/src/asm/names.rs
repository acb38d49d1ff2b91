//! Names in a source: definitions, uses, and corrections of undefined ones.

use std::collections::HashSet;

use super::diagnostic::{Span, Unknown, did_you_mean};
use super::syntax::*;

/// Returns all names that `statements` define, on any rank.
pub(super) fn defined_names(statements: &[Statement]) -> Vec<(Defined, &Name)> {
    let mut names = Vec::new();
    Statement::visit_all(statements, &mut |statement| names.extend(statement.defines()));
    names
}

/// Returns the end of a message about `unknown` at `place`: the defined name that was probably meant.
pub(super) fn hint(defined: &[(Defined, &Name)], place: Span, unknown: &Unknown) -> String {
    let is_known = |(what, name): &&(Defined, &Name)| {
        let is_label = *what == Defined::Label;
        // A label may come later; any other name comes before.
        let is_before = name.span.file != place.file || name.span < place;
        is_label == unknown.is_label && (is_before || is_label) && name.text != unknown.name
    };
    did_you_mean(&unknown.name, defined.iter().filter(is_known).map(|(_, name)| name.text.as_str()))
}

/// Returns the names that expressions use: constants, buffers, communicators, tables and, with `@`, labels.
pub(super) fn used_names(statements: &[Statement]) -> HashSet<String> {
    let mut used = HashSet::new();
    Statement::visit_all(statements, &mut |statement| {
        statement.expressions().into_iter().for_each(|expression| names(expression, &mut used));
    });
    used
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

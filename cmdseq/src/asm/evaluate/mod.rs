//! Runs a source for one rank: statements become instructions, buffers, communicators and tables.
//!
//! This module has the state, blocks, loops and limits; its children the declarations, the instructions and the expressions.

mod declare;
mod emit;
mod expression;

use std::collections::{HashMap, HashSet};

use super::diagnostic::{FINDINGS_MAX, Finding, Span};
use super::options::{Limits, Options};
use super::program::{Binding, RankProgram};
use super::syntax::*;
use crate::refusal::Declaration;

/// The value of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Number(i128),
    /// A byte in a buffer of [`RankProgram::buffers`].
    Byte {
        buffer: usize,
        offset: i128,
    },
}

/// Why a statement or expression has no result.
#[derive(Debug)]
pub(super) enum Stop {
    /// It is wrong. [`Evaluator::block`] notes the finding and continues with the next statement.
    Wrong(Finding),
    /// It uses a definition that is wrong, which has its own finding.
    Noted,
    /// A limit is reached, and its finding is noted: evaluation ends.
    Limit,
}

type Outcome<T> = Result<T, Stop>;

fn refuse<T>(span: Span, message: impl Into<String>) -> Outcome<T> {
    Err(Stop::Wrong(Finding::new(span, message)))
}

pub(super) struct Evaluator<'a> {
    options: &'a Options,
    limits: &'a Limits,
    /// What remains of the limits that all ranks share.
    left: &'a mut Limits,
    ranks: u32,
    /// The first scope is that of the file; each round of a loop has its own. `None` if the definition of a name is wrong.
    scopes: Vec<HashMap<&'a str, Option<Value>>>,
    /// Indices of labels; `None` while a first run finds them.
    known_labels: Option<HashMap<String, u32>>,
    pub(super) labels: HashMap<String, u32>,
    /// Ids of the communicators with this rank as a member.
    communicators: HashSet<u16>,
    is_in_field: bool,
    /// End of the last buffer in card memory.
    card_end: i128,
    pub(super) program: RankProgram,
    /// The card buffers that operands name, in order, as [`RankProgram::bindings`] has the host buffers.
    pub(super) on_card: Vec<Binding>,
    /// Where the instructions are in the source.
    pub(super) places: Vec<Span>,
    /// Where the buffers are in the source.
    pub(super) buffer_places: Vec<Span>,
    /// Where the communicators and tables are in the source.
    pub(super) declarations: HashMap<Declaration, Span>,
    pub(super) findings: Vec<Finding>,
    /// Branches that were taken.
    pub(super) taken: HashSet<Span>,
}

impl<'a> Evaluator<'a> {
    pub(super) fn new(options: &'a Options, left: &'a mut Limits, rank: u32, ranks: u32) -> Self {
        Evaluator {
            options,
            limits: &options.limits,
            left,
            ranks,
            scopes: vec![HashMap::new()],
            known_labels: None,
            labels: HashMap::new(),
            communicators: HashSet::new(),
            is_in_field: false,
            card_end: 0,
            program: RankProgram { rank, ..RankProgram::default() },
            on_card: Vec::new(),
            places: Vec::new(),
            buffer_places: Vec::new(),
            declarations: HashMap::new(),
            findings: Vec::new(),
            taken: HashSet::new(),
        }
    }

    /// With the labels that a first run found.
    pub(super) fn with_labels(mut self, labels: HashMap<String, u32>) -> Self {
        self.known_labels = Some(labels);
        self
    }

    /// Runs `statements`. Findings are in [`findings`](Self::findings).
    ///
    /// # Errors
    /// Only [`Stop::Limit`].
    pub(super) fn block(&mut self, statements: &'a [Statement]) -> Outcome<()> {
        for statement in statements {
            match self.statement(statement) {
                Ok(()) | Err(Stop::Noted) => {}
                // The first run evaluates labels as 0, so its errors are ignored; the second run reports them.
                Err(Stop::Wrong(_)) if self.known_labels.is_none() => {}
                Err(Stop::Wrong(finding)) => {
                    self.findings.push(finding);
                    // A loop may be wrong in every round.
                    if self.findings.len() >= FINDINGS_MAX {
                        return Err(Stop::Limit);
                    }
                }
                Err(Stop::Limit) => return Err(Stop::Limit),
            }
            self.step(statement.span())?;
        }
        Ok(())
    }

    fn statement(&mut self, statement: &'a Statement) -> Outcome<()> {
        match statement {
            Statement::Ranks(expression) => self.ranks(expression),
            Statement::Assert(condition, message) => match self.number(condition)? {
                0 => refuse(condition.span, format!("assertion failed: {message}")),
                _ => Ok(()),
            },
            Statement::Const(name, expression) => self.declare(name, |all| all.value(expression)),
            Statement::Buffer(text) => self.declare(&text.name, |all| all.buffer(text)),
            Statement::Communicator(text) => self.declare(&text.name, |all| all.communicator(text)),
            Statement::Blocks(text) => self.declare(&text.name, |all| all.table(text)),
            Statement::Label(name) => self.define_label(name),
            Statement::Instruction(text) => self.emit(text),
            Statement::For(block) => self.unroll(block),
            Statement::Repeat(block) => self.repeat(block),
            Statement::If(arms) => self.choose(arms),
            Statement::Include(body) => self.block(body),
        }
    }

    fn ranks(&mut self, expression: &'a Expression) -> Outcome<()> {
        let value = self.number(expression)?;
        if value == i128::from(self.ranks) {
            return Ok(());
        }
        refuse(expression.span, format!("program is for {value} ranks, but is assembled for {}", self.ranks))
    }

    /// Runs a `for` loop.
    fn unroll(&mut self, block: &'a ForText) -> Outcome<()> {
        for number in self.numbers(&block.head)? {
            self.step(Some(block.head.name.span))?;
            self.in_scope(&block.head, number, |all| all.block(&block.body))?;
        }
        Ok(())
    }

    /// Returns the numbers of a loop.
    fn numbers(&mut self, head: &'a RoundText) -> Outcome<impl Iterator<Item = i128> + use<>> {
        self.check_new(&head.name)?;
        self.range(&head.from, Some(&head.end), head.step.as_ref())
    }

    /// Returns the numbers from `first` up to before `end`; `first` alone if there is no `end`.
    fn range(
        &mut self,
        first: &'a Expression,
        end: Option<&'a Expression>,
        step: Option<&'a Expression>,
    ) -> Outcome<impl Iterator<Item = i128> + use<>> {
        let start = self.number(first)?;
        let end = end.map_or(Ok(start.saturating_add(1)), |end| self.number(end))?;
        let step = step.map_or(Ok(1), |step| match self.number(step)? {
            value if value > 0 => Ok(value),
            value => refuse(step.span, format!("invalid step {value}: expected at least 1")),
        })?;
        Ok(std::iter::successors(Some(start), move |at| at.checked_add(step)).take_while(move |at| *at < end))
    }

    /// Runs one round of a loop, in a scope of its own.
    fn in_scope<T>(
        &mut self,
        head: &'a RoundText,
        number: i128,
        round: impl FnOnce(&mut Self) -> Outcome<T>,
    ) -> Outcome<T> {
        self.scopes.push(HashMap::from([(head.name.text.as_str(), Some(Value::Number(number)))]));
        let outcome = round(self);
        self.scopes.pop();
        outcome
    }

    fn choose(&mut self, arms: &'a [Arm]) -> Outcome<()> {
        for arm in arms {
            let is_taken = match &arm.condition {
                Some(condition) => self.number(condition)? != 0,
                None => true,
            };
            if is_taken {
                self.taken.insert(arm.span);
                return self.block(&arm.body);
            }
        }
        Ok(())
    }

    /// Counts a statement or a round of a loop.
    fn step(&mut self, place: Option<Span>) -> Outcome<()> {
        let place = place.or_else(|| self.places.last().copied()).unwrap_or_default();
        self.spend("steps", |limits| &mut limits.steps, 1, place)
    }

    /// Takes `amount` from what is left of limit `name`.
    ///
    /// # Errors
    /// [`Stop::Limit`] if less is left.
    fn spend(&mut self, name: &str, of: fn(&mut Limits) -> &mut u64, amount: u64, place: Span) -> Outcome<()> {
        let left = of(self.left);
        match left.checked_sub(amount) {
            Some(rest) => {
                *left = rest;
                Ok(())
            }
            None => {
                let limit = *of(&mut self.limits.clone());
                self.stop(place, format!("assembling needs more than {limit} {name} (limit {name})"))
            }
        }
    }

    /// Notes that a limit is reached.
    fn stop<T>(&mut self, place: Span, message: String) -> Outcome<T> {
        self.findings.push(Finding::new(place, message));
        Err(Stop::Limit)
    }

    fn spend_values(&mut self, values: usize, place: Span) -> Outcome<()> {
        self.spend("values", |limits| &mut limits.values, values as u64, place)
    }

    fn spend_entries(&mut self, entries: u64, place: Span) -> Outcome<()> {
        self.spend("entries", |limits| &mut limits.entries, entries, place)
    }

    /// Counts one more instruction, and returns its index.
    fn reserve(&mut self, place: Span) -> Outcome<usize> {
        let here = self.program.instructions.len();
        let (each, all) = (self.limits.instructions, self.limits.all_instructions);
        if here >= each {
            return self.stop(place, format!("the program has more than {each} instructions (limit instructions)"));
        }
        match self.left.all_instructions.checked_sub(1) {
            Some(left) => {
                self.left.all_instructions = left;
                Ok(here)
            }
            None => {
                let message =
                    format!("the programs have more than {all} instructions together (limit all_instructions)");
                self.stop(place, message)
            }
        }
    }
}

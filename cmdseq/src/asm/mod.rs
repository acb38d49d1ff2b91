//! The assembler: sequencer programs as text.
//!
//! A source (`docs/seq.md`) is one text for all ranks. [`assemble`] runs it once for each rank and returns the instructions,
//! with named buffers, communicators, and the operands that get an address at run time. [`encode`] and [`decode`] convert this to
//! and from a file. [`disassemble`] prints a source that assembles to the same. [`lint`] warns about valid but suspicious code.
//! Nothing here reads files: includes come from [`Sources`].
//!
//! Inside: lexer → cursor → parser (with include) → syntax → evaluate → program; each uses only those before it. Names of fields
//! and operations come from [`instruction`](crate::instruction).
//!
//! ```
//! use cmdseq::asm::{Options, assemble};
//!
//! let ring = "\
//! ranks 4
//! buffer in = card size 4KiB
//! buffer out = card size 4KiB
//! sendrecv peer (rank + 1) % ranks, root (rank - 1) % ranks, source in, destination out, bytes 4KiB
//! ";
//! let mut no_includes = |_: &str| Err("there are none".to_owned());
//! let assembled = assemble("ring.seq", ring, &mut no_includes, &Options::default()).unwrap();
//! assert_eq!(assembled.assembly.programs[3].instructions[0].peer, 0);
//! ```

mod cursor;
mod diagnostic;
mod disassemble;
mod evaluate;
mod fields;
mod file;
mod include;
mod keywords;
mod lexer;
mod lint;
mod names;
mod options;
mod parser;
mod planned;
mod program;
mod syntax;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

pub use crate::instruction::Side;
use crate::refusal::Declaration;
pub use diagnostic::{Diagnostic, Errors};
pub use disassemble::disassemble;
pub use file::{FileError, MAGIC, decode, encode};
pub use include::Sources;
pub use lint::{Warning, Warnings, lint};
pub use options::{Limits, Options};
use program::Outside;
pub use program::{Assembly, Binding, Buffer, RANKS_MAX, RankProgram};

use diagnostic::{FINDINGS_MAX, Files, Finding, Span};
use evaluate::{Evaluator, Stop};
use names::{defined_names, hint, used_names};
use parser::Parser;
use syntax::{Expression, Node, Statement};

/// An assembled source, with the places where its instructions come from.
#[derive(Debug)]
pub struct Assembled {
    /// The programs of the cards.
    pub assembly: Assembly,
    files: Files,
    /// Places of each program's instructions.
    places: Vec<Vec<Span>>,
    /// Places of communicators and tables.
    declarations: HashMap<Declaration, Span>,
}

impl Assembled {
    /// Returns `message` about instruction `instruction` of rank `rank`, with its source line.
    pub fn diagnose(&self, rank: u32, instruction: usize, message: &str) -> Option<Diagnostic> {
        let span = self.place(rank, instruction)?;
        Some(self.files.diagnostic(Finding { rank: Some(rank), ..Finding::new(span, message) }))
    }

    /// Returns `message` about a declaration, with its source line; `rank` if only that rank has the error.
    pub fn diagnose_declaration(
        &self,
        declaration: &Declaration,
        rank: Option<u32>,
        message: &str,
    ) -> Option<Diagnostic> {
        let span = *self.declarations.get(declaration)?;
        Some(self.files.diagnostic(Finding { rank, ..Finding::new(span, message) }))
    }

    /// Returns the file and line of an instruction.
    pub fn line(&self, rank: u32, instruction: usize) -> Option<(&str, u32)> {
        let span = self.place(rank, instruction)?;
        Some((&self.files.0.get(span.file as usize)?.0, span.line))
    }

    fn place(&self, rank: u32, instruction: usize) -> Option<Span> {
        let program = self.assembly.programs.iter().position(|program| program.rank == rank)?;
        self.places.get(program)?.get(instruction).copied()
    }
}

/// Assembles `text`, the file `name` below the root folder; `sources` reads its includes.
///
/// # Errors
/// Up to [`Limits::errors`] errors: syntax errors, or if there are none, errors of all ranks.
pub fn assemble(name: &str, text: &str, sources: &mut Sources<'_>, options: &Options) -> Result<Assembled, Errors> {
    assemble_parts(name, text, sources, options).map(|parts| parts.assembled)
}

/// An assembled source, and what the checks for warnings need.
struct Parts {
    assembled: Assembled,
    statements: Vec<Statement>,
    used: HashSet<String>,
    /// Places of each program's buffers.
    buffer_places: Vec<Vec<Span>>,
    /// The card buffers that operands of each program name.
    on_card: Vec<Vec<Binding>>,
    /// Branches that some rank took.
    taken: HashSet<Span>,
}

fn assemble_parts(name: &str, text: &str, sources: &mut Sources<'_>, options: &Options) -> Result<Parts, Errors> {
    let limits = &options.limits;
    if text.len() > limits.source_bytes {
        let mut files = Files::default();
        let span = Span { file: files.add(name, String::new()), line: 1, column: 1, width: 1 };
        let message = format!("source longer than {} B (limit source_bytes)", limits.source_bytes);
        return Err(files.plain_errors(vec![Finding::new(span, message)], 1));
    }
    let mut parser = Parser::new(sources, limits);
    let statements = parser.file(name, text.to_owned(), 0);
    let Parser { files, findings, is_partial, .. } = parser;
    if !findings.is_empty() {
        return Err(Errors { is_partial, ..files.plain_errors(findings, limits.errors) });
    }
    let ranks = match number_of_ranks(&statements, options) {
        Ok(ranks) => ranks,
        Err(finding) => return Err(files.plain_errors(vec![finding], limits.errors)),
    };
    let used = used_names(&statements);
    let has_labels = used.iter().any(|name| name.starts_with('@'));
    let mut left = limits.clone();
    let mut assembly = Assembly { ranks, programs: Vec::new() };
    let (mut places, mut buffer_places, mut taken) = (Vec::new(), Vec::new(), HashSet::new());
    let (mut on_card, mut declarations) = (Vec::new(), HashMap::new());
    let mut faults = Faults::default();
    let selected = match options.only {
        Some(rank) => rank..rank + 1,
        None => 0..ranks,
    };
    for rank in selected {
        // With fewer findings, all ranks are evaluated, so that it is known which errors all of them have.
        faults.is_partial |= faults.places.len() > limits.errors && faults.findings >= FINDINGS_MAX;
        if faults.is_partial {
            break;
        }
        let mut labels = HashMap::new();
        if has_labels {
            // A first run finds the labels, whose places do not depend on their uses; the second run notes the findings.
            let mut first = left.clone();
            let mut scout = Evaluator::new(options, &mut first, rank, ranks);
            let _ = scout.block(&statements);
            labels = scout.labels;
        }
        let mut evaluator = Evaluator::new(options, &mut left, rank, ranks).with_labels(labels);
        faults.is_partial = evaluator.block(&statements).is_err();
        taken.extend(evaluator.taken);
        if evaluator.findings.is_empty() {
            let places = &evaluator.places;
            let finding = |one: Outside<'_>| Some(Finding::new(*places.get(one.instruction)?, one.cause()));
            evaluator.findings = evaluator.program.outside().into_iter().filter_map(finding).collect();
        }
        faults.add(rank, evaluator.findings);
        if faults.places.is_empty() {
            assembly.programs.push(evaluator.program);
            places.push(evaluator.places);
            buffer_places.push(evaluator.buffer_places);
            on_card.push(evaluator.on_card);
            declarations.extend(evaluator.declarations);
        }
    }
    if !faults.places.is_empty() {
        let defined = defined_names(&statements);
        let is_partial = faults.is_partial;
        let errors = files.errors(faults.findings(), limits.errors, |place, unknown| hint(&defined, place, unknown));
        return Err(Errors { is_partial, ..errors });
    }
    let assembled = Assembled { assembly, files, places, declarations };
    Ok(Parts { assembled, statements, used, buffer_places, on_card, taken })
}

/// Findings of the evaluated ranks: the first at each place, and on how many ranks it is the same.
#[derive(Default)]
struct Faults {
    places: HashMap<Span, Fault>,
    /// Evaluated ranks.
    ranks: u32,
    /// Findings of these ranks together.
    findings: usize,
    /// Whether evaluation ended early: a limit is reached, or there are many findings.
    is_partial: bool,
}

/// The first finding at one place.
struct Fault {
    /// With the rank that has it first.
    finding: Finding,
    /// Ranks with the same finding.
    count: u32,
}

impl Faults {
    fn add(&mut self, rank: u32, findings: Vec<Finding>) {
        self.ranks += 1;
        self.findings += findings.len();
        // In a loop one place may be wrong in many rounds.
        let mut here = HashSet::new();
        for found in findings {
            let is_first = here.insert(found.span);
            match self.places.entry(found.span) {
                Entry::Vacant(place) => {
                    place.insert(Fault { finding: Finding { rank: Some(rank), ..found }, count: 1 });
                }
                Entry::Occupied(mut place) => {
                    let fault = place.get_mut();
                    fault.count += u32::from(is_first && fault.finding.message == found.message);
                }
            }
        }
    }

    /// Returns the findings, with the rank if not all evaluated ranks have it.
    fn findings(self) -> Vec<Finding> {
        let of_some =
            |Fault { finding, count }| Finding { rank: finding.rank.filter(|_| count < self.ranks), ..finding };
        self.places.into_values().map(of_some).collect()
    }
}

/// Returns the number of ranks: that of the options, else that of the source.
fn number_of_ranks(statements: &[Statement], options: &Options) -> Result<u32, Finding> {
    let start = Span { file: 0, line: 1, column: 1, width: 1 };
    let stated = statements.iter().find_map(|statement| match statement {
        Statement::Ranks(expression) => Some(expression),
        _ => None,
    });
    let (ranks, span) = match (options.ranks, stated) {
        (Some(ranks), _) => (i128::from(ranks), start),
        (None, Some(expression)) => (stated_ranks(expression, options)?, expression.span),
        (None, None) => {
            let message = "unknown number of ranks: add a line `ranks 4`, or the option --ranks";
            return Err(Finding::new(start, message));
        }
    };
    let ranks = u32::try_from(ranks).ok().filter(|ranks| (1..=RANKS_MAX).contains(ranks));
    let Some(ranks) = ranks else {
        return Err(Finding::new(span, format!("invalid number of ranks: expected 1 to {RANKS_MAX}")));
    };
    match options.only {
        Some(rank) if rank >= ranks => {
            Err(Finding::new(start, format!("no rank {rank} (the last of {ranks} ranks is {})", ranks - 1)))
        }
        _ => Ok(ranks),
    }
}

fn stated_ranks(expression: &Expression, options: &Options) -> Result<i128, Finding> {
    if !is_plain(expression) {
        let message = "the number of ranks consists of numbers only: everything else depends on it";
        return Err(Finding::new(expression.span, message));
    }
    let mut left = options.limits.clone();
    let mut evaluator = Evaluator::new(options, &mut left, 0, 1);
    evaluator.number(expression).map_err(|stop| match stop {
        Stop::Wrong(finding) => finding,
        Stop::Noted | Stop::Limit => {
            evaluator.findings.pop().unwrap_or_else(|| Finding::new(expression.span, "expected a number"))
        }
    })
}

fn is_plain(expression: &Expression) -> bool {
    match &expression.node {
        Node::Number(_) => true,
        Node::Unary(_, inner) => is_plain(inner),
        Node::Binary(_, both) => is_plain(&both.0) && is_plain(&both.1),
        Node::Call(_, arguments) => arguments.iter().all(is_plain),
        Node::Rank | Node::Ranks | Node::Name(_) | Node::Label(_) => false,
    }
}

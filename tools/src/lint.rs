//! `fpgactl lint FILE`: what is allowed in a program and probably not meant.

use std::fmt::Write as _;

use cmdseq::asm::{self, Options};
use cmdseq::{Instruction, Operation};
use serde::Serialize;

use crate::cards::Cards;
use crate::cli::{self, Cli};
use crate::exit::{Exit, Failure, Place, Result};
use crate::output;
use crate::source::{Loaded, Source};
use crate::verification::verified;

#[derive(Serialize)]
struct Printed<'a> {
    schema: &'static str,
    warnings: Vec<Warning<'a>>,
    /// Warnings that are not among them.
    more: usize,
    /// The collective that the programs were found to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<&'static str>,
}

#[derive(Serialize)]
struct Warning<'a> {
    check: &'static str,
    #[serde(flatten)]
    place: Place<'a>,
}

impl<'a> From<&'a asm::Warning> for Warning<'a> {
    fn from(warning: &'a asm::Warning) -> Self {
        Warning { check: warning.check, place: Place::from(&warning.diagnostic) }
    }
}

fn is_of_resident(instruction: &Instruction) -> bool {
    let operands = [instruction.source, instruction.destination];
    instruction.operation == Operation::Loop
        || operands.iter().any(|one| one.argument.is_some())
        || instruction.extent_argument.is_some()
}

pub(crate) fn run(cli: &Cli, arguments: &cli::Lint) -> Result<()> {
    let source = Source::open(&arguments.program.file, arguments.program.root.as_deref())?;
    let cli::Program { ranks, allow_raw_host: raw_host, .. } = arguments.program;
    let mut options = Options { ranks, raw_host, ..Options::default() };
    let expected = match &arguments.expect {
        Some(expected) => {
            // What programs may do depends on the cards: room for buffers, tables, communicators.
            let cards = Cards::open(&cli.cards)?;
            options.ranks = options.ranks.or(Some(cards.nodes().len() as u32));
            let loaded = Loaded::Text(Box::new(source.assemble(&options)?));
            // Loops and launch arguments are of resident programs alone: so it can only be meant as one.
            let is_resident = loaded.assembly().programs.iter().any(|one| one.instructions.iter().any(is_of_resident));
            verified(&loaded, &cards, Some(expected), is_resident)?;
            Some(expected.collective().name())
        }
        None => None,
    };
    let asm::Warnings { warnings, more } = source.lint(&options)?;
    let count = warnings.len() + more;
    if cli.json {
        let warnings = warnings.iter().map(Warning::from).collect();
        output::json(&Printed { schema: "fpgactl.lint/1", warnings, more, expected })?;
    } else {
        let mut text = String::new();
        for warning in &warnings {
            let _ = writeln!(text, "{}: {}\n", warning.check, warning.diagnostic);
        }
        let _ = match (count, more) {
            (0, _) => writeln!(text, "nothing to say"),
            (1, _) => writeln!(text, "1 warning"),
            (count, 0) => writeln!(text, "{count} warnings"),
            (count, more) => writeln!(text, "{count} warnings, {more} of them not shown"),
        };
        if let Some(expected) = expected {
            let _ = writeln!(text, "it is {expected} as expected");
        }
        output::write(text.as_bytes())?;
    }
    match count {
        count if count > 0 && arguments.check => Err(Failure::new(Exit::Failed, format!("{count} warnings"))),
        _ => Ok(()),
    }
}

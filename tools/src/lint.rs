//! `fpgactl lint FILE`: verifies a program and warns about valid but suspicious code.

use std::fmt::Write as _;

use cmdseq::asm::{self, Options};
use cmdseq::{Instruction, Operation};
use fpga_select::Selector;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cards::Cards;
use crate::cli::{self, Cli};
use crate::exit::{Exit, Failure, Location, Result};
use crate::output;
use crate::source::{Loaded, Source};
use crate::verification::verify_programs;

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed<'a> {
    schema: &'static str,
    warnings: Vec<Warning<'a>>,
    /// Number of further warnings.
    more: usize,
    /// Selector of the cards for which the programs were verified.
    verified_for: Option<&'a str>,
    /// Collective that the programs compute.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<&'static str>,
}

#[derive(JsonSchema, Serialize)]
struct Warning<'a> {
    check: &'static str,
    #[serde(flatten)]
    location: Location<'a>,
}

impl<'a> From<&'a asm::Warning> for Warning<'a> {
    fn from(warning: &'a asm::Warning) -> Self {
        Warning { check: warning.check, location: Location::from(&warning.diagnostic) }
    }
}

fn needs_resident(instruction: &Instruction) -> bool {
    instruction.operation == Operation::Loop || instruction.has_arguments()
}

/// Opens a mock fabric with a card for each rank, if a fabric of this size exists.
fn mock_fabric_for(ranks: u32) -> Result<Option<Cards>> {
    let selector = format!("mock:optweb:{ranks}");
    if Selector::parse(&selector).is_err() { Ok(None) } else { Cards::open(&selector).map(Some) }
}

pub(crate) fn run(cli: &Cli, arguments: &cli::Lint) -> Result<()> {
    let source = Source::open(&arguments.program.file, arguments.program.root.as_deref())?;
    let cli::Program { ranks, allow_raw_host: raw_host, .. } = arguments.program;
    let mut options = Options { ranks, raw_host, ..Options::default() };
    // Verification depends on the cards: memory, tables, communicators. Cards that nobody names are not opened.
    let named = cli.cards.is_some().then(|| Cards::selected(cli)).transpose()?;
    options.ranks = options.ranks.or(named.as_ref().map(|cards| cards.nodes().len() as u32));
    let loaded = Loaded::Source(Box::new(source.assemble(&options)?));
    let cards = named.map_or_else(|| mock_fabric_for(loaded.assembly().ranks), |cards| Ok(Some(cards)))?;
    if let Some(cards) = &cards {
        // Only resident programs have loops and launch arguments.
        let is_resident = loaded.assembly().programs.iter().any(|one| one.instructions.iter().any(needs_resident));
        verify_programs(&loaded, cards, arguments.expect.as_ref(), is_resident)?;
    } else if arguments.expect.is_some() {
        let ranks = loaded.assembly().ranks;
        let message = format!("--expect: no mock fabric for ranks = {ranks}; select cards with --cards");
        return Err(Failure::refused(message));
    }
    let verified_for = cards.as_ref().map(|cards| cards.selector.as_str());
    let expected = arguments.expect.as_ref().map(|expected| expected.collective().name());
    let asm::Warnings { warnings, more } = source.lint(&options)?;
    let count = warnings.len() + more;
    let counted = output::counted(count as u64, "warning", "warnings");
    if cli.json {
        let warnings = warnings.iter().map(Warning::from).collect();
        output::json(&Printed { schema: "fpgactl.lint/1", warnings, more, verified_for, expected })?;
    } else {
        let mut text = String::new();
        for warning in &warnings {
            let _ = writeln!(text, "{}: {}\n", warning.check, warning.diagnostic);
        }
        let _ = match (count, more) {
            (0, _) => writeln!(text, "no warnings"),
            (_, 0) => writeln!(text, "{counted}"),
            (_, more) => writeln!(text, "{counted}, {more} not shown"),
        };
        let _ = match verified_for {
            Some(cards) => writeln!(text, "verified for {cards}"),
            None => writeln!(
                text,
                "not verified: no mock fabric for ranks = {}; select cards with --cards",
                loaded.assembly().ranks
            ),
        };
        if let Some(expected) = expected {
            let _ = writeln!(text, "computes {expected}, as expected");
        }
        output::text(&text)?;
    }
    match count {
        1.. if arguments.check => Err(Failure::new(Exit::Failed, counted)),
        _ => Ok(()),
    }
}

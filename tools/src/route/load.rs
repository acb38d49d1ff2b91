//! `fpgactl route load TABLES`: tables into the routers of all cards, at once.

use std::time::Duration;

use cmdseq::routing::Torus3;
use fpga_driver::routed::{Error, InForce, Loaded, Network};
use fpga_select::{Kind, Selector};
use schemars::JsonSchema;
use serde::Serialize;

use super::file;
use crate::cards::{self, Cards};
use crate::cli::{Cli, RouteLoad};
use crate::exit::{Exit, Failure, Result};
use crate::output;

/// Cards if none are selected and none are bound.
const DEFAULT: &str = "mock:novo-g:4x4x4";

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed<'a> {
    schema: &'static str,
    selector: &'a str,
    kind: &'static str,
    mock: bool,
    torus: [u32; 3],
    cards: u32,
    collectives: usize,
    /// Number of the tables in force.
    generation: u32,
    /// Words that were written to all cards, and read back.
    words: u64,
    hops: u64,
    link_packets_max: u64,
    bits: u64,
}

/// Opens the selected cards, for a command with time limit `timeout`.
///
/// # Errors
/// Exit code 2 for an option of mock cards without effect on their routers: only sequencers use the links that it acts on.
pub(crate) fn open_within(cli: &Cli, timeout: Duration) -> Result<Cards> {
    let text = cards::selector_or(cli, DEFAULT)?;
    if let Some(option) = Selector::parse(&text)?.link_option() {
        let why = format!("+{option} has no effect on packets of tables: use +drop");
        return Err(Failure::usage(format!("invalid selector {text:?}: {why}")));
    }
    Cards::open_within(&text, timeout)
}

pub(super) fn run(cli: &Cli, arguments: &RouteLoad) -> Result<()> {
    let tables = file::tables(&arguments.file)?;
    let cards = open_within(cli, Duration::MAX)?;
    let mut network = Network::of(&cards.cluster).map_err(failure)?;
    let Loaded { generation, report, words } = network.load(&tables).map_err(|error| match error {
        Error::Tables(error) => Failure::refused(format!("{}: {error}", arguments.file.display())),
        error => failure(error),
    })?;
    let printed = Printed {
        schema: "fpgactl.route-load/1",
        selector: &cards.selector,
        kind: cards.kind.name(),
        mock: cards.are_mock(),
        torus: tables.torus.sides(),
        cards: tables.torus.nodes(),
        collectives: tables.collectives.len(),
        generation,
        words,
        hops: report.hops,
        link_packets_max: report.link_packets_max,
        bits: report.bits,
    };
    output::print(cli.json, &printed, || text(&printed, cards.kind))
}

fn text(printed: &Printed<'_>, kind: Kind) -> String {
    let Printed { selector, cards, collectives, generation, words, bits, .. } = printed;
    let [x, y, z] = printed.torus;
    let text = format!(
        "verified: {collectives} collectives on a torus of {x} x {y} x {z}\nloaded: {bits} bits into {cards} cards, {words} words written and read \
         back\nin force on all cards: tables {generation} ({selector})\n"
    );
    if kind == Kind::Mock { text + "\n" + cards::MOCK_CARDS_NOTE } else { text }
}

/// Reads the tables in force on the selected cards: selector, torus, tables.
pub(super) fn in_force(cli: &Cli) -> Result<(String, Torus3, InForce)> {
    let cards = open_within(cli, Duration::MAX)?;
    let network = Network::of(&cards.cluster).map_err(failure)?;
    let tables = network.in_force().map_err(failure)?;
    Ok((cards.selector, network.torus(), tables))
}

/// Converts an error of the routers.
pub(crate) fn failure(error: Error) -> Failure {
    match error {
        Error::Card(error) => error.into(),
        Error::Tables(_)
        | Error::Shape { .. }
        | Error::Sources { .. }
        | Error::Compile(_)
        | Error::Mapping(_)
        | Error::Cores { .. } => Failure::chain(Exit::Refused, &error),
        Error::MissingCard { .. } => Failure::chain(Exit::NoCard, &error),
        Error::Stalled(_) => Failure::chain(Exit::Timeout, &error),
        _ => Failure::chain(Exit::Failed, &error),
    }
}

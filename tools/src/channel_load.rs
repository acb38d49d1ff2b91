//! `fpgactl channel load FILE`: places the ends of a channel definition on cards, and loads the cards'
//! routing tables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cmdseq::routing::{PortTables, Torus};
use fpga_channels::Definition;
use fpga_driver::channel::Network;
use fpga_select::{Kind, Selector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::channel::failure;
use crate::cli::{ChannelLoad, Cli, PlacedEnd};
use crate::exit::{Exit, Failure, Result};
use crate::{cards, channel, input_file, output};

/// Cards if none are selected and none are bound.
const DEFAULT: &str = "mock:circus:8x8";
const SCHEMA: &str = "fpgactl.channel-load/1";
/// Cards of ends that are not placed.
const WRITERS: u32 = 0;
const READERS: u32 = 1;
/// Names of the ports of a router, by number.
const PORTS: [&str; 5] = ["east", "west", "north", "south", "own"];
/// Most bytes of a file of tables: 256 cards with 256 ports each need less, however they are indented.
const TABLES_BYTES_MAX: u64 = 8 << 20;

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed<'a> {
    schema: &'static str,
    selector: &'a str,
    kind: &'static str,
    mock: bool,
    columns: u32,
    rows: u32,
    channels: Vec<Channel<'a>>,
    tables: Vec<Table>,
}

#[derive(JsonSchema, Serialize)]
struct Channel<'a> {
    id: u8,
    writer: End<'a>,
    reader: End<'a>,
    hops: u32,
    route: Vec<u32>,
}

#[derive(JsonSchema, Serialize)]
struct End<'a> {
    name: &'a str,
    card: u32,
}

/// The table of one card: names of ports, by destination.
#[derive(JsonSchema, Serialize)]
struct Table {
    card: u32,
    ports: Vec<&'static str>,
}

/// A file with tables: what `--json` prints, of which only the torus and the tables count.
#[derive(Deserialize)]
struct Given {
    schema: String,
    columns: u32,
    rows: u32,
    tables: Vec<GivenTable>,
}

#[derive(Deserialize)]
struct GivenTable {
    card: u32,
    ports: Vec<String>,
}

pub(crate) fn load(cli: &Cli, arguments: &ChannelLoad) -> Result<()> {
    let definition = channel::open(&arguments.file)?;
    let cards = placed(&definition, &arguments.place)?;
    let text = cards::selector_or(cli, DEFAULT)?;
    let selector = Selector::parse(&text)?;
    let functions = selector.open_channel_cards()?;
    let mut network = Network::open(functions).map_err(failure)?;
    let is_mock = network.has_mocks().map_err(failure)?;
    let torus = network.torus();
    for (name, card) in &cards {
        if *card >= torus.nodes() {
            let last = torus.nodes() - 1;
            return Err(Failure::new(Exit::NoCard, format!("no card {card} for end {name} (available: 0 to {last})")));
        }
    }
    let tables = match &arguments.tables {
        Some(path) => given(path, torus)?,
        None => torus.dimension_order(),
    };
    network.load_tables(&tables).map_err(failure)?;
    let printed = Printed {
        schema: SCHEMA,
        selector: &text,
        kind: selector.kind().name(),
        mock: is_mock,
        columns: torus.width(),
        rows: torus.height(),
        channels: channels(&definition, &cards, torus, &tables),
        tables: network.nodes().map(|card| table(&tables, card)).collect(),
    };
    output::print(cli.json, &printed, || report(&printed))
}

/// Reads tables from a file. Whether they lead from every card to every other one is checked when they are loaded.
fn given(path: &Path, torus: Torus) -> Result<PortTables> {
    let refuse = |why: String| Failure::refused(format!("{}: {why}", path.display()));
    let text = input_file::read(path, ("a file of tables", TABLES_BYTES_MAX))?;
    let given: Given = serde_json::from_slice(&text).map_err(|error| refuse(format!("invalid tables: {error}")))?;
    let Given { schema, columns, rows, tables: given } = given;
    if schema != SCHEMA {
        return Err(refuse(format!("schema {schema:?} (expected {SCHEMA:?})")));
    }
    let (width, height, nodes) = (torus.width(), torus.height(), torus.nodes());
    if (columns, rows) != (width, height) {
        return Err(refuse(format!(
            "tables of {columns} columns and {rows} rows do not fit a torus of {width} columns and {height} rows"
        )));
    }
    let mut tables = PortTables::new(nodes);
    let mut missing: BTreeSet<u32> = (0..nodes).collect();
    for GivenTable { card, ports } in given {
        if card >= nodes || ports.len() != nodes as usize {
            let entries = ports.len();
            return Err(refuse(format!(
                "invalid table of card {card}, with {entries} ports (expected cards 0 to {}, with {nodes})",
                nodes - 1
            )));
        }
        if !missing.remove(&card) {
            return Err(refuse(format!("two tables of card {card}")));
        }
        for (to, name) in (0..).zip(&ports) {
            let port = PORTS.iter().position(|known| known == name).ok_or_else(|| {
                refuse(format!("unknown port {name:?} of card {card} (available: {})", PORTS.join(", ")))
            })?;
            tables.set(card, to, Some(port as u8));
        }
    }
    if !missing.is_empty() {
        let missing: Vec<String> = missing.iter().map(u32::to_string).collect();
        return Err(refuse(format!("cards without a table: {} (expected one of each card)", missing.join(", "))));
    }
    Ok(tables)
}

/// Returns the card of each end.
fn placed<'a>(definition: &'a Definition, places: &[PlacedEnd]) -> Result<BTreeMap<&'a str, u32>> {
    let mut cards = BTreeMap::new();
    for channel in definition.channels() {
        cards.insert(channel.writer.name.as_str(), WRITERS);
        cards.insert(channel.reader.name.as_str(), READERS);
    }
    let mut given: Vec<&str> = Vec::new();
    for PlacedEnd { name, card } in places {
        if given.contains(&name.as_str()) {
            return Err(Failure::usage(format!("end {name} is placed twice")));
        }
        given.push(name);
        match cards.get_mut(name.as_str()) {
            Some(place) => *place = *card,
            None => {
                let known: Vec<&str> = cards.keys().copied().collect();
                let known = known.join(", ");
                return Err(Failure::usage(format!("no end {name} in the definition (available: {known})")));
            }
        }
    }
    Ok(cards)
}

fn channels<'a>(
    definition: &'a Definition,
    cards: &BTreeMap<&'a str, u32>,
    torus: Torus,
    tables: &PortTables,
) -> Vec<Channel<'a>> {
    let end = |end: &'a fpga_channels::End| {
        let name = end.name.as_str();
        End { name, card: cards.get(name).copied().unwrap_or(0) }
    };
    let channel = |channel: &'a fpga_channels::Channel| {
        let (writer, reader) = (end(&channel.writer), end(&channel.reader));
        let route = route(torus, tables, writer.card, reader.card);
        Channel { id: channel.id, writer, reader, hops: route.len() as u32 - 1, route }
    };
    definition.channels().iter().map(channel).collect()
}

/// The cards on the way from one card to another one, with both. The tables are checked, so each way ends.
fn route(torus: Torus, tables: &PortTables, from: u32, to: u32) -> Vec<u32> {
    let next = |at: &u32| torus.neighbour(*at, tables.port(*at, to)?.into());
    std::iter::successors(Some(from), next).collect()
}

fn table(tables: &PortTables, card: u32) -> Table {
    // The tables are checked: every entry is there, and is a port.
    let port = |port: &Option<u8>| port.and_then(|port| PORTS.get(usize::from(port))).copied().unwrap_or("own");
    Table { card, ports: tables.of(card).iter().map(port).collect() }
}

fn report(printed: &Printed<'_>) -> String {
    let rows = printed.channels.iter().map(|Channel { id, writer, reader, hops, route }| {
        let route: Vec<String> = route.iter().map(u32::to_string).collect();
        let (from, to) = (writer.card.to_string(), reader.card.to_string());
        [id.to_string(), writer.name.into(), from, reader.name.into(), to, hops.to_string(), route.join(" ")]
    });
    let mut text = output::headed(["ID", "WRITER", "CARD", "READER", "CARD", "HOPS", "ROUTE"], rows);
    let Printed { columns, rows, tables, .. } = printed;
    text += &format!(
        "\nRouting tables of {} cards, loaded: ports toward the cards of each row of the torus ({columns} columns, {rows} \
         rows);\ne east, w west, n north, s south, . own kernels\n\n",
        tables.len()
    );
    let letter = |port: &&'static str| if *port == "own" { '.' } else { port.chars().next().unwrap_or('.') };
    let rows = tables.iter().map(|table| {
        let by_row = table.ports.chunks(*columns as usize).map(|row| row.iter().map(letter).collect::<String>());
        [table.card.to_string(), by_row.collect::<Vec<_>>().join(" ")]
    });
    text += &output::headed(["CARD", "PORTS"], rows);
    if printed.kind == Kind::Mock.name() { text + "\n" + cards::MOCK_CARDS_NOTE } else { text }
}

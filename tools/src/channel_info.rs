//! What `fpgactl info` shows of cards with CIRCUS channels.

use fpga_driver::channel::{Error, Losses, Network};
use fpga_hal::Function;
use schemars::JsonSchema;
use serde::Serialize;

use crate::channel::failure;
use crate::exit::Result;
use crate::{output, readings, size};

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed<'a> {
    schema: &'static str,
    selector: &'a str,
    kind: &'static str,
    #[serde(flatten)]
    described: &'a Described,
    readings: &'a [readings::Described],
}

/// What the cards say.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Described {
    mock: bool,
    columns: u32,
    rows: u32,
    cards: Vec<Card>,
}

#[derive(JsonSchema, Serialize)]
struct Card {
    node: u32,
    register_version: String,
    packet_bytes: u32,
    payload_bytes: u32,
    word_bytes_max: u32,
    ends: u32,
    slot_bytes_max: u32,
    slots_max: u32,
    /// Whether it has a routing table.
    routed: bool,
    lost: Lost,
}

/// Packets lost since power-up, modulo 2^32.
#[derive(JsonSchema, Serialize)]
struct Lost {
    full: u32,
    no_route: u32,
    no_channel: u32,
}

/// Opens cards and reads what they say of their channels; `None` of cards without. They are free again afterwards.
pub(crate) fn describe(functions: &[Function]) -> Result<Option<Described>> {
    let network = match Network::open(functions.iter().cloned()) {
        Ok(network) => network,
        Err(Error::NoChannels { .. }) => return Ok(None),
        Err(error) => return Err(failure(error)),
    };
    let cards = network.nodes().map(|node| card(&network, node)).collect::<std::result::Result<_, _>>();
    Ok(Some(Described {
        mock: network.has_mocks().map_err(failure)?,
        columns: network.torus().width(),
        rows: network.torus().height(),
        cards: cards.map_err(failure)?,
    }))
}

fn card(network: &Network, node: u32) -> std::result::Result<Card, Error> {
    let limits = network.limits(node)?;
    let (major, minor) = limits.version;
    let Losses { full, no_route, no_channel } = network.losses(node)?;
    Ok(Card {
        node,
        register_version: format!("{major}.{minor}"),
        packet_bytes: limits.packet_bytes,
        payload_bytes: limits.payload_bytes,
        word_bytes_max: limits.word_bytes,
        ends: limits.ends,
        slot_bytes_max: limits.slot_bytes,
        slots_max: limits.slots,
        routed: network.is_routed(node)?,
        lost: Lost { full, no_route, no_channel },
    })
}

/// Prints what the cards say, and the readings of each.
pub(crate) fn print(
    described: &Described,
    readings: &[readings::Described],
    selector: &str,
    kind: &'static str,
    json: bool,
) -> Result<()> {
    match json {
        true => output::json(&Printed { schema: "fpgactl.info-channels/1", selector, kind, described, readings }),
        false => output::text(&(text(described, selector) + &readings_text(readings))),
    }
}

fn readings_text(readings: &[readings::Described]) -> String {
    match readings {
        [card] => "\n".to_owned() + &readings::text(card),
        cards => readings::alarms(cards),
    }
}

fn text(described: &Described, selector: &str) -> String {
    let Described { mock, columns, rows, cards } = described;
    let what = if *mock { "mock cards with CIRCUS channels" } else { "cards with CIRCUS channels" };
    let mut text = format!("{selector}: {} of {} {what}\n\n", cards.len(), columns * rows);
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    if let Some(first) = cards.first() {
        text += &output::table(&[
            row("registers", format!("version {}", first.register_version)),
            row("network", format!("torus of {columns} columns and {rows} rows")),
            row("packet", format!("{} B, of which {} B are words", first.packet_bytes, first.payload_bytes)),
            row("words", format!("at most {} B", first.word_bytes_max)),
            row("ends", format!("{} for the host of each card", first.ends)),
            row("ring", format!("at most {} slots of {}", first.slots_max, size::show(first.slot_bytes_max.into()))),
        ]);
    }
    let heads = ["CARD", "ROUTING TABLE", "LOST: BUFFER FULL", "NO ROUTE", "NO READER"];
    let card = |card: &Card| {
        let table = if card.routed { "loaded" } else { "none" };
        let [full, no_route, no_channel] =
            [card.lost.full, card.lost.no_route, card.lost.no_channel].map(|count| count.to_string());
        [card.node.to_string(), table.to_owned(), full, no_route, no_channel]
    };
    text + "\n" + &output::headed(heads, cards.iter().map(card))
}

//! `fpgactl list`. Opens no card: opening resets the card.

use std::cell::LazyCell;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use fpga_hal::sysfs::{PciFunction, Sysfs};
use fpga_select::{Kind, Selector};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::{self, Cli};
use crate::exit::{Exit, Failure, Result};
use crate::functions::{self, Owner, State};
use crate::known::{self, Sequencer};
use crate::unix_sockets::{self, Behind, Table};
use crate::{cards, output};

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed {
    schema: &'static str,
    cards: Vec<Card>,
}

#[derive(JsonSchema, Serialize)]
struct Card {
    selector: String,
    kind: &'static str,
    driver: String,
    state: &'static str,
    sequencer: &'static str,
    /// Name by PCI ids.
    name: Option<&'static str>,
    owner: Option<Owner>,
    #[serde(skip)]
    shown: String,
}

pub(crate) fn run(cli: &Cli, arguments: &cli::List) -> Result<()> {
    let sysfs = functions::sysfs(cli);
    let selector = Selector::parse(cards::given(cli)?.unwrap_or(fpga_select::DEFAULT))?;
    let mut cards = Vec::new();
    // Without a selector, list all cards.
    if cli.cards.is_none() {
        let listing = sysfs.functions()?;
        listing.unread.iter().for_each(|error| log::warn!("{error}"));
        let is_listed = |function: &&PciFunction| {
            known::name(function).is_some() || (arguments.all && known::may_be_card(function))
        };
        cards.extend(listing.functions.iter().filter(is_listed).map(|function| pci_card(&sysfs, function)));
    }
    for address in selector.addresses() {
        cards.push(pci_card(&sysfs, &functions::find(&sysfs, address)?));
    }
    let table = LazyCell::new(|| Table::read(sysfs.root()));
    for socket in selector.sockets() {
        cards.push(socket_card(socket, &table, selector.sockets().len() == 1)?);
    }
    cards.extend(selector.mock_selectors().into_iter().map(mock_card));
    if cli.json {
        return output::json(&Printed { schema: "fpgactl.list/1", cards });
    }
    let are_real = cards.iter().any(|card| card.kind == Kind::Vfio.name());
    let mut heads = ["CARD", "KIND", "DRIVER", "STATE"].map(String::from).to_vec();
    if are_real {
        heads.extend(["SEQUENCER", "NAME"].map(String::from));
    }
    let mut rows = vec![heads];
    rows.extend(cards.into_iter().map(|card| {
        let mut row = vec![card.selector, card.kind.to_owned(), card.driver, card.shown];
        if are_real {
            row.extend([card.sequencer.to_owned(), card.name.unwrap_or_default().to_owned()]);
        }
        row
    }));
    let note = if are_real { NOT_ON_HARDWARE } else { "" };
    output::text(&(output::table(&rows) + note))
}

/// Printed with every list that contains a real card.
const NOT_ON_HARDWARE: &str = "note: not tested on a real card yet; no image with the sequencer ships (README.md)\n";

fn mock_card(selector: String) -> Card {
    Card { sequencer: Sequencer::Mock.name(), ..card(selector, Kind::Mock, "in-process", &State::Free) }
}

/// Describes a card on a vfio-user socket. The only one of a selector must be one; of several, the others are listed nevertheless.
fn socket_card(socket: &Path, table: &Table, is_only_one: bool) -> Result<Card> {
    let named = |error: std::io::Error| Failure::new(Exit::NoCard, format!("{}: {error}", socket.display()));
    if !socket.metadata().map_err(named)?.file_type().is_socket() {
        return Err(Failure::new(Exit::NoCard, format!("{}: not a socket", socket.display())));
    }
    let selector = format!("vfio-user:{}", socket.display());
    let state = match unix_sockets::behind(socket, table) {
        Ok(Behind::Server) => State::Free,
        Ok(Behind::Denied) => State::Denied,
        Ok(Behind::OtherType) if is_only_one => {
            return Err(Failure::new(Exit::NoCard, format!("{}: not a stream socket", socket.display())));
        }
        Err(error) if is_only_one => return Err(named(error)),
        Ok(Behind::Deaf | Behind::Nobody | Behind::OtherType) | Err(_) => State::Silent,
    };
    let mut card = card(selector, Kind::VfioUser, "socket", &state);
    if table.has_client(socket) {
        // `/proc/net/unix` does not name the process.
        (card.state, card.shown) = ("held", "held".to_owned());
    }
    Ok(card)
}

fn card(selector: String, kind: Kind, driver: &str, state: &State) -> Card {
    Card {
        selector,
        kind: kind.name(),
        driver: driver.to_owned(),
        state: state.name(),
        sequencer: Sequencer::Unknown.name(),
        name: None,
        owner: state.owner(),
        shown: state.text(),
    }
}

fn pci_card(sysfs: &Sysfs, function: &PciFunction) -> Card {
    let (state, driver) = (State::of(sysfs, function), functions::driver(function));
    let selector = format!("vfio:{}", function.address);
    Card {
        sequencer: known::sequencer(function).name(),
        name: known::name(function),
        ..card(selector, Kind::Vfio, &driver, &state)
    }
}

//! `fpgactl list`. Opens nothing: opening a card resets it.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use fpga_hal::sysfs::{PciFunction, Sysfs};
use fpga_select::{Kind, Selector};
use serde::Serialize;

use crate::cli::{self, Cli};
use crate::exit::{Exit, Failure, Result};
use crate::functions::{self, Owner, State};
use crate::{known, output};

#[derive(Serialize)]
struct Printed {
    schema: &'static str,
    cards: Vec<Card>,
}

#[derive(Serialize)]
struct Card {
    selector: String,
    kind: &'static str,
    driver: String,
    state: &'static str,
    /// What its PCI ids say it is.
    name: Option<&'static str>,
    owner: Option<Owner>,
    #[serde(skip)]
    shown: String,
}

pub(crate) fn run(cli: &Cli, arguments: &cli::List) -> Result<()> {
    let sysfs = functions::sysfs(cli);
    let selector = Selector::parse(&cli.cards)?;
    let mut cards = Vec::new();
    // Cards that were named are the ones to list; without that, all there are.
    if cli.cards == fpga_select::DEFAULT {
        let listing = sysfs.functions()?;
        listing.unread.iter().for_each(|error| log::warn!("{error}"));
        let is_listed = |function: &&PciFunction| {
            known::name(function).is_some() || (arguments.all && known::may_be_card(function))
        };
        cards.extend(listing.functions.iter().filter(is_listed).map(|function| real(&sysfs, function)));
    }
    for address in selector.addresses() {
        cards.push(real(&sysfs, &functions::find(&sysfs, address)?));
    }
    for socket in selector.sockets() {
        cards.push(served(socket)?);
    }
    cards.extend(mock(&selector, &cli.cards));
    if cli.json {
        return output::json(&Printed { schema: "fpgactl.list/1", cards });
    }
    let has_names = cards.iter().any(|card| card.name.is_some());
    let mut heads = ["CARD", "KIND", "DRIVER", "STATE"].map(String::from).to_vec();
    heads.extend(has_names.then(|| "NAME".to_owned()));
    let mut rows = vec![heads];
    rows.extend(cards.into_iter().map(|card| {
        let name = card.name.unwrap_or_default().to_owned();
        vec![card.selector, card.kind.to_owned(), card.driver, card.shown, name]
    }));
    output::write(output::table(&rows).as_bytes())
}

fn mock(selector: &Selector, text: &str) -> impl Iterator<Item = Card> {
    let fabric = text.split('+').next().unwrap_or_default();
    let nodes = selector.profile().map_or(0, |profile| profile.nodes);
    (0..nodes).map(move |node| free(format!("{fabric}/{node}"), Kind::Mock, "in-process"))
}

/// A socket that is there. Whether another has the card behind it cannot be seen without opening it.
fn served(socket: &Path) -> Result<Card> {
    let named = |error: std::io::Error| Failure::new(Exit::NoCard, format!("{}: {error}", socket.display()));
    if !socket.metadata().map_err(named)?.file_type().is_socket() {
        return Err(Failure::new(Exit::NoCard, format!("{} is not a socket", socket.display())));
    }
    Ok(free(format!("vfio-user:{}", socket.display()), Kind::VfioUser, "socket"))
}

fn free(selector: String, kind: Kind, driver: &str) -> Card {
    Card {
        selector,
        kind: kind.name(),
        driver: driver.to_owned(),
        state: State::Free.name(),
        name: None,
        owner: None,
        shown: State::Free.text(),
    }
}

fn real(sysfs: &Sysfs, function: &PciFunction) -> Card {
    let state = State::of(sysfs, function);
    Card {
        selector: format!("vfio:{}", function.address),
        kind: Kind::Vfio.name(),
        driver: functions::driver(function),
        state: state.name(),
        name: known::name(function),
        owner: state.owner(),
        shown: state.text(),
    }
}

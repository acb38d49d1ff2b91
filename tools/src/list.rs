//! `fpgactl list`. Opens nothing: opening a card resets it.

use fpga_select::Selector;
use serde::Serialize;

use crate::cli::Cli;
use crate::exit::Result;
use crate::output;

#[derive(Serialize)]
struct Printed {
    schema: &'static str,
    cards: Vec<Card>,
}

#[derive(Serialize)]
struct Card {
    selector: String,
    kind: &'static str,
    driver: &'static str,
    state: &'static str,
}

pub(crate) fn run(cli: &Cli) -> Result<()> {
    let selector = Selector::parse(&cli.cards)?;
    let fabric = cli.cards.split('+').next().unwrap_or_default();
    let card = |node| Card {
        selector: format!("{fabric}/{node}"),
        kind: selector.kind().name(),
        driver: "in-process",
        state: "free",
    };
    let cards: Vec<Card> = (0..selector.profile().nodes).map(card).collect();
    if cli.json {
        return output::json(&Printed { schema: "fpgactl.list/1", cards });
    }
    let mut rows = vec![["CARD", "KIND", "DRIVER", "STATE"].map(String::from).to_vec()];
    rows.extend(
        cards
            .into_iter()
            .map(|card| vec![card.selector, card.kind.to_owned(), card.driver.to_owned(), card.state.to_owned()]),
    );
    output::write(output::table(&rows).as_bytes())
}

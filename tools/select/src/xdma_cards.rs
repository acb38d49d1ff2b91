//! Mock cards with an XDMA engine: `mock:alveo-xdma:COUNT[/NUMBER]`.

use std::sync::Arc;

use fpga_hal::{Domain, Endpoint, Function, in_process};
use fpga_mock::xdma::{Shape, XdmaCards};

use crate::error::Error;

/// What selectors of these cards begin with.
pub(crate) const PREFIX: &str = "mock:alveo-xdma:";
/// Most cards.
const CARDS_MAX: u32 = 64;

/// Mock cards with an engine, and no fabric between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct XdmaMock {
    count: u32,
    /// Numbers of the selected cards.
    pub(crate) selected: Vec<u32>,
}

impl XdmaMock {
    /// Parses what follows [`PREFIX`] in the selector `text`.
    pub(crate) fn parse(text: &str, rest: &str) -> Result<Self, Error> {
        let syntax = |why: String| Error::Syntax { selector: text.into(), why };
        let (count, number) = rest.split_once('/').map_or((rest, None), |(count, number)| (count, Some(number)));
        let number_of = |text: &str| {
            text.parse::<u32>()
                .map_err(|_| syntax(format!("expected {PREFIX}COUNT or {PREFIX}COUNT/NUMBER, found {text:?}")))
        };
        let (count, number) = (number_of(count)?, number.map(number_of).transpose()?);
        let no_card = |why| Error::NoCard { selector: text.into(), why };
        if !(1..=CARDS_MAX).contains(&count) {
            return Err(no_card(format!("{count} cards: expected 1 to {CARDS_MAX}")));
        }
        match number {
            Some(number) if number >= count => {
                Err(no_card(format!("no card {number} (available: 0 to {})", count - 1)))
            }
            Some(number) => Ok(XdmaMock { count, selected: vec![number] }),
            None => Ok(XdmaMock { count, selected: (0..count).collect() }),
        }
    }

    /// Returns the selector of one card.
    pub(crate) fn selector(&self, number: u32) -> String {
        format!("{PREFIX}{}/{number}", self.count)
    }

    /// Creates the cards and returns the selected ones by number, not attached to a bus.
    pub(crate) fn endpoints(&self) -> Vec<(u32, Arc<dyn Endpoint>)> {
        let cards = XdmaCards::new(self.count, Shape::default());
        self.selected.iter().map(|number| (*number, cards.endpoint(*number))).collect()
    }

    /// Opens the selected cards.
    pub(crate) fn open(&self) -> Result<Vec<Function>, Error> {
        let domain = Domain::in_process();
        let attach = |(number, card)| {
            let name = self.selector(number);
            in_process::attach(card, &domain, &name).map_err(|source| Error::Open { selector: name, source })
        };
        self.endpoints().into_iter().map(attach).collect()
    }
}

//! Cards with CIRCUS channels.

use fpga_hal::{Domain, Function, in_process};
use fpga_mock::circus::Design;
use fpga_mock::{ChannelCards, System, circus};

use crate::error::Error;
use crate::mock_cards::MockCards;
use crate::selector::{Cards, NodeEndpoint, Selector};

/// Bits of a packet's destination for more cards than the published network has.
const WIDE_DESTINATION_BITS: u32 = 8;

impl Selector {
    /// Opens cards with channels: a mock fabric `mock:circus:SHAPE` without options or faults, or other cards as
    /// [`open`](Selector::open) does.
    ///
    /// # Errors
    /// [`Error::Syntax`] for other mock fabrics, and for a torus that is too large; [`Error::NoCard`] for cards that cannot be built;
    /// [`Error::Open`].
    pub fn open_channel_cards(&self) -> Result<Vec<Function>, Error> {
        let Cards::Mock(mock) = &self.cards else { return Ok(self.open()?.functions) };
        let domain = Domain::in_process();
        let attach = |(node, card)| {
            let name = mock.selector(node);
            in_process::attach(card, &domain, &name).map_err(|source| Error::Open { selector: name, source })
        };
        self.channel_endpoints()?.into_iter().map(attach).collect()
    }

    /// Creates mock cards with channels and returns the selected ones by node, not attached to a bus.
    ///
    /// # Errors
    /// [`Error::NotMock`] for other cards; else as [`open_channel_cards`](Self::open_channel_cards).
    pub fn channel_endpoints(&self) -> Result<Vec<NodeEndpoint>, Error> {
        let Some(mock) = self.mock() else { return Err(Error::NotMock { selector: self.text().to_owned() }) };
        let cards = self.channel_cards(mock)?;
        Ok(mock.selected().into_iter().map(|node| (node, cards.endpoint(node))).collect())
    }

    fn channel_cards(&self, mock: &MockCards) -> Result<ChannelCards, Error> {
        let selector = || self.text().to_owned();
        let syntax = |why: &str| Error::Syntax { selector: selector(), why: why.into() };
        let no_card = |why: String| Error::NoCard { selector: selector(), why };
        let torus = match mock.profile.torus() {
            Some(torus) if mock.profile.system == System::Circus => {
                let shape =
                    "invalid shape: cards with channels have 1 to 16 rows and columns, and there are at least two";
                torus.map_err(|_| syntax(shape))?
            }
            _ => return Err(syntax("expected cards with channels, such as mock:circus:8x8")),
        };
        if !mock.is_plain() {
            return Err(syntax("expected cards without options and faults, such as mock:circus:8x8"));
        }
        let mut profile = circus::Profile::published();
        if torus.nodes() > 1 << profile.destination_bits {
            profile.destination_bits = WIDE_DESTINATION_BITS;
        }
        ChannelCards::new(&profile, Design::new(torus)).map_err(|error| no_card(error.to_string()))
    }
}

//! The cards of a network that this process holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use cmdseq::routing::{PortTables, Torus};
use fpga_hal::Function;
use fpga_regs::channel as registers;

use crate::channel::card::{Card, Limits, says_model};
use crate::channel::end::Settings;
use crate::channel::error::{Error, Result};
use crate::channel::reader::Reader;
use crate::channel::writer::Writer;
use crate::error::Error as CardError;

/// Packets that a card has lost, modulo 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// The buffer of an input of the router was full: nothing held the sender back.
    pub full: u32,
    /// The router's table has no entry for their destination.
    pub no_route: u32,
    /// No open end and no kernel of the card reads their channel; or the one that does misses packets before them in their
    /// message.
    pub no_channel: u32,
}

/// The cards of a network that this process holds: all of them, or those of this host.
///
/// Ends keep their card in use. So a network may be dropped before its writers and readers.
#[derive(Debug)]
pub struct Network {
    cards: BTreeMap<u32, Arc<Card>>,
    torus: Torus,
}

impl Network {
    /// Takes cards into use, in any order. Ends that were left open are closed.
    ///
    /// # Errors
    /// [`Error::NoChannels`] for a card without channels; [`crate::Error::Mismatch`] for cards of different networks, and for
    /// two with one number; [`crate::Error::BadArgument`] without cards; the cards'.
    pub fn open(functions: impl IntoIterator<Item = Function>) -> Result<Self> {
        let mut cards: BTreeMap<u32, Arc<Card>> = BTreeMap::new();
        let mut torus: Option<(u32, Torus)> = None;
        for function in functions {
            let card = Card::open(function)?;
            let (node, (first, known)) = (card.node, *torus.get_or_insert((card.node, card.torus)));
            let mismatch = |other, what| Error::Card(CardError::Mismatch { node, other, what });
            if known != card.torus {
                let shape = |torus: Torus| format!("{} columns and {} rows", torus.width(), torus.height());
                return Err(mismatch(first, format!("their networks have {} and {}", shape(card.torus), shape(known))));
            }
            if cards.contains_key(&node) {
                return Err(mismatch(node, "two cards have this number".into()));
            }
            cards.insert(node, Arc::new(card));
        }
        match torus {
            Some((_, torus)) => Ok(Network { cards, torus }),
            None => Err(CardError::argument("number of cards", 0, "at least one card").into()),
        }
    }

    /// Returns the shape of the network.
    pub fn torus(&self) -> Torus {
        self.torus
    }

    /// Returns whether any card held here is a mock. A card says so itself, whatever its PCI ids are.
    ///
    /// # Errors
    /// The cards'.
    pub fn has_mocks(&self) -> Result<bool> {
        for card in self.cards.values() {
            if says_model(&card.block)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the nodes of the cards held here, in order.
    pub fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.cards.keys().copied()
    }

    /// Returns what the card `node` says of its channels. `ends` are those that the host has interrupts for, `slot_bytes` and
    /// `slots` those that this driver uses.
    ///
    /// # Errors
    /// [`crate::Error::BadArgument`] for a card that is not held here.
    pub fn limits(&self, node: u32) -> Result<Limits> {
        Ok(self.card(node)?.limits)
    }

    /// Returns whether the card `node` has a routing table.
    ///
    /// # Errors
    /// [`crate::Error::BadArgument`] for a card that is not held here; the card's.
    pub fn is_routed(&self, node: u32) -> Result<bool> {
        self.card(node)?.is_routed()
    }

    /// Loads routing tables in order of dimensions: see [`Torus::dimension_order`].
    ///
    /// # Errors
    /// As [`load_tables`](Network::load_tables).
    pub fn load(&mut self) -> Result<()> {
        self.load_tables(&self.torus.dimension_order())
    }

    /// Loads routing tables on the cards held here. Load them before ends are opened: packets that are on their way may get
    /// lost. A card keeps its table over resets of its function.
    ///
    /// # Errors
    /// [`Error::Route`] if the tables do not lead from every node to every other one. Nothing is loaded then.
    /// [`Error::RouteLost`]; the cards'.
    pub fn load_tables(&mut self, tables: &PortTables) -> Result<()> {
        tables.check(self.torus)?;
        for (node, card) in &self.cards {
            let entries = (0..).zip(tables.of(*node));
            let place = |to: u32| registers::ROUTES_OFFSET + 4 * to;
            let value = |port: &Option<u8>| port.map_or(registers::NO_ROUTE, u32::from);
            for (to, port) in entries.clone() {
                card.block.write(place(to), value(port))?;
            }
            for (to, port) in entries {
                let (written, found) = (value(port), card.block.read_present(place(to))?);
                if found != written {
                    return Err(Error::RouteLost { name: card.name().to_owned(), to, written, found });
                }
            }
        }
        for card in self.cards.values() {
            card.block.write(registers::ROUTES_LOAD, registers::LOAD_VALUE)?;
            routed(card)?;
        }
        Ok(())
    }

    /// Opens an end at which the host of card `from` writes, to a reader on card `to`: a program of its host, which has opened
    /// the channel with [`reader`](Network::reader), or a kernel. What is written before somebody reads the channel is lost.
    ///
    /// # Errors
    /// [`Error::NotRouted`], [`Error::NoEnd`], [`Error::Refused`]; [`crate::Error::BadArgument`] for settings that the card does
    /// not have, and for cards that are not held here; the card's.
    pub fn writer(&self, from: u32, to: u32, settings: Settings) -> Result<Writer> {
        let card = self.card(from)?;
        if to >= self.torus.nodes() {
            return Err(CardError::argument("node", to, format!("below {}", self.torus.nodes())).into());
        }
        routed(card)?;
        Writer::open(card, to, settings)
    }

    /// Opens an end at which the host of card `node` reads. A channel has one reader on each card.
    ///
    /// # Errors
    /// As [`writer`](Network::writer).
    pub fn reader(&self, node: u32, settings: Settings) -> Result<Reader> {
        let card = self.card(node)?;
        routed(card)?;
        Reader::open(card, settings)
    }

    /// Reads what the card `node` has lost since power-up.
    ///
    /// # Errors
    /// [`crate::Error::BadArgument`] for a card that is not held here; the card's.
    pub fn losses(&self, node: u32) -> Result<Losses> {
        let card = self.card(node)?;
        // A count may be all-ones: another register shows whether the card answers.
        card.is_routed()?;
        Ok(Losses {
            full: card.block.read(registers::LOST_FULL)?,
            no_route: card.block.read(registers::LOST_NO_ROUTE)?,
            no_channel: card.block.read(registers::LOST_NO_CHANNEL)?,
        })
    }

    fn card(&self, node: u32) -> Result<&Arc<Card>> {
        self.cards.get(&node).ok_or_else(|| {
            let held: Vec<String> = self.nodes().map(|node| node.to_string()).collect();
            CardError::argument("node", node, format!("a card held here: {}", held.join(", "))).into()
        })
    }
}

/// Makes sure that a card has a routing table.
fn routed(card: &Card) -> Result<()> {
    match card.is_routed()? {
        true => Ok(()),
        false => Err(Error::NotRouted { name: card.name().to_owned() }),
    }
}

//! Finds out why a network stands still: who waits for whom, and whether that is a circle.

use std::fmt;

use cmdseq::routing::Torus;

use crate::engine::{ComponentId, World};
use crate::net::router::Why;
use crate::proto::circus::build::Places;
use crate::proto::circus::card::Card;
use crate::proto::circus::design::ChannelId;
use crate::proto::circus::kernels::Module;

/// Where data waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the buffer of a router's input.
    Input {
        /// The card.
        node: u32,
        /// Name of the input.
        port: &'static str,
        /// Virtual channel of the link.
        virtual_channel: usize,
    },
    /// At the reading end of a channel.
    Reader {
        /// The card.
        node: u32,
        /// The channel; `None` for an id that the card does not have.
        channel: Option<ChannelId>,
    },
}

/// A network in which nothing happens although data is under way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Stall {
    /// Each place that waits, and the place that it waits for.
    pub waits: Vec<(Place, Place)>,
    /// Places that wait for each other in a circle, each for the next one and the last for the first; empty if there is none.
    pub circle: Vec<Place>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Input { node, port, virtual_channel } => {
                write!(f, "input {port} of card {node} (virtual channel {virtual_channel})")
            }
            Place::Reader { node, channel: Some(ChannelId(channel)) } => {
                write!(f, "the reader of channel {channel} on card {node}")
            }
            Place::Reader { node, channel: None } => write!(f, "a reader on card {node}"),
        }
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(first) = self.circle.first() {
            write!(f, "deadlock: {first}")?;
            for place in self.circle.iter().skip(1).chain([first]) {
                write!(f, " waits for {place}")?;
            }
            return Ok(());
        }
        let end = |(_, to): &&(Place, Place)| !self.waits.iter().any(|(from, _)| from == to);
        match self.waits.iter().find(end) {
            Some((from, to)) => write!(f, "standstill: {from} waits for {to}, which takes nothing"),
            None => write!(f, "standstill: a kernel or the host takes nothing"),
        }
    }
}

/// Returns who waits for whom.
pub(crate) fn find(world: &World<Card>, cards: &[ComponentId], torus: Torus, places: &[Places]) -> Stall {
    let mut waits = Vec::new();
    for (node, id) in (0..).zip(cards) {
        let card = world.get(*id);
        let input = |node, port, virtual_channel| Place::Input { node, port: Torus::port_name(port), virtual_channel };
        for wait in card.router().waits() {
            let from = input(node, wait.input, wait.virtual_channel);
            let behind = torus.neighbour(node, wait.output);
            let to = match (wait.why, behind) {
                (Why::Held(port, virtual_channel), _) => input(node, port, virtual_channel),
                (_, Some(there)) => input(there, wait.output ^ 1, wait.output_channel),
                (_, None) => Place::Reader { node, channel: reader(card, node, places) },
            };
            waits.push((from, to));
        }
    }
    Stall { circle: circle(&waits), waits }
}

/// The channel whose reader the demultiplexer of a card waits for.
fn reader(card: &Card, node: u32, places: &[Places]) -> Option<ChannelId> {
    let held = card.kernels.modules().iter().find_map(|module| match module {
        Module::Demultiplexer(demultiplexer) => demultiplexer.held,
        _ => None,
    });
    let id = held.or(card.wires.arriving.front().map(|arriving| arriving.1))?.channel;
    places.iter().position(|place| place.to == node && place.id == id).map(ChannelId)
}

/// Returns the places of a circle. Each place waits for one other.
fn circle(waits: &[(Place, Place)]) -> Vec<Place> {
    let next = |place: &Place| waits.iter().find(|(from, _)| from == place).map(|(_, to)| *to);
    for (from, _) in waits {
        let mut path = vec![*from];
        while let Some(to) = path.last().and_then(next) {
            if let Some(begin) = path.iter().position(|place| *place == to) {
                return path.split_off(begin);
            }
            path.push(to);
        }
    }
    Vec::new()
}

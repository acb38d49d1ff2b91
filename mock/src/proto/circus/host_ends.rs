//! Ends of channels that hosts open and close while the network runs.

use cmdseq::routing::PortTables;

use crate::engine::ComponentId;
use crate::profile::circus::Profile;
use crate::proto::circus::build::{HOST_WORDS, HostEnd, PACKETS};
use crate::proto::circus::card::Message;
use crate::proto::circus::design::Design;
use crate::proto::circus::fifo::{Fifo, Traffic};
use crate::proto::circus::kernels::{Demultiplexer, Module, Receive, Send, Sink, Source};
use crate::proto::circus::network::{BuildError, Network};

/// What the host does at an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// It writes to the network, to this node.
    Writes(u32),
    /// It reads from the network.
    Reads,
}

/// Packets that a card has lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LossCounts {
    pub(crate) full: u64,
    pub(crate) no_route: u64,
    /// No reader, or one that misses packets before them in their message.
    pub(crate) no_channel: u64,
}

impl Network {
    /// Builds a network of cards with `ends` ends for their hosts each. Its routers have no tables.
    pub(crate) fn for_hosts(profile: &Profile, design: Design, ends: usize) -> Result<Self, BuildError> {
        let empty = PortTables::new(design.torus.nodes());
        Network::build(profile, design, &empty, ends)
    }

    /// Replaces the routing table of a card.
    pub(crate) fn set_routes(&mut self, node: usize, table: Vec<Option<u8>>) {
        let card = self.cards[node];
        self.world.get_mut(card).router_mut().set_table(table);
    }

    /// Opens an end of a card. Returns `false` if the channel has a reader already, or if words of the end's last stream are
    /// still to be sent.
    pub(crate) fn open(
        &mut self,
        (node, end): (usize, usize),
        direction: Direction,
        id: u8,
        word_bytes: usize,
    ) -> bool {
        if self.is_draining(node, end) {
            return false;
        }
        let (card, place, cycles) = (self.cards[node], self.host_ends[node][end], self.channel_kernel_cycles);
        let (at_host, at_network) = match direction {
            Direction::Writes(to) => (
                Module::Source(Source::new(place.words, word_bytes)),
                Module::Send(Send::new((place.words, place.outward), (to, id), cycles)),
            ),
            Direction::Reads => {
                let Some(demultiplexer) = self.demultiplexer(card) else { return false };
                let to = &mut demultiplexer.to;
                to.resize(to.len().max(usize::from(id) + 1), None);
                if to[usize::from(id)].is_some() {
                    return false;
                }
                to[usize::from(id)] = Some(place.inward);
                (
                    Module::Sink(Sink::new(place.words, 0)),
                    Module::Receive(Receive::new((place.inward, place.words), word_bytes, cycles)),
                )
            }
        };
        self.replace(card, place, at_host, at_network);
        true
    }

    /// Closes an end. What the card has of a stream that was written is still sent, as the end of a message; what it has of
    /// one that was read is dropped.
    pub(crate) fn close(&mut self, node: usize, end: usize) {
        let (card, place) = (self.cards[node], self.host_ends[node][end]);
        if let Module::Source(source) = self.module(card, place.at_host) {
            if source.is_within {
                source.push(&[], true);
            }
            return;
        }
        if let Some(demultiplexer) = self.demultiplexer(card) {
            demultiplexer.to.iter_mut().filter(|to| **to == Some(place.inward)).for_each(|to| *to = None);
        }
        self.replace(card, place, Module::Idle, Module::Idle);
    }

    /// Adds bytes of words to an end that writes; the last word may end a message.
    pub(crate) fn give(&mut self, node: usize, end: usize, bytes: &[u8], is_last: bool) {
        let (card, place) = (self.cards[node], self.host_ends[node][end]);
        if let Module::Source(source) = self.module(card, place.at_host) {
            source.push(bytes, is_last);
        }
    }

    /// Returns the bytes that an end has not put into the network.
    pub(crate) fn held(&self, node: usize, end: usize) -> usize {
        let (card, place) = (self.cards[node], self.host_ends[node][end]);
        match &self.world.get(card).kernels.modules()[place.at_host] {
            Module::Source(source) => source.bytes.len(),
            _ => 0,
        }
    }

    /// Takes up to `most` bytes that have arrived at an end that reads.
    pub(crate) fn take_from(&mut self, node: usize, end: usize, most: usize) -> Vec<u8> {
        let (card, place) = (self.cards[node], self.host_ends[node][end]);
        match &mut self.world.get_mut(card).kernels.modules_mut()[place.at_host] {
            Module::Sink(sink) => {
                let bytes = most.min(sink.received.len());
                sink.received.drain(..bytes).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Sets how many bytes an end that reads holds, rounded up to a word, until they are taken.
    pub(crate) fn set_room(&mut self, node: usize, end: usize, bytes: usize) {
        let (card, place) = (self.cards[node], self.host_ends[node][end]);
        let grows = match &mut self.world.get_mut(card).kernels.modules_mut()[place.at_host] {
            Module::Sink(sink) => std::mem::replace(&mut sink.most, bytes) < bytes,
            _ => false,
        };
        if grows {
            self.world.post(card, self.world.now(), Message::Host);
        }
    }

    /// Handles up to `most` events, and returns how many there were.
    pub(crate) fn run_some(&mut self, most: usize) -> usize {
        (0..most).take_while(|_| self.world.step()).count()
    }

    /// Returns what a card has lost.
    pub(crate) fn losses_of(&self, node: usize) -> LossCounts {
        let card = self.world.get(self.cards[node]);
        let router = card.router().counters;
        let no_channel = card.wires.lost_no_channel + card.wires.lost_cut;
        LossCounts { full: router.lost_full, no_route: router.lost_no_route, no_channel }
    }

    /// Returns whether a closed end still has words to send.
    fn is_draining(&self, node: usize, end: usize) -> bool {
        let (card, place) = (self.world.get(self.cards[node]), self.host_ends[node][end]);
        let modules = card.kernels.modules();
        match (&modules[place.at_host], &modules[place.at_network]) {
            (Module::Source(source), Module::Send(send)) => {
                !source.is_empty()
                    || !send.is_empty()
                    || card.wires.words[place.words].0.len() > 0
                    || card.wires.packets[place.outward].len() > 0
            }
            _ => false,
        }
    }

    fn demultiplexer(&mut self, card: ComponentId) -> Option<&mut Demultiplexer> {
        self.world.get_mut(card).kernels.modules_mut().iter_mut().find_map(|module| match module {
            Module::Demultiplexer(demultiplexer) => Some(demultiplexer),
            _ => None,
        })
    }

    /// Puts other modules at an end, with empty FIFOs.
    fn replace(&mut self, card: ComponentId, place: HostEnd, at_host: Module, at_network: Module) {
        *self.module(card, place.at_network) = at_network;
        *self.module(card, place.at_host) = at_host;
        let wires = &mut self.world.get_mut(card).wires;
        wires.words[place.words] = (Fifo::new(HOST_WORDS), Traffic::default());
        wires.packets[place.inward] = Fifo::new(PACKETS);
    }
}

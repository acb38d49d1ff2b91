//! A network of cards as its host sees it.

use cmdseq::routing::{PortTables, RouteError, Torus};

use crate::engine::{Clock, ComponentId, Time, World};
use crate::net::flit::FLIT_BYTES;
use crate::net::noise::BitErrors;
use crate::net::replay::{InOrder, Window};
use crate::net::router::{Port, Router, RouterCounters, Settings};
use crate::net::serial::{Framing, Transmitter};
use crate::profile::circus::{PACKET_BYTES, Profile};
use crate::proto::circus::build::{Built, HostEnd, Places, build};
use crate::proto::circus::card::{Card, Line, Message};
use crate::proto::circus::design::{ChannelId, Design};
use crate::proto::circus::fifo::Traffic;
use crate::proto::circus::kernels::{Module, Sink};
use crate::proto::circus::packet::Format;
use crate::proto::circus::stall::{self, Stall};

/// Refusal of a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// A packet's header cannot name all cards.
    #[error("too many cards: {nodes} (a destination of {bits} bits names {})", 1_u64 << bits)]
    Nodes {
        /// Cards of the network.
        nodes: u32,
        /// Bits of the destination.
        bits: u32,
    },
    /// A value of the profile that no network can have.
    #[error("invalid {0} in the profile")]
    Profile(&'static str),
    /// The routing tables are not loaded.
    #[error(transparent)]
    Route(#[from] RouteError),
}

/// Refusal of an access to a channel by the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The channel is of another design.
    #[error("no channel {0}: this network has fewer")]
    Channel(usize),
    /// A kernel uses that end of the channel.
    #[error("the host cannot {access} channel {channel}: a kernel does")]
    Kernel {
        /// Number of the channel.
        channel: usize,
        /// `write` or `read`.
        access: &'static str,
    },
}

/// Packets lost at a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The card.
    pub node: u32,
    /// Where they were lost, and why.
    pub place: LossPlace,
    /// Number of packets.
    pub packets: u64,
}

/// Where packets are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossPlace {
    /// The buffer of a router's input was full: nothing held the sender back.
    FullBuffer {
        /// Name of the input.
        port: &'static str,
    },
    /// The routing table has no entry for the destination that stands in the header: a bit error.
    NoRoute,
    /// The card has no channel with the id that stands in the header: a bit error.
    NoChannel,
    /// Packets before them in their message did not come to the receive kernel, so nothing shows where their words begin.
    CutMessage,
}

/// What one link of a card has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkCounters {
    /// Flits that came in with a wrong CRC.
    pub bad_flits: u64,
    /// Flits that were sent again.
    pub sent_again: u64,
}

/// A torus of cards with routers, channels and kernels, in virtual time.
///
/// ```
/// use fpga_mock::circus::{Channel, Channels, Design, Network, Placement, Profile, Torus};
///
/// // Card 9 adds one to each word that card 0 sends, and card 2 gets the result.
/// let mut design = Design::new(Torus::new(8, 8)?);
/// let there = design.channel(Channel::narrow(0, 9))?;
/// let on = design.channel(Channel::narrow(9, 2))?;
/// let placement = Placement { node: 9, reads: &[there], writes: &[on], latency_cycles: 1 };
/// design.kernel(placement, |channels: &mut Channels<'_>| {
///     if channels.can_put(0) && let Some(word) = channels.take(0) {
///         channels.put(0, word.map_u32(|number| number + 1));
///     }
/// })?;
/// let mut network = Network::new(&Profile::published(), design)?;
/// network.push(there, &41_u32.to_le_bytes())?;
/// network.run()?;
/// assert_eq!(network.take(on)?, 42_u32.to_le_bytes());
/// assert!(network.losses().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Network {
    pub(super) world: World<Card>,
    pub(super) cards: Vec<ComponentId>,
    torus: Torus,
    places: Vec<Places>,
    /// By card, then end.
    pub(super) host_ends: Vec<Vec<HostEnd>>,
    /// Cycles of the kernels that send and receive.
    pub(super) channel_kernel_cycles: u64,
}

impl Network {
    /// Builds a network with routes in order of dimensions.
    ///
    /// # Errors
    /// [`BuildError::Nodes`] or [`BuildError::Profile`].
    pub fn new(profile: &Profile, design: Design) -> Result<Self, BuildError> {
        let tables = design.torus.dimension_order();
        Network::with_tables(profile, design, &tables)
    }

    /// Builds a network and loads these routing tables.
    ///
    /// # Errors
    /// [`BuildError::Route`] if the tables do not lead from every card to every other one; [`BuildError::Nodes`] or
    /// [`BuildError::Profile`].
    pub fn with_tables(profile: &Profile, design: Design, tables: &PortTables) -> Result<Self, BuildError> {
        tables.check(design.torus)?;
        Network::build(profile, design, tables, 0)
    }

    /// Builds a network without checking the tables; see [`build`] for `host_ends`.
    pub(super) fn build(
        profile: &Profile,
        design: Design,
        tables: &PortTables,
        host_ends: usize,
    ) -> Result<Self, BuildError> {
        let (torus, nodes) = (design.torus, design.torus.nodes());
        let format = Format { destination_bits: profile.destination_bits };
        check(profile)?;
        if nodes > format.nodes() {
            return Err(BuildError::Nodes { nodes, bits: profile.destination_bits });
        }
        let clock = |hertz: u64| hertz.try_into().map(|hertz| Clock::new(hertz, 0));
        let router_clock = clock(profile.router_hertz).map_err(|_| BuildError::Profile("router clock"))?;
        let kernel_clock = clock(profile.kernel_hertz).map_err(|_| BuildError::Profile("kernel clock"))?;
        let settings = Settings {
            clock: router_clock,
            lookup_cycles: profile.lookup_cycles,
            arbiter_cycles: profile.arbiter_cycles,
            crossbar_cycles: profile.crossbar_cycles,
            output_flits: profile.output_flits,
            input_flits: profile.input_flits,
            packet_flits: PACKET_BYTES.div_ceil(FLIT_BYTES),
            virtual_channels: profile.virtual_channels,
            has_credits: profile.has_credits,
            most_links: nodes,
        };
        let Built { cards: modules, places, host_ends } = build(profile, design, host_ends);
        let mut world = World::default();
        let mut cards = Vec::with_capacity(nodes as usize);
        for (node, (modules, wires)) in (0..nodes).zip(modules) {
            let router = Router::new(settings, ports(torus, node), tables.of(node).to_vec());
            let io = (profile.io_channel_cycles, profile.io_channel_packets);
            let header = (format, profile.has_credits);
            cards.push(world.add(Card::new((router_clock, router), (kernel_clock, modules), wires, header, io)));
        }
        for node in 0..nodes {
            let line = |port: usize| {
                let there = torus.neighbour(node, port)?;
                Some(line(profile, (node, port), (cards[there as usize], port ^ 1)))
            };
            world.get_mut(cards[node as usize]).surroundings.lines = (0..Torus::LINKS).map(line).collect();
        }
        let channel_kernel_cycles = profile.channel_kernel_cycles;
        Ok(Network { world, cards, torus, places, host_ends, channel_kernel_cycles })
    }

    /// Gives the host's end of a channel a message to send.
    ///
    /// # Errors
    /// [`HostError`] if a kernel writes the channel, or if there is no such channel.
    pub fn push(&mut self, channel: ChannelId, message: &[u8]) -> Result<(), HostError> {
        let place = self.place(channel)?;
        let source = place.source.ok_or(HostError::Kernel { channel: channel.0, access: "write" })?;
        let card = self.cards[place.from as usize];
        if let Module::Source(source) = self.module(card, source) {
            source.push(message, true);
        }
        Ok(())
    }

    /// Takes what has arrived at the host's end of a channel.
    ///
    /// # Errors
    /// [`HostError`] if a kernel reads the channel, or if there is no such channel.
    pub fn take(&mut self, channel: ChannelId) -> Result<Vec<u8>, HostError> {
        Ok(self.sink(channel)?.received.drain(..).collect())
    }

    /// Sets how many bytes the host's end of a channel holds until the host takes them, rounded up to a word; not limited
    /// unless set. With 0, nobody reads the channel.
    ///
    /// # Errors
    /// As [`Network::take`].
    pub fn limit(&mut self, channel: ChannelId, bytes: usize) -> Result<(), HostError> {
        self.sink(channel)?.most = bytes;
        Ok(())
    }

    fn place(&self, channel: ChannelId) -> Result<Places, HostError> {
        self.places.get(channel.0).copied().ok_or(HostError::Channel(channel.0))
    }

    fn sink(&mut self, channel: ChannelId) -> Result<&mut Sink, HostError> {
        let place = self.place(channel)?;
        let refusal = HostError::Kernel { channel: channel.0, access: "read" };
        let sink = place.sink.ok_or(refusal)?;
        match self.module(self.cards[place.to as usize], sink) {
            Module::Sink(sink) => Ok(sink),
            _ => Err(refusal),
        }
    }

    /// A module of a card that the host is about to change.
    pub(super) fn module(&mut self, card: ComponentId, module: usize) -> &mut Module {
        self.world.post(card, self.world.now(), Message::Host);
        &mut self.world.get_mut(card).kernels.modules_mut()[module]
    }

    /// Runs until nothing happens any more. A kernel that always has something to write never lets that happen: see
    /// [`Network::run_until`].
    ///
    /// # Errors
    /// [`Stall`] if data is still under way: each part of it waits for another one, or for a reader.
    pub fn run(&mut self) -> Result<(), Stall> {
        while self.world.step() {}
        if self.cards.iter().any(|card| self.world.get(*card).is_busy()) {
            return Err(stall::find(&self.world, &self.cards, self.torus, &self.places));
        }
        Ok(())
    }

    /// Runs up to the time `end`, in picoseconds.
    pub fn run_until(&mut self, end: Time) {
        self.world.run_until(end);
    }

    /// Returns the present time in picoseconds.
    pub fn now(&self) -> Time {
        self.world.now()
    }

    /// Returns what went into a channel at the end that writes.
    pub fn written(&self, channel: ChannelId) -> Traffic {
        let place = &self.places[channel.0];
        self.world.get(self.cards[place.from as usize]).wires.words[place.written].1
    }

    /// Returns what came out of a channel at the end that reads.
    pub fn read(&self, channel: ChannelId) -> Traffic {
        let place = &self.places[channel.0];
        self.world.get(self.cards[place.to as usize]).wires.words[place.read].1
    }

    /// Returns what the router of a card has counted; `None` if there is no such card.
    pub fn router(&self, node: u32) -> Option<RouterCounters> {
        self.cards.get(node as usize).map(|card| self.world.get(*card).router().counters)
    }

    /// Returns what all links have counted together.
    pub fn links(&self) -> LinkCounters {
        let mut sum = LinkCounters::default();
        for line in self.world.components().flat_map(|(_, card)| card.surroundings.lines.iter().flatten()) {
            sum.bad_flits += line.bad_flits;
            sum.sent_again += line.sent_again;
        }
        sum
    }

    /// Returns where packets were lost, and how many.
    pub fn losses(&self) -> Vec<Loss> {
        let mut losses = Vec::new();
        for (node, (_, card)) in (0..).zip(self.world.components()) {
            let router = card.router();
            let full = (0..).zip(&router.lost_at).map(|(port, packets)| {
                let port = Torus::port_name(port);
                (LossPlace::FullBuffer { port }, *packets)
            });
            let others = [
                (LossPlace::NoRoute, router.counters.lost_no_route),
                (LossPlace::NoChannel, card.wires.lost_no_channel),
                (LossPlace::CutMessage, card.wires.lost_cut),
            ];
            let lost = full.chain(others).filter(|(_, packets)| *packets > 0);
            losses.extend(lost.map(|(place, packets)| Loss { node, place, packets }));
        }
        losses
    }
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Loss { node, place, packets } = self;
        match place {
            LossPlace::FullBuffer { port } => {
                write!(f, "card {node} lost {packets} packets: the buffer of input {port} was full")
            }
            LossPlace::NoRoute => write!(f, "card {node} lost {packets} packets: no route to their destination"),
            LossPlace::NoChannel => write!(f, "card {node} lost {packets} packets: no channel with their id"),
            LossPlace::CutMessage => {
                write!(f, "card {node} lost {packets} packets: packets before them in their message are missing")
            }
        }
    }
}

fn check(profile: &Profile) -> Result<(), BuildError> {
    let is_wrong = [
        (!(1..=8).contains(&profile.destination_bits), "width of the destination"),
        (!(1..=2).contains(&profile.virtual_channels), "number of virtual channels"),
        (profile.lanes * 64 != 8 * FLIT_BYTES as u64, "number of lanes: together they carry a flit"),
        (profile.input_flits < PACKET_BYTES / FLIT_BYTES, "input buffer"),
        (profile.output_flits == 0, "output buffer"),
        (profile.io_channel_packets == 0, "I/O channel buffer"),
        (profile.replay_flits == Some(0), "replay buffer"),
        (!(0.0..=0.5).contains(&profile.bit_error_rate), "bit error rate"),
        (profile.coded_bits == 0 || profile.lane_hertz < profile.coded_bits, "rate of a lane"),
        (profile.meta_overhead_words > 0 && profile.meta_overhead_words >= profile.meta_frame_words, "meta frame"),
    ];
    is_wrong.into_iter().find(|wrong| wrong.0).map_or(Ok(()), |wrong| Err(BuildError::Profile(wrong.1)))
}

/// The ports of a card's router: its links, and the one to its kernels.
fn ports(torus: Torus, node: u32) -> Vec<Port> {
    let port = |port| Port {
        dimension: torus.dimension(port),
        crosses_dateline: torus.crosses_dateline(node, port),
        is_link: torus.neighbour(node, port).is_some(),
    };
    (0..=Torus::LOCAL).map(port).collect()
}

/// The framing of the links of a profile.
pub(crate) fn framing(profile: &Profile) -> Framing {
    Framing {
        lane_hertz: profile.lane_hertz,
        coded_bits: profile.coded_bits,
        meta_frame_rows: profile.meta_frame_words,
        meta_overhead_rows: profile.meta_overhead_words,
        burst_rows: profile.burst_words,
    }
}

fn line(profile: &Profile, (node, port): (u32, usize), (peer, peer_port): (ComponentId, usize)) -> Line {
    // A different sequence of bit errors for each link.
    let seed = profile.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ u64::from(node) << 8 ^ port as u64;
    Line {
        peer,
        peer_port,
        latency: profile.link_ps.into(),
        transmitter: Transmitter::new(framing(profile), profile.output_flits),
        errors: BitErrors::new(profile.bit_error_rate, seed),
        window: profile.replay_flits.map(Window::new),
        sent: 0,
        in_order: InOrder::default(),
        bad_flits: 0,
        sent_again: 0,
    }
}

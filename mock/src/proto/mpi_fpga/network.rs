//! A network as its processors see it: communicators, and calls.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use cmdseq::communicator::{ContextId, GENERATIONS, INDICES};
use cmdseq::routing::Torus3;
use cmdseq::switch::{Call, CallError, End, PACKET_BYTES, PHIT_BYTES, Shape, ShapeError, SwitchPosition};

use crate::engine::{Clock, ComponentId, Time, World};
use crate::net::router::{Port, Router, Settings};
use crate::net::serial::{Framing, Transmitter};
use crate::profile::mpi_fpga::Profile;
use crate::proto::communicator_table::{Entry, EntryError, Format, Table, TableError};
use crate::proto::mpi_fpga::header::first_number;
use crate::proto::mpi_fpga::host::{Host, PHIT_BITS};
use crate::proto::mpi_fpga::message::Message;
use crate::proto::mpi_fpga::switch::{Line, Members, Node, Switch};
use crate::proto::mpi_fpga::units::{self, Units};

/// Communicators of a switch (section 3.1).
pub const COMMUNICATORS: u32 = INDICES;

/// Refusal or failure of a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// The shape is invalid.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A value of the profile that no network can have.
    #[error("invalid {0} in the profile")]
    Profile(&'static str),
    /// The call is invalid.
    #[error(transparent)]
    Call(#[from] CallError),
    /// No entry is free in the tables of all members.
    #[error("the communicator table of node {node} is full: {COMMUNICATORS} communicators; free one first")]
    Full {
        /// A member without a free entry, or the first one if members have different ones.
        node: u32,
    },
    /// A member is not in the network, or named twice.
    #[error("invalid member {node}: expected each node below {nodes} at most once")]
    Member {
        /// The node.
        node: u32,
        /// Nodes of the network.
        nodes: u32,
    },
    /// No such communicator.
    #[error("no communicator {0}")]
    Unknown(ContextId),
    /// The table refused an entry.
    #[error(transparent)]
    Table(#[from] TableError),
    /// An entry is invalid.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// A call has not ended, and nothing is under way that could end it.
    #[error("rank {rank} waits for data that nobody sends")]
    Stalled {
        /// The first rank that waits.
        rank: u32,
    },
}

/// What a call gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What each rank got.
    pub outputs: Vec<Vec<u8>>,
    /// When each rank was done, in picoseconds since all began.
    pub ended_ps: Vec<Time>,
    /// What waited meanwhile.
    pub waits: Waits,
}

impl Outcome {
    /// Returns the average time of the ranks in picoseconds, as the paper's benchmarks do.
    pub fn average_ps(&self) -> f64 {
        self.ended_ps.iter().map(|end| *end as f64).sum::<f64>() / self.ended_ps.len().max(1) as f64
    }

    /// Returns the time of the last rank in picoseconds.
    pub fn last_ps(&self) -> Time {
        self.ended_ps.iter().copied().max().unwrap_or(0)
    }
}

/// What waited during a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waits {
    /// Times at which a processor had data and the input FIFO of its switch was full.
    pub held_back: u64,
    /// Reductions that waited for a unit.
    pub for_unit: u64,
    /// Most bytes in the collectors of a switch since the network was made.
    pub most_held: usize,
}

/// A communicator.
#[derive(Debug, Clone)]
struct Communicator {
    id: ContextId,
    members: Vec<u32>,
}

/// Processors and switches, in virtual time.
///
/// ```
/// use cmdseq::reduction::{Combine, Element, Reduction};
/// use fpga_mock::mpi_fpga::{Call, Collective, Form, Network, Profile};
///
/// let mut network = Network::new(&Profile::published(), "4x4x2".parse()?)?;
/// let context = network.create(&[3, 1, 30])?;
/// let combine = Some(Combine::new(Reduction::Sum, Element::U32));
/// let call = Call { context, collective: Collective::Allreduce, form: Form::Doubling, combine, root: 0, bytes: 4 };
/// let outcome = network.run(&call, &[1_u32, 10, 100].map(|number| number.to_le_bytes().to_vec()))?;
/// assert_eq!(outcome.outputs[2], 111_u32.to_le_bytes());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Network {
    profile: Profile,
    pub(super) shape: Shape,
    pub(super) world: World<Node>,
    pub(super) hosts: Vec<ComponentId>,
    pub(super) switches: Vec<ComponentId>,
    /// By node and entry, which call comes next.
    pub(super) numbers: BTreeMap<(u32, u8), u32>,
    communicators: Vec<Communicator>,
    /// The next generation of each entry.
    generations: [u32; INDICES as usize],
}

impl Network {
    /// Builds a network.
    ///
    /// # Errors
    /// [`NetworkError::Shape`] or [`NetworkError::Profile`].
    pub fn new(profile: &Profile, shape: Shape) -> Result<Self, NetworkError> {
        shape.check()?;
        let hertz = NonZeroU64::new(profile.clock_hertz).ok_or(NetworkError::Profile("clock"))?;
        let is_wrong = [
            (!(1..=2).contains(&profile.virtual_channels), "number of virtual channels"),
            (profile.input_phits <= PACKET_BYTES / PHIT_BYTES, "input FIFO: data of a packet can lie in nine phits"),
            (profile.output_phits == 0, "output FIFO"),
            (profile.link_bps < PHIT_BITS, "link rate"),
            (profile.dma_phits == 0, "DMA engine"),
        ];
        if let Some((_, what)) = is_wrong.into_iter().find(|wrong| wrong.0) {
            return Err(NetworkError::Profile(what));
        }
        let clock = Clock::new(hertz, 0);
        let mut world = World::default();
        // Switches first: a processor knows its switch.
        let switches: Vec<ComponentId> = (0..shape.switches())
            .map(|number| world.add(Node::Switch(Box::new(switch(profile, shape, clock, number)))))
            .collect();
        let mut hosts = vec![None; shape.processors() as usize];
        for (number, id) in (0..).zip(&switches) {
            for (port, end) in shape.ends(number).into_iter().enumerate() {
                if let Some(End::Processor(processor)) = end {
                    let host = host(profile, shape, (*id, port));
                    hosts[processor as usize] = Some(world.add(Node::Host(Box::new(host))));
                }
            }
        }
        let hosts: Vec<ComponentId> = hosts.into_iter().flatten().collect();
        for (number, id) in (0..).zip(&switches) {
            let line = |end: Option<End>| {
                let end = end?;
                let (peer, peer_port, processor) = match end {
                    End::Processor(one) => (hosts[one as usize], 0, Some(one as u16)),
                    End::Switch { switch, port } => (switches[switch as usize], port, None),
                };
                let (latency, bps) = line_of(profile, shape.is_direct() && processor.is_some());
                Some(Line { peer, peer_port, latency, transmitter: transmitter(bps), processor })
            };
            let lines = shape.ends(number).into_iter().map(line).collect();
            if let Node::Switch(switch) = world.get_mut(*id) {
                switch.connect(lines);
            }
        }
        let (profile, generations) = (*profile, [0; INDICES as usize]);
        Ok(Network {
            profile,
            shape,
            world,
            hosts,
            switches,
            numbers: BTreeMap::new(),
            communicators: Vec::new(),
            generations,
        })
    }

    /// Returns the shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Makes a communicator of these nodes, in the order of ranks: an entry that is free at all of them is filled.
    ///
    /// # Errors
    /// [`NetworkError::Member`] or [`NetworkError::Full`]; nothing is filled then.
    pub fn create(&mut self, members: &[u32]) -> Result<ContextId, NetworkError> {
        let nodes = self.shape.processors();
        let is_wrong = |place: &usize| members[*place] >= nodes || members[..*place].contains(&members[*place]);
        if let Some(place) = (0..members.len()).find(is_wrong) {
            return Err(NetworkError::Member { node: members[place], nodes });
        }
        let shares = |one: &Communicator| one.members.iter().any(|node| members.contains(node));
        let taken: Vec<u32> = self.communicators.iter().filter(|one| shares(one)).map(|one| one.id.index()).collect();
        let Some(index) = (0..COMMUNICATORS).find(|index| !taken.contains(index)) else {
            let uses = |node: u32| self.communicators.iter().filter(|one| one.members.contains(&node)).count();
            let fullest = members.iter().copied().max_by_key(|node| uses(*node)).unwrap_or(0);
            return Err(NetworkError::Full { node: fullest });
        };
        let generation = &mut self.generations[index as usize];
        let id = ContextId::new(index, *generation).unwrap_or(ContextId::WORLD);
        *generation = (*generation + 1) % GENERATIONS;
        let (size, leader) = (members.len() as u32, members.iter().copied().min().unwrap_or(0));
        let entries: Vec<(u32, Entry)> = (0..size)
            .zip(members)
            .map(|(rank, node)| Ok((*node, Entry::new(id, size, rank, |rank| members[rank as usize] as u16)?)))
            .collect::<Result<_, EntryError>>()?;
        for switch in 0..self.switches.len() {
            match &mut self.switch_mut(switch).members {
                Members::Card { table, .. } => {
                    if let Some((_, entry)) = entries.iter().find(|entry| entry.0 as usize == switch) {
                        Arc::make_mut(table).insert(entry)?;
                    }
                }
                Members::Tree { groups, .. } => {
                    groups.insert((index as u8, leader as u16), members.iter().map(|node| *node as u16).collect());
                }
            }
        }
        for node in members {
            self.numbers.insert((*node, index as u8), first_number(id, leader, 0));
        }
        self.communicators.push(Communicator { id, members: members.to_vec() });
        Ok(id)
    }

    /// Frees a communicator's entries.
    ///
    /// # Errors
    /// [`NetworkError::Unknown`].
    pub fn free(&mut self, id: ContextId) -> Result<(), NetworkError> {
        let place = self.communicators.iter().position(|one| one.id == id).ok_or(NetworkError::Unknown(id))?;
        let communicator = self.communicators.swap_remove(place);
        let leader = communicator.members.iter().copied().min().unwrap_or(0);
        for switch in 0..self.switches.len() {
            match &mut self.switch_mut(switch).members {
                Members::Card { table, .. } if communicator.members.contains(&(switch as u32)) => {
                    Arc::make_mut(table).remove(id);
                }
                Members::Card { .. } => {}
                Members::Tree { groups, .. } => {
                    groups.remove(&(id.index() as u8, leader as u16));
                }
            }
        }
        Ok(())
    }

    /// Returns the bytes of the communicator table of a card of a direct network.
    pub fn table_bytes(&self, node: u32) -> Option<&[u8]> {
        match self.world.get(*self.switches.get(node as usize)?) {
            Node::Switch(switch) => match &switch.members {
                Members::Card { table, .. } => Some(table.as_bytes()),
                Members::Tree { .. } => None,
            },
            Node::Host(_) => None,
        }
    }

    /// Runs a call: all ranks begin now, each with its input.
    ///
    /// # Errors
    /// [`NetworkError::Unknown`] or [`NetworkError::Call`], before anything is sent.
    pub fn run(&mut self, call: &Call, inputs: &[Vec<u8>]) -> Result<Outcome, NetworkError> {
        let communicator = self.communicators.iter().find(|one| one.id == call.context);
        let members = communicator.ok_or(NetworkError::Unknown(call.context))?.members.clone();
        let size = members.len() as u32;
        call.check(size, self.shape.is_direct())?;
        for rank in 0..size {
            let expected = call.inputs(rank, size).len() * call.bytes as usize;
            let found = inputs.get(rank as usize).map_or(0, Vec::len);
            if found != expected {
                let why = format!("rank {rank} gives {found} bytes, expected {expected}");
                return Err(CallError(why).into());
            }
        }
        let (began, overhead) = (self.world.now(), Time::from(self.profile.overhead_ps));
        let units = self.sum(|switch| switch.units.waits_for_unit);
        for ((rank, node), input) in (0..).zip(&members).zip(inputs) {
            let id = self.hosts[*node as usize];
            let number = self.next_number(*node, call.context);
            if let Node::Host(host) = self.world.get_mut(id) {
                host.begin((*call, number), (rank, size), input);
            }
            let delay = if input.is_empty() { 0 } else { overhead };
            self.world.post(id, began + delay, Message::Start);
        }
        while self.world.step() {}
        self.outcome(&members, began, units)
    }

    fn outcome(&mut self, members: &[u32], began: Time, units: u64) -> Result<Outcome, NetworkError> {
        let is_left = self.sum(|switch| u64::from(switch.is_busy()) + switch.units.strays as u64 + switch.unknown) > 0;
        let (mut outputs, mut ended_ps, mut waits) = (Vec::new(), Vec::new(), Waits::default());
        for (rank, node) in (0..).zip(members) {
            let Node::Host(host) = self.world.get_mut(self.hosts[*node as usize]) else { continue };
            let stalled = NetworkError::Stalled { rank };
            waits.held_back += host.held_back;
            ended_ps.push(host.ended.ok_or(stalled.clone())? - began);
            outputs.push(host.take().filter(|_| !is_left).ok_or(stalled)?);
        }
        waits.for_unit = self.sum(|switch| switch.units.waits_for_unit) - units;
        let held = self.world.components().map(|(_, node)| match node {
            Node::Switch(switch) => switch.units.most_held,
            Node::Host(_) => 0,
        });
        waits.most_held = held.max().unwrap_or(0);
        Ok(Outcome { outputs, ended_ps, waits })
    }

    fn sum(&self, of: impl Fn(&Switch) -> u64) -> u64 {
        let of = |node: &Node| match node {
            Node::Switch(switch) => of(switch),
            Node::Host(_) => 0,
        };
        self.world.components().map(|(_, node)| of(node)).sum()
    }

    pub(super) fn switch_mut(&mut self, number: usize) -> &mut Switch {
        match self.world.get_mut(self.switches[number]) {
            Node::Switch(switch) => switch,
            Node::Host(_) => unreachable!("switches are added as switches"),
        }
    }
}

/// Latency and rate of a cable: to a processor over PCIe, or a link.
fn line_of(profile: &Profile, is_pcie: bool) -> (Time, u64) {
    match is_pcie {
        true => (profile.host_ps.into(), profile.clock_hertz * PHIT_BITS * profile.dma_phits),
        false => (profile.link_ps.into(), profile.link_bps),
    }
}

/// The sending side of a cable of the published rate: nothing of a line's framing is known.
fn transmitter(bps: u64) -> Transmitter {
    let plain =
        Framing { lane_hertz: bps, coded_bits: PHIT_BITS, meta_frame_rows: 0, meta_overhead_rows: 0, burst_rows: 0 };
    Transmitter::new(plain, 4)
}

fn host(profile: &Profile, shape: Shape, (switch, port): (ComponentId, usize)) -> Host {
    let (latency, bps) = line_of(profile, shape.is_direct());
    Host::new((switch, port), (latency, profile.overhead_ps.into()), transmitter(bps), profile.input_phits)
}

fn switch(profile: &Profile, shape: Shape, clock: Clock, number: u32) -> Switch {
    let processors = shape.processors() as u16;
    let members = match shape {
        Shape::Torus { .. } => Members::Card {
            table: Arc::new(Table::new(Format::PUBLISHED)),
            processor: number as u16,
            switches: processors,
        },
        Shape::Fat { .. } => Members::Tree { position: SwitchPosition::of(shape, number), groups: Default::default() },
    };
    let settings = Settings {
        clock,
        lookup_cycles: profile.route_cycles,
        arbiter_cycles: profile.channel_cycles + profile.allocation_cycles,
        crossbar_cycles: profile.traversal_cycles,
        output_flits: profile.output_phits,
        input_flits: profile.input_phits,
        packet_flits: PACKET_BYTES / PHIT_BYTES,
        virtual_channels: profile.virtual_channels,
        has_credits: true,
        most_links: u32::MAX,
    };
    let ends = shape.ends(number);
    let is_link = |end: &Option<End>| matches!(end, Some(End::Switch { .. }));
    let cables = ends.iter().enumerate().map(|(port, end)| port_of(shape, number, port, is_link(end)));
    // An input for the units' results at each output.
    let results = ends.iter().map(|_| port_of(shape, number, ends.len(), false));
    let table = shape.table(number);
    let router = Router::new(settings, cables.chain(results).collect(), table.clone());
    let (radix, units) = shape.units(number);
    let (control_cycles, float_cycles) = (profile.control_cycles, profile.float_cycles);
    let units = Units::new(units::Settings { clock, radix, units, control_cycles, float_cycles });
    Switch::new(processors + number as u16, (clock, router), members, units, table)
}

/// Returns a port as a router sees it.
fn port_of(shape: Shape, switch: u32, port: usize, is_link: bool) -> Port {
    let Some(torus) = shape.torus().filter(|_| port < Torus3::LINKS) else {
        return Port { dimension: None, crosses_dateline: false, is_link };
    };
    let at = torus.place(switch)[port / 2];
    let edge = if port.is_multiple_of(2) { torus.sides()[port / 2] - 1 } else { 0 };
    Port { dimension: Some(port / 2), crosses_dateline: at == edge, is_link }
}

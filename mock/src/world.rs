//! The state of a whole fabric, and its future events. What happens in an event is in `model`.

use std::sync::Arc;

use cmdseq::{Hop, Tables};

use crate::card::budget::{Budget, of_this_machine};
use crate::card::clock::Clock;
use crate::card::communicators::{Communicators, Members};
use crate::card::config_space::ConfigSpace;
use crate::card::host_dma::HostDma;
use crate::card::lane::Lane;
use crate::card::memory::CardMemory;
use crate::card::msix::Msix;
use crate::card::posted::Posted;
use crate::card::readiness::Readiness;
use crate::card::resources::Resources;
use crate::card::routed::Routed;
use crate::card::running::Running;
use crate::card::sequencer::Sequencer;
use crate::card::switched::Switches;
use crate::card::windows::Windows;
use crate::card::{Card, RESIDENT_PROGRAMS};
use crate::engine::streams::{End, Rates, ResourceId, StreamId};
use crate::engine::{Agenda, Time};
use crate::fault::Fault;
use crate::net::link::Link;
use crate::net::noise::Dice;
use crate::net::transfers::TransferLog;
use crate::net::wiring::Ports;
use crate::profile::Profile;
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::moving::{HOLD_BYTES, Move};
use crate::proto::optweb::one_sided::ServedId;
use crate::proto::optweb::signal::SIGNALS;
use crate::proto::optweb::stream::StreamPurpose;
use crate::proto::optweb::transfer::Carried;

/// Counters of a fabric since its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// The fabric's time in picoseconds.
    pub now_ps: u128,
    /// Events handled.
    pub events: u64,
    /// Blocks that went from one card to another.
    pub transfers: u64,
    /// Bytes that went from one card to another.
    pub bytes: u64,
    /// Instructions completed.
    pub instructions: u64,
    /// Most bytes of memory read and written while the fabric's lock was held once; hosts wait for the lock.
    pub most_held_bytes: u64,
}

/// A future event. Events of a card or of one of its instructions carry the card's or the lane's epoch, and are void in a
/// later epoch. `at` is the lane of the instruction; of data and signals on links, the lane that receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A stream has moved its last byte, unless its rate has changed since.
    StreamEnds(StreamId),
    /// The next instruction can be issued.
    Issue { card: usize, epoch: u64 },
    /// A running instruction reached a step that depends on nothing but time.
    Step { at: LaneId, epoch: u64, step: Step },
    /// What a link carried is there, unless the link was trained or cut since.
    Arrival { at: LaneId, port: u32, session: u32, what: Carried },
    /// The last beat of a burst from the receive buffer is counted.
    BufferedCounted { at: LaneId, epoch: u64, port: usize },
    /// The first beat that another card reads from this one is at the switch.
    ReplyBegins(ServedId),
    /// A planted fault strikes.
    Strike(Fault),
    /// The link between two cards comes up again.
    LinkUp { a: u32, b: u32 },
    /// A read of host memory has not been answered for the completion timeout.
    Unanswered { number: u64 },
    /// The posted writes of a card up to this one act, if they have not.
    Posted { card: usize, number: u64 },
    /// A message of the network of switches arrives.
    Switches,
    /// The user logic behind statically scheduled routers has nothing left to do.
    TransformEnds,
    /// A reset that takes time has come a step further.
    ResetGoesOn { card: usize, epoch: u64 },
}

/// Steps of a running instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The switch is set: receives may go.
    SwitchSet,
    /// What the network of switches takes is read from memory.
    DataAtNetwork,
    /// The result of the network of switches is in memory.
    InMemory,
    /// The first control beat is out.
    ControlsOut,
    /// The first beat read from memory is at the switch.
    DataAtSwitch,
    /// The beat that announces data is out.
    HeaderOut,
    /// The own block is through the switch.
    OwnCounted,
    /// The sequencer has read its signals.
    SignalsRead,
    /// The contributions to a fold that lay in the receive buffers are at the reduction units.
    FoldCounted,
    /// The result of a fold is out of the reduction units and counted.
    Folded,
    /// No transfer goes through the window any more, or the `close` has waited long enough.
    Closed,
    /// The next piece of a copy from or to host memory is due.
    HostPiece,
    /// The duration of the instruction is over.
    Finish,
}

/// The fabric behind its lock.
pub(crate) struct Core {
    pub(crate) profile: Profile,
    pub(crate) ports: Ports,
    /// Links that are down.
    pub(crate) down: Vec<ResourceId>,
    pub(crate) now: Time,
    pub(crate) cards: Vec<Card>,
    /// By card.
    pub(crate) resources: Box<[Resources]>,
    pub(crate) rates: Rates<StreamPurpose>,
    pub(crate) host: HostDma,
    /// The network of switches, if they compute.
    pub(crate) switches: Option<Switches>,
    /// Statically scheduled routers, if the cards have them.
    pub(crate) routed: Option<Routed>,
    /// Chooses what bit errors hit.
    pub(crate) link_dice: Dice,
    pub(crate) statistics: Statistics,
    /// What links carry, if a trace is recorded.
    pub(crate) transfers: Option<TransferLog>,
    pub(crate) next_burst: u64,
    /// Data that moves at this instant; all other events wait for it.
    pub(crate) moving: Option<Move>,
    /// Planted faults that wait for a transfer.
    pub(crate) watches: Vec<Fault>,
    /// Bytes read and written since the lock was taken.
    pub(crate) hold_bytes: u64,
    /// Card memory, and blocks that were the last to hold some, to be freed after the lock is released.
    pub(crate) discarded: Vec<Box<dyn Send>>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) has_failed: bool,
    pub(crate) world: Members,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) ends: Vec<End>,
    pub(crate) pace: Pace,
}

/// State of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Pace {
    /// No thread: time advances inside the access that starts work.
    #[default]
    Access,
    /// The thread sleeps.
    Idle,
    /// The thread has work.
    Due,
    /// The thread must end.
    Stop,
}

impl Core {
    pub(crate) fn new(profile: Profile) -> Self {
        let mut rates = Rates::new();
        let ports = Ports::new(profile.topology, profile.nodes);
        let wires: Vec<ResourceId> = (0..ports.links()).map(|_| rates.add_resource(profile.link_mbps.into())).collect();
        let wire = |hop: Hop| wires[ports.link(hop)];
        let way = |node, port| ports.way(node, port as usize).into_iter().map(wire).collect();
        let (mbps, lanes) = (u64::from(profile.link_mbps), profile.lanes as usize);
        let link = |node, port| Link::new(way(node, port), mbps, profile.hop_ps, lanes);
        let links = |node| (0..ports.count()).map(|port| link(node, port)).collect();
        let world: Members = (0..profile.nodes).collect();
        let budget = Budget::new(of_this_machine(), profile.nodes);
        let cards: Vec<Card> =
            (0..profile.nodes).map(|node| Core::card(&profile, links(node), &world, &budget, node)).collect();
        let resources = cards.iter().map(|_| Resources::new(&profile, &mut rates)).collect();
        let switches = Switches::of(&profile, &cards);
        let routed = Routed::of(&profile);
        let host = HostDma::new(profile.hardware.split_dma.unwrap_or(0));
        Core {
            profile,
            ports,
            down: Vec::new(),
            now: 0,
            cards,
            resources,
            rates,
            host,
            switches,
            routed,
            link_dice: Dice::default(),
            statistics: Statistics::default(),
            transfers: None,
            next_burst: 0,
            moving: None,
            watches: Vec::new(),
            hold_bytes: 0,
            discarded: Vec::new(),
            budget,
            has_failed: false,
            world,
            agenda: Agenda::default(),
            ends: Vec::new(),
            pace: Pace::default(),
        }
    }

    pub(crate) fn card(profile: &Profile, links: Vec<Link>, world: &Members, budget: &Arc<Budget>, node: u32) -> Card {
        let lanes = profile.lanes as usize;
        let mut card = Card {
            node,
            clock: Clock::new(profile.cycle_ps, node, profile.nodes, profile.hardware.drift_ppm),
            function: profile.shell.function(),
            config: ConfigSpace::new(profile.shell.function()),
            msix: Msix::new(profile.shell.function().msix),
            bus: None,
            posted: Posted::default(),
            memory: CardMemory::new(profile.memory_bytes, node, budget),
            links,
            rings: Default::default(),
            sequencer: Sequencer::default(),
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            communicators: Communicators::new(world, node),
            resident: vec![Vec::new(); RESIDENT_PROGRAMS],
            signals: [0; SIGNALS],
            tables: Tables::new(),
            windows: Windows::new(profile.windows()),
            served: Vec::new(),
            user_logic: None,
            errors: fpga_regs::bits::Errors::empty(),
            link_errors: 0,
            eager_limit: 0,
            scratch: 0,
            latched_cycles: 0,
            latched_retired: 0,
            epoch: 0,
            readiness: Readiness::default(),
            is_frozen: false,
            is_gone: false,
        };
        card.reset(profile.receive_buffer_bytes, world);
        card
    }

    pub(crate) fn schedule(&mut self, at: Time, event: Event) {
        self.agenda.add(at, event);
    }

    /// Schedules `event` for `delay` picoseconds from now.
    pub(crate) fn schedule_in(&mut self, delay: u64, event: Event) {
        self.schedule(self.now + Time::from(delay), event);
    }

    /// Schedules a step of the instruction that runs in a lane, `delay` from now.
    pub(crate) fn schedule_step(&mut self, at: LaneId, delay: u64, step: Step) {
        let epoch = self.lane(at).epoch;
        self.schedule_in(delay, Event::Step { at, epoch, step });
    }

    /// Returns whether the lock must be released. Without a clock, the access that started work waits for all of it.
    pub(crate) fn has_held_enough(&self) -> bool {
        self.pace != Pace::Access && self.hold_bytes >= HOLD_BYTES
    }
}

impl Core {
    pub(crate) fn lane(&self, at: LaneId) -> &Lane {
        &self.cards[at.card].lanes[at.lane]
    }

    pub(crate) fn lane_mut(&mut self, at: LaneId) -> &mut Lane {
        &mut self.cards[at.card].lanes[at.lane]
    }

    /// Returns the instruction that runs in the lane.
    pub(crate) fn running(&self, at: LaneId) -> Option<&Running> {
        self.lane(at).running.as_ref()
    }

    pub(crate) fn running_mut(&mut self, at: LaneId) -> Option<&mut Running> {
        self.lane_mut(at).running.as_mut()
    }
}

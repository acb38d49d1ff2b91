//! A fabric: its cards, its one clock, and its future events.

use std::sync::Arc;

use cmdseq::Tables;
use fpga_hal::Endpoint;

use crate::budget::{self, Budget};
use crate::card::{Card, Link, RESIDENT_PROGRAMS, SIGNALS};
use crate::clock::{Clock, Pace, Shared};
use crate::communicators::{Communicators, Members};
use crate::config_space::ConfigSpace;
use crate::endpoint::CardEndpoint;
use crate::engine::streams::{End, Rates, StreamId};
use crate::engine::{Agenda, Time};
use crate::fault::{Fault, When};
use crate::host_dma::HostDma;
use crate::lanes::{Lane, LaneId};
use crate::links::Ports;
use crate::memory::{CardMemory, Contents};
use crate::moves::{HOLD_BYTES, Move};
use crate::msix::Msix;
use crate::profile::{Profile, ProfileError};
use crate::sequencer::{Sequencer, UserLogic, Work};
use crate::switch::{Carried, StreamPurpose};
use crate::windows::Windows;

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

/// Cards on a network, all on one clock of virtual time. Clones are handles to the same fabric.
#[derive(Clone)]
pub struct Fabric {
    shared: Arc<Shared>,
    /// By node. One for each card, so that a bus notices a card that is already attached.
    endpoints: Arc<[Arc<CardEndpoint>]>,
}

impl Fabric {
    /// Creates a fabric of `profile`, with cards after power-up.
    ///
    /// # Errors
    /// [`ProfileError`] if the fabric cannot be built.
    pub fn new(profile: Profile) -> Result<Self, ProfileError> {
        profile.check()?;
        let shared = Arc::new(Shared::new(Core::new(profile)));
        let nodes = shared.access(|core| core.cards.len());
        let endpoints = (0..nodes).map(|node| Arc::new(CardEndpoint::new(Arc::clone(&shared), node))).collect();
        Ok(Fabric { shared, endpoints })
    }

    /// Returns the profile.
    pub fn profile(&self) -> Profile {
        self.shared.access(|core| core.profile.clone())
    }

    /// Returns the card at `node`, to attach it to a bus.
    ///
    /// # Panics
    /// If the fabric has no such node.
    pub fn endpoint(&self, node: u32) -> Arc<dyn Endpoint> {
        let Some(endpoint) = self.endpoints.get(node as usize) else { panic!("the fabric has no node {node}") };
        Arc::<CardEndpoint>::clone(endpoint)
    }

    /// Limits the machine's memory that all cards of the fabric use, in bytes: half of it is divided among the cards, half goes
    /// to the first card that asks. An instruction that needs more ends with [`Status::OutOfRange`](cmdseq::Status) and detail
    /// [`OUT_OF_MEMORY`](cmdseq::completion::OUT_OF_MEMORY). The default is half of the memory available to this process.
    pub fn limit_memory(&self, bytes: u64) {
        self.shared.access(|core| core.budget.set_total(bytes));
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns the reason if the fabric has failed: a part of the model panicked, and all cards read as all-ones since.
    pub fn failure(&self) -> Option<String> {
        self.shared.failure()
    }

    /// Returns the counters.
    pub fn statistics(&self) -> Statistics {
        self.shared.access(|core| Statistics { now_ps: core.now, ..core.statistics })
    }

    /// Plants a fault. A fault of an unknown card or link is ignored. A transfer is
    /// interrupted once: of several faults that wait for it, the first one planted strikes.
    pub fn plant(&self, fault: Fault) {
        self.shared.access(|core| core.plant(fault));
    }

    /// Discards the data that cards move from now on; only times stay correct. For more data than this machine has memory
    /// for.
    pub fn hollow_out(&self) {
        self.shared.access(|core| core.cards.iter_mut().for_each(|card| card.memory.hollow_out()));
    }

    /// Sets the rate of the link from node `a` to node `b`, in this direction.
    pub fn set_link_rate(&self, a: u32, b: u32, mbps: u32) {
        self.shared.access(|core| {
            if let Some(port) = core.ports.toward(a, b) {
                let out = core.cards[a as usize].links[port].out;
                core.rates.set_rate(out, mbps.into());
            }
        });
    }

    /// Connects `logic` to the changeover switch of the card at `node`.
    pub fn set_user_logic(&self, node: u32, logic: Box<dyn UserLogic>) {
        self.shared.access(|core| {
            if let Some(card) = core.cards.get_mut(node as usize) {
                card.user_logic = Some(logic);
            }
        });
    }

    /// Advances virtual time on a thread instead of inside accesses. For fabrics that are served to other processes. Returns
    /// `None` if the fabric has a thread already, or if starting the thread fails.
    pub fn start_clock(&self) -> Option<Clock> {
        Clock::start(&self.shared)
    }
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
    /// A one-sided request reaches the card that has the data.
    RdmaRequested { reader: LaneId, epoch: u64 },
    /// The beat that announces a one-sided write reaches the card that it is for.
    RdmaAnnounced { writer: LaneId, epoch: u64 },
    /// The last beat of a one-sided transfer is counted at its destination.
    RdmaCounted { issuer: LaneId, epoch: u64 },
    /// A planted fault strikes.
    Strike(Fault),
}

/// Steps of a running instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The switch is set: receives may go.
    SwitchSet,
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
    /// The signal that ends a one-sided write arrived.
    Acknowledged,
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
    pub(crate) now: Time,
    pub(crate) cards: Vec<Card>,
    pub(crate) rates: Rates<StreamPurpose>,
    pub(crate) host: HostDma,
    pub(crate) statistics: Statistics,
    pub(crate) next_burst: u64,
    /// Data that moves at this instant; all other events wait for it.
    pub(crate) moving: Option<Move>,
    /// Planted faults that wait for a transfer.
    pub(crate) watches: Vec<Fault>,
    /// Bytes read and written since the lock was taken.
    pub(crate) hold_bytes: u64,
    /// Card memory to be freed after the lock is released.
    pub(crate) discarded: Vec<Contents>,
    pub(crate) budget: Arc<Budget>,
    has_failed: bool,
    world: Members,
    agenda: Agenda<Event>,
    ends: Vec<End>,
    pub(crate) pace: Pace,
}

impl Core {
    pub(crate) fn new(profile: Profile) -> Self {
        let mut rates = Rates::new();
        let ports = Ports::new(profile.topology, profile.nodes);
        let world: Members = (0..profile.nodes).collect();
        let budget = Budget::new(budget::of_this_machine(), profile.nodes);
        let cards = (0..profile.nodes).map(|node| Core::card(&profile, &mut rates, &world, &budget, node)).collect();
        Core {
            profile,
            ports,
            now: 0,
            cards,
            rates,
            host: HostDma::default(),
            statistics: Statistics::default(),
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

    fn card(
        profile: &Profile,
        rates: &mut Rates<StreamPurpose>,
        world: &Members,
        budget: &Arc<Budget>,
        node: u32,
    ) -> Card {
        let lanes = profile.lanes as usize;
        let link = |out| Link::new(out, lanes);
        let mut card = Card {
            node,
            config: ConfigSpace::new(),
            msix: Msix::new(),
            bus: None,
            memory: CardMemory::new(profile.memory_bytes, node, budget),
            links: (0..profile.ports()).map(|_| link(rates.add_resource(profile.link_mbps.into()))).collect(),
            channels: (0..profile.memory_channels).map(|_| rates.add_resource(profile.channel_mbps.into())).collect(),
            local: (0..lanes).map(|_| rates.add_resource(profile.loop_back_mbps())).collect(),
            fold: (0..lanes).map(|_| rates.add_resource(profile.reduce_mbps())).collect(),
            rings: Default::default(),
            sequencer: Sequencer::default(),
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            communicators: Communicators::new(world, node),
            resident: vec![Vec::new(); RESIDENT_PROGRAMS],
            signals: [0; SIGNALS],
            tables: Tables::new(),
            windows: Windows::new(profile.windows()),
            user_logic: None,
            errors: fpga_regs::bits::Errors::empty(),
            eager_limit: 0,
            scratch: 0,
            latched_cycles: 0,
            latched_retired: 0,
            epoch: 0,
            is_frozen: false,
            is_gone: false,
        };
        card.reset(profile.receive_buffer_bytes, world);
        card
    }

    /// Resets one card. Its links retrain: what is on them is lost, and so is what its peers had received and not used.
    pub(crate) fn reset(&mut self, index: usize) {
        self.stop_all_streams(index);
        let node = self.cards[index].node;
        for port in 0..self.cards[index].links.len() {
            let peer = self.ports.peer(node, port);
            self.cards[index].links[port].begin_session();
            if let Some(back) = self.ports.toward(peer, node) {
                let link = &mut self.cards[peer as usize].links[back];
                link.begin_session();
                link.inbound.clear();
            }
        }
        let peer = |lane: &Lane| match &lane.running.as_ref()?.work {
            Work::Rdma(rdma) => Some(rdma.peer),
            _ => None,
        };
        let peers: Vec<usize> = self.cards[index].lanes.iter().filter_map(peer).collect();
        let contents = self.cards[index].reset(self.profile.receive_buffer_bytes, &self.world);
        self.discarded.push(contents);
        peers.into_iter().for_each(|peer| self.transfer_ended(peer));
    }

    /// Returns the card's free-running counter. Counters of different cards are unrelated.
    pub(crate) fn counter(&self, index: usize, at: Time) -> u64 {
        // A register: it wraps.
        let cycles = (at / Time::from(self.profile.cycle_ps)) as u64;
        cycles.wrapping_add(u64::from(self.cards[index].node) * 1_000_003)
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

    /// Advances time until no event is left or host memory is pending: now, or on the clock's thread.
    pub(crate) fn run(&mut self) {
        match self.pace {
            Pace::Access => while self.run_some(usize::MAX) {},
            Pace::Idle => self.pace = Pace::Due,
            Pace::Due | Pace::Stop => {}
        }
    }

    /// Ends the fabric after a panic of the model: all cards are gone, and no event runs.
    pub(crate) fn give_up(&mut self) {
        for card in &mut self.cards {
            card.freeze();
            card.is_gone = true;
        }
        self.agenda = Agenda::default();
        self.moving = None;
        self.has_failed = true;
    }

    /// Returns whether the lock must be released. Without a clock, the access that started work waits for all of it.
    pub(crate) fn has_held_enough(&self) -> bool {
        self.pace != Pace::Access && self.hold_bytes >= HOLD_BYTES
    }

    /// Handles up to `events` events, fewer if they move much data. Returns `false` if no event is left or host memory is
    /// pending.
    pub(crate) fn run_some(&mut self, events: usize) -> bool {
        for _ in 0..events {
            if self.has_failed {
                return false;
            }
            if !self.go_on_moving() || self.has_held_enough() {
                return true;
            }
            if !self.run_host_dma() {
                return false;
            }
            let next = self.agenda.next_at();
            if self.rates.is_unsettled() && next.is_none_or(|at| at > self.now) {
                let mut ends = std::mem::take(&mut self.ends);
                self.rates.settle(self.now, &mut ends);
                for (at, id) in ends.drain(..) {
                    self.schedule(at, Event::StreamEnds(id));
                }
                self.ends = ends;
                continue;
            }
            let Some((at, event)) = self.agenda.take() else { return false };
            self.now = self.now.max(at);
            self.statistics.events += 1;
            self.handle(event);
        }
        true
    }

    fn handle(&mut self, event: Event) {
        let is_current = |core: &Core, at: LaneId, epoch: u64| core.lane(at).epoch == epoch;
        match event {
            Event::StreamEnds(id) => {
                if let Some(purpose) = self.rates.finish(id) {
                    self.stream_ended(purpose);
                }
            }
            Event::Issue { card, epoch } if self.cards[card].epoch == epoch => self.issue(card),
            Event::Step { at, epoch, step } if is_current(self, at, epoch) => self.step(at, step),
            Event::Arrival { at, port, session, what } => self.arrived(at, port as usize, session, what),
            Event::BufferedCounted { at, epoch, port } if is_current(self, at, epoch) => {
                self.buffered_counted(at, port);
            }
            Event::RdmaRequested { reader, epoch } if is_current(self, reader, epoch) => self.rdma_requested(reader),
            Event::RdmaAnnounced { writer, epoch } if is_current(self, writer, epoch) => self.rdma_announced(writer),
            Event::RdmaCounted { issuer, epoch } if is_current(self, issuer, epoch) => self.rdma_counted(issuer),
            Event::Strike(fault) => self.strike(fault),
            Event::Issue { .. }
            | Event::Step { .. }
            | Event::BufferedCounted { .. }
            | Event::RdmaRequested { .. }
            | Event::RdmaAnnounced { .. }
            | Event::RdmaCounted { .. } => {}
        }
    }

    fn plant(&mut self, fault: Fault) {
        match fault.when() {
            When::Now | When::After(0) => self.strike(fault),
            When::After(ps) => self.schedule_in(ps, Event::Strike(fault)),
            When::Moved(_) => self.watches.push(fault),
        }
    }

    pub(crate) fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Freeze { node, .. } | Fault::Vanish { node } => {
                let index = node as usize;
                if index < self.cards.len() {
                    self.stop_all_streams(index);
                    let card = &mut self.cards[index];
                    card.freeze();
                    card.is_gone |= matches!(fault, Fault::Vanish { .. });
                }
            }
            Fault::Reset { node, .. } if (node as usize) < self.cards.len() => self.reset(node as usize),
            Fault::Reset { .. } => {}
            Fault::Slow { mbps } => {
                let links = self.cards.iter().flat_map(|card| &card.links).filter(|link| link.is_up);
                links.for_each(|link| self.rates.set_rate(link.out, mbps.into()));
            }
            Fault::Cut { a, b, .. } => {
                for (from, to) in [(a, b), (b, a)] {
                    let Some(port) = self.ports.toward(from, to) else { continue };
                    let link = &mut self.cards[from as usize].links[port];
                    link.is_up = false;
                    link.begin_session();
                    self.rates.set_rate(link.out, 0);
                    self.lost_link(from as usize, port);
                }
            }
        }
    }
}

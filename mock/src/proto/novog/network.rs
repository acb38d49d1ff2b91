//! A torus of routers, on one region of the engine's clock.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use cmdseq::routing::{Capacity, NodeTables, RoutedTables, RoutingReport, Torus3, VerifyError, verify};

use super::link::LinkTimes;
use super::router::{Delivery, Packet, Payload, Router, SWITCH_CYCLES};
use crate::engine::{Clock, Clocked, Cycle, Region};
use crate::profile::novog::Profile;

/// A refused load or commit of tables.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The tables are wrong.
    #[error(transparent)]
    Tables(#[from] VerifyError),
    /// The tables are for another torus.
    #[error("tables of a torus of {given:?} do not fit a torus of {has:?}")]
    Shape {
        /// Sides of the tables' torus.
        given: [u32; 3],
        /// Sides of the network.
        has: [u32; 3],
    },
    /// No tables are staged.
    #[error("no tables are staged")]
    Nothing,
}

/// Data that nodes send: for each collective and each of its packets, what each start sends.
pub trait Injection {
    /// Returns the data that the node sends as its part of a packet of a collective.
    fn payload(&self, collective: usize, packet: u32, node: u32) -> Payload;
}

impl<F: Fn(usize, u32, u32) -> Payload> Injection for F {
    fn payload(&self, collective: usize, packet: u32, node: u32) -> Payload {
        self(collective, packet, node)
    }
}

/// What the users' logic on the cards does.
pub(crate) trait UserLogic {
    /// Inputs that each router has for it.
    fn inputs(&self) -> usize;

    /// Gives `send` what each node sends in a cycle: node, input, packet. An input takes one packet in a cycle, in order.
    fn run(&mut self, cycle: u64, send: impl FnMut(u32, usize, Packet));

    /// Takes what a node got.
    fn receive(&mut self, delivery: Delivery);

    /// Returns whether it has something to do, without anything new from the network.
    fn is_busy(&self) -> bool;
}

/// A bit error on a link: whose checksum is wrong, the receiver drops without notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Garbled {
    /// The sender.
    pub from: u32,
    /// The receiver, its neighbour.
    pub to: u32,
    /// Packets that the sender's links to the receiver carry before.
    pub after: u64,
}

/// What a run did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Cycles from the first packet sent to the last one received.
    pub cycles: u64,
    /// What the nodes got, in order of time.
    pub deliveries: Vec<Delivery>,
    /// The most packets that waited in one buffer of a link.
    pub depth_max: usize,
    /// Packets lost in full buffers.
    pub lost: u64,
    /// Packets without entry in a table.
    pub stray: u64,
    /// Packets dropped because of a bit error.
    pub garbled: u64,
    /// Packets on links.
    pub hops: u64,
}

/// Cards with statically scheduled routers in a torus.
///
/// Each card has two banks of tables: one is in use, and the other one is staged. A commit exchanges them on all cards
/// at once, between two runs.
#[derive(Debug)]
pub struct Network {
    profile: Profile,
    torus: Torus3,
    active: Option<RoutedTables>,
    staged: Option<RoutedTables>,
    garbled: Option<Garbled>,
}

impl Network {
    /// Returns a network without tables.
    pub fn new(profile: Profile, torus: Torus3) -> Self {
        Network { profile, torus, active: None, staged: None, garbled: None }
    }

    /// Verifies tables and writes them to the bank that is not in use, of all cards.
    ///
    /// # Errors
    /// [`LoadError`] if they are for another torus, or could lose, misdirect or keep packets. Nothing is staged then.
    pub fn stage(&mut self, tables: RoutedTables) -> Result<RoutingReport, LoadError> {
        let (given, has) = (tables.torus.sides(), self.torus.sides());
        if given != has {
            return Err(LoadError::Shape { given, has });
        }
        let depth = self.profile.input_packets as u64;
        let report = verify(&tables, Capacity { depth, ..Capacity::default() })?;
        self.staged = Some(tables);
        Ok(report)
    }

    /// Takes the staged tables into use on all cards; those in use become staged.
    ///
    /// # Errors
    /// [`LoadError::Nothing`] if no tables are staged.
    pub fn commit(&mut self) -> Result<(), LoadError> {
        if self.staged.is_none() {
            return Err(LoadError::Nothing);
        }
        std::mem::swap(&mut self.staged, &mut self.active);
        Ok(())
    }

    /// Plants a bit error in each run.
    pub fn garble(&mut self, garbled: Garbled) {
        self.garbled = Some(garbled);
    }

    /// Runs all collectives of the tables in use: every node sends a packet in each cycle, until it has sent all of its.
    /// Packet by packet, collectives follow each other in the order of their list. `None` without tables.
    pub fn run(&self, injection: &impl Injection) -> Option<Outcome> {
        let mut batch = Batch { packets: packets(self.active.as_ref()?, injection), deliveries: Vec::new() };
        let outcome = self.run_with(&mut batch)?;
        let deliveries = batch.deliveries;
        Some(Outcome { cycles: deliveries.iter().map(|one| one.cycle).max().unwrap_or(0), deliveries, ..outcome })
    }

    /// Runs logic on the cards until nothing is left to do. `None` without tables. The outcome has neither cycles nor deliveries.
    pub(super) fn run_with(&self, logic: &mut impl UserLogic) -> Option<Outcome> {
        let tables = self.active.as_ref()?;
        let nodes: Vec<&NodeTables> = tables.nodes.iter().collect();
        let counts = run_on(self.profile, tables.torus, &nodes, (self.garbled, u64::MAX), logic)?;
        Some(Counts::total(&counts))
    }
}

/// What the router of a card counted in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// The most packets that waited in one buffer of a link.
    pub(crate) depth_max: usize,
    /// Packets lost in full buffers.
    pub(crate) lost: u64,
    /// Packets without entry, and those that were on links for too long.
    pub(crate) stray: u64,
    /// Packets that links brought with a bit error.
    pub(crate) garbled: u64,
    /// Packets sent over links.
    pub(crate) hops: u64,
}

impl Counts {
    /// Returns the counts of a network, without cycles and deliveries.
    fn total(all: &[Counts]) -> Outcome {
        let sum = |of: fn(&Counts) -> u64| all.iter().map(of).sum();
        Outcome {
            cycles: 0,
            deliveries: Vec::new(),
            depth_max: all.iter().map(|one| one.depth_max).max().unwrap_or(0),
            lost: sum(|one| one.lost),
            stray: sum(|one| one.stray),
            garbled: sum(|one| one.garbled),
            hops: sum(|one| one.hops),
        }
    }
}

/// Runs logic on cards with these tables, by node, until nothing is left to do. Returns what each router counted.
///
/// Tables need not be valid: packets that would pass more than `hops_max` links in all are lost. `None` if the routers have no clock.
pub(super) fn run_on(
    profile: Profile,
    torus: Torus3,
    tables: &[&NodeTables],
    (garbled, hops_max): (Option<Garbled>, u64),
    logic: &mut impl UserLogic,
) -> Option<Vec<Counts>> {
    let hertz = NonZeroU64::new(profile.router_hertz)?;
    let mut fabric = Fabric::new(profile, torus, tables, logic, (garbled, hops_max));
    let mut region = Region::new(Clock::new(hertz, 0), [Routers]);
    let mut next = region.wake(0);
    while let Some(at) = next {
        next = region.run(at, &mut fabric);
    }
    Some(fabric.counts())
}

/// Returns the packets of each node, in the order in which it sends them.
fn packets(tables: &RoutedTables, injection: &impl Injection) -> Vec<(u32, Packet)> {
    let mut all = Vec::new();
    let packets = |one: &cmdseq::routing::ScheduledCollective| one.collective.packets;
    let most = tables.collectives.iter().map(packets).max().unwrap_or(0);
    for packet in 0..most {
        for (number, one) in tables.collectives.iter().enumerate().filter(|(_, one)| packet < packets(one)) {
            for start in one.starts_of(packet) {
                let payload = injection.payload(number, packet, start.node);
                all.push((start.node, Packet { index: start.index, payload }));
            }
        }
    }
    all
}

/// Logic that has all packets from the begin on.
struct Batch {
    packets: Vec<(u32, Packet)>,
    deliveries: Vec<Delivery>,
}

impl UserLogic for Batch {
    fn inputs(&self) -> usize {
        1
    }

    fn run(&mut self, _: u64, mut send: impl FnMut(u32, usize, Packet)) {
        self.packets.drain(..).for_each(|(node, packet)| send(node, 0, packet));
    }

    fn receive(&mut self, delivery: Delivery) {
        self.deliveries.push(delivery);
    }

    fn is_busy(&self) -> bool {
        !self.packets.is_empty()
    }
}

/// All routers as one module: a cycle takes what arrived, then runs each router.
struct Routers;

struct Fabric<'a, L> {
    profile: Profile,
    /// By node.
    tables: &'a [&'a NodeTables],
    logic: &'a mut L,
    /// Inputs of each router for the logic.
    locals: usize,
    routers: Vec<Router>,
    /// What each node has to send, by node and input.
    waiting: Vec<VecDeque<Packet>>,
    /// What is on each link, with the cycle of its arrival, by receiving node and port.
    links: Vec<VecDeque<(u64, Packet)>>,
    /// Node at the other end of each link, by node and port.
    others: Vec<Option<usize>>,
    times: LinkTimes,
    /// The bit error to come.
    garbled: Option<Garbled>,
    /// Packets that links may still carry.
    hops_left: u64,
    /// By node; those of the routers themselves come at the end.
    counts: Vec<Counts>,
}

impl<'a, L: UserLogic> Fabric<'a, L> {
    fn new(
        profile: Profile,
        torus: Torus3,
        tables: &'a [&'a NodeTables],
        logic: &'a mut L,
        (garbled, hops_left): (Option<Garbled>, u64),
    ) -> Self {
        let nodes = torus.nodes() as usize;
        let links = nodes * Torus3::LINKS;
        let other = |link: usize| {
            torus.neighbour((link / Torus3::LINKS) as u32, link % Torus3::LINKS).map(|node| node as usize)
        };
        let locals = logic.inputs();
        Fabric {
            profile,
            tables,
            logic,
            locals,
            routers: tables.iter().map(|tables| Router::new(tables, locals)).collect(),
            waiting: vec![VecDeque::new(); nodes * locals],
            links: vec![VecDeque::new(); links],
            others: (0..links).map(other).collect(),
            times: LinkTimes::new(&profile, nodes, links),
            garbled,
            hops_left,
            counts: vec![Counts::default(); nodes],
        }
    }

    fn counts(self) -> Vec<Counts> {
        let of = |(counts, router): (Counts, &Router)| Counts {
            depth_max: router.depth_max,
            lost: router.lost,
            stray: counts.stray + router.stray,
            ..counts
        };
        self.counts.into_iter().zip(&self.routers).map(of).collect()
    }
}

impl<L: UserLogic> Clocked<Fabric<'_, L>> for Routers {
    fn consume(&mut self, cycle: Cycle, fabric: &mut Fabric<'_, L>) {
        let cycle = cycle as u64;
        let Fabric { profile, logic, locals, routers, waiting, links, .. } = fabric;
        logic.run(cycle, |node, input, packet| waiting[node as usize * *locals + input].push_back(packet));
        for (node, router) in routers.iter_mut().enumerate() {
            for port in 0..Torus3::LINKS {
                let link = &mut links[node * Torus3::LINKS + port];
                // A link brings a packet in a cycle.
                if link.front().is_some_and(|(at, _)| *at <= cycle)
                    && let Some((_, packet)) = link.pop_front()
                {
                    router.receive(port, packet, profile.input_packets);
                }
            }
            for input in 0..*locals {
                if let Some(packet) = waiting[node * *locals + input].pop_front() {
                    router.receive(Torus3::LINKS + input, packet, usize::MAX);
                }
            }
        }
    }

    fn produce(&mut self, cycle: Cycle, fabric: &mut Fabric<'_, L>) -> Option<Cycle> {
        let now = cycle as u64;
        let Fabric {
            profile, tables, logic, routers, links, others, times, garbled, hops_left, counts, waiting, ..
        } = fabric;
        for (node, router) in routers.iter_mut().enumerate().filter(|(_, router)| !router.is_empty()) {
            let left = now + SWITCH_CYCLES;
            router.run(now, tables[node], profile.queue_packets, |port, packet| {
                let link = node * Torus3::LINKS + port;
                if port == Torus3::LOCAL {
                    logic.receive(Delivery { node: node as u32, cycle: left, payload: packet.payload });
                } else if let Some(to) = others[link] {
                    let Some(left_after) = hops_left.checked_sub(1) else { return counts[node].stray += 1 };
                    *hops_left = left_after;
                    counts[node].hops += 1;
                    if is_hit(garbled, node, to) {
                        return counts[to].garbled += 1;
                    }
                    let queue = &mut links[to * Torus3::LINKS + (port ^ 1)];
                    let first = queue.back().map_or(now + 1, |(at, _)| at + 1);
                    // Packets keep their order. No clock is so fast that one arrives before it was sent.
                    queue.push_back((times.arrival(link, node, to, left).max(first), packet));
                } else {
                    counts[node].stray += 1;
                }
            });
        }
        let is_busy = logic.is_busy()
            || routers.iter().any(|router| !router.is_empty())
            || waiting.iter().any(|queue| !queue.is_empty());
        if is_busy {
            return Some(cycle + 1);
        }
        let next = links.iter().filter_map(|link| link.front()).map(|(at, _)| *at).min()?;
        Some(Cycle::from(next))
    }
}

/// Returns whether the bit error hits a packet between two nodes. It does so once.
fn is_hit(error: &mut Option<Garbled>, from: usize, to: usize) -> bool {
    let Some(garbled) = error.as_mut().filter(|one| (one.from as usize, one.to as usize) == (from, to)) else {
        return false;
    };
    if garbled.after > 0 {
        garbled.after -= 1;
        return false;
    }
    *error = None;
    true
}

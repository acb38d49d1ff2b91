//! The state of a whole fabric. What happens in its events is in `model`.

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
use crate::card::rings::Rings;
use crate::card::routed::Routed;
use crate::card::running::Running;
use crate::card::sequencer::Sequencer;
use crate::card::switched::Switches;
use crate::card::windows::Windows;
use crate::card::{Card, RESIDENT_PROGRAMS};
use crate::engine::Agenda;
use crate::engine::streams::{End, Rates, ResourceId};
use crate::environment::{Environment, Pace, Statistics};
use crate::net::link::Link;
use crate::net::noise::Dice;
use crate::net::wiring::Ports;
use crate::on_card::OnCard;
use crate::profile::Profile;
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::signal::SIGNALS;

/// The fabric behind its lock.
pub(crate) struct Core {
    pub(crate) cards: Vec<Card>,
    pub(crate) env: Environment,
    /// Links that are down.
    pub(crate) down: Vec<ResourceId>,
    /// Statically scheduled routers, if the cards have them.
    pub(crate) routed: Option<Routed>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) has_failed: bool,
    pub(crate) ends: Vec<End>,
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
        let env = Environment {
            profile,
            ports,
            now: 0,
            resources,
            rates,
            host,
            switches,
            link_dice: Dice::default(),
            statistics: Statistics::default(),
            transfers: None,
            next_burst: 0,
            moving: None,
            watches: Vec::new(),
            outlasting: Vec::new(),
            hold_bytes: 0,
            discarded: Vec::new(),
            world,
            agenda: Agenda::default(),
            strikes: 0,
            pace: Pace::default(),
        };
        Core { cards, env, down: Vec::new(), routed, budget, has_failed: false, ends: Vec::new() }
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
            rings: Rings::default(),
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
            has_rung: false,
        };
        card.reset_logic(profile.receive_buffer_bytes, world);
        card
    }

    /// What happens on a card.
    pub(crate) fn on(&mut self, card: usize) -> OnCard<'_> {
        OnCard { card: &mut self.cards[card], env: &mut self.env }
    }

    /// Returns the instruction that runs in a lane.
    pub(crate) fn running(&self, at: LaneId) -> Option<&Running> {
        self.cards[at.card].lanes[at.lane].running.as_ref()
    }
}

//! The shell: what is between the host and a sequencer. It is the one place that knows how a card is built; whoever is above it
//! submits instructions and moves data in the same way on every card.
//!
//! What the card says decides, never its PCI ids:
//!
//! | sequencer | rings | data | interrupt |
//! |---|---|---|---|
//! | masters the bus (HOST_RING) | host memory | Intel's DMA engine if its feature list leads to one, or else copy instructions | its own vector |
//! | masters the bus (HOST_RING) through channels of AMD's engine that its feature list names | host memory | the engine's other channels; copy instructions if there are none each way | one of the engine's for user logic |
//! | masters nothing (CARD_RING), and its feature list describes memory for rings | that memory | AMD's DMA engine, found by its identifiers | one of the engine's for user logic |
//! | announces CARD_RING, and a board file places memory that an engine reaches | that memory | AMD's DMA engine | one of the engine's |
//! | announces CARD_RING, and a board file says where | the memory that it names | copy instructions | its own vector |
//!
//! If the board file says how the sequencer is to be fed, a sequencer that does not announce that is refused.

mod data_engine;
mod ring_memory;

use cmdseq::{Capabilities, instruction};
use fpga_hal::{BarIndex, Function, Interrupt, InterruptKind, Window};
use fpga_regs::bits::Features;

use crate::board::{BlockKind, BoardFunction, Feed};
use crate::error::{Error, Result};
use crate::msgdma;
use crate::sequencer::block::Block;
use crate::sequencer::bypass::BypassChannels;
use crate::sequencer::health::master_bus;
pub(crate) use crate::shell::data_engine::DataEngine;
use crate::shell::ring_memory::RingMemory;
use crate::transport::any::AnyTransport;
use crate::transport::bypass_ring::BypassRing;
use crate::transport::card_ring::{self, CardRing, RingWindow};
use crate::transport::fetched_ring::FetchedRing;
use crate::transport::host_ring::HostRing;
use crate::transport::scratchpad::Scratchpad;
use crate::xdma::{Bypass, Direction, Engine};

/// Entries of a ring, unless the card has fewer.
const DEPTH_MAX: u32 = 1024;
/// Entries of a ring in memory of the shell, which has other uses: few that are stored by hand.
const CARD_DEPTH_MAX: u32 = 128;

/// The shell of one card.
#[derive(Debug)]
pub(crate) enum Shell {
    /// The sequencer masters the bus, and an engine beside it if the feature list leads to one.
    Master { engine: Option<Box<msgdma::Engine>> },
    /// The sequencer masters the bus through channels of a DMA engine. `bypass`: these channels, until the rings have them.
    Bypass { engine: Box<Engine>, bypass: Option<Box<Bypass>>, channels: BypassChannels },
    /// A board description says where rings are.
    Described(RingWindow),
    /// The sequencer is behind a DMA engine.
    Engine { engine: Box<Engine>, rings: RingMemory, registers: BarIndex, polls_bar: bool },
}

impl Shell {
    /// Looks how the sequencer of `function`, whose registers and feature list are in `bar`, is fed and reached. Channels of an
    /// engine are stopped, and the function masters the bus afterwards.
    pub(crate) fn probe(
        (function, board): (&Function, &BoardFunction),
        (bar, list): (BarIndex, &Window),
        block: &Block,
        features: Features,
    ) -> Result<Self> {
        let bad = |expected| block.bad("FEATURES", features.bits(), expected);
        let features = match board.feed {
            None => features,
            Some(Feed::HostRing) => features - Features::CARD_RING,
            Some(Feed::CardRing | Feed::Registers) => features - Features::HOST_RING,
        };
        if board.feed.is_some() && !features.intersects(Features::HOST_RING | Features::CARD_RING) {
            return Err(bad("a sequencer that is fed as its board file says"));
        }
        let placed = board.block(BlockKind::RingMemory).and_then(RingMemory::placed);
        let masters = || master_bus(function).map_err(|error| block.bus(error));
        if let Some(RingMemory { window, engine: None, .. }) = placed {
            if !features.contains(Features::CARD_RING) {
                return Err(bad("a sequencer with rings in card memory"));
            }
            masters()?;
            return Ok(Shell::Described(window));
        }
        // A sequencer that a board file places is in no list, and so is what describes how it reaches memory.
        let is_listed = board.block(BlockKind::Sequencer).is_none();
        if features.contains(Features::HOST_RING) {
            let channels = if is_listed { BypassChannels::find(list, function)? } else { None };
            if let Some(channels) = channels {
                let mut engine = Box::new(Engine::of_card(function.clone())?);
                let bypass = Some(Box::new(engine.take_bypass(channels.h2c, channels.c2h)?));
                return Ok(Shell::Bypass { engine, bypass, channels });
            }
            let engine = if is_listed { msgdma::Engine::of_card(function, list)? } else { None };
            masters()?;
            return Ok(Shell::Master { engine: engine.map(Box::new) });
        }
        let rings = match (features.contains(Features::CARD_RING), placed) {
            (true, Some(placed)) => Some(placed),
            (true, None) if is_listed => RingMemory::find(list, function)?,
            _ => None,
        };
        let Some(rings) = rings else {
            return Err(bad("a sequencer with rings in host memory, or in memory that its feature list describes"));
        };
        let engine = Box::new(Engine::of_card(function.clone())?);
        let polls_bar = board.feed == Some(Feed::Registers);
        Ok(Shell::Engine { engine, rings, registers: bar, polls_bar })
    }

    /// Returns what the sequencer must go on to announce.
    pub(crate) fn ring_feature(&self) -> Features {
        match self {
            Shell::Master { .. } | Shell::Bypass { .. } => Features::HOST_RING,
            Shell::Described(_) | Shell::Engine { .. } => Features::CARD_RING,
        }
    }

    /// Sets up rings of up to `depth_max` entries. Returns them, and their entries.
    pub(crate) fn transport(
        &mut self,
        function: &Function,
        block: &Block,
        depth_max: u32,
    ) -> Result<(AnyTransport, u32)> {
        let card_ring = |ring: CardRing| {
            let depth = ring.depth();
            (AnyTransport::Shell(Box::new(ring)), depth)
        };
        let host_ring = || {
            let depth = depth_max.min(DEPTH_MAX);
            Ok::<_, Error>((HostRing::allocate(block, &function.private_domain(), depth)?, depth))
        };
        match self {
            Shell::Master { .. } => host_ring().map(|(ring, depth)| (AnyTransport::HostRing(ring), depth)),
            Shell::Bypass { bypass, .. } => {
                let Some(bypass) = bypass.take() else { unreachable!("a card sets its rings up once") };
                host_ring().map(|(ring, depth)| (AnyTransport::Shell(Box::new(BypassRing::new(ring, *bypass))), depth))
            }
            Shell::Described(window) => {
                Ok(card_ring(CardRing::map(block, function, *window, depth_max.min(DEPTH_MAX))?))
            }
            Shell::Engine { engine, rings, registers, polls_bar } => {
                // One BAR is one master of the shell's bus, which keeps the order of writes; another BAR is another.
                let is_ordered = rings.window.bar == *registers;
                let ring = CardRing::map(block, function, rings.window, depth_max.min(CARD_DEPTH_MAX))?;
                let ring = ring.in_shell(is_ordered);
                let used = ring.bytes();
                let rest = rings.window.bytes.checked_sub(used).filter(|rest| *rest >= instruction::BYTES as u64);
                let Some(rest) = rest else {
                    return Err(card_ring::no_room(block, rings.window));
                };
                let window = function.window(rings.window.bar).map_err(|error| block.bus(error))?;
                let window = window.slice(rings.window.offset + used, rest).map_err(|error| block.bus(error))?;
                let mut ring = ring.beside(Scratchpad::new(block, window, rings.window.address + used));
                let reader = if *polls_bar { None } else { engine.take_reader()? };
                if let Some((reader, base)) = reader.zip(rings.engine) {
                    let address = base + ring.completions();
                    let fetched = FetchedRing::new(block, &function.private_domain(), reader, address, ring.depth())?;
                    ring = ring.fetched_by(fetched);
                }
                Ok(card_ring(ring))
            }
        }
    }

    /// Cuts what the card can do to what can reach it.
    pub(crate) fn limit(&self, capabilities: &mut Capabilities, transport: &AnyTransport) {
        capabilities.host_memory = !matches!(self, Shell::Engine { .. });
        if let Some(scratchpad) = transport.scratchpad() {
            let room = u32::try_from(scratchpad.bytes() / instruction::BYTES as u64).unwrap_or(u32::MAX);
            capabilities.resident_words = capabilities.resident_words.min(room);
        }
    }

    /// Enables the interrupt of the queue.
    pub(crate) fn interrupt(&self, function: &Function, block: &Block) -> Result<Interrupt> {
        // The engine, and its interrupt of user logic.
        let routed = match self {
            Shell::Master { .. } | Shell::Described(_) => None,
            Shell::Engine { engine, rings: RingMemory { interrupt, .. }, .. }
            | Shell::Bypass { engine, channels: BypassChannels { interrupt, .. }, .. } => Some((engine, *interrupt)),
        };
        let interrupts = match routed {
            None => function.enable_interrupts(1),
            Some(_) => function.enable_interrupts_of(InterruptKind::Msix, 1),
        };
        let interrupts = interrupts.map_err(|error| block.bus(error))?;
        if let Some((engine, Some(line))) = routed {
            engine.route_user_interrupt(line)?;
        }
        let first = interrupts.into_iter().next();
        first.ok_or_else(|| block.bad("MSI-X message control", 0, "at least one vector"))
    }

    /// Takes the shell into use again after the function was reset. The function masters the bus afterwards.
    pub(crate) fn after_reset(&mut self, function: &Function, block: &Block) -> Result<()> {
        match self {
            Shell::Master { engine: Some(engine) } => Ok(engine.after_reset()?),
            Shell::Master { engine: None } | Shell::Described(_) => {
                master_bus(function).map_err(|error| block.bus(error))
            }
            Shell::Engine { engine, .. } | Shell::Bypass { engine, .. } => Ok(engine.after_reset()?),
        }
    }

    /// Returns the channels through which the sequencer masters the bus, from the host and to the host, if it does so through an engine.
    pub(crate) fn bypass_channels(&self) -> Option<(u32, u32)> {
        match self {
            Shell::Bypass { channels: BypassChannels { h2c, c2h, .. }, .. } => Some((*h2c, *c2h)),
            Shell::Master { .. } | Shell::Described(_) | Shell::Engine { .. } => None,
        }
    }

    /// Returns the name of the engine that moves data; `None` if copy instructions do.
    pub(crate) fn engine_name(&self) -> Option<&'static str> {
        match self {
            Shell::Engine { .. } => Some("xdma"),
            Shell::Bypass { engine, .. } => moves_data(engine).then_some("xdma"),
            Shell::Master { engine: Some(_) } => Some("msgdma"),
            Shell::Master { engine: None } | Shell::Described(_) => None,
        }
    }

    /// Returns the engine that moves data; `None` if copy instructions do.
    pub(crate) fn engine(&mut self) -> Option<DataEngine<'_>> {
        match self {
            Shell::Engine { engine, .. } => Some(DataEngine::Xdma(engine)),
            Shell::Bypass { engine, .. } => moves_data(engine).then_some(DataEngine::Xdma(engine)),
            Shell::Master { engine } => engine.as_deref_mut().map(DataEngine::Msgdma),
            Shell::Described(_) => None,
        }
    }
}

/// Returns whether an engine of which a sequencer has channels has others, each way.
fn moves_data(engine: &Engine) -> bool {
    [Direction::H2c, Direction::C2h].iter().all(|one| engine.channels(*one) > 0)
}

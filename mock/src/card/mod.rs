//! The state of one card.

pub(crate) mod budget;
pub(crate) mod bus_ports;
pub(crate) mod clock;
pub(crate) mod communicators;
pub(crate) mod config_space;
pub(crate) mod decode;
pub(crate) mod feature_list;
pub(crate) mod fft;
pub(crate) mod frames;
pub(crate) mod host_dma;
pub(crate) mod host_jobs;
pub(crate) mod image;
pub(crate) mod in_flight;
pub(crate) mod lane;
pub(crate) mod launch;
pub(crate) mod memory;
pub(crate) mod msix;
pub(crate) mod posted;
pub(crate) mod readiness;
pub(crate) mod resources;
pub(crate) mod rings;
pub(crate) mod routed;
pub(crate) mod router;
pub(crate) mod running;
pub(crate) mod sequencer;
pub(crate) mod split;
pub(crate) mod switched;
pub(crate) mod user_logic;
pub(crate) mod windows;

use cmdseq::{Instruction, Tables};
use fpga_hal::Iova;
use fpga_hal::endpoint::{DmaProgress, DmaTag};
use fpga_regs::bits::Errors;
use fpga_regs::pci;

use crate::card::bus_ports::BusPorts;
use crate::card::clock::Clock;
use crate::card::communicators::{Communicators, Members};
use crate::card::config_space::ConfigSpace;
use crate::card::frames::Discarded;
use crate::card::lane::Lane;
use crate::card::memory::CardMemory;
use crate::card::msix::Msix;
use crate::card::posted::Posted;
use crate::card::readiness::Readiness;
use crate::card::rings::Rings;
use crate::card::running::Running;
use crate::card::sequencer::Sequencer;
use crate::card::user_logic::UserLogic;
use crate::card::windows::Windows;
use crate::net::link::Link;
use crate::proto::optweb::one_sided::Served;
use crate::proto::optweb::signal::SIGNALS;

/// Queue pairs of a card.
pub(crate) const QUEUES: u32 = 1;
/// Slots for resident programs.
pub(crate) const RESIDENT_PROGRAMS: usize = 16;
/// Instructions of one resident program.
pub(crate) const RESIDENT_WORDS: u32 = 1024;
/// Slots for tables.
pub(crate) const TABLES: u16 = 16;

pub(crate) struct Card {
    pub(crate) node: u32,
    pub(crate) clock: Clock,
    /// What its configuration space says after a reset.
    pub(crate) function: &'static pci::Function,
    pub(crate) config: ConfigSpace,
    pub(crate) msix: Msix,
    pub(crate) bus: Option<BusPorts>,
    pub(crate) posted: Posted,
    pub(crate) memory: CardMemory,
    pub(crate) links: Vec<Link>,
    pub(crate) rings: Rings,
    pub(crate) sequencer: Sequencer,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) communicators: Communicators,
    pub(crate) resident: Vec<Vec<Instruction>>,
    pub(crate) signals: [u32; SIGNALS],
    pub(crate) tables: Tables,
    pub(crate) windows: Windows,
    /// One-sided operations of other cards in progress: at most one for each of their lanes.
    pub(crate) served: Vec<Served>,
    pub(crate) user_logic: Option<Box<dyn UserLogic>>,
    pub(crate) errors: Errors,
    /// What came over links with a wrong checksum.
    pub(crate) link_errors: u32,
    pub(crate) eager_limit: u64,
    pub(crate) scratch: u32,
    /// High halves of the counters as of the last read of their low halves.
    pub(crate) latched_cycles: u32,
    pub(crate) latched_retired: u32,
    /// Incremented by all that voids earlier events of the card: a reset, a freeze. See also [`Lane::epoch`].
    pub(crate) epoch: u64,
    pub(crate) readiness: Readiness,
    /// The card's clock has stopped (a planted fault).
    pub(crate) is_frozen: bool,
    /// The card no longer answers (a planted fault).
    pub(crate) is_gone: bool,
    /// It has taken a doorbell since the fabric was made. Until then planted faults outlast its resets.
    pub(crate) has_rung: bool,
}

impl Card {
    /// Clears what a reset of the function clears besides the logic ([`reset_logic`](Card::reset_logic)): configuration space,
    /// interrupts, and memory. Ports, links and planted absence stay. Returns what was in the card's memory, to be freed.
    pub(crate) fn reset_function(&mut self) -> Discarded {
        self.config.reset(self.function);
        self.msix = Msix::new(self.function.msix);
        self.posted.clear();
        self.deliver_interrupts();
        self.memory.clear()
    }

    /// Clears all state of the sequencer and what is around it, as when the logic is configured anew.
    pub(crate) fn reset_logic(&mut self, eager_limit: u64, world: &Members) {
        for link in &mut self.links {
            (link.send, link.receive) = (None, None);
        }
        self.rings = Rings::default();
        self.sequencer = Sequencer::default();
        self.lanes.iter_mut().for_each(Lane::reset);
        self.communicators = Communicators::new(world, self.node);
        self.resident = vec![Vec::new(); RESIDENT_PROGRAMS];
        self.signals = [0; SIGNALS];
        self.tables.clear();
        self.windows.reset();
        self.served = Vec::new();
        self.errors = Errors::empty();
        self.link_errors = 0;
        self.memory.forget_corrected();
        self.eager_limit = eager_limit;
        self.scratch = 0;
        self.epoch += 1;
        self.is_frozen = false;
    }

    /// Returns whether the function answers.
    pub(crate) fn answers(&self) -> bool {
        !self.is_gone && self.readiness != Readiness::Resetting
    }

    /// Stops the card's clock: all its events are void.
    pub(crate) fn freeze(&mut self) {
        self.epoch += 1;
        self.lanes.iter_mut().for_each(|lane| lane.epoch += 1);
        self.is_frozen = true;
    }

    /// Returns the lane whose running instruction is the first in the order of the program.
    pub(crate) fn oldest_lane(&self) -> Option<usize> {
        let running = |lane: &usize| self.lanes[*lane].running.as_ref().map(|running| running.order);
        (0..self.lanes.len()).filter(|lane| running(lane).is_some()).min_by_key(running)
    }

    /// Returns the running instruction that is the first in the order of the program.
    pub(crate) fn oldest(&self) -> Option<&Running> {
        self.oldest_lane().and_then(|lane| self.lanes[lane].running.as_ref())
    }

    /// Returns whether the sequencer runs an instruction, is about to, or waits for host memory.
    pub(crate) fn is_busy(&self) -> bool {
        self.sequencer.is_busy() || self.lanes.iter().any(|lane| lane.running.is_some())
    }

    /// Reads host memory.
    pub(crate) fn read_host(&self, tag: DmaTag, iova: Iova, data: &mut [u8]) -> DmaProgress {
        match BusPorts::dma(self.bus.as_ref(), &self.config) {
            Ok(port) => port.read(tag, iova, data),
            Err(fault) => DmaProgress::Done(Err(fault)),
        }
    }

    /// Writes host memory.
    pub(crate) fn write_host(&self, tag: DmaTag, iova: Iova, data: &[u8]) -> DmaProgress {
        match BusPorts::dma(self.bus.as_ref(), &self.config) {
            Ok(port) => port.write(tag, iova, data),
            Err(fault) => DmaProgress::Done(Err(fault)),
        }
    }

    /// Raises all vectors that are pending and not masked, and updates the INTx line.
    pub(crate) fn deliver_interrupts(&mut self) {
        BusPorts::deliver(self.bus.as_mut(), &mut self.config, &mut self.msix);
    }

    /// Raises the queue's vector.
    pub(crate) fn interrupt(&mut self) {
        self.msix.raise(self.rings.vector);
        self.deliver_interrupts();
    }
}

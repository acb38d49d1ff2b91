//! One card: its function, its engine and its memory.

use std::ops::Range;
use std::sync::Arc;

use fpga_regs::xdma::{FUNCTION, USER_INTERRUPTS};
use fpga_regs::{alveo, cms, decoupler, hwicap};

use crate::card::budget::Budget;
use crate::card::bus_ports::BusPorts;
use crate::card::config_space::ConfigSpace;
use crate::card::memory::CardMemory;
use crate::card::msix::Msix;
use crate::violations::Violations;
use crate::xdma::behind::Behind;
use crate::xdma::bypass::Bypass;
use crate::xdma::channel::{Channel, Direction};
use crate::xdma::cms::Cms;
use crate::xdma::icap::Icap;
use crate::xdma::interrupts::Lines;
use crate::xdma::memory::Memory;
use crate::xdma::notes::{Fetch, Violation};
use crate::xdma::planted::Misanswers;
use crate::xdma::region::Region;
use crate::xdma::user_bar::UserBar;

/// What the engine of a card was built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Channels from host to card, 1 to 4.
    pub h2c: u32,
    /// Channels from card to host, 1 to 4.
    pub c2h: u32,
    /// Bytes of card memory, from AXI address 0. The bypass window shows the first 64 MiB.
    pub memory_bytes: u64,
}

impl Default for Shape {
    /// Two channels each way, and 8 GiB.
    fn default() -> Self {
        Shape { h2c: 2, c2h: 2, memory_bytes: 8 << 30 }
    }
}

/// A card.
pub(super) struct Card {
    shape: Shape,
    pub(super) config: ConfigSpace,
    pub(super) msix: Msix,
    pub(super) bus: Option<BusPorts>,
    /// H2C channels, then C2H channels.
    pub(super) channels: Vec<Channel>,
    /// The channels of a sequencer that masters the bus.
    pub(super) bypass: Option<Arc<Bypass>>,
    pub(super) channel_lines: Lines,
    pub(super) user_lines: Lines,
    pub(super) halted: u32,
    pub(super) credit_mode: u32,
    pub(super) pcie_control: u32,
    pub(super) user_max: [u32; 2],
    pub(super) flush_timeout: u32,
    pub(super) user_bar: UserBar,
    pub(super) cms: Cms,
    pub(super) icap: Icap,
    pub(super) memory: Memory,
    pub(super) tag: u64,
    /// What was done in this access of the host, in bytes.
    pub(super) worked: u64,
    /// Buffer of requests.
    pub(super) buffer: Vec<u8>,
    is_gone: bool,
    /// The card of a fabric behind the engine.
    behind: Option<Behind>,
    /// The next access of card memory by a channel never ends.
    pub(super) hangs: bool,
    /// Card memory whose slave answers with errors.
    pub(super) bad_slaves: Vec<Range<u64>>,
    pub(super) misanswers: Misanswers,
    /// Most descriptors of a fetch.
    pub(super) fetch_max: u32,
    pub(super) violations: Violations<Violation>,
    /// Fetches of descriptors, if a test wants to know them.
    pub(super) fetches: Option<Vec<Fetch>>,
}

/// What the registers of the largest payload and read request hold after a reset: 4096 bytes.
const USER_MAX: u32 = 5;

impl Card {
    /// A card without a sequencer.
    pub(super) fn new(shape: Shape, node: u32, budget: &Arc<Budget>) -> Self {
        let memory = Memory::Own(CardMemory::new(shape.memory_bytes, node, budget));
        let region = Region::new();
        Card::with(shape, UserBar::new(0, region.clone()), region, memory, None)
    }

    /// A card of a fabric.
    pub(super) fn before(behind: Behind, shape: Shape) -> Self {
        let region = Region::new();
        let (bar, memory) = (behind.user_bar(region.clone()), Memory::of(&behind));
        Card::with(shape, bar, region, memory, Some(behind))
    }

    fn with(shape: Shape, mut user_bar: UserBar, region: Region, memory: Memory, behind: Option<Behind>) -> Self {
        let cms = Cms::new();
        let icap = Icap::new(region.clone(), behind.clone());
        user_bar.place(alveo::HWICAP..alveo::HWICAP + hwicap::BLOCK_BYTES, Box::new(icap.clone()));
        user_bar.place(alveo::DECOUPLER..alveo::DECOUPLER + decoupler::BLOCK_BYTES, Box::new(region));
        user_bar.place(alveo::CMS..alveo::CMS + cms::WINDOW_BYTES, Box::new(cms.clone()));
        let bypass = behind.as_ref().and_then(Behind::bypass).cloned();
        let channel = |direction, number, count| {
            let is_bypassed = bypass.is_some() && number + 1 == count;
            Channel::new(direction, number, is_bypassed)
        };
        let h2c = (0..shape.h2c).map(|number| channel(Direction::H2c, number, shape.h2c));
        let c2h = (0..shape.c2h).map(|number| channel(Direction::C2h, number, shape.c2h));
        let channels = h2c.chain(c2h).collect();
        Card {
            shape,
            config: ConfigSpace::new(&FUNCTION),
            msix: Msix::new(FUNCTION.msix),
            bus: None,
            channels,
            bypass,
            channel_lines: Lines::new(shape.h2c + shape.c2h),
            user_lines: Lines::new(USER_INTERRUPTS),
            halted: 0,
            credit_mode: 0,
            pcie_control: 0,
            user_max: [USER_MAX; 2],
            flush_timeout: 0,
            user_bar,
            cms,
            icap,
            memory,
            tag: 0,
            worked: 0,
            buffer: Vec::new(),
            is_gone: false,
            behind,
            hangs: false,
            bad_slaves: Vec::new(),
            misanswers: Misanswers::default(),
            fetch_max: u32::MAX,
            violations: Violations::default(),
            fetches: None,
        }
    }

    /// Resets the function: its registers, and the card of a fabric behind it with its memory. The memory of a card without a
    /// sequencer stays, and so does what user logic asserts.
    pub(super) fn reset(&mut self) {
        let asserted = self.user_lines.asserted;
        self.config.reset(&FUNCTION);
        self.msix = Msix::new(FUNCTION.msix);
        for channel in &mut self.channels {
            *channel = Channel::new(channel.direction, channel.number, channel.is_bypassed);
        }
        if let Some(bypass) = &self.bypass {
            bypass.reset();
        }
        self.channel_lines = Lines::new(self.shape.h2c + self.shape.c2h);
        self.user_lines = Lines::new(USER_INTERRUPTS);
        self.user_lines.asserted = asserted;
        (self.halted, self.credit_mode, self.pcie_control, self.flush_timeout) = (0, 0, 0, 0);
        self.user_max = [USER_MAX; 2];
        self.user_bar.reset();
        self.update_interrupts();
    }

    /// Removes the card.
    pub(super) fn remove(&mut self) {
        self.is_gone = true;
    }

    /// Returns whether the function answers.
    pub(super) fn answers(&self) -> bool {
        !self.is_gone && !self.behind.as_ref().is_some_and(Behind::is_gone)
    }

    /// Adds to the sequencer's channels what its requests have done since the last access.
    pub(super) fn take_progress_of_bypass(&mut self) {
        let Some(bypass) = &self.bypass else { return };
        for channel in self.channels.iter_mut().filter(|channel| channel.is_bypassed) {
            channel.add(bypass.take_progress(channel.direction));
        }
        self.update_interrupts();
    }

    /// Copies what the host has written to the channels' registers to where the sequencer's requests see it.
    pub(super) fn copy_control_to_bypass(&self) {
        let Some(bypass) = &self.bypass else { return };
        let control = |direction| {
            let mut channels = self.channels.iter();
            let channel = channels.find(|channel| channel.is_bypassed && channel.direction == direction);
            (direction, channel.map_or(0, |channel| channel.control))
        };
        bypass.set(self.config.is_bus_master(), [Direction::H2c, Direction::C2h].map(control));
    }

    /// A read of the host arrives: writes before it act first.
    pub(super) fn push_writes(&self) {
        if let Some(behind) = &self.behind {
            behind.push_writes();
        }
    }

    /// Has the next `words` words that the host stores in the rings arrive behind the next write to the sequencer.
    pub(super) fn delay_words(&self, words: u32) {
        if let Some(rings) = self.behind.as_ref().and_then(Behind::rings) {
            rings.delay(words);
        }
    }

    /// Chooses anew when words in the bypass window arrive.
    pub(super) fn reorder_words(&self, seed: u64) {
        if let Some(rings) = self.behind.as_ref().and_then(Behind::rings) {
            rings.reseed(seed);
        }
    }

    /// Writes to the user BAR.
    pub(super) fn write_user(&mut self, offset: u64, data: &[u8]) -> Option<()> {
        self.user_bar.write(offset, data)?;
        if self.icap.take_loss() {
            self.config = ConfigSpace::new(&FUNCTION);
            self.update_interrupts();
        }
        Some(())
    }

    /// Reads through the bypass window: the rings, if they are there, or else card memory.
    pub(super) fn read_window(&self, offset: u64, data: &mut [u8]) -> Option<()> {
        if let Some((rings, at)) = self.behind.as_ref().and_then(|behind| behind.rings_in_bypass(offset)) {
            return rings.read_window(at, data);
        }
        data.copy_from_slice(&self.memory.read(offset, data.len() as u64).ok()?);
        Some(())
    }

    /// Writes through the bypass window.
    pub(super) fn write_window(&mut self, offset: u64, data: &[u8]) -> Option<()> {
        if let Some((rings, at)) = self.behind.as_ref().and_then(|behind| behind.rings_in_bypass(offset)) {
            rings.write_window(at, data);
            return Some(());
        }
        self.memory.write(offset, data).ok()
    }

    /// Sets the level of an interrupt of user logic.
    pub(super) fn assert_user(&mut self, line: u32, is_asserted: bool) {
        let bit = 1_u32.checked_shl(line).unwrap_or(0) & 0xffff;
        self.user_lines.asserted = self.user_lines.asserted & !bit | if is_asserted { bit } else { 0 };
        self.update_interrupts();
    }

    /// Bits of the channels that exist in registers that channels share.
    pub(super) fn common_mask(&self) -> u32 {
        self.channels.iter().fold(0, |mask, channel| mask | channel.common_bit())
    }

    /// Sends messages for the interrupts that have risen, and sets INTx to the level of all that are enabled.
    pub(super) fn update_interrupts(&mut self) {
        let asserts = |(line, channel): (usize, &Channel)| u32::from(channel.interrupts()) << line;
        self.channel_lines.asserted = self.channels.iter().enumerate().map(asserts).fold(0, |all, one| all | one);
        let has_msix = self.config.has_msix();
        // Without MSI-X nothing is pending that a later message would tell of.
        for vector in self.channel_lines.risen().chain(self.user_lines.risen()).filter(|_| has_msix) {
            self.msix.raise(vector);
        }
        let level = self.user_lines.request() | self.channel_lines.request() != 0;
        BusPorts::deliver_with_level(self.bus.as_mut(), &mut self.config, &mut self.msix, level);
    }
}

//! One card with a channel block.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cmdseq::routing::Torus;
use fpga_hal::{Claim, Domain, Function, Interrupt, InterruptKind};
use fpga_regs::bits::{ChannelFeatures, ChannelStatus};
use fpga_regs::channel::{self as registers, end, slot};
use fpga_regs::feature_list::CHANNEL_GUID;

use crate::channel::error::{Error, Result};
use crate::deadline::Deadline;
use crate::error::Error as CardError;
use crate::sequencer::block::{STOP, bus_error};
use crate::sequencer::health::master_bus;
use crate::sequencer::listed::{Kind, ListedBlock, Unlisted};

const KIND: Kind = Kind {
    guid: CHANNEL_GUID,
    bytes: registers::BLOCK_BYTES,
    magic: (registers::MAGIC, registers::MAGIC_VALUE),
    version: (registers::VERSION, registers::VERSION_VALUE, "version of the channel registers"),
};

/// Time limit for a block to accept commands after a reset.
const READY: Duration = Duration::from_secs(1);
/// Time limit for an end to leave host memory alone.
const QUIET: Duration = STOP;
/// Largest slot and ring that the driver uses, whatever the card offers.
const SLOT_BYTES_MAX: u32 = 4096;
const SLOTS_MAX: u32 = 1 << 16;
/// Largest packet that a card may have.
const PACKET_BYTES_MAX: u32 = 1 << 16;

/// An end that is not open.
#[derive(Debug)]
pub(super) struct FreeEnd {
    pub(super) index: u32,
    pub(super) interrupt: Interrupt,
}

/// What a card says of its channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Version of the registers: major, minor.
    pub version: (u16, u16),
    /// Bytes of a packet.
    pub packet_bytes: u32,
    /// Bytes of words in a packet.
    pub payload_bytes: u32,
    /// Ends that the host can open.
    pub ends: u32,
    /// Most bytes of a word.
    pub word_bytes: u32,
    /// Most bytes of a slot of a ring.
    pub slot_bytes: u32,
    /// Most slots of a ring.
    pub slots: u32,
}

/// Returns whether the channels of a function say that they are a model in software. Takes nothing into use. `None`: it has no channels,
/// or does not answer.
pub fn is_model(function: &Function) -> Option<bool> {
    says_model(&ListedBlock::find(function, &KIND).ok()?).ok()
}

/// Returns whether the channels of a block say that they are a model.
pub(super) fn says_model(block: &ListedBlock) -> Result<bool> {
    let features = block.read_present(registers::FEATURES)?;
    Ok(ChannelFeatures::from_bits_retain(features).contains(ChannelFeatures::MODEL))
}

/// One card with a channel block, held by this process.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) block: ListedBlock,
    pub(super) node: u32,
    pub(super) torus: Torus,
    pub(super) limits: Limits,
    free: Mutex<Vec<FreeEnd>>,
    function: Function,
    /// Dropped last: until then the function takes no other driver.
    _claim: Claim,
}

impl Card {
    /// Takes `function` into use.
    pub(super) fn open(function: Function) -> Result<Self> {
        Card::set_up(function.clone()).map_err(|error| match function.is_removed() {
            true => CardError::removed(&function).into(),
            false => error,
        })
    }

    fn set_up(function: Function) -> Result<Self> {
        let name: Arc<str> = function.identity().name.as_str().into();
        let bus = |error| bus_error(&name, error);
        let missing = |looked: String| Error::NoChannels { name: name.to_string(), looked };
        let claim = function.claim().map_err(bus)?;
        let block = ListedBlock::find(&function, &KIND).map_err(|why| match why {
            Unlisted::Missing(looked) => missing(looked),
            Unlisted::Other(magic) => {
                missing(format!("the block with its GUID begins with {magic:#010x} and not with CHAN"))
            }
            Unlisted::Card(error) => error.into(),
        })?;
        let (node, torus, limits) = describe(&block, &function)?;
        let mut card = Card { block, node, torus, limits, free: Mutex::default(), function, _claim: claim };
        card.await_ready()?;
        for index in 0..card.limits.ends {
            if !card.disable(index)? {
                return Err(card.timeout("an end that its last user left open to close", QUIET).into());
            }
        }
        master_bus(&card.function).map_err(bus)?;
        let vectors = card.function.vectors(InterruptKind::Msix).map_err(bus)?;
        let usable = card.limits.ends.min(vectors.into());
        if usable == 0 {
            return Err(card.block.bad("MSI-X message control", 0, "at least one vector").into());
        }
        let interrupts = card.function.enable_interrupts_of(InterruptKind::Msix, usable as u16).map_err(bus)?;
        let free = (0..).zip(interrupts).map(|(index, interrupt)| FreeEnd { index, interrupt });
        // The first end is taken first.
        *card.free() = free.collect::<Vec<_>>().into_iter().rev().collect();
        card.limits.ends = usable;
        Ok(card)
    }

    fn await_ready(&self) -> Result<()> {
        let deadline = Deadline::after(READY);
        let is_ready = || self.status().map(|status| status.contains(ChannelStatus::READY).then_some(()));
        let found = deadline.poll(Some(Duration::from_millis(1)), is_ready)?;
        Ok(found.ok_or_else(|| self.timeout("the channel block to be ready", deadline.waited()))?)
    }

    pub(super) fn is_routed(&self) -> Result<bool> {
        Ok(self.status()?.contains(ChannelStatus::ROUTED))
    }

    fn status(&self) -> Result<ChannelStatus> {
        Ok(ChannelStatus::from_bits_retain(self.block.read_present(registers::STATUS)?))
    }

    /// Disables an end. Returns whether the card certainly leaves the end's host memory alone.
    pub(super) fn disable(&self, index: u32) -> Result<bool> {
        let enable = end::base(index) + end::ENABLE;
        self.block.write(enable, 0)?;
        // What the card wrote before it answers is in host memory: on PCIe a read's completion passes no write.
        let is_disabled = || self.block.read_present(enable).map(|enabled| (enabled & 1 == 0).then_some(()));
        let found = Deadline::after(QUIET).poll(Some(Duration::from_micros(100)), is_disabled)?;
        Ok(found.is_some())
    }

    pub(super) fn free(&self) -> MutexGuard<'_, Vec<FreeEnd>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn name(&self) -> &str {
        self.block.name()
    }

    pub(super) fn domain(&self) -> Domain {
        self.function.private_domain()
    }

    fn timeout(&self, what: &str, waited: Duration) -> CardError {
        CardError::Timeout {
            what: format!("{what} on {}", self.name()),
            node: Some(self.node),
            rank: None,
            instruction: None,
            waited,
            last_seen: "the end's ENABLE or the block's STATUS did not change".into(),
        }
    }
}

/// Reads and checks what the card says of itself.
fn describe(block: &ListedBlock, function: &Function) -> Result<(u32, Torus, Limits)> {
    let columns = block.checked("COLUMNS", registers::COLUMNS, "1 to 16", |columns| (1..=16).contains(&columns))?;
    let rows = block.read_present(registers::ROWS)?;
    let refused = |_| block.bad("ROWS", rows, "1 to 16, and at least two cards");
    let torus = Torus::new(columns, rows).map_err(refused)?;
    let nodes = torus.nodes();
    let node = block.checked("NODE", registers::NODE, "a node of the torus", |node| node < nodes)?;
    let ports = Torus::LINKS as u32 + 1;
    block.checked("PORTS", registers::PORTS, "5 for a torus", |found| found == ports)?;
    let (max, is_power) = (end::MAX, |value: u32, least: u32| value.is_power_of_two() && value >= least);
    let version = block.read_present(registers::VERSION)?;
    let packet_bytes = block.checked("PACKET_BYTES", registers::PACKET_BYTES, "1 to 65536", |bytes| {
        (1..=PACKET_BYTES_MAX).contains(&bytes)
    })?;
    let limits = Limits {
        version: ((version >> 16) as u16, version as u16),
        packet_bytes,
        payload_bytes: block.checked("PAYLOAD_BYTES", registers::PAYLOAD_BYTES, "1 to PACKET_BYTES", |bytes| {
            (1..=packet_bytes).contains(&bytes)
        })?,
        ends: block.checked("ENDS", registers::ENDS, "1 to 56", |ends| (1..=max).contains(&ends))?,
        word_bytes: block
            .checked("WORD_BYTES_MAX", registers::WORD_BYTES_MAX, "1 to 64", |word| (1..=64).contains(&word))?,
        slot_bytes: block
            .checked("SLOT_BYTES_MAX", registers::SLOT_BYTES_MAX, "a power of two from 128", |slot| {
                is_power(slot, 2 * slot::BYTES_MIN)
            })?
            .min(SLOT_BYTES_MAX),
        slots: block
            .checked("SLOTS_MAX", registers::SLOTS_MAX, "a power of two from 2", |slots| is_power(slots, 2))?
            .min(SLOTS_MAX),
    };
    let bits = block.checked("DMA_BITS", registers::DMA_BITS, "12 to 64", |bits| (12..=64).contains(&bits))?;
    function.limit_dma_bits(bits as u8);
    Ok((node, torus, limits))
}

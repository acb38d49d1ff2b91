//! The card of a fabric behind the engine: its sequencer in the user BAR, memory of the shell for its rings, and its memory on the
//! engine's bus.
//!
//! Without descriptor bypass the sequencer masters no PCIe. What the fabric's card takes for its host is the memory for rings: it fetches
//! instructions from there and writes completions to there. With it, the sequencer reaches its host through two channels of the engine,
//! and there is no memory for rings. Its interrupt is a level, an interrupt of user logic.

use std::ops::Range;
use std::sync::Arc;

use fpga_hal::BarIndex;
use fpga_hal::endpoint::{DmaFault, DmaPort, DmaTag, Endpoint, InterruptPort, ResetKind};
use fpga_regs::feature_list::{CARD_RING_GUID, DESCRIPTOR_BYPASS_GUID, Header, SEQUENCER_GUID, TYPE_BBB};
use fpga_regs::xdma::{BYPASS_BAR, BYPASS_BAR_BYTES, USER_BAR};
use fpga_regs::{card_ring, descriptor_bypass, pci, sequencer};

use crate::card::config_space::Command;
use crate::fabric::Fabric;
use crate::profile::Shell;
use crate::xdma::block::{Block, ListHeader};
use crate::xdma::bypass::Bypass;
use crate::xdma::region::Region;
use crate::xdma::rings::{self, RingBlock, RingMemory};
use crate::xdma::user_bar::UserBar;

/// The sequencer's block in the user BAR.
const SEQUENCER: Range<u32> = 0x1000..0x2000;
/// The description of the memory for rings, or of the channels. What drivers of other cards probe, 0x2000 and 0x3000, stays empty.
const DESCRIPTION: Range<u32> = 0x3800..0x3800 + card_ring::BLOCK_BYTES;
/// The memory for rings, if it is in the user BAR.
const RINGS: Range<u32> = 0x4000..0x4000 + rings::BYTES;
/// Where it begins in the bypass window, if it is there: at the end.
const RINGS_IN_BYPASS: u64 = BYPASS_BAR_BYTES - 0x1_0000;
/// The interrupt of user logic that the sequencer asserts.
pub(super) const INTERRUPT: u32 = 0;

/// A card of a fabric. Clones are the same card.
#[derive(Clone)]
pub(super) struct Behind {
    fabric: Fabric,
    node: u32,
    card: Arc<dyn Endpoint>,
    reach: Reach,
}

/// What the sequencer takes for its host.
#[derive(Clone)]
enum Reach {
    /// `is_in_bypass`: the host sees them in the bypass window.
    Rings { rings: Arc<RingMemory>, is_in_bypass: bool },
    /// Channels of the engine, and their numbers: from the host, to the host.
    Bypass { bypass: Arc<Bypass>, numbers: [u32; 2] },
}

impl Behind {
    /// The card of `node` of `fabric`. `bypass`: the channels through which its sequencer masters the bus, if it does.
    pub(super) fn new(fabric: &Fabric, node: u32, bypass: Option<(Bypass, [u32; 2])>) -> Self {
        let reach = match bypass {
            Some((bypass, numbers)) => Reach::Bypass { bypass: Arc::new(bypass), numbers },
            None => {
                let is_in_bypass = fabric.profile().shell == Shell::AlveoBar4;
                Reach::Rings { rings: Arc::new(RingMemory::new(is_in_bypass.then_some(u64::from(node)))), is_in_bypass }
            }
        };
        Behind { fabric: fabric.clone(), node, card: fabric.endpoint(node), reach }
    }

    /// Connects the sequencer with what it takes for its host, and with the shell its interrupt: the level is that of INTx.
    pub(super) fn attach(&self, interrupt: Arc<dyn InterruptPort>) {
        let host: Arc<dyn DmaPort> = match &self.reach {
            Reach::Rings { rings, .. } => Arc::<RingMemory>::clone(rings),
            Reach::Bypass { bypass, .. } => Arc::<Bypass>::clone(bypass),
        };
        self.card.attach(host, interrupt);
        Command::set_on(&*self.card);
    }

    /// Returns the user BAR of the card, with the blocks of the sequencer.
    pub(super) fn user_bar(&self, region: Region) -> UserBar {
        let mut bar = UserBar::new(SEQUENCER.start, region);
        bar.place(SEQUENCER, Box::new(SequencerBlock(self.clone())));
        match &self.reach {
            Reach::Rings { rings, is_in_bypass } => {
                bar.place(DESCRIPTION, Box::new(Description { is_in_bypass: *is_in_bypass }));
                if !is_in_bypass {
                    bar.place(RINGS, Box::new(RingBlock(Arc::clone(rings))));
                }
            }
            Reach::Bypass { numbers, .. } => bar.place(DESCRIPTION, Box::new(ChannelDescription(*numbers))),
        }
        bar
    }

    pub(super) fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    pub(super) fn node(&self) -> u32 {
        self.node
    }

    /// Returns the memory for rings.
    pub(super) fn rings(&self) -> Option<&RingMemory> {
        match &self.reach {
            Reach::Rings { rings, .. } => Some(rings),
            Reach::Bypass { .. } => None,
        }
    }

    /// Returns the memory for rings and the offset in it, if the host sees it at `offset` of the bypass window.
    pub(super) fn rings_in_bypass(&self, offset: u64) -> Option<(&RingMemory, u64)> {
        let Reach::Rings { rings, is_in_bypass: true } = &self.reach else { return None };
        let at = offset.checked_sub(RINGS_IN_BYPASS).filter(|at| *at < u64::from(rings::BYTES))?;
        Some((rings, at))
    }

    /// Returns the channels of a sequencer that masters the bus.
    pub(super) fn bypass(&self) -> Option<&Arc<Bypass>> {
        match &self.reach {
            Reach::Rings { .. } => None,
            Reach::Bypass { bypass, .. } => Some(bypass),
        }
    }

    /// Ends a request of the sequencer that was pending. Returns whether it was one.
    pub(super) fn completed(&self, tag: DmaTag, result: Result<&[u8], DmaFault>) -> bool {
        let ended = self.bypass().and_then(|bypass| bypass.completed(tag, result));
        ended.map(|(tag, result)| self.card.dma_complete(tag, result)).is_some()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.fabric.is_gone(self.node)
    }

    /// A read of the host arrives: writes before it act first.
    pub(super) fn push_writes(&self) {
        self.card.config_read(0, &mut [0; 4]);
    }

    pub(super) fn reset(&self) {
        self.card.reset(ResetKind::Function);
        Command::set_on(&*self.card);
    }
}

/// The sequencer's block, with the place of the next feature in its header.
struct SequencerBlock(Behind);

impl SequencerBlock {
    const HEADER: ListHeader = ListHeader {
        header: Header {
            id: 1,
            revision: 0,
            next: DESCRIPTION.start - SEQUENCER.start,
            end_of_list: false,
            version: 0,
            kind: TYPE_BBB,
        },
        guid: SEQUENCER_GUID,
    };

    fn registers() -> BarIndex {
        let Some(bar) = BarIndex::new(pci::REGISTERS_BAR) else { unreachable!("a constant below 6") };
        bar
    }
}

impl Block for SequencerBlock {
    fn read32(&mut self, offset: u32) -> u32 {
        if offset < sequencer::FEATURE_HEADER_HI + 4 {
            return Self::HEADER.word(offset);
        }
        let mut word = [0; 4];
        self.0.card.bar_read(Self::registers(), u64::from(SEQUENCER.start + offset), &mut word);
        u32::from_le_bytes(word)
    }

    fn write32(&mut self, offset: u32, value: u32) {
        let write = || {
            self.0.card.bar_write(Self::registers(), u64::from(SEQUENCER.start + offset), &value.to_le_bytes());
        };
        match self.0.rings() {
            Some(rings) => rings.before_and_after(write),
            None => write(),
        }
    }

    fn reset(&mut self) {
        self.0.reset();
    }
}

/// Where the memory for rings is.
struct Description {
    is_in_bypass: bool,
}

impl Block for Description {
    fn read32(&mut self, offset: u32) -> u32 {
        let header = Header { id: 2, revision: 0, next: 0, end_of_list: true, version: 0, kind: TYPE_BBB };
        match offset {
            card_ring::MAGIC => card_ring::MAGIC_VALUE,
            card_ring::VERSION => card_ring::VERSION_VALUE,
            card_ring::OFFSET if self.is_in_bypass => RINGS_IN_BYPASS as u32,
            card_ring::OFFSET => RINGS.start,
            card_ring::BYTES => rings::BYTES,
            card_ring::SEQUENCER_LO => rings::OF_SEQUENCER as u32,
            card_ring::SEQUENCER_HI => (rings::OF_SEQUENCER >> 32) as u32,
            card_ring::ENGINE_LO => rings::OF_ENGINE as u32,
            card_ring::ENGINE_HI => (rings::OF_ENGINE >> 32) as u32,
            card_ring::INTERRUPT => INTERRUPT,
            card_ring::BAR if self.is_in_bypass => BYPASS_BAR.into(),
            card_ring::BAR => USER_BAR.into(),
            _ => ListHeader { header, guid: CARD_RING_GUID }.word(offset),
        }
    }

    fn write32(&mut self, _offset: u32, _value: u32) {}
}

/// Through which channels the sequencer masters the bus.
struct ChannelDescription([u32; 2]);

impl Block for ChannelDescription {
    fn read32(&mut self, offset: u32) -> u32 {
        let header = Header { id: 3, revision: 0, next: 0, end_of_list: true, version: 0, kind: TYPE_BBB };
        match offset {
            descriptor_bypass::MAGIC => descriptor_bypass::MAGIC_VALUE,
            descriptor_bypass::VERSION => descriptor_bypass::VERSION_VALUE,
            descriptor_bypass::H2C_CHANNEL => self.0[0],
            descriptor_bypass::C2H_CHANNEL => self.0[1],
            descriptor_bypass::INTERRUPT => INTERRUPT,
            _ => ListHeader { header, guid: DESCRIPTOR_BYPASS_GUID }.word(offset),
        }
    }

    fn write32(&mut self, _offset: u32, _value: u32) {}
}

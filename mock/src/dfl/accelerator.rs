//! The accelerator's function: a card behind the port.

use std::sync::Arc;

use fpga_hal::BarIndex;
use fpga_hal::endpoint::{DmaFault, DmaPort, DmaTag, Endpoint, InterruptPort, Layout, ResetKind};
use fpga_regs::sequencer;

use crate::card::feature_list::read_only_header;
use crate::dfl::slot::Slot;
use crate::model::registers::SEQUENCER_OFFSET;
use crate::msgdma::CardWithEngine;

/// BAR of the accelerator's registers.
const REGISTERS_BAR: usize = 0;

/// A card with a command sequencer as one of the accelerators that the region can hold.
pub(super) struct Accelerator {
    card: Arc<dyn Endpoint>,
    /// GUID of the image that configures this card.
    guid: u128,
    slot: Arc<Slot>,
    /// The engine beside the sequencer, which is in `card`.
    engine: Option<Arc<CardWithEngine>>,
}

impl Accelerator {
    pub(super) fn new(card: Arc<dyn Endpoint>, guid: u128, slot: Arc<Slot>) -> Self {
        Accelerator { card, guid, slot, engine: None }
    }

    /// As [`new`](Accelerator::new), of a card with an engine.
    pub(super) fn with_engine(card: &Arc<CardWithEngine>, guid: u128, slot: Arc<Slot>) -> Self {
        let endpoint = Arc::<CardWithEngine>::clone(card);
        Accelerator { engine: Some(Arc::clone(card)), ..Accelerator::new(endpoint, guid, slot) }
    }

    /// Returns the engine beside the sequencer.
    pub(super) fn engine(&self) -> Option<&CardWithEngine> {
        self.engine.as_deref()
    }

    /// Resets the logic of the accelerator, but not its function.
    pub(super) fn reset_logic(&self) {
        if let Some(engine) = &self.engine {
            engine.reset_logic();
        }
        let Some(bar) = BarIndex::new(REGISTERS_BAR as u8) else { return };
        let write = |register: u32, value: u32| {
            self.card.bar_write(bar, SEQUENCER_OFFSET + u64::from(register), &value.to_le_bytes());
        };
        write(sequencer::ABORT, sequencer::ABORT_VALUE);
        for queue in 0..sequencer::queue::MAX {
            write(sequencer::queue::base(queue) + sequencer::queue::ENABLE, 0);
        }
    }
}

impl Endpoint for Accelerator {
    fn layout(&self) -> Layout {
        self.card.layout()
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        self.card.attach(dma, interrupts);
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        self.card.config_read(offset, data);
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        self.card.config_write(offset, data);
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        if bar.index() != REGISTERS_BAR {
            return self.card.bar_read(bar, offset, data);
        }
        match self.slot.answering() {
            Some(guid) if guid == self.guid => self.card.bar_read(bar, offset, data),
            Some(other) => read_only_header(other, offset, data),
            None => data.fill(0xff),
        }
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        if bar.index() != REGISTERS_BAR || self.slot.answering() == Some(self.guid) {
            self.card.bar_write(bar, offset, data);
        }
    }

    fn reset(&self, kind: ResetKind) {
        self.card.reset(kind);
    }

    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        self.card.dma_complete(tag, result);
    }
}

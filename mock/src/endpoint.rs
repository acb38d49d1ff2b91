//! A card as the device side of a PCI function.

use std::sync::Arc;

use fpga_hal::BarIndex;
use fpga_hal::endpoint::{BarLayout, DmaFault, DmaPort, DmaTag, Endpoint, InterruptPort, Layout, ResetKind};
use fpga_regs::{pci, sequencer};

use crate::card::BusPorts;
use crate::clock::Shared;
use crate::config_space::Effect;
use crate::fabric::Core;
use crate::registers::{SEQUENCER_OFFSET, feature_byte};

/// One card of a fabric, to be attached to a bus.
pub(crate) struct CardEndpoint {
    shared: Arc<Shared>,
    index: usize,
}

impl CardEndpoint {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Self {
        CardEndpoint { shared, index }
    }

    /// Runs `access` on the fabric unless the card does not answer.
    fn answering<R>(&self, access: impl FnOnce(&mut Core) -> R) -> Option<R> {
        self.shared.try_access(|core| (!core.cards[self.index].is_gone).then(|| access(core))).flatten()
    }

    /// Runs `access` unless the card does not answer, or does not decode memory accesses.
    fn decoding<R>(&self, access: impl FnOnce(&mut Core) -> Option<R>) -> Option<R> {
        self.answering(|core| core.cards[self.index].config.decodes_memory().then(|| access(core)).flatten()).flatten()
    }
}

/// A register access that a BAR answers: 32 bits, aligned.
fn register_offset(offset: u64, length: usize) -> Option<u64> {
    (length == 4 && offset % 4 == 0).then_some(offset)
}

/// Offset into the sequencer's block, if the access is to it.
fn sequencer_offset(offset: u64) -> Option<u32> {
    let offset = offset.checked_sub(SEQUENCER_OFFSET)?;
    (offset < u64::from(sequencer::BLOCK_BYTES)).then_some(offset as u32)
}

impl Endpoint for CardEndpoint {
    fn layout(&self) -> Layout {
        let mut bars = [None; BarIndex::COUNT];
        for (index, bytes) in [(pci::REGISTERS_BAR, pci::REGISTERS_BAR_BYTES), (pci::MSIX_BAR, pci::MSIX_BAR_BYTES)] {
            bars[usize::from(index)] = Some(BarLayout { bytes, is_64_bit: true, prefetchable: false });
        }
        Layout { bars, dma_bits: pci::DMA_BITS }
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        self.shared.try_access(|core| core.cards[self.index].bus = Some(BusPorts::new(dma, interrupts)));
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        if self.answering(|core| core.cards[self.index].config.read(offset, data)).is_none() {
            data.fill(0xff);
        }
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        self.answering(|core| match core.cards[self.index].config.write(offset, data) {
            Effect::None => {}
            Effect::FunctionReset => core.reset(self.index),
            Effect::Interrupts => core.cards[self.index].deliver_interrupts(),
        });
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        let value = self.decoding(|core| {
            // Feature headers are 64-bit words; they may be read whole or in halves.
            let whole = data.len() == 8 && offset % 8 == 0;
            let half = register_offset(offset, data.len()).is_some();
            if bar.index() == usize::from(pci::REGISTERS_BAR) && (whole || half) && feature_byte(offset).is_some() {
                for (at, byte) in (offset..).zip(&mut *data) {
                    *byte = feature_byte(at).unwrap_or(0);
                }
                return Some(None);
            }
            let offset = register_offset(offset, data.len())?;
            Some(Some(match bar.index() as u8 {
                pci::REGISTERS_BAR if offset < pci::REGISTERS_BAR_BYTES => {
                    sequencer_offset(offset).map_or(0, |offset| core.read_register(self.index, offset))
                }
                pci::MSIX_BAR if offset < pci::MSIX_BAR_BYTES => core.cards[self.index].msix.read(offset),
                _ => return None,
            }))
        });
        match value {
            Some(Some(value)) => data.copy_from_slice(&value.to_le_bytes()),
            Some(None) => {}
            None => data.fill(0xff),
        }
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        self.decoding(|core| {
            let offset = register_offset(offset, data.len())?;
            let value = u32::from_le_bytes(data.try_into().ok()?);
            match bar.index() as u8 {
                pci::REGISTERS_BAR => core.write_register(self.index, sequencer_offset(offset)?, value),
                pci::MSIX_BAR => {
                    core.cards[self.index].msix.write(offset, value);
                    core.cards[self.index].deliver_interrupts();
                }
                _ => {}
            }
            Some(())
        });
    }

    fn reset(&self, _kind: ResetKind) {
        self.answering(|core| core.reset(self.index));
    }

    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        self.shared.try_access(|core| core.host_dma_completed(tag, result));
    }
}

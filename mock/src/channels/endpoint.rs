//! A CIRCUS card as the device side of a PCI function.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fpga_hal::BarIndex;
use fpga_hal::endpoint::{DmaFault, DmaPort, DmaTag, Endpoint, InterruptPort, Layout, ResetKind};
use fpga_regs::pci;

use crate::card::bus_ports::BusPorts;
use crate::card::config_space::{Effect, layout};
use crate::channels::core::{Card, Core};
use crate::channels::registers::{block_offset, feature_byte};

/// The cards behind their lock.
pub(super) type Shared = Mutex<Core>;

/// One card of a network, as an endpoint of a bus.
pub(super) struct CardEndpoint {
    shared: Arc<Shared>,
    node: usize,
}

pub(super) fn lock(shared: &Shared) -> MutexGuard<'_, Core> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CardEndpoint {
    pub(super) fn new(shared: &Arc<Shared>, node: usize) -> Self {
        CardEndpoint { shared: Arc::clone(shared), node }
    }

    /// Runs `access` if the card answers.
    fn answering<R>(&self, access: impl FnOnce(&mut Core) -> R) -> Option<R> {
        let mut core = lock(&self.shared);
        (!core.cards[self.node].is_gone).then(|| access(&mut core))
    }

    /// Runs `access` if the card answers and decodes memory accesses.
    fn decoding<R>(&self, access: impl FnOnce(&mut Core) -> Option<R>) -> Option<R> {
        self.answering(|core| core.cards[self.node].config.decodes_memory().then(|| access(core)).flatten()).flatten()
    }

    fn card<'a>(&self, core: &'a mut Core) -> &'a mut Card {
        &mut core.cards[self.node]
    }
}

impl Endpoint for CardEndpoint {
    fn layout(&self) -> Layout {
        layout(&pci::CHANNELS_CARD, pci::DMA_BITS)
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        self.card(&mut lock(&self.shared)).bus = Some(BusPorts::new(dma, interrupts));
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        if self.answering(|core| self.card(core).config.read(offset, data)).is_none() {
            data.fill(0xff);
        }
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        self.answering(|core| match self.card(core).config.write(offset, data) {
            Effect::None => {}
            Effect::FunctionReset => core.reset(self.node),
            Effect::Interrupts => self.card(core).deliver_interrupts(),
        });
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        let is_answered = self.decoding(|core| {
            // Feature headers are 64-bit words; they may be read whole or in halves.
            let is_feature = bar.index() == usize::from(pci::REGISTERS_BAR) && feature_byte(offset).is_some();
            if !matches!(data.len(), 4 | 8) || offset % data.len() as u64 != 0 || data.len() == 8 && !is_feature {
                return None;
            }
            if is_feature {
                (offset..).zip(&mut *data).for_each(|(at, byte)| *byte = feature_byte(at).unwrap_or(0));
                return Some(());
            }
            let value = match bar.index() as u8 {
                pci::REGISTERS_BAR if offset < pci::REGISTERS_BAR_BYTES => {
                    // A host that polls lets time pass.
                    core.run();
                    block_offset(offset).map_or(0, |offset| core.read_register(self.node, offset))
                }
                pci::MSIX_BAR if offset < pci::MSIX_BAR_BYTES => self.card(core).msix.read(offset),
                _ => return None,
            };
            data.copy_from_slice(&value.to_le_bytes());
            Some(())
        });
        if is_answered.is_none() {
            data.fill(0xff);
        }
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        let Ok(value) = data.try_into().map(u32::from_le_bytes) else { return };
        if offset % 4 != 0 {
            return;
        }
        self.decoding(|core| {
            match bar.index() as u8 {
                pci::REGISTERS_BAR => core.write_register(self.node, block_offset(offset)?, value),
                pci::MSIX_BAR => {
                    let card = self.card(core);
                    card.msix.write(offset, value);
                    card.deliver_interrupts();
                }
                _ => {}
            }
            Some(())
        });
    }

    fn reset(&self, _kind: ResetKind) {
        self.answering(|core| core.reset(self.node));
    }

    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        lock(&self.shared).dma_completed(self.node, tag, result);
    }
}

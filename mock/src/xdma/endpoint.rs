//! The cards as a bus sees them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fpga_hal::BarIndex;
use fpga_hal::endpoint::{BarLayout, DmaFault, DmaPort, DmaTag, Endpoint, InterruptPort, Layout, ResetKind};
use fpga_regs::xdma;

use crate::card::bus_ports::BusPorts;
use crate::card::config_space::Effect;
use crate::xdma::card::Card;
use crate::xdma::notes::Violation;

/// One card, for a bus.
pub(super) struct CardEndpoint(Mutex<Card>);

impl CardEndpoint {
    pub(super) fn new(card: Card) -> Self {
        CardEndpoint(Mutex::new(card))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Card> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `access` if the card answers and decodes memory accesses.
    fn decoding<R>(&self, access: impl FnOnce(&mut Card) -> Option<R>) -> Option<R> {
        let mut card = self.lock();
        (!card.is_gone && card.config.decodes_memory()).then(|| access(&mut card)).flatten()
    }
}

impl Card {
    fn read_dma(&mut self, offset: u64, data: &mut [u8]) -> Option<()> {
        if data.len() != 4 || !offset.is_multiple_of(4) {
            self.violations.push(Violation::NotFourBytes);
            return None;
        }
        let offset = u32::try_from(offset).ok().filter(|offset| u64::from(*offset) < xdma::BAR_BYTES)?;
        let value = match offset {
            xdma::MSIX_TABLE.. => self.msix.read(offset.into()),
            _ => self.read_register(offset),
        };
        data.copy_from_slice(&value.to_le_bytes());
        Some(())
    }

    fn write_dma(&mut self, offset: u64, data: &[u8]) -> Option<()> {
        let (Ok(value), true) = (data.try_into().map(u32::from_le_bytes), offset.is_multiple_of(4)) else {
            self.violations.push(Violation::NotFourBytes);
            return None;
        };
        let offset = u32::try_from(offset).ok().filter(|offset| u64::from(*offset) < xdma::BAR_BYTES)?;
        match offset {
            xdma::MSIX_TABLE.. => {
                self.msix.write(offset.into(), value);
                self.update_interrupts();
            }
            _ => self.write_register(offset, value),
        }
        Some(())
    }
}

impl Endpoint for CardEndpoint {
    fn layout(&self) -> Layout {
        let mut bars = [None; BarIndex::COUNT];
        for (index, bytes) in xdma::FUNCTION.bars {
            bars[usize::from(*index)] = Some(BarLayout { bytes: *bytes, is_64_bit: true, prefetchable: false });
        }
        Layout { bars, dma_bits: xdma::DMA_BITS }
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        self.lock().bus = Some(BusPorts::new(dma, interrupts));
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        let card = self.lock();
        match card.is_gone {
            true => data.fill(0xff),
            false => card.config.read(offset, data),
        }
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        let mut card = self.lock();
        if card.is_gone {
            return;
        }
        match card.config.write(offset, data) {
            Effect::None => {}
            Effect::FunctionReset => card.reset(),
            Effect::Interrupts => card.update_interrupts(),
        }
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        let is_answered = self.decoding(|card| match bar.index() as u8 {
            xdma::DMA_BAR => card.read_dma(offset, data),
            xdma::USER_BAR => card.user_bar.read(offset, data),
            xdma::BYPASS_BAR => {
                let bytes = card.memory.read(offset, data.len() as u64).ok()?;
                data.copy_from_slice(&bytes);
                Some(())
            }
            _ => None,
        });
        if is_answered.is_none() {
            data.fill(0xff);
        }
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        self.decoding(|card| match bar.index() as u8 {
            xdma::DMA_BAR => card.write_dma(offset, data),
            xdma::USER_BAR => card.user_bar.write(offset, data),
            xdma::BYPASS_BAR => card.memory.write(offset, data).ok(),
            _ => None,
        });
    }

    fn reset(&self, _kind: ResetKind) {
        let mut card = self.lock();
        if !card.is_gone {
            card.reset();
        }
    }

    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        self.lock().dma_completed(tag, result);
    }
}

//! The control function as a bus sees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fpga_hal::BarIndex;
use fpga_hal::endpoint::{BarLayout, DmaFault, DmaPort, DmaTag, Endpoint, InterruptPort, Layout, ResetKind};
use fpga_regs::dfl::CONTROL;
use fpga_regs::pci::DMA_BITS;

use crate::card::bus_ports::BusPorts;
use crate::card::config_space::Effect;
use crate::dfl::control::Control;

/// BAR of the feature list.
const REGISTERS_BAR: u8 = 0;

/// A control function, for a bus.
pub(super) struct ControlEndpoint(Mutex<Control>);

impl ControlEndpoint {
    pub(super) fn new(control: Control) -> Self {
        ControlEndpoint(Mutex::new(control))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Control> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `access` if the function answers and decodes memory accesses.
    fn decoding<R>(&self, access: impl FnOnce(&mut Control) -> Option<R>) -> Option<R> {
        let mut control = self.lock();
        (!control.is_gone && control.config.decodes_memory()).then(|| access(&mut control)).flatten()
    }
}

/// Returns an access as aligned 64 bits: their offset, and the bit at which the access begins. `None` for an access that the
/// shell does not take.
fn aligned(bar: BarIndex, offset: u64, bytes: usize) -> Option<(u32, u32)> {
    let is_taken = matches!(bytes, 4 | 8) && offset % bytes as u64 == 0;
    let is_inside = offset + bytes as u64 <= CONTROL.bar_bytes(bar.index() as u8);
    (is_taken && is_inside).then_some(((offset & !7) as u32, (offset % 8 * 8) as u32))
}

impl Endpoint for ControlEndpoint {
    fn layout(&self) -> Layout {
        let mut bars = [None; BarIndex::COUNT];
        for (index, bytes) in CONTROL.bars {
            let prefetchable = CONTROL.is_prefetchable;
            bars[usize::from(*index)] = Some(BarLayout { bytes: *bytes, is_64_bit: true, prefetchable });
        }
        Layout { bars, dma_bits: DMA_BITS }
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        self.lock().bus = Some(BusPorts::new(dma, interrupts));
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        let control = self.lock();
        match control.is_gone {
            true => data.fill(0xff),
            false => control.config.read(offset, data),
        }
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        let mut control = self.lock();
        if control.is_gone {
            return;
        }
        let control = &mut *control;
        match control.config.write(offset, data) {
            Effect::None => {}
            Effect::FunctionReset => control.reset(),
            Effect::Interrupts => BusPorts::deliver(control.bus.as_mut(), &mut control.config, &mut control.msix),
        }
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        let value = aligned(bar, offset, data.len()).and_then(|(at, shift)| {
            self.decoding(|control| match bar.index() as u8 {
                REGISTERS_BAR => Some(control.read(at) >> shift),
                _ => {
                    let words = [control.msix.read(at.into()), control.msix.read(u64::from(at) + 4)];
                    Some((u64::from(words[0]) | u64::from(words[1]) << 32) >> shift)
                }
            })
        });
        data.copy_from_slice(&value.unwrap_or(u64::MAX).to_le_bytes()[..data.len().min(8)]);
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        let Some((at, shift)) = aligned(bar, offset, data.len()) else { return };
        let mut value = [0; 8];
        value[..data.len()].copy_from_slice(data);
        let value = u64::from_le_bytes(value) << shift;
        let mask = u64::MAX >> (64 - 8 * data.len()) << shift;
        self.decoding(|control| {
            if bar.index() as u8 == REGISTERS_BAR {
                control.write(at, value, mask);
                return Some(());
            }
            for half in 0..2 {
                if (mask >> (32 * half)) as u32 != 0 {
                    control.msix.write(u64::from(at) + 4 * half, (value >> (32 * half)) as u32);
                }
            }
            BusPorts::deliver(control.bus.as_mut(), &mut control.config, &mut control.msix);
            Some(())
        });
    }

    fn reset(&self, _kind: ResetKind) {
        let mut control = self.lock();
        if !control.is_gone {
            control.reset();
        }
    }

    fn dma_complete(&self, _tag: DmaTag, _result: Result<&[u8], DmaFault>) {}
}

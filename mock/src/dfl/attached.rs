//! A function of a D5005 as a bus sees it: configuration space, MSI-X, and registers that are accessed in 4 or 8 bytes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fpga_hal::BarIndex;
use fpga_hal::endpoint::{DmaFault, DmaPort, DmaTag, Endpoint, InterruptPort, Layout, ResetKind};
use fpga_regs::pci::{DMA_BITS, Function};

use crate::card::bus_ports::BusPorts;
use crate::card::config_space::{ConfigSpace, Effect, layout};
use crate::card::msix::Msix;

/// BAR of the registers.
const REGISTERS_BAR: u8 = 0;

/// How a function is attached to its bus.
pub(super) struct Attached {
    function: &'static Function,
    config: ConfigSpace,
    msix: Msix,
    bus: Option<BusPorts>,
    /// The function no longer answers.
    pub(super) is_gone: bool,
}

impl Attached {
    pub(super) fn new(function: &'static Function) -> Self {
        let (config, msix) = (ConfigSpace::new(function), Msix::new(function.msix));
        Attached { function, config, msix, bus: None, is_gone: false }
    }

    /// Configuration space is as after power-up.
    pub(super) fn lose_configuration(&mut self) {
        (self.config, self.msix) = (ConfigSpace::new(self.function), Msix::new(self.function.msix));
        self.deliver();
    }

    fn reset(&mut self) {
        self.config.reset(self.function);
        self.msix = Msix::new(self.function.msix);
        self.deliver();
    }

    /// Sends an interrupt.
    pub(super) fn interrupt(&mut self, vector: u32) {
        self.msix.raise(vector);
        self.deliver();
    }

    fn deliver(&mut self) {
        BusPorts::deliver(self.bus.as_mut(), &mut self.config, &mut self.msix);
    }

    /// Returns the port for DMA, if the function may use it.
    pub(super) fn dma(&self) -> Result<&dyn DmaPort, DmaFault> {
        BusPorts::dma(self.bus.as_ref(), &self.config)
    }

    /// Returns whether accesses of BARs reach the function.
    fn decodes(&self) -> bool {
        !self.is_gone && self.config.decodes_memory()
    }
}

/// What is behind the registers of a function.
pub(super) trait Logic: Send + 'static {
    fn attached(&mut self) -> &mut Attached;

    /// Reads the 64 bits at `offset`, a multiple of 8.
    fn read(&mut self, offset: u32) -> u64;

    /// Writes the bits of `mask` at `offset`, a multiple of 8.
    fn write(&mut self, offset: u32, value: u64, mask: u64);

    /// The function was reset.
    fn reset(&mut self);

    /// A DMA request that was pending has completed.
    fn dma_complete(&mut self, _tag: DmaTag, _result: Result<&[u8], DmaFault>) {}
}

/// A function, for a bus.
pub(super) struct FunctionEndpoint<L> {
    function: &'static Function,
    logic: Mutex<L>,
}

impl<L: Logic> FunctionEndpoint<L> {
    pub(super) fn new(mut logic: L) -> Self {
        FunctionEndpoint { function: logic.attached().function, logic: Mutex::new(logic) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, L> {
        self.logic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reset_all(logic: &mut L) {
        logic.attached().reset();
        logic.reset();
    }
}

impl<L: Logic> Endpoint for FunctionEndpoint<L> {
    fn layout(&self) -> Layout {
        layout(self.function, DMA_BITS)
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        self.lock().attached().bus = Some(BusPorts::new(dma, interrupts));
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        let mut logic = self.lock();
        let attached = logic.attached();
        match attached.is_gone {
            true => data.fill(0xff),
            false => attached.config.read(offset, data),
        }
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        let mut logic = self.lock();
        let attached = logic.attached();
        if attached.is_gone {
            return;
        }
        match attached.config.write(offset, data) {
            Effect::None => {}
            Effect::FunctionReset => Self::reset_all(&mut logic),
            Effect::Interrupts => attached.deliver(),
        }
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        let mut logic = self.lock();
        let place = aligned(self.function, bar, offset, data.len()).filter(|_| logic.attached().decodes());
        let value = place.map_or(u64::MAX, |(at, shift)| match bar.index() as u8 {
            REGISTERS_BAR => logic.read(at) >> shift,
            _ => {
                let [low, high] = [0, 4].map(|half| logic.attached().msix.read(u64::from(at) + half));
                (u64::from(low) | u64::from(high) << 32) >> shift
            }
        });
        data.copy_from_slice(&value.to_le_bytes()[..data.len().min(8)]);
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        let mut logic = self.lock();
        let place = aligned(self.function, bar, offset, data.len()).filter(|_| logic.attached().decodes());
        let Some((at, shift)) = place else { return };
        let (value, mask) = shifted(data, shift);
        if bar.index() as u8 == REGISTERS_BAR {
            return logic.write(at, value, mask);
        }
        let attached = logic.attached();
        for half in 0..2 {
            if (mask >> (32 * half)) as u32 != 0 {
                attached.msix.write(u64::from(at) + 4 * half, (value >> (32 * half)) as u32);
            }
        }
        attached.deliver();
    }

    fn reset(&self, _kind: ResetKind) {
        let mut logic = self.lock();
        if !logic.attached().is_gone {
            Self::reset_all(&mut logic);
        }
    }

    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        self.lock().dma_complete(tag, result);
    }
}

/// Returns an access as aligned 64 bits: their offset, and the bit at which the access begins. `None` for an access that the shell
/// does not take.
pub(super) fn aligned(function: &Function, bar: BarIndex, offset: u64, bytes: usize) -> Option<(u32, u32)> {
    let is_taken = matches!(bytes, 4 | 8) && offset % bytes as u64 == 0;
    let is_inside = offset.checked_add(bytes as u64)? <= function.bar_bytes(bar.index() as u8);
    (is_taken && is_inside).then_some(((offset & !7) as u32, (offset % 8 * 8) as u32))
}

/// Returns what an access of 4 or 8 bytes writes into aligned 64 bits, and which of their bits, from the bit at which it begins.
pub(super) fn shifted(data: &[u8], shift: u32) -> (u64, u64) {
    let mut value = [0; 8];
    value[..data.len()].copy_from_slice(data);
    (u64::from_le_bytes(value) << shift, u64::MAX >> (64 - 8 * data.len()) << shift)
}

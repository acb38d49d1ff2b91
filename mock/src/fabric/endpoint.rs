//! A card as the device side of a PCI function.

use std::sync::Arc;

use fpga_hal::BarIndex;
use fpga_hal::endpoint::{DmaFault, DmaPort, DmaTag, Endpoint, InterruptPort, Layout, ResetKind};
use fpga_regs::pci;

use crate::card::bus_ports::BusPorts;
use crate::card::config_space::{Effect, layout};
use crate::card::posted::Write;
use crate::fabric::clock::Shared;
use crate::model::registers::sequencer_offset;
use crate::world::Core;

/// One card of a fabric, as an endpoint of a bus.
pub(crate) struct CardEndpoint {
    shared: Arc<Shared>,
    index: usize,
    function: &'static pci::Function,
}

impl CardEndpoint {
    pub(crate) fn new(shared: Arc<Shared>, index: usize, function: &'static pci::Function) -> Self {
        CardEndpoint { shared, index, function }
    }

    /// Runs `access`, which posted writes are ordered before, on the fabric if the card answers.
    fn answering<R>(&self, access: impl FnOnce(&mut Core) -> R) -> Option<R> {
        self.unordered(|core| {
            core.push_posted(self.index);
            access(core)
        })
    }

    /// Runs `access` on the fabric if the card answers.
    fn unordered<R>(&self, access: impl FnOnce(&mut Core) -> R) -> Option<R> {
        self.shared.try_access(|core| core.cards[self.index].answers().then(|| access(core))).flatten()
    }

    /// Runs `access` if the card answers and decodes memory accesses.
    fn decoding<R>(&self, access: impl FnOnce(&mut Core) -> Option<R>) -> Option<R> {
        self.answering(|core| core.cards[self.index].config.decodes_memory().then(|| access(core)).flatten()).flatten()
    }
}

/// Checks that a register access is 32 bits wide and aligned.
fn register_offset(offset: u64, length: usize) -> Option<u64> {
    (length == 4 && offset % 4 == 0).then_some(offset)
}

impl Endpoint for CardEndpoint {
    fn layout(&self) -> Layout {
        layout(self.function, pci::DMA_BITS)
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        self.shared.try_access(|core| core.cards[self.index].bus = Some(BusPorts::new(dma, interrupts)));
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        if self.answering(|core| core.cards[self.index].config.read(offset, data)).is_none() {
            data.fill(0xff);
            self.shared.try_access(|core| core.poll_reset(self.index));
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
            if bar.index() == usize::from(pci::REGISTERS_BAR) && (whole || half) && core.feature_byte(offset).is_some()
            {
                for (at, byte) in (offset..).zip(&mut *data) {
                    *byte = core.feature_byte(at).unwrap_or(0);
                }
                return Some(None);
            }
            let offset = register_offset(offset, data.len())?;
            Some(Some(match bar.index() as u8 {
                pci::REGISTERS_BAR if offset < self.function.bar_bytes(pci::REGISTERS_BAR) => {
                    match sequencer_offset(offset) {
                        Some(offset) => core.read_register(self.index, offset),
                        None => core.read_routed(self.index, offset),
                    }
                }
                pci::MSIX_BAR if offset < self.function.bar_bytes(pci::MSIX_BAR) => {
                    core.cards[self.index].msix.read(offset)
                }
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
        let Some(offset) = register_offset(offset, data.len()) else { return };
        let Ok(value) = data.try_into().map(u32::from_le_bytes) else { return };
        self.unordered(|core| {
            if core.cards[self.index].config.decodes_memory() {
                core.post_write(self.index, Write { bar: bar.index() as u8, offset, value });
            }
        });
    }

    fn reset(&self, _kind: ResetKind) {
        self.shared.try_access(|core| {
            if !core.cards[self.index].is_gone {
                core.push_posted(self.index);
                core.reset(self.index);
            }
        });
    }

    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        self.shared.try_access(|core| core.host_dma_completed(tag, result));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use fpga_hal::Iova;
    use fpga_hal::endpoint::DmaProgress;

    use super::*;
    use crate::{Fabric, Profile};

    /// A host that records the raised vectors.
    #[derive(Default)]
    struct Host(Mutex<Vec<u16>>);

    impl DmaPort for Host {
        fn read(&self, _: DmaTag, _: Iova, _: &mut [u8]) -> DmaProgress {
            DmaProgress::Done(Err(DmaFault::HostGone))
        }

        fn write(&self, _: DmaTag, _: Iova, _: &[u8]) -> DmaProgress {
            DmaProgress::Done(Err(DmaFault::HostGone))
        }
    }

    impl InterruptPort for Host {
        fn raise(&self, vector: u16) {
            self.0.lock().unwrap().push(vector);
        }

        fn set_intx(&self, _: bool) {}
    }

    #[test]
    fn msix_that_is_programmed_after_a_reset_is_delivered() {
        const COMMAND: u16 = 0x04;
        const MSIX_CONTROL: u16 = 0x82;
        let fabric = Fabric::new(Profile::optweb(2)).unwrap();
        let (card, host) = (fabric.endpoint(0), Arc::new(Host::default()));
        card.attach(Arc::clone(&host) as Arc<dyn DmaPort>, Arc::clone(&host) as Arc<dyn InterruptPort>);
        let table = BarIndex::new(pci::MSIX_BAR).unwrap();
        let unmask = |vector: u64| card.bar_write(table, u64::from(pci::MSIX_TABLE_OFFSET) + 16 * vector + 12, &[0; 4]);
        let raise = |vector| {
            fabric.shared().access(|core| {
                core.cards[0].msix.raise(vector);
                core.cards[0].deliver_interrupts();
            })
        };
        for round in 0..3 {
            // Writes while memory is not decoded are dropped, whether or not the enable bit is set.
            card.config_write(MSIX_CONTROL, &[0, 0x80]);
            unmask(1);
            card.config_write(COMMAND, &[6, 0]);
            raise(1);
            assert!(host.0.lock().unwrap().is_empty(), "round {round}");
            unmask(1);
            assert_eq!(std::mem::take(&mut *host.0.lock().unwrap()), [1], "round {round}");
            match round {
                0 => card.config_write(0x48, &[0, 0x80]),
                _ => card.reset(ResetKind::Function),
            }
        }
    }
}

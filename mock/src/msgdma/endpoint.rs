//! A card with an engine beside its sequencer, as an endpoint: the feature list has one more entry.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fpga_hal::BarIndex;
use fpga_hal::endpoint::{DmaFault, DmaPort, DmaTag, Endpoint, Interposer, InterruptPort, ResetKind};
use fpga_regs::msgdma::BLOCK_BYTES;

use crate::card::config_space::{Command, ConfigSpace};
use crate::fabric::Fabric;
use crate::model::registers::ENGINE_OFFSET;
use crate::msgdma::descriptor::Violation;
use crate::msgdma::header::VECTOR;
use crate::msgdma::planted::Fault;
use crate::msgdma::registers::{Registers, is_own};

/// BAR of the card's registers.
const REGISTERS_BAR: usize = 0;

/// A card of a fabric, and its engine.
pub(crate) struct CardWithEngine {
    fabric: Fabric,
    node: u32,
    card: Arc<dyn Endpoint>,
    engine: Mutex<Registers>,
}

impl CardWithEngine {
    /// Adds an engine to the card `node` of a fabric, whose list leads to it.
    pub(crate) fn new(fabric: &Fabric, node: u32) -> Self {
        CardWithEngine {
            fabric: fabric.clone(),
            node,
            card: fabric.endpoint(node),
            engine: Mutex::new(Registers::new(fabric, node)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Registers> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `access` on the engine, which then does what it can, and sends its interrupt.
    fn with_engine<R>(&self, access: impl FnOnce(&mut Registers, bool) -> R) -> R {
        let is_master = self.command().is_bus_master();
        let mut engine = self.lock();
        let result = access(&mut engine, is_master);
        engine.run(is_master);
        let interrupts = std::mem::take(&mut engine.rises);
        drop(engine);
        if interrupts {
            self.fabric.interrupt(self.node, VECTOR);
        }
        result
    }

    fn command(&self) -> Command {
        Command::of(&*self.card)
    }

    /// Resets the engine, but not its function.
    pub(crate) fn reset_logic(&self) {
        self.lock().reset();
    }

    /// Plants a fault.
    pub(crate) fn plant(&self, fault: Fault) {
        self.lock().dispatcher.planted.plant(fault);
    }

    /// Returns what the host did that is forbidden.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        self.lock().dispatcher.violations.list()
    }

    /// Returns the offset in the engine's block of an access that reaches it.
    fn inside(bar: BarIndex, offset: u64, bytes: usize) -> Option<u32> {
        let inside = offset.checked_sub(ENGINE_OFFSET).filter(|inside| *inside < u64::from(BLOCK_BYTES));
        let is_taken = matches!(bytes, 4 | 8) && offset.is_multiple_of(bytes as u64);
        inside.filter(|_| bar.index() == REGISTERS_BAR && is_taken).map(|inside| inside as u32)
    }
}

impl Interposer for CardWithEngine {
    fn behind(&self) -> &dyn Endpoint {
        &*self.card
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        self.lock().port = Some(Arc::clone(&dma));
        self.card.attach(dma, interrupts);
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        self.card.config_write(offset, data);
        if ConfigSpace::resets(offset, data) {
            self.reset_logic();
        }
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        if let Some(inside) = Self::inside(bar, offset, data.len()) {
            if !self.command().decodes_memory() {
                return data.fill(0xff);
            }
            return self.with_engine(|engine, is_master| {
                engine.run(is_master);
                for (number, half) in data.chunks_mut(4).enumerate() {
                    half.copy_from_slice(&engine.read(inside + 4 * number as u32).to_le_bytes());
                }
            });
        }
        self.card.bar_read(bar, offset, data);
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        let Some(inside) = Self::inside(bar, offset, data.len()) else {
            return self.card.bar_write(bar, offset, data);
        };
        if !self.command().decodes_memory() {
            return;
        }
        self.with_engine(|engine, _| {
            for (number, half) in data.as_chunks().0.iter().enumerate() {
                engine.write(inside + 4 * number as u32, u32::from_le_bytes(*half));
            }
        });
    }

    fn reset(&self, kind: ResetKind) {
        self.card.reset(kind);
        self.reset_logic();
    }

    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        if is_own(tag) {
            self.with_engine(|engine, is_master| engine.answered(tag, result, is_master));
        } else {
            self.card.dma_complete(tag, result);
        }
    }
}

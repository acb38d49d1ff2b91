//! The cards as a bus sees them.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};

use fpga_hal::BarIndex;
use fpga_hal::endpoint::{DmaFault, DmaPort, DmaTag, Endpoint, InterruptPort, Layout, ResetKind};
use fpga_regs::xdma;

use crate::card::bus_ports::BusPorts;
use crate::card::config_space::{Effect, layout};
use crate::xdma::behind::{Behind, INTERRUPT};
use crate::xdma::card::Card;
use crate::xdma::notes::Violation;

/// One card, for a bus.
pub(super) struct CardEndpoint {
    card: Mutex<Card>,
    /// The card of a fabric behind the engine, if there is one.
    behind: Option<Behind>,
    sequencer: SequencerLine,
}

/// The level of the sequencer's interrupt. The fabric sets it with its own lock held, which a card with its lock held may wait for. The
/// same holds for errors of the sequencer's channels.
#[derive(Debug, Default)]
struct SequencerLine {
    is_asserted: AtomicBool,
    /// Something has changed, and the card has not seen it.
    is_new: AtomicBool,
}

impl CardEndpoint {
    pub(super) fn new(card: Card, behind: Option<Behind>) -> Self {
        CardEndpoint { card: Mutex::new(card), behind, sequencer: SequencerLine::default() }
    }

    /// Runs `access` on the card.
    pub(super) fn access<R>(&self, access: impl FnOnce(&mut Card) -> R) -> R {
        let mut card = self.card.lock().unwrap_or_else(PoisonError::into_inner);
        card.take_progress_of_bypass();
        let result = access(&mut card);
        card.copy_control_to_bypass();
        drop(card);
        self.see_sequencer();
        result
    }

    /// Has the card see what has happened on the sequencer's channels. Never waits, as [`assert_sequencer`](Self::assert_sequencer).
    pub(super) fn look_at_bypass(&self) {
        self.sequencer.is_new.store(true, Ordering::SeqCst);
        self.see_sequencer();
    }

    /// Sets the level of the sequencer's interrupt. Never waits: whoever holds the card sees it.
    fn assert_sequencer(&self, is_asserted: bool) {
        self.sequencer.is_asserted.store(is_asserted, Ordering::SeqCst);
        self.sequencer.is_new.store(true, Ordering::SeqCst);
        self.see_sequencer();
    }

    /// Has the card see the level of the sequencer's interrupt, unless somebody holds the card, who then looks here after letting
    /// go.
    fn see_sequencer(&self) {
        loop {
            // Between letting go of the card and this look, or between setting the level and trying the card.
            fence(Ordering::SeqCst);
            if !self.sequencer.is_new.load(Ordering::SeqCst) {
                return;
            }
            let mut card = match self.card.try_lock() {
                Ok(card) => card,
                Err(TryLockError::Poisoned(card)) => card.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            self.sequencer.is_new.store(false, Ordering::SeqCst);
            card.take_progress_of_bypass();
            card.assert_user(INTERRUPT, self.sequencer.is_asserted.load(Ordering::SeqCst));
        }
    }

    /// Runs `access` if the card answers.
    fn answering<R>(&self, access: impl FnOnce(&mut Card) -> R) -> Option<R> {
        self.access(|card| card.answers().then(|| access(card)))
    }

    /// Runs `access` if the card answers and decodes memory accesses.
    fn decoding<R>(&self, access: impl FnOnce(&mut Card) -> Option<R>) -> Option<R> {
        self.answering(|card| card.config.decodes_memory().then(|| access(card)).flatten()).flatten()
    }
}

/// The sequencer's interrupt, as the card of the fabric sees it.
pub(super) struct SequencerInterrupt(pub(super) Weak<CardEndpoint>);

impl InterruptPort for SequencerInterrupt {
    /// Messages are the shell's: without MSI-X of its own, the card asserts a level.
    fn raise(&self, _vector: u16) {}

    fn set_intx(&self, is_asserted: bool) {
        if let Some(shell) = self.0.upgrade() {
            shell.assert_sequencer(is_asserted);
        }
    }
}

impl Card {
    fn read_dma(&mut self, offset: u64, data: &mut [u8]) -> Option<()> {
        if data.len() != 4 || !offset.is_multiple_of(4) {
            self.violations.note(Violation::NotFourBytes);
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
            self.violations.note(Violation::NotFourBytes);
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
        layout(&xdma::FUNCTION, xdma::DMA_BITS)
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        if let Some(bypass) = self.behind.as_ref().and_then(Behind::bypass) {
            bypass.attach(Arc::clone(&dma));
        }
        self.access(|card| card.bus = Some(BusPorts::new(dma, interrupts)));
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        let read = |card: &mut Card| {
            card.push_writes();
            card.config.read(offset, data);
        };
        if self.answering(read).is_none() {
            data.fill(0xff);
        }
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        self.answering(|card| match card.config.write(offset, data) {
            Effect::None => {}
            Effect::FunctionReset => card.reset(),
            Effect::Interrupts => card.update_interrupts(),
        });
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        let read = |card: &mut Card| {
            card.push_writes();
            match bar.index() as u8 {
                xdma::DMA_BAR => card.read_dma(offset, data),
                xdma::USER_BAR => card.user_bar.read(offset, data),
                xdma::BYPASS_BAR => card.read_window(offset, data),
                _ => None,
            }
        };
        if self.decoding(read).is_none() {
            data.fill(0xff);
        }
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        self.decoding(|card| match bar.index() as u8 {
            xdma::DMA_BAR => card.write_dma(offset, data),
            xdma::USER_BAR => card.write_user(offset, data),
            xdma::BYPASS_BAR => card.write_window(offset, data),
            _ => None,
        });
    }

    fn reset(&self, _kind: ResetKind) {
        self.answering(Card::reset);
    }

    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        // The sequencer's requests are the fabric's to end, whose lock is not to be waited for with the card's held.
        if !self.behind.as_ref().is_some_and(|behind| behind.completed(tag, result)) {
            self.access(|card| card.dma_completed(tag, result));
        }
    }
}

//! An endpoint that counts what a host does to a card, with the card's work or without.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fpga_hal::BarIndex;
use fpga_hal::endpoint::{Endpoint, Interposer};

/// A card whose accesses are passed on, or only counted while [`Recorder::hold`] is in force. The last doorbell held back
/// is rung by [`Recorder::release`], so that what was submitted completes.
pub struct Recorder {
    card: Arc<dyn Endpoint>,
    is_holding: AtomicBool,
    reads: AtomicU64,
    writes: AtomicU64,
    /// Offset and value of the last register write held back.
    last: AtomicU64,
}

/// MMIO accesses counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accesses {
    /// Register reads.
    pub reads: u64,
    /// Register writes.
    pub writes: u64,
}

impl Recorder {
    /// Records accesses to `card`.
    pub fn new(card: Arc<dyn Endpoint>) -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        Arc::new(Recorder { card, is_holding: AtomicBool::new(false), reads: zero(), writes: zero(), last: zero() })
    }

    /// Counts accesses from now on, and holds them back.
    pub fn hold(&self) {
        self.is_holding.store(true, Ordering::Relaxed);
    }

    /// Passes accesses on again, beginning with the last write held back.
    pub fn release(&self) {
        self.is_holding.store(false, Ordering::Relaxed);
        let last = self.last.swap(0, Ordering::Relaxed);
        if let Some(bar) = BarIndex::new(0).filter(|_| last != 0) {
            self.card.bar_write(bar, last >> 32, &(last as u32).to_le_bytes());
        }
    }

    /// Returns the counts since the last call.
    pub fn take(&self) -> Accesses {
        Accesses { reads: self.reads.swap(0, Ordering::Relaxed), writes: self.writes.swap(0, Ordering::Relaxed) }
    }
}

impl Interposer for Recorder {
    fn behind(&self) -> &dyn Endpoint {
        &*self.card
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.card.bar_read(bar, offset, data);
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        if !self.is_holding.load(Ordering::Relaxed) {
            return self.card.bar_write(bar, offset, data);
        }
        if let Ok(value) = data.try_into() {
            self.last.store(offset << 32 | u64::from(u32::from_le_bytes(value)), Ordering::Relaxed);
        }
    }
}

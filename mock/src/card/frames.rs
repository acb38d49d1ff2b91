//! The frames of one card's memory that were written.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fpga_hal::memory::release_freed;

use crate::card::budget::{Budget, Charge};
use crate::net::payload::{FRAME, Frame, Payload, TABLE, Table};

/// What was written. The frames are freed before their charge.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) tables: Vec<Option<Table>>,
    pub(crate) charge: Charge,
}

impl Contents {
    pub(crate) fn new(budget: &Arc<Budget>, node: u32) -> Self {
        Contents { tables: Vec::new(), charge: Charge::new(budget, node) }
    }

    pub(crate) fn frame(&self, number: usize) -> Option<&Frame> {
        self.tables.get(number / TABLE)?.as_ref()?[number % TABLE].as_ref()
    }

    pub(crate) fn slot(&mut self, number: usize) -> &mut Option<Frame> {
        let place = number / TABLE;
        if self.tables.len() <= place {
            self.tables.resize_with(place + 1, || None);
        }
        let table = self.tables[place].get_or_insert_with(|| Arc::new(vec![None; TABLE]));
        &mut Arc::make_mut(table)[number % TABLE]
    }

    /// Returns `bytes` bytes at `address`, at least one, as they are now. Of many frames the tables are shared, because the fabric's
    /// lock is held.
    pub(crate) fn share(&self, address: u64, bytes: u64) -> Payload {
        let [begin, last] = [address, address + bytes - 1].map(|at| (at / FRAME as u64) as usize);
        let (tables, first) = if last - begin < TABLE {
            let frames = (begin..=last).map(|number| self.frame(number).cloned()).collect();
            ([Some(Arc::new(frames))].into(), begin)
        } else {
            let places = begin / TABLE..=last / TABLE;
            (places.map(|place| self.tables.get(place).cloned().flatten()).collect(), begin / TABLE * TABLE)
        };
        Payload::Shared { tables, offset: address as usize - first * FRAME, bytes }
    }
}

/// Bytes of discarded frames that the allocator may keep. To return them costs a walk over all that is free.
const KEPT_MAX: u64 = 64 << 20;

/// Bytes of discarded frames since the allocator returned what was free, in all fabrics of this process.
static KEPT: AtomicU64 = AtomicU64::new(0);

/// What was in a card's memory when that was cleared. Dropping it frees the frames, so that this machine has them again.
#[derive(Debug)]
pub(crate) struct Discarded(pub(crate) Contents);

impl Drop for Discarded {
    fn drop(&mut self) {
        let bytes = self.0.charge.bytes();
        self.0.tables = Vec::new();
        if KEPT.fetch_add(bytes, Ordering::Relaxed) + bytes >= KEPT_MAX {
            KEPT.store(0, Ordering::Relaxed);
            release_freed();
        }
    }
}

/// Part of one frame that a range of memory touches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) frame: usize,
    pub(crate) start: usize,
    pub(crate) bytes: usize,
}

/// Returns the parts of the frames that a range touches.
pub(crate) fn parts(address: u64, bytes: u64) -> impl Iterator<Item = Part> {
    let (mut at, end) = (address, address + bytes);
    std::iter::from_fn(move || {
        let (frame, start) = ((at / FRAME as u64) as usize, (at % FRAME as u64) as usize);
        let bytes = (FRAME - start).min((end - at) as usize);
        at += bytes as u64;
        (bytes > 0).then_some(Part { frame, start, bytes })
    })
}

impl Part {
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes
    }
}

//! What the host knows of a card's window slots, and the keys of windows.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use cmdseq::instruction::Window;

use crate::error::{Error, Result};

/// A window that the host has opened on a card.
#[derive(Debug, Clone)]
pub(crate) struct OpenWindow {
    pub(crate) window: Window,
    /// Of those for whom it is open.
    pub(crate) pin: Weak<()>,
    /// The cards of the programs that it was opened for.
    pub(crate) nodes: Arc<[u32]>,
}

impl OpenWindow {
    /// Whether nobody holds it open.
    pub(crate) fn is_unheld(&self) -> bool {
        self.pin.strong_count() == 0
    }
}

/// The windows that the host has opened on a card; a reset closes them all.
pub(crate) type OpenWindows = Vec<OpenWindow>;

/// Returns the free slots of a card with `slots`, the last first: programs that open windows themselves mostly begin with the
/// first.
pub(crate) fn free_slots(slots: u32, open: &[OpenWindow], used: &BTreeSet<u16>) -> Vec<u16> {
    let is_free = |slot: &u16| !used.contains(slot) && open.iter().all(|one| one.window.slot != *slot);
    (0..slots.min(1 << 16)).rev().map(|slot| slot as u16).filter(is_free).collect()
}

/// Source of the keys of windows.
#[derive(Debug, Clone, Default)]
pub(crate) enum Keys {
    /// The operating system's random numbers.
    #[default]
    System,
    /// The same keys on every run, for tests.
    Seeded(u64),
}

impl Keys {
    /// Returns a new key, never 0.
    pub(crate) fn next(&mut self) -> Result<u32> {
        loop {
            let key = match self {
                Keys::System => getrandom::u32().map_err(|error| Error::NoKey(error.into()))?,
                Keys::Seeded(state) => {
                    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                    (*state >> 32) as u32
                }
            };
            if key != 0 {
                return Ok(key);
            }
        }
    }
}

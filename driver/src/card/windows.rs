//! What the host knows of a card's window slots. No I/O.

use std::sync::Weak;

use cmdseq::instruction::Window;

/// A window that the host has opened on a card.
#[derive(Debug, Clone)]
pub(crate) struct OpenWindow {
    pub(crate) window: Window,
    /// Of those for whom it is open.
    pub(crate) pin: Weak<()>,
}

/// The windows that the host has opened on a card; a reset closes them all.
pub(crate) type OpenWindows = Vec<OpenWindow>;

/// Returns the free slots of a card with `slots`, the last first: programs that open windows themselves mostly begin with the
/// first.
pub(crate) fn free_slots(slots: u32, open: &[OpenWindow], used: &[u16]) -> Vec<u16> {
    let is_free = |slot: &u16| !used.contains(slot) && open.iter().all(|one| one.window.slot != *slot);
    (0..slots.min(1 << 16)).rev().map(|slot| slot as u16).filter(is_free).collect()
}

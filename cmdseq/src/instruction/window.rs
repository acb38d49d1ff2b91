//! Windows: ranges of a card's memory that one-sided operations of other cards may reach.
//!
//! The extent of an instruction holds slot, rights and key (`docs/isa.md`, Windows).

use super::{Instruction, Operation};

const RIGHTS_SHIFT: u32 = 16;
const KEY_SHIFT: u32 = 32;

bitflags::bitflags! {
    /// What a window allows.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
    pub struct Rights: u16 {
        /// Others read the range.
        const READ = 1 << 0;
        /// Others write the range.
        const WRITE = 1 << 1;
        /// Others add to the signals of the card.
        const SIGNAL = 1 << 2;
    }
}

impl Rights {
    /// All that are not empty, with their names in sources.
    pub(crate) const NAMED: [(Rights, &str); 7] = [
        (Rights::READ, "read"),
        (Rights::WRITE, "write"),
        (Rights::READ.union(Rights::WRITE), "read_write"),
        (Rights::SIGNAL, "signal"),
        (Rights::READ.union(Rights::SIGNAL), "read_signal"),
        (Rights::WRITE.union(Rights::SIGNAL), "write_signal"),
        (Rights::all(), "read_write_signal"),
    ];

    /// Name in sources and messages; `None` without any right.
    pub fn name(self) -> Option<&'static str> {
        // Asked of every instruction, and few have any.
        if self.is_empty() {
            return None;
        }
        Rights::NAMED.iter().find(|(rights, _)| *rights == self).map(|(_, name)| *name)
    }
}

/// Names a window of a card: only who knows the key reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window {
    /// Slot of the card, below its [`windows`](crate::Capabilities::windows).
    pub slot: u16,
    /// The key; 0 is that of no window.
    pub key: u32,
}

impl Window {
    pub(super) const fn extent(self, rights: Rights) -> u64 {
        self.slot as u64 | (rights.bits() as u64) << RIGHTS_SHIFT | (self.key as u64) << KEY_SHIFT
    }
}

impl Instruction {
    /// Returns the window that the instruction opens, closes or goes through. A one-sided operation may name none.
    pub const fn window(&self) -> Option<Window> {
        if !self.operation.fields().window || self.extent == 0 {
            return None;
        }
        Some(Window { slot: self.extent as u16, key: (self.extent >> KEY_SHIFT) as u32 })
    }

    /// Returns the rights of the window that the instruction opens; no rights for other operations.
    pub const fn rights(&self) -> Rights {
        if !self.operation.fields().rights {
            return Rights::empty();
        }
        Rights::from_bits_truncate((self.extent >> RIGHTS_SHIFT) as u16)
    }

    /// Returns the rights that a one-sided operation needs at its peer; no rights for other operations.
    pub const fn needed_rights(&self) -> Rights {
        match self.operation {
            Operation::RdmaRead => Rights::READ,
            Operation::RdmaWrite => Rights::WRITE,
            Operation::PutSignal if self.bytes == 0 => Rights::SIGNAL,
            Operation::PutSignal => Rights::WRITE.union(Rights::SIGNAL),
            _ => Rights::empty(),
        }
    }

    /// Whether this is a one-sided operation that names no window.
    pub const fn needs_window(&self) -> bool {
        !self.needed_rights().is_empty() && self.window().is_none()
    }

    /// Makes a one-sided operation go through `window` of its peer.
    pub const fn through(mut self, window: Window) -> Self {
        self.extent = window.extent(Rights::empty());
        self
    }

    /// Whether the extent, which names a window, is valid: a key, the rights of an `open`, and otherwise zeros.
    pub(super) const fn is_window_valid(&self) -> bool {
        match self.window() {
            // A one-sided operation without a window.
            None => !self.operation.fields().rights && self.operation.fields().peer,
            Some(window) => {
                let rights = self.rights();
                let is_complete = self.extent == window.extent(rights);
                window.key != 0 && is_complete && (!self.operation.fields().rights || !rights.is_empty())
            }
        }
    }

    pub(super) fn set_slot(&mut self, slot: u64) {
        self.extent = self.extent & !u64::from(u16::MAX) | slot;
    }

    pub(super) fn set_key(&mut self, key: u64) {
        self.extent = self.extent & u64::from(u32::MAX) | key << KEY_SHIFT;
    }

    pub(super) fn set_rights(&mut self, rights: Rights) {
        let mask = u64::from(u16::MAX) << RIGHTS_SHIFT;
        self.extent = self.extent & !mask | u64::from(rights.bits()) << RIGHTS_SHIFT;
    }
}

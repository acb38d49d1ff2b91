//! What is on the engine's bus: card memory from address 0 and, with a sequencer, the memory for its rings.

use crate::card::memory::{CardMemory, MemoryError};
use crate::xdma::behind::Behind;

/// What is on the engine's bus.
pub(super) enum Memory {
    /// Memory of a card without a sequencer.
    Own(CardMemory),
    /// Memory of a card of a fabric, `bytes` long.
    Shared { behind: Behind, bytes: u64 },
}

impl Memory {
    pub(super) fn of(behind: &Behind) -> Self {
        let bytes = behind.fabric().memory(behind.node(), 0, |memory| memory.len());
        Memory::Shared { behind: behind.clone(), bytes }
    }

    /// Returns whether something answers at all these addresses.
    pub(super) fn contains(&self, address: u64, bytes: u64) -> bool {
        match self {
            Memory::Own(memory) => memory.contains(address, bytes),
            Memory::Shared { behind, bytes: length } => {
                let is_memory = address.checked_add(bytes).is_some_and(|end| end <= *length);
                is_memory || of_rings(behind, address, bytes, |_| ()).is_some()
            }
        }
    }

    /// Appends `bytes` bytes at `address` to `data`.
    pub(super) fn append_to(&self, address: u64, bytes: u64, data: &mut Vec<u8>) -> Result<(), MemoryError> {
        match self {
            Memory::Own(memory) => memory.append_to(address, bytes, data),
            // The lock of the rings is not held while the fabric's is waited for.
            Memory::Shared { behind, .. } => {
                match of_rings(behind, address, bytes, |rings| data.extend_from_slice(rings)) {
                    Some(()) => Ok(()),
                    None => {
                        behind.fabric().memory(behind.node(), bytes, |memory| memory.append_to(address, bytes, data))
                    }
                }
            }
        }
    }

    pub(super) fn read(&self, address: u64, bytes: u64) -> Result<Vec<u8>, MemoryError> {
        if !self.contains(address, bytes) {
            return Err(MemoryError::OutOfRange { address, bytes });
        }
        let mut data = Vec::with_capacity(bytes as usize);
        self.append_to(address, bytes, &mut data)?;
        Ok(data)
    }

    pub(super) fn write(&mut self, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        let bytes = data.len() as u64;
        match self {
            Memory::Own(memory) => memory.write(address, data),
            Memory::Shared { behind, .. } => {
                match of_rings(behind, address, bytes, |rings| rings.copy_from_slice(data)) {
                    Some(()) => Ok(()),
                    None => behind.fabric().memory(behind.node(), bytes, |memory| memory.write(address, data)),
                }
            }
        }
    }
}

/// Runs `act` on the bytes of the memory for rings at `address`, if they are inside.
fn of_rings<R>(behind: &Behind, address: u64, bytes: u64, act: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
    behind.rings()?.of_engine(address, bytes, act)
}

//! Tables of the vector forms: address and length of the block of each rank.

use std::collections::BTreeMap;

use crate::Capabilities;

/// Bytes of one encoded entry.
pub const ENTRY_BYTES: usize = 16;

/// The tables of a card, by slot.
pub type Tables = BTreeMap<u16, Table>;

/// The block of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Entry {
    /// Bytes from the operand's address to the block; ignored for an empty block.
    pub displacement: u64,
    /// Its length, bytes.
    pub bytes: u64,
}

/// One entry for each rank of a communicator.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Table {
    /// By rank.
    pub entries: Vec<Entry>,
}

/// Why a table is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TableError(String);

impl Table {
    /// Returns consecutive blocks of these lengths, each at a multiple of `align` bytes. Displacements saturate, which is outside
    /// of any memory.
    pub fn packed(lengths: impl IntoIterator<Item = u64>, align: u64) -> Self {
        let mut next = 0_u64;
        let entries = lengths.into_iter().map(|bytes| {
            let displacement = next;
            next = next.saturating_add(bytes).checked_next_multiple_of(align.max(1)).unwrap_or(u64::MAX);
            Entry { displacement, bytes }
        });
        Table { entries: entries.collect() }
    }

    /// Returns the entry of `rank`.
    pub fn get(&self, rank: u32) -> Option<Entry> {
        self.entries.get(rank as usize).copied()
    }

    /// Returns the bytes from the operand's address to the end of the last block. Saturates.
    pub fn span(&self) -> u64 {
        let ends = self.entries.iter().filter(|entry| entry.bytes != 0);
        ends.map(|entry| entry.displacement.saturating_add(entry.bytes)).max().unwrap_or(0)
    }

    /// Returns the length of the longest block, bytes.
    pub fn longest(&self) -> u64 {
        self.entries.iter().map(|entry| entry.bytes).max().unwrap_or(0)
    }

    /// Encodes displacement and length of each rank, 64 bits each, little-endian, as the card reads them from host memory.
    pub fn encode(&self) -> Vec<u8> {
        self.entries.iter().flat_map(|entry| [entry.displacement, entry.bytes]).flat_map(u64::to_le_bytes).collect()
    }

    /// Decodes what [`encode`](Table::encode) returns.
    ///
    /// # Errors
    /// [`TableError`] unless they are a whole number of entries.
    pub fn decode(bytes: &[u8]) -> Result<Self, TableError> {
        let (chunks, rest) = bytes.as_chunks::<ENTRY_BYTES>();
        if chunks.is_empty() || !rest.is_empty() {
            let cause =
                format!("invalid table of {} B: expected one entry of {ENTRY_BYTES} B for each rank", bytes.len());
            return Err(TableError(cause));
        }
        let entry = |chunk: &[u8; ENTRY_BYTES]| {
            let number = u128::from_le_bytes(*chunk);
            Entry { displacement: number as u64, bytes: (number >> 64) as u64 }
        };
        Ok(Table { entries: chunks.iter().map(entry).collect() })
    }

    /// Checks that a card of `capabilities` accepts the table in `slot`.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self, slot: u16, capabilities: &Capabilities) -> Result<(), TableError> {
        let slots = capabilities.tables;
        if u32::from(slot) >= slots {
            return Err(TableError(format!("no table slot {slot} (the card has {slots} slots)")));
        }
        let most = capabilities.communicator_ranks.min(capabilities.nodes);
        let entries = self.entries.len();
        if entries == 0 || entries as u64 > u64::from(most) {
            return Err(TableError(format!("table of {entries} entries: the card allows 1 to {most}")));
        }
        let align = capabilities.address_align.max(1);
        let is_off = |entry: &Entry| entry.bytes != 0 && !entry.displacement.is_multiple_of(align.into());
        match self.entries.iter().position(is_off) {
            Some(rank) => Err(TableError(format!(
                "the block of rank {rank} has displacement {}: expected a multiple of {align}",
                self.entries[rank].displacement
            ))),
            None => Ok(()),
        }
    }
}

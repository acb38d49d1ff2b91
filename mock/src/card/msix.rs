//! MSI-X table and pending bits of a card.

use fpga_regs::pci;

const VECTORS: usize = pci::MSIX_VECTORS as usize;
const ENTRY_BYTES: usize = 16;
const CONTROL_WORD: usize = 3;
const MASKED: u32 = 1;

/// The table: four words a vector (address low and high, data, control), all masked at first.
#[derive(Debug)]
pub(crate) struct Msix {
    entries: [[u32; 4]; VECTORS],
    pending: u64,
}

impl Msix {
    pub(crate) fn new() -> Self {
        Msix { entries: [[0, 0, 0, MASKED]; VECTORS], pending: 0 }
    }

    /// Reads the aligned 32-bit word at `offset` of the BAR.
    pub(crate) fn read(&self, offset: u64) -> u32 {
        let pending = u64::from(pci::MSIX_PENDING_OFFSET);
        match offset {
            _ if offset == pending => self.pending as u32,
            _ if offset == pending + 4 => (self.pending >> 32) as u32,
            _ => self.place(offset).map_or(0, |(vector, word)| self.entries[vector][word]),
        }
    }

    /// Writes the aligned 32-bit word at `offset` of the BAR.
    pub(crate) fn write(&mut self, offset: u64, value: u32) {
        if let Some((vector, word)) = self.place(offset) {
            let mask = match word {
                0 => !0b11,
                CONTROL_WORD => MASKED,
                _ => !0,
            };
            self.entries[vector][word] = value & mask;
        }
    }

    fn place(&self, offset: u64) -> Option<(usize, usize)> {
        let at = usize::try_from(offset.checked_sub(u64::from(pci::MSIX_TABLE_OFFSET))?).ok()?;
        let vector = at / ENTRY_BYTES;
        (vector < VECTORS).then_some((vector, at % ENTRY_BYTES / 4))
    }

    /// Marks `vector` as raised. A vector that does not exist is dropped.
    pub(crate) fn raise(&mut self, vector: u32) {
        if (vector as usize) < VECTORS {
            self.pending |= 1 << vector;
        }
    }

    /// Returns the vectors that were raised and not delivered.
    pub(crate) fn pending(&self) -> u32 {
        self.pending as u32
    }

    /// Clears the pending bits of `mask`.
    pub(crate) fn clear(&mut self, mask: u32) {
        self.pending &= !u64::from(mask);
    }

    /// Removes and returns the vectors that can be delivered now.
    pub(crate) fn take_deliverable(&mut self) -> impl Iterator<Item = u16> + use<> {
        let open = (0..VECTORS).filter(|vector| self.entries[*vector][CONTROL_WORD] & MASKED == 0);
        let ready = open.fold(0, |ready, vector| ready | 1 << vector) & self.pending;
        self.pending &= !ready;
        (0..pci::MSIX_VECTORS).filter(move |vector| ready >> vector & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masked_vectors_wait() {
        let mut msix = Msix::new();
        msix.raise(1);
        msix.raise(99);
        assert_eq!(msix.take_deliverable().count(), 0);
        assert_eq!(msix.read(0x800), 0b10);
        msix.write(0x1c, 0);
        assert_eq!(msix.take_deliverable().collect::<Vec<_>>(), [1]);
        assert_eq!(msix.read(0x800), 0);
    }
}

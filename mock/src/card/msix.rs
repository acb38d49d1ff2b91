//! MSI-X table and pending bits of a card.

use fpga_regs::pci;

const ENTRY_BYTES: usize = 16;
const CONTROL_WORD: usize = 3;
const MASKED: u32 = 1;

/// The table: four words a vector (address low and high, data, control), all masked at first.
#[derive(Debug)]
pub(crate) struct Msix {
    place: pci::Msix,
    entries: Vec<[u32; 4]>,
    pending: u64,
}

impl Msix {
    pub(crate) fn new(place: pci::Msix) -> Self {
        Msix { place, entries: vec![[0, 0, 0, MASKED]; usize::from(place.vectors)], pending: 0 }
    }

    /// Reads the aligned 32-bit word at `offset` of the BAR.
    pub(crate) fn read(&self, offset: u64) -> u32 {
        let pending = u64::from(self.place.pending);
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
        let at = usize::try_from(offset.checked_sub(u64::from(self.place.table))?).ok()?;
        let vector = at / ENTRY_BYTES;
        (vector < self.entries.len()).then_some((vector, at % ENTRY_BYTES / 4))
    }

    /// Marks `vector` as raised. A vector that does not exist is dropped.
    pub(crate) fn raise(&mut self, vector: u32) {
        if (vector as usize) < self.entries.len() {
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
        let open = (0_u16..).zip(&self.entries).filter(|(_, entry)| entry[CONTROL_WORD] & MASKED == 0);
        let ready = open.fold(0, |ready, (vector, _)| ready | 1 << vector) & self.pending;
        self.pending &= !ready;
        (0..self.place.vectors).filter(move |vector| ready >> vector & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masked_vectors_wait() {
        let mut msix = Msix::new(pci::CARD.msix);
        msix.raise(1);
        msix.raise(99);
        assert_eq!(msix.take_deliverable().count(), 0);
        assert_eq!(msix.read(0x800), 0b10);
        msix.write(0x1c, 0);
        assert_eq!(msix.take_deliverable().collect::<Vec<_>>(), [1]);
        assert_eq!(msix.read(0x800), 0);
    }
}

//! The user BAR: blocks of registers of the card's own logic, on an AXI4-Lite bus of 32 bits.

use std::ops::Range;

use fpga_regs::feature_list::{CARD_GUID, Header, TYPE_AFU};
use fpga_regs::xdma::USER_BAR_BYTES;

use crate::card::feature_list::FEATURE_BYTES;
use crate::xdma::block::{Block, ListHeader};
use crate::xdma::region::Region;

/// The blocks by the offsets that they decode. Everything else reads zero, and takes writes without effect.
pub(super) struct UserBar {
    blocks: Vec<(Range<u32>, Box<dyn Block>)>,
    region: Region,
}

impl UserBar {
    /// Returns a BAR with the feature list of an accelerator, whose next header is `next` bytes behind the first. 0: there is none.
    pub(super) fn new(next: u32, region: Region) -> Self {
        let header = Header { id: 0, revision: 0, next, end_of_list: next == 0, version: 0, kind: TYPE_AFU };
        let mut bar = UserBar { blocks: Vec::new(), region };
        bar.place(0..FEATURE_BYTES as u32, Box::new(ListHeader { header, guid: CARD_GUID }));
        bar
    }

    /// Adds a block. Of several that decode an offset, the first answers.
    pub(super) fn place(&mut self, at: Range<u32>, block: Box<dyn Block>) {
        self.blocks.push((at, block));
    }

    fn find(&mut self, offset: u32) -> Option<(u32, &mut dyn Block)> {
        let (at, block) = self.blocks.iter_mut().find(|(at, _)| at.contains(&offset))?;
        Some((offset - at.start, &mut **block))
    }

    /// Reads 4 or 8 aligned bytes, which are one or two accesses of the bus. `None` for what it does not carry.
    pub(super) fn read(&mut self, offset: u64, data: &mut [u8]) -> Option<()> {
        for (offset, word) in accesses(offset, data.len())?.zip(data.chunks_mut(4)) {
            let value = match self.region.instead(offset) {
                Some(value) => value,
                None => self.find(offset).map_or(0, |(offset, block)| block.read32(offset)),
            };
            word.copy_from_slice(&value.to_le_bytes());
        }
        Some(())
    }

    /// Writes 4 or 8 aligned bytes.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Option<()> {
        for (offset, word) in accesses(offset, data.len())?.zip(data.as_chunks().0) {
            if self.region.instead(offset).is_none()
                && let Some((offset, block)) = self.find(offset)
            {
                block.write32(offset, u32::from_le_bytes(*word));
            }
        }
        Some(())
    }

    pub(super) fn reset(&mut self) {
        self.blocks.iter_mut().for_each(|(_, block)| block.reset());
    }
}

/// Returns the offsets of the words of an access.
fn accesses(offset: u64, bytes: usize) -> Option<impl Iterator<Item = u32>> {
    let is_carried = matches!(bytes, 4 | 8) && offset.is_multiple_of(bytes as u64) && offset < USER_BAR_BYTES;
    is_carried.then(|| (offset as u32..).step_by(4).take(bytes / 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(u32);

    impl Block for Scratch {
        fn read32(&mut self, offset: u32) -> u32 {
            self.0 + offset
        }

        fn write32(&mut self, offset: u32, value: u32) {
            self.0 = value + offset;
        }
    }

    #[test]
    fn a_block_sees_its_own_offsets_in_words() {
        let mut bar = UserBar::new(0x1000, Region::new());
        bar.place(0x1_0000..0x1_0010, Box::new(Scratch(0)));
        bar.write(0x1_0004, &5_u32.to_le_bytes()).unwrap();
        let mut data = [0; 8];
        bar.read(0x1_0008, &mut data).unwrap();
        assert_eq!(data, [17, 0, 0, 0, 21, 0, 0, 0]);
        bar.read(0x1_0010, &mut data).unwrap();
        assert_eq!(data, [0; 8]);
        // An accelerator whose next header is at 0x1000, and its GUID.
        bar.read(0, &mut data).unwrap();
        assert_eq!(u64::from_le_bytes(data), 0x1000_0000_1000_0000);
        bar.read(8, &mut data).unwrap();
        assert_eq!(u64::from_le_bytes(data), CARD_GUID as u64);
        let refused = [(0x1_0002, 4), (0x1_0004, 8), (0x1_0000, 2), (USER_BAR_BYTES, 4)];
        assert!(refused.into_iter().all(|(offset, bytes)| bar.read(offset, &mut data[..bytes]).is_none()));
    }
}

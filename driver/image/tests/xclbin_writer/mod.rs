//! xclbin files, written field by field as AMD's `xclbin.h` has them, and device trees token by token as the Devicetree Specification has
//! them. For the tests of other crates too.
#![allow(dead_code)] // Not each of them writes all of it.

use fpga_image::Uuid;

/// Offset of the UUID of the interface, and of the first entry of the table of sections.
const INTERFACE: usize = 336;
const SECTIONS: usize = 456;
/// Bytes of an entry.
const ENTRY_BYTES: usize = 40;

/// Kind of a section: a .bit file.
pub(super) const BITSTREAM: u32 = 0;
/// Kind of a section: a device tree of the partition.
pub(super) const PARTITION_METADATA: u32 = 20;

/// A tree under construction.
#[derive(Default, Clone)]
pub(super) struct Tree {
    pub(super) structure: Vec<u8>,
    pub(super) strings: Vec<u8>,
}

impl Tree {
    pub(super) fn token(mut self, token: u32) -> Self {
        self.structure.extend(token.to_be_bytes());
        self
    }

    pub(super) fn padded(mut self, bytes: &[u8]) -> Self {
        self.structure.extend(bytes);
        self.structure.resize(self.structure.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn node(self, name: &str) -> Self {
        self.token(1).padded(format!("{name}\0").as_bytes())
    }

    pub(super) fn property(mut self, name: &str, value: &[u8]) -> Self {
        let at = self.strings.len() as u32;
        self.strings.extend(name.as_bytes());
        self.strings.push(0);
        self.token(3).token(value.len() as u32).token(at).padded(value)
    }

    pub(super) fn end(self) -> Self {
        self.token(2)
    }

    /// Header, an empty list of reserved memory, structure, names.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let (structure, strings) = (self.structure.len() as u32, self.strings.len() as u32);
        let begin = 40 + 16;
        let total = begin + structure + strings;
        let header = [0xd00d_feed, total, begin, begin + structure, 40, 17, 16, 0, strings, structure];
        let header = header.iter().flat_map(|word| word.to_be_bytes());
        header.chain([0; 16]).chain(self.structure.iter().copied()).chain(self.strings.iter().copied()).collect()
    }
}

/// A file for `interface`, with these sections.
pub(super) fn xclbin(interface: Uuid, sections: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut file = vec![0; SECTIONS + ENTRY_BYTES * sections.len()];
    file[..8].copy_from_slice(b"xclbin2\0");
    file[8..12].fill(0xff);
    file[INTERFACE..INTERFACE + 16].copy_from_slice(interface.as_bytes());
    file[448] = sections.len() as u8;
    for (index, (kind, bytes)) in sections.iter().enumerate() {
        file.resize(file.len().next_multiple_of(8), 0);
        let (entry, place) = (SECTIONS + ENTRY_BYTES * index, file.len() as u64);
        file[entry..entry + 4].copy_from_slice(&kind.to_le_bytes());
        file[entry + 24..entry + 32].copy_from_slice(&place.to_le_bytes());
        file[entry + 32..entry + 40].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        file.extend(bytes);
    }
    let length = file.len() as u64;
    file[304..312].copy_from_slice(&length.to_le_bytes());
    file
}

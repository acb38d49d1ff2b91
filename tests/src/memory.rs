//! Memory of the interpreter's cards.

use std::collections::{BTreeMap, HashMap};

/// Page size of the memory, in bytes.
pub const PAGE: u64 = 4096;

/// Memory of one card, initially zero.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    pages: HashMap<u64, Box<[u8]>>,
    /// Ranges written since the last call of `take_written`: address and end.
    written: BTreeMap<u64, u64>,
}

impl Memory {
    /// Returns `bytes` bytes from `address` on.
    pub fn read(&self, address: u64, bytes: u64) -> Vec<u8> {
        let mut data = Vec::with_capacity(bytes as usize);
        let mut at = address;
        while at < address + bytes {
            let (page, offset) = (at / PAGE, at % PAGE);
            let length = (PAGE - offset).min(address + bytes - at);
            match self.pages.get(&page) {
                Some(page) => data.extend_from_slice(&page[offset as usize..][..length as usize]),
                None => data.resize(data.len() + length as usize, 0),
            }
            at += length;
        }
        data
    }

    /// Writes `data` at `address`.
    pub fn write(&mut self, address: u64, data: &[u8]) {
        let end = address + data.len() as u64;
        let mut at = address;
        while at < end {
            let (page, offset) = (at / PAGE, at % PAGE);
            let length = (PAGE - offset).min(end - at);
            let page = self.pages.entry(page).or_insert_with(|| vec![0; PAGE as usize].into());
            let from = (at - address) as usize;
            page[offset as usize..][..length as usize].copy_from_slice(&data[from..from + length as usize]);
            at += length;
        }
        if !data.is_empty() {
            let known = self.written.entry(address).or_default();
            *known = end.max(*known);
        }
    }

    /// Returns the ranges written since the last call: address and length.
    pub fn take_written(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.written).into_iter().map(|(address, end)| (address, end - address)).collect()
    }
}

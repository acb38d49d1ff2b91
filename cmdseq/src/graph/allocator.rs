//! Allocates card memory for the buffers of a graph.

use super::error::GraphError;
use super::step::Buffer;
use crate::Capabilities;
use crate::ranges::Range;

/// An allocator of card memory.
pub(super) struct Allocator {
    memory: Range,
    all: Range,
    ranks: u64,
    half: u64,
    /// Alignment of buffers in different pseudo channels.
    apart: u64,
    align: u64,
    /// Alignment of all other buffers.
    close: u64,
    taken: Vec<Range>,
}

/// Returns the ranges of memory of a buffer at `address`.
pub(super) fn ranges(buffer: &Buffer, address: u64, ranks: u64, stripe: u64) -> Vec<Range> {
    let blocks = if buffer.is_striped { ranks } else { 1 };
    let block =
        |number: u64| Range { address: address.saturating_add(stripe.saturating_mul(number)), bytes: buffer.bytes };
    (0..blocks).map(block).collect()
}

impl Allocator {
    pub(super) fn new(memory: Option<Range>, ranks: u64, capabilities: &Capabilities) -> Self {
        let all = Range { address: 0, bytes: capabilities.memory_bytes };
        let memory = memory.unwrap_or(all);
        let memory = Range { bytes: memory.end().min(all.end()).saturating_sub(memory.address), ..memory };
        let channel = capabilities.channel_bytes();
        let align = u64::from(capabilities.address_align.max(1));
        Allocator {
            memory,
            all,
            ranks,
            half: capabilities.stripe_half_bytes,
            apart: capabilities.stripe_half_bytes.max(channel).max(1),
            align,
            close: capabilities.aligned_beat(),
            taken: Vec::new(),
        }
    }

    /// Returns the address of each buffer: the requested one, or one in an unused pseudo channel if possible.
    pub(super) fn place(&mut self, buffers: &[Buffer]) -> Result<Vec<u64>, GraphError> {
        let mut addresses = vec![0; buffers.len()];
        for (place, buffer) in addresses.iter_mut().zip(buffers) {
            let Some(address) = buffer.address else { continue };
            self.check(buffer, address)?;
            self.take(buffer, address);
            *place = address;
        }
        for (place, buffer) in addresses.iter_mut().zip(buffers).filter(|(_, buffer)| buffer.address.is_none()) {
            let found = self.candidates(buffer).into_iter().find(|address| {
                let inside = |range: &Range| self.memory.address <= range.address && range.end() <= self.memory.end();
                self.ranges(buffer, *address).iter().all(inside) && self.check(buffer, *address).is_ok()
            });
            let no_room = || format!("no memory left for buffer {:?} of {} B", buffer.name, buffer.bytes);
            *place = found.ok_or_else(|| GraphError::general(no_room()))?;
            self.take(buffer, *place);
        }
        Ok(addresses)
    }

    fn ranges(&self, buffer: &Buffer, address: u64) -> Vec<Range> {
        ranges(buffer, address, self.ranks, self.half.saturating_mul(2))
    }

    fn take(&mut self, buffer: &Buffer, address: u64) {
        self.taken.extend(self.ranges(buffer, address));
    }

    /// Checks that the buffer can be at `address`.
    pub(super) fn check(&self, buffer: &Buffer, address: u64) -> Result<(), GraphError> {
        let refuse = |cause| Err(GraphError::BadAddress { buffer: buffer.name.clone(), address, cause });
        if !address.is_multiple_of(self.align) {
            return refuse(format!("misaligned: expected a multiple of {}", self.align));
        }
        if buffer.is_striped && address.checked_rem(self.half).unwrap_or(0).saturating_add(buffer.bytes) > self.half {
            return refuse(format!("a block of {} B there exceeds half a stripe of {} B", buffer.bytes, self.half));
        }
        for range in self.ranges(buffer, address) {
            let end = range.address.checked_add(range.bytes);
            if end.is_none_or(|end| end > self.all.end()) {
                return refuse(format!(
                    "{} B there exceed card memory, which ends at {:#x}",
                    range.bytes,
                    self.all.end()
                ));
            }
            if let Some(other) = self.taken.iter().find(|taken| taken.overlaps(range)) {
                return refuse(format!("{} B at {:#x} are in use", other.bytes, other.address));
            }
        }
        Ok(())
    }

    pub(super) fn occupy(&mut self, ranges: impl IntoIterator<Item = Range>) {
        self.taken.extend(ranges);
    }

    /// Returns the addresses to try: begins of pseudo channels, then ends of used ranges.
    fn candidates(&self, buffer: &Buffer) -> Vec<u64> {
        let behind = self.taken.iter().map(|range| range.end()).chain([self.memory.address]);
        let mut behind: Vec<u64> = behind.filter_map(|end| end.checked_next_multiple_of(self.close)).collect();
        behind.sort_unstable();
        behind.dedup();
        let mut candidates: Vec<u64> = Vec::new();
        if buffer.is_striped {
            // All stripes are equal: the halves of the first.
            candidates.extend([0, self.half]);
            let stripe = self.half.saturating_mul(2).max(1);
            candidates.extend(behind.iter().map(|address| address % stripe));
        }
        if !buffer.is_striped && buffer.bytes != 0 {
            let first = self.memory.address.checked_next_multiple_of(self.apart);
            let count = self.memory.bytes / self.apart;
            let channels = first.map(|first| (0..count).map(move |number| first + number * self.apart));
            candidates.extend(channels.into_iter().flatten());
        }
        candidates.extend(behind);
        candidates
    }

    /// Returns the largest free range, at the begin of a pseudo channel unless that halves it.
    pub(super) fn largest(&self) -> Range {
        let mut taken = self.taken.clone();
        taken.sort_unstable();
        let mut gaps = Vec::new();
        let mut next = self.memory.address;
        for range in taken.into_iter().chain([Range { address: self.memory.end(), bytes: 0 }]) {
            let begin = next.checked_next_multiple_of(self.close).unwrap_or(u64::MAX);
            let end = range.address.min(self.memory.end());
            for begin in [begin.checked_next_multiple_of(self.apart).unwrap_or(begin), begin] {
                gaps.push(Range { address: begin, bytes: end.saturating_sub(begin) });
            }
            next = next.max(range.end());
        }
        let half = gaps.iter().map(|gap| gap.bytes).max().unwrap_or(0) / 2;
        let aligned = gaps.iter().filter(|gap| gap.address % self.apart == 0 && gap.bytes > half);
        let largest = aligned.max_by_key(|gap| gap.bytes).or_else(|| gaps.iter().max_by_key(|gap| gap.bytes));
        largest.copied().filter(|gap| gap.bytes != 0).unwrap_or(Range { address: 0, bytes: 0 })
    }
}

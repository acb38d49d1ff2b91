//! The parts of a large call: each is a collective of its own, so that the host copies for one while the cards run another.
//!
//! A part has the same range of each block of the call: of all blocks of an alltoall, of the one vector of an allreduce. So whatever a
//! rank gives in one part, no other part overwrites, even if both sides of the call have one buffer.

use crate::shape::{Shape, blocks};

/// Bytes of the larger side of a rank in a part. Calls of less than two parts are not cut.
pub(crate) const PART_BYTES: u64 = 2 << 20;
/// Parts begin at multiples of so many bytes, or elements of a reduction: on pages.
const GRANULE: u64 = 4096;

/// How a call is cut: alike on all ranks, as it goes by the shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Bytes of a block of the call.
    whole: u64,
    /// Bytes of a block of each part, but for the last, which has the rest.
    part: u64,
}

/// Bytes of the data of a rank that lie together there, and in the data of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// Offset in the rank's data of the call.
    pub(crate) offset: u64,
    /// Bytes of the piece before it.
    pub(crate) before: u64,
    pub(crate) bytes: u64,
}

impl Parts {
    /// Cuts a call of `ranks` ranks into parts of about `bytes` bytes of a rank's larger side.
    pub(crate) fn of(shape: &Shape, ranks: u64, bytes: u64) -> Self {
        let whole = shape.bytes;
        let total = whole.saturating_mul(blocks(shape.collective, ranks));
        // Vector forms have blocks of different lengths.
        if shape.collective.has_counts() || total < 2 * bytes {
            return Parts { whole, part: whole };
        }
        let granule = GRANULE * shape.combine.map_or(1, |combine| combine.element.bytes());
        let part = whole.div_ceil(total.div_ceil(bytes)).next_multiple_of(granule);
        Parts { whole, part: part.min(whole) }
    }

    /// Number of parts.
    pub(crate) fn count(&self) -> u64 {
        if self.part == 0 { 1 } else { self.whole.div_ceil(self.part) }
    }

    /// Bytes of a block of part `index`.
    pub(crate) fn bytes(&self, index: u64) -> u64 {
        self.part.min(self.whole - self.part * index)
    }

    /// The shape of part `index` of a call of `shape`.
    pub(crate) fn shape(&self, shape: &Shape, index: u64) -> Shape {
        Shape { bytes: self.bytes(index), ..shape.clone() }
    }

    /// Where `bytes` bytes after `offset` bytes of a rank's data of part `index` lie in its data of the call.
    pub(crate) fn runs(self, index: u64, offset: u64, bytes: u64) -> impl Iterator<Item = Run> {
        let (own, begin) = (self.bytes(index), self.part * index);
        let is_whole = self.count() == 1;
        let mut before = 0;
        std::iter::from_fn(move || {
            if before == bytes {
                return None;
            }
            let at = offset + before;
            let run = if is_whole {
                Run { offset: at, before, bytes }
            } else {
                let (block, into) = (at / own, at % own);
                let length = (own - into).min(bytes - before);
                Run { offset: block * self.whole + begin + into, before, bytes: length }
            };
            before += run.bytes;
            Some(run)
        })
    }
}

#[cfg(test)]
mod tests {
    use cmdseq::plan::Collective;
    use cmdseq::{Combine, Element, Reduction};
    use proptest::prelude::*;

    use super::*;

    fn shape(collective: Collective, bytes: u64) -> Shape {
        let combine = collective.reduces().then_some(Combine { reduction: Reduction::Sum, element: Element::F64 });
        Shape { collective, bytes, root: 0, combine, counts: Vec::new() }
    }

    #[test]
    fn calls_of_less_than_two_parts_are_not_cut() {
        for (collective, bytes, count) in [
            (Collective::Barrier, 0, 1),
            (Collective::Allreduce, 8, 1),
            (Collective::Allreduce, (4 << 20) - 8, 1),
            (Collective::Allreduce, 4 << 20, 2),
            (Collective::Allgather, 1 << 20, 2),
            (Collective::Alltoall, (1 << 20) - 1, 1),
            (Collective::Broadcast, 16 << 20, 8),
        ] {
            assert_eq!(Parts::of(&shape(collective, bytes), 4, 2 << 20).count(), count, "{collective} of {bytes} B");
        }
    }

    proptest! {
        /// Each byte of the data is in one run of one part, and parts hold whole elements.
        #[test]
        fn parts_have_each_byte_once(
            blocked: bool,
            elements in 1..40_000u64,
            ranks in 2..5u64,
            part_bytes in 10_000..100_000u64,
            lengths in prop::collection::vec(1..50_000u64, 1..5),
        ) {
            let collective = if blocked { Collective::ReduceScatter } else { Collective::Allreduce };
            let (bytes, blocks) = (8 * elements, if blocked { ranks } else { 1 });
            let parts = Parts::of(&shape(collective, bytes), ranks, part_bytes);
            let mut seen = vec![false; (bytes * blocks) as usize];
            for index in 0..parts.count() {
                let own = parts.bytes(index);
                prop_assert!(own > 0 && own % 8 == 0);
                // Pieces of any lengths, as plans have them.
                let (mut offset, mut lengths) = (0, lengths.iter().cycle());
                while offset < own * blocks {
                    let length = (*lengths.next().unwrap()).min(own * blocks - offset);
                    let mut next = 0;
                    for run in parts.runs(index, offset, length) {
                        prop_assert_eq!(run.before, next);
                        next += run.bytes;
                        for byte in &mut seen[run.offset as usize..][..run.bytes as usize] {
                            prop_assert!(!std::mem::replace(byte, true));
                        }
                    }
                    prop_assert_eq!(next, length);
                    offset += length;
                }
            }
            prop_assert!(seen.iter().all(|byte| *byte));
        }
    }
}

//! The requests of a job as they go over PCIe: none crosses a page, a read is answered in parts, and several are outstanding.

use std::ops::Range;

use fpga_hal::endpoint::DmaTag;

use crate::card::host_jobs::{Active, HostFault, Misanswer};
use crate::net::noise::Dice;

/// Requests that a job has outstanding at most: the tags of PCIe without Extended Tags (PCI Express Base 5.0, section 2.2.6.2).
const TAGS: usize = 32;
/// No request crosses an address that is a multiple of this (section 2.2.7).
const PAGE: u64 = 4096;
/// Parts of an answer end at multiples of this, or with the read: the Read Completion Boundary of most root complexes (section
/// 2.3.1.1).
const BOUNDARY: u64 = 64;

/// A job whose requests are outstanding.
#[derive(Debug)]
pub(crate) struct Split {
    pub(crate) active: Active,
    /// IOVA of the first byte that moves, and the most bytes of a request; `None` before the job begins.
    span: Option<(u64, u64)>,
    /// Offset of the first byte that no request has.
    next: u64,
    pub(crate) requests: Vec<Request>,
    /// Why the job failed. It makes no more requests, and ends once the bus works on none.
    pub(crate) fault: Option<HostFault>,
}

/// A request, of bytes of the job's buffer.
#[derive(Debug)]
pub(crate) struct Request {
    /// What is still to be moved.
    pub(crate) left: Range<u64>,
    /// The part that the bus works on, which begins what is left: its tag and its end.
    pub(crate) pending: Option<(DmaTag, u64)>,
    pub(crate) misanswer: Option<Misanswer>,
}

impl Split {
    pub(crate) fn new(active: Active) -> Self {
        Split { active, span: None, next: 0, requests: Vec::new(), fault: None }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.span.is_some()
    }

    /// Begins to move the job's buffer from or to `iova`, in requests of at most `most` bytes.
    pub(crate) fn begin(&mut self, iova: u64, most: u64) {
        self.span = Some((iova, most));
    }

    /// Returns how the job ends, once it does.
    pub(crate) fn result(&self) -> Option<Result<(), HostFault>> {
        let is_over = match self.fault {
            Some(_) => !self.is_pending(),
            None => self.next == self.bytes() && self.requests.is_empty(),
        };
        is_over.then_some(self.fault.map_or(Ok(()), Err))
    }

    /// Whether the bus works on a part.
    pub(crate) fn is_pending(&self) -> bool {
        self.requests.iter().any(|request| request.pending.is_some())
    }

    fn bytes(&self) -> u64 {
        self.active.buffer.len() as u64
    }

    /// Returns the IOVA of the byte at `offset`.
    pub(crate) fn iova(&self, offset: u64) -> u64 {
        self.span.map_or(0, |(iova, _)| iova.wrapping_add(offset))
    }

    /// Whether the job may have one more request now. Writes stay in order: one at a time.
    pub(crate) fn has_tag(&self) -> bool {
        self.requests.len() < if self.active.writes() { 1 } else { TAGS }
    }

    /// Returns the bytes of the next request, and counts them as requested.
    pub(crate) fn next_request(&mut self) -> Option<Range<u64>> {
        let (begin, most) = (self.next, self.span?.1);
        let to_page = PAGE - self.iova(begin) % PAGE;
        self.next = self.bytes().min(begin + most.min(to_page));
        (begin < self.next).then_some(begin..self.next)
    }

    /// Returns the end of the next part of a request of which `left` is left: a write is one part, a read ends at any boundary.
    pub(crate) fn part_end(&self, left: &Range<u64>, dice: &mut Dice) -> u64 {
        if self.active.writes() {
            return left.end;
        }
        let first = BOUNDARY - self.iova(left.start) % BOUNDARY;
        let boundaries = (left.end - left.start).saturating_sub(first).div_ceil(BOUNDARY);
        left.end.min(left.start + first + dice.below(boundaries + 1) * BOUNDARY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::host_jobs::Job;

    fn read(iova: u64, bytes: usize, most: u64) -> Split {
        let job = Job::Table { iova, bytes: bytes as u64 };
        let active = Active { card: 0, epoch: 0, job, buffer: vec![0; bytes], is_writing: false };
        let mut split = Split::new(active);
        split.begin(iova, most);
        split
    }

    /// Every byte is in one request and one part, in order; no request crosses a page or is too long, and parts end at
    /// boundaries.
    #[test]
    fn requests_and_parts_are_as_pcie_has_them() {
        let mut dice = Dice::new(7);
        for _ in 0..2000 {
            let (iova, bytes) = (dice.below(3 * PAGE), 1 + dice.below(3 * PAGE) as usize);
            let most = 128 << dice.below(6);
            let mut split = read(iova, bytes, most);
            let mut next = 0;
            while let Some(request) = split.next_request() {
                assert_eq!(request.start, next);
                assert!(request.end - request.start <= most);
                assert_eq!((iova + request.start) / PAGE, (iova + request.end - 1) / PAGE);
                let mut left = request;
                while !left.is_empty() {
                    let end = split.part_end(&left, &mut dice);
                    assert!(end > left.start && end <= left.end);
                    assert!(end == left.end || (iova + end) % BOUNDARY == 0);
                    left.start = end;
                }
                next = left.end;
            }
            assert_eq!(next, bytes as u64);
            assert_eq!(split.result(), Some(Ok(())));
        }
    }
}

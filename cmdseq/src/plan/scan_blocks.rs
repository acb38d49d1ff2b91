//! Blocks of a scan in stripes.

use super::placement::unit;
use crate::program::Communicator;
use crate::refusal::Refusal;
use crate::request::{Collective, Request};
use crate::{Capabilities, Combine, Instruction, Operand};

/// A vector as blocks of the same size in stripes: of each piece a block for each of the ranks that scan it together.
pub(super) struct ScanBlocks {
    pub(super) is_exclusive: bool,
    pub(super) ranks: u32,
    pub(super) half: u64,
    /// Of a block.
    pub(super) bytes: u64,
    pub(super) pieces: u32,
}

impl ScanBlocks {
    /// Blocks of which `in_half` fit into half a stripe, in at most `most_pieces` pieces.
    pub(super) fn new(
        request: &Request,
        capabilities: &Capabilities,
        ranks: u32,
        in_half: u64,
        most_pieces: u64,
    ) -> Result<Self, Refusal> {
        let half = capabilities.stripe_half_bytes;
        let unit = unit(request, capabilities);
        let longest = half / in_half / unit * unit;
        let stripes = capabilities.memory_bytes.checked_div(capabilities.stripe_bytes()).unwrap_or(0);
        let most = most_pieces.min(stripes / u64::from(ranks));
        let pieces = request.bytes.div_ceil(u64::from(ranks)).div_ceil(longest.max(1)).max(1);
        if pieces > most || longest == 0 {
            return Err(Refusal::general(format!(
                "{} B exceed the stripes: {ranks} ranks have {most} blocks each of at most {longest} B",
                request.bytes
            )));
        }
        let bytes = request.bytes.div_ceil(u64::from(ranks) * pieces).next_multiple_of(unit);
        let is_exclusive = request.collective == Collective::Exscan;
        Ok(ScanBlocks { is_exclusive, ranks, half, bytes, pieces: pieces as u32 })
    }

    /// The communicator of an exscan's second step, of the `members` of the first: the partial result up to rank i is for rank i + 1,
    /// which is rank i here.
    pub(super) fn shifted(&self, id: u16, members: &[u32]) -> Option<Communicator> {
        let mut members = members.to_vec();
        members.rotate_left(1);
        self.is_exclusive.then_some(Communicator { id, members })
    }

    /// Address of stripe `number`, where block `number` of the contribution is.
    pub(super) fn stripe(&self, number: u32) -> u64 {
        2 * self.half * u64::from(number)
    }

    /// The stripe of block `number` of the scan: it comes from this rank of the second communicator.
    pub(super) fn from(&self, number: u32) -> u32 {
        let (piece, block) = (number / self.ranks, number % self.ranks);
        let from = if self.is_exclusive { (block + self.ranks - 1) % self.ranks } else { block };
        piece * self.ranks + from
    }

    /// Block `number` of the scan.
    pub(super) fn scanned(&self, number: u32) -> u64 {
        self.stripe(self.from(number)) + self.bytes
    }

    /// Both steps of a piece at `rank`, on the communicators of the first and of an exscan's second.
    pub(super) fn scan(&self, combine: Combine, piece: u32, rank: u32, [all, shifted]: [u16; 2]) -> [Instruction; 2] {
        let first = self.stripe(piece * self.ranks);
        // The first of an exscan has nothing before it; what it receives is not needed.
        let beside = if self.is_exclusive && rank == 0 { 2 * self.bytes } else { self.bytes };
        let at = |bytes: u64| Operand::card(first + bytes).striped();
        let second = if self.is_exclusive { shifted } else { all };
        [
            Instruction::alltoall_scan(combine, at(0), at(self.half), self.bytes).on(all),
            Instruction::alltoall(at(self.half), at(beside), self.bytes).on(second),
        ]
    }
}

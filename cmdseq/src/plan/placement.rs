//! Where data lies in card memory.
//!
//! A pseudo channel that is read and written at once gives each half of its rate, so what one instruction reads and what
//! it writes lie in different ones: sources in the lower halves of the stripes and destinations in the upper, or the
//! other way round.

use super::{Piece, Refusal, Request};
use crate::{Capabilities, Operand};

/// Places blocks in the stripes of a card's memory.
pub(super) struct Stripes {
    half_bytes: u64,
    memory_bytes: u64,
    ranks: u64,
}

impl Stripes {
    pub(super) fn new(request: &Request, capabilities: &Capabilities) -> Self {
        Stripes {
            half_bytes: capabilities.stripe_half_bytes,
            memory_bytes: capabilities.memory_bytes,
            ranks: u64::from(request.ranks()),
        }
    }

    /// Refuses blocks of `bytes`, one for each rank, that the stripes do not hold.
    pub(super) fn check(&self, bytes: u64) -> Result<(), Refusal> {
        let stripe = self.half_bytes.saturating_mul(2);
        if self.ranks.saturating_mul(stripe) > self.memory_bytes {
            return Err(Refusal::general(format!(
                "{} blocks, one in each stripe of {stripe} B, do not fit the {} B of card memory; at most {} ranks do",
                self.ranks,
                self.memory_bytes,
                self.memory_bytes.checked_div(stripe).unwrap_or(0)
            )));
        }
        if bytes > self.half_bytes {
            return Err(Refusal::general(format!(
                "a block of {bytes} B does not fit half a stripe; striped blocks have at most {} B",
                self.half_bytes
            )));
        }
        Ok(())
    }

    /// The lower halves, with as many blocks as there are ranks.
    pub(super) fn lower(&self) -> Operand {
        Operand::card(0).striped()
    }

    /// The upper halves.
    pub(super) fn upper(&self) -> Operand {
        Operand::card(self.half_bytes).striped()
    }

    /// One block in the lowest upper half, or past a block of the same size at 0 if that is longer.
    pub(super) fn single_upper(&self, bytes: u64) -> Result<Operand, Refusal> {
        let address = if bytes <= self.half_bytes {
            Some(self.half_bytes)
        } else {
            let stripe = self.half_bytes.saturating_mul(2).max(1);
            bytes.div_ceil(stripe).checked_mul(stripe)
        };
        let inside = |address: &u64| address.checked_add(bytes).is_some_and(|end| end <= self.memory_bytes);
        address.filter(inside).map(Operand::card).ok_or_else(|| {
            Refusal::general(format!(
                "{bytes} B, and as much again for what comes in, do not fit the {} B of card memory",
                self.memory_bytes
            ))
        })
    }

    /// `total` bytes as blocks of `block` bytes that lie at `operand` in stripes.
    pub(super) fn pieces(&self, operand: Operand, block: u64, total: u64) -> Vec<Piece> {
        let stripe = self.half_bytes.saturating_mul(2);
        let mut pieces = Vec::new();
        let mut offset = 0;
        let mut address = operand.address;
        while offset < total && block != 0 {
            let bytes = block.min(total - offset);
            pieces.push(Piece { offset, address, bytes });
            offset += bytes;
            address = address.saturating_add(stripe);
        }
        pieces
    }
}

/// `bytes` bytes in one piece at `address`; none if there are none.
pub(super) fn whole(address: u64, bytes: u64) -> Vec<Piece> {
    let piece = Piece { offset: 0, address, bytes };
    if bytes == 0 { Vec::new() } else { vec![piece] }
}

/// `count` blocks of `bytes` bytes, one every `distance` bytes from `address`: in one piece if nothing lies between.
pub(super) fn spaced(address: u64, bytes: u64, distance: u64, count: u64) -> Vec<Piece> {
    if bytes == distance {
        return whole(address, bytes.saturating_mul(count));
    }
    let block = |number: u64| Piece { offset: number * bytes, address: address + number * distance, bytes };
    if bytes == 0 { Vec::new() } else { (0..count).map(block).collect() }
}

/// Hands out areas of memory one after another.
pub(super) struct Areas {
    unit: u64,
    next: Option<u64>,
    memory_bytes: u64,
}

impl Areas {
    /// Places areas of these sizes, each beginning in a pseudo channel of its own if they fit like that.
    pub(super) fn place<const COUNT: usize>(
        capabilities: &Capabilities,
        sizes: [u64; COUNT],
    ) -> Result<[u64; COUNT], Refusal> {
        let channel = capabilities.memory_bytes.checked_div(u64::from(capabilities.memory_channels)).unwrap_or(0);
        let apart = capabilities.stripe_half_bytes.max(channel).max(1);
        let close = u64::from(capabilities.address_align.max(capabilities.timing.beat_bytes).max(1));
        let place = |unit| {
            let mut areas = Areas { unit, next: Some(0), memory_bytes: capabilities.memory_bytes };
            let mut places = [0; COUNT];
            for (place, bytes) in places.iter_mut().zip(sizes) {
                *place = areas.take(bytes)?;
            }
            Some(places)
        };
        place(apart).or_else(|| place(close)).ok_or_else(|| {
            let total = sizes.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
            Refusal::general(format!(
                "what comes in, goes out and lies between takes {total} B, which do not fit the {} B of card memory",
                capabilities.memory_bytes
            ))
        })
    }

    fn take(&mut self, bytes: u64) -> Option<u64> {
        let address = self.next?;
        let end = address.checked_add(bytes).filter(|end| *end <= self.memory_bytes)?;
        // An empty area needs no room, but two areas at one address would look like an exchange in place.
        self.next = end.max(address + 1).checked_next_multiple_of(self.unit);
        Some(address)
    }
}

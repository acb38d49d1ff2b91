//! Bounds of the blocks of an instruction: one range for each side, computed without its single blocks.

use std::collections::HashMap;

use crate::ranges::{Blocks, Context, Range, Span, Spans, blocks_of};
use crate::{Instruction, Layout, Operand, Operation};

/// A range that contains all blocks of a side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    start: u64,
    /// `None` past the last 64-bit address.
    end: Option<u64>,
    /// Bytes of each block, if they are striped.
    striped: Option<u64>,
}

impl Bounds {
    /// Of `blocks` blocks of `bytes`.
    pub(super) fn of(side: &Operand, blocks: u32, bytes: u64, stripe_bytes: u64) -> Self {
        let is_striped = side.layout == Layout::Striped;
        let distance = if is_striped { stripe_bytes } else { bytes };
        let before = distance.checked_mul(u64::from(blocks.saturating_sub(1)));
        let end = before.and_then(|before| side.address.checked_add(before)?.checked_add(bytes));
        Bounds { start: side.address, end, striped: is_striped.then_some(bytes) }
    }

    /// Of the blocks in a table.
    fn listed(side: &Operand, span: &Span) -> Self {
        let end = side.address.checked_add(span.end);
        let start = side.address.saturating_add(span.start);
        Bounds { start, end, striped: None }
    }

    pub(super) fn is_inside(&self, memory_bytes: u64) -> bool {
        self.end.is_some_and(|end| end <= memory_bytes)
    }

    pub(super) fn is_apart_from(&self, other: &Bounds, stripe_bytes: u64) -> bool {
        let (Some(end), Some(other_end)) = (self.end, other.end) else { return false };
        if end <= other.start || other_end <= self.start {
            return true;
        }
        if stripe_bytes == 0 {
            return false;
        }
        // Blocks come once in a stripe, at the same distance. What is not striped lies there once.
        let (bytes, other_bytes) =
            (self.striped.unwrap_or(end - self.start), other.striped.unwrap_or(other_end - other.start));
        let (here, there) = (self.start % stripe_bytes, other.start % stripe_bytes);
        let gap = |from: u64, to: u64| if to >= from { to - from } else { stripe_bytes - from + to };
        gap(here, there) >= bytes && gap(there, here) >= other_bytes
    }

    fn meets(&self, range: Range) -> bool {
        self.start < range.end() && self.end.is_none_or(|end| end > range.address)
    }
}

/// Bounds of what an instruction accesses on its own card.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OperandBounds {
    pub(super) source: Option<Bounds>,
    pub(super) destination: Option<Bounds>,
    /// The own contribution of a sendrecv_reduce.
    pub(super) own: Option<Bounds>,
}

impl OperandBounds {
    /// Of an instruction on a communicator; `None` for others, and if a table is missing or does not fit.
    pub(super) fn of(instruction: &Instruction, context: &Context<'_>, spans: &Spans) -> Option<Self> {
        let Instruction { operation, bytes, extent, .. } = *instruction;
        let [from, to] = blocks_of(instruction, context.rank)?;
        let side = |operand: &Operand, blocks: Option<Blocks>| {
            let is_striped = operand.layout == Layout::Striped;
            let count = match blocks {
                None => return Some(None),
                Some(Blocks::One) if !is_striped => 1,
                Some(Blocks::One) => context.ranks,
                Some(Blocks::Each) => instruction.filled_blocks(context.ranks),
                Some(Blocks::Listed(slot)) => {
                    return Some(Some(Bounds::listed(operand, spans.get(slot, context.ranks)?)));
                }
            };
            Some(Some(Bounds::of(operand, count, bytes, context.stripe_bytes)))
        };
        let source = side(&instruction.source, from)?;
        let destination = side(&instruction.destination, to)?;
        let is_fold = operation == Operation::SendrecvReduce;
        let own = is_fold.then(|| Bounds::of(&Operand::card(extent), 1, bytes, context.stripe_bytes));
        Some(OperandBounds { source, destination, own })
    }

    /// Whether neither writes a byte that the other reads or writes, by their bounds alone. If not, it may still be so.
    pub(super) fn are_apart_from(&self, other: &OperandBounds, stripe_bytes: u64) -> bool {
        let is_clear = |written: &Option<Bounds>, others: [&Option<Bounds>; 3]| {
            let apart = |written: &Bounds, other: &Bounds| written.is_apart_from(other, stripe_bytes);
            written.is_none_or(|written| others.into_iter().flatten().all(|other| apart(&written, other)))
        };
        is_clear(&self.destination, [&other.source, &other.destination, &other.own])
            && is_clear(&other.destination, [&self.source, &self.destination, &self.own])
    }

    /// Whether some byte of `touched` may be accessed.
    pub(super) fn meet(&self, touched: Range) -> bool {
        [&self.source, &self.destination, &self.own].into_iter().flatten().any(|side| side.meets(touched))
    }
}

/// What is known of lists of blocks at some distance: whether none shares a byte with the other.
#[derive(Debug, Default)]
pub(super) struct KnownDisjoint {
    known: HashMap<([u32; 2], u64), bool>,
}

impl KnownDisjoint {
    /// Whether the lists of an alltoallv are apart. Both are inside of memory. Adds what it compares to `blocks`.
    pub(super) fn are_apart(&mut self, instruction: &Instruction, sides: [&Span; 2], blocks: &mut u64) -> bool {
        let [source, destination] = [instruction.source.address, instruction.destination.address];
        let key = (sides.map(|side| side.number), destination.wrapping_sub(source));
        *self.known.entry(key).or_insert_with(|| {
            *blocks += sides.map(|side| side.blocks.len() as u64).iter().sum::<u64>();
            are_disjoint(sides[0].placed_at(source), sides[1].placed_at(destination))
        })
    }
}

/// Whether no range of one list shares a byte with one of the other. Both are sorted, and the second has no overlaps.
fn are_disjoint(mut one: impl Iterator<Item = Range>, other: impl Iterator<Item = Range>) -> bool {
    let mut other = other.peekable();
    one.all(|range| {
        // What ends before this begins, ends before all that follow.
        while other.next_if(|other| other.end() <= range.address).is_some() {}
        other.peek().is_none_or(|other| range.end() <= other.address)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: u64, bytes: u64) -> Bounds {
        Bounds::of(&Operand::card(address), 1, bytes, 0)
    }

    #[test]
    fn a_side_meets_what_shares_a_byte_with_it() {
        let side = of(100, 64);
        let range = |(address, end)| Range { address, bytes: end - address };
        for (touched, meets) in
            [((0, 100), false), ((0, 101), true), ((120, 130), true), ((163, 200), true), ((164, 200), false)]
        {
            assert_eq!(side.meets(range(touched)), meets, "{touched:?}");
        }
        // Of one that ends past the last address, all behind its begin.
        let endless = of(u64::MAX - 10, 64);
        assert!(endless.meets(range((0, u64::MAX))) && !endless.meets(range((0, u64::MAX - 10))));
    }

    #[test]
    fn sides_are_apart_if_one_ends_before_the_other_begins() {
        for (one, other, are_apart) in [
            (of(0, 64), of(64, 64), true),
            (of(0, 65), of(64, 64), false),
            (of(64, 64), of(64, 64), false),
            (of(0, 64), of(u64::MAX, 64), false),
        ] {
            assert_eq!(
                [one.is_apart_from(&other, 0), other.is_apart_from(&one, 0)],
                [are_apart; 2],
                "{one:?} {other:?}"
            );
        }
        // Blocks of both in each stripe of 512 B, side by side.
        let striped = |address: u64, bytes: u64| Bounds::of(&Operand::card(address).striped(), 4, bytes, 512);
        for (one, other, are_apart) in [
            (striped(0, 64), striped(64, 64), true),
            (striped(0, 64), striped(63, 64), false),
            (striped(0, 64), striped(512 + 64, 448), true),
            (striped(0, 64), striped(512 + 64, 449), false),
            (striped(0, 64), striped(512 + 448, 64), true),
            (striped(500, 64), striped(1024 + 52, 64), true),
            (striped(500, 65), striped(1024 + 52, 64), false),
            (striped(0, 64), of(64, 64), true),
            (striped(0, 64), of(512 + 64, 448), true),
            (striped(0, 64), of(512 + 64, 449), false),
            (striped(0, 64), of(64, 512), false),
        ] {
            assert_eq!(
                [one.is_apart_from(&other, 512), other.is_apart_from(&one, 512)],
                [are_apart; 2],
                "{one:?} {other:?}"
            );
        }
        assert!(!striped(0, 64).is_apart_from(&striped(64, 64), 0));
    }
}

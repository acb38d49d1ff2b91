//! The blocks of tables in the order of their addresses, once for all cards with the same table.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::Range;
use crate::table::{Table, Tables};

/// The blocks of a table.
#[derive(Debug)]
pub(crate) struct Span {
    /// The same for equal tables in one slot of cards that follow each other; different for different tables.
    pub(crate) number: u32,
    entries: usize,
    /// Displacement and bytes of the blocks that are not empty, sorted.
    pub(crate) blocks: Vec<(u64, u64)>,
    /// From the operand's address to the first block, bytes.
    pub(crate) start: u64,
    /// To the end of the last. Saturates.
    pub(crate) end: u64,
    /// Length of the longest block, bytes.
    pub(crate) longest: u64,
    /// No two blocks overlap.
    pub(crate) is_apart: bool,
}

impl Span {
    fn new(table: &Table, number: u32) -> Self {
        let mut blocks: Vec<(u64, u64)> = table.entries.iter().map(|one| (one.displacement, one.bytes)).collect();
        blocks.retain(|(_, bytes)| *bytes != 0);
        blocks.sort_unstable();
        let is_apart = blocks.windows(2).all(|two| two[0].0.checked_add(two[0].1).is_some_and(|end| end <= two[1].0));
        let start = blocks.first().map_or(0, |first| first.0);
        let (entries, end, longest) = (table.entries.len(), table.span(), table.longest());
        Span { number, entries, blocks, start, end, longest, is_apart }
    }

    /// The blocks if the operand is at `address`.
    pub(crate) fn placed_at(&self, address: u64) -> impl Iterator<Item = Range> {
        let placed = move |block: &(u64, u64)| Range { address: address.saturating_add(block.0), bytes: block.1 };
        self.blocks.iter().map(placed)
    }
}

/// The tables of a card, by slot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spans {
    of: BTreeMap<u16, Rc<Span>>,
}

impl Spans {
    /// Of each card.
    pub(crate) fn of_each<'a>(cards: impl Iterator<Item = &'a Tables>) -> Vec<Self> {
        let mut number = 0;
        let mut all: Vec<(Spans, &Tables)> = Vec::new();
        for tables in cards {
            let before = all.last();
            let span = |(slot, table): (&u16, &Table)| {
                let same = before.filter(|(_, tables)| tables.get(slot) == Some(table));
                let span = same.and_then(|(spans, _)| spans.of.get(slot).cloned()).unwrap_or_else(|| {
                    number += 1;
                    Rc::new(Span::new(table, number))
                });
                (*slot, span)
            };
            let of = tables.iter().map(span).collect();
            all.push((Spans { of }, tables));
        }
        all.into_iter().map(|(spans, _)| spans).collect()
    }

    /// Returns the blocks of the table in a slot, if it has an entry for each of `ranks`.
    pub(crate) fn get(&self, slot: u64, ranks: u32) -> Option<&Span> {
        let span = self.of.get(&u16::try_from(slot).ok()?)?;
        (span.entries as u64 == u64::from(ranks)).then_some(span)
    }
}

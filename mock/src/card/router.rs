//! The tables of a statically scheduled router in two banks, as the registers of the card show them.

use cmdseq::routing::{Multicast, NodeTables, ReductionEntry, Route};
use fpga_regs::router::{self as registers, COUNTS, ENTRY_WORDS, WINDOW_ENTRIES, source};

use crate::proto::novog::Counts;

/// Entries of each table: as many as an index of 16 bits names.
pub(crate) const ENTRIES: u32 = 1 << 16;

/// Entries of the four tables, as words.
#[derive(Debug, Clone, Default)]
struct Bank {
    words: [Vec<u32>; 4],
}

/// Tables that a router can use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Decoded {
    pub(crate) tables: NodeTables,
    /// Index and input of each source.
    pub(crate) sources: Vec<(u16, u8)>,
}

impl Bank {
    fn count(&self, table: usize) -> u32 {
        self.words[table].len() as u32 / ENTRY_WORDS[table]
    }

    /// Decodes the tables; `None` if an entry is not in its format.
    fn decode(&self) -> Option<Decoded> {
        let [routes, multicasts, reductions, sources] = &self.words;
        let wide = |words: &[u32]| words.iter().rev().fold(0, |bits, word| bits << 32 | u128::from(*word));
        let tables = NodeTables {
            routes: routes.iter().map(|bits| Route::from_bits(*bits).ok()).collect::<Option<_>>()?,
            multicasts: multicasts
                .chunks_exact(4)
                .map(|words| Multicast::from_bits(wide(words)).ok())
                .collect::<Option<_>>()?,
            reductions: reductions.iter().map(|bits| ReductionEntry::from_bits(*bits).ok()).collect::<Option<_>>()?,
        };
        let sources = sources.iter().map(|entry| source::decode(*entry)).collect::<Option<_>>()?;
        Some(Decoded { tables, sources })
    }
}

/// The router block of one card. A reset of the function leaves it as it is.
#[derive(Debug, Default)]
pub(crate) struct RouterBlock {
    select: u32,
    page: u32,
    staged: Bank,
    /// The number under which the staged tables are complete, and what they say; 0 while they are not.
    staged_number: u32,
    staged_tables: Decoded,
    in_force: Bank,
    generation: u32,
    tables: Decoded,
    pub(crate) refused: u32,
    /// Of the last run.
    pub(crate) counts: Counts,
}

impl RouterBlock {
    /// Returns the number under which the staged tables are complete; 0 while they are not.
    pub(crate) fn staged(&self) -> u32 {
        self.staged_number
    }

    /// Returns the tables in force.
    pub(crate) fn in_force(&self) -> &Decoded {
        &self.tables
    }

    /// Takes the staged tables into force; those in force become staged, and incomplete.
    pub(crate) fn commit(&mut self) {
        std::mem::swap(&mut self.staged, &mut self.in_force);
        self.generation = std::mem::take(&mut self.staged_number);
        self.tables = std::mem::take(&mut self.staged_tables);
    }

    /// Reads a register that the card's state has; `None` for others.
    pub(crate) fn read(&self, offset: u32) -> Option<u32> {
        if offset >= registers::WINDOW_OFFSET {
            let place = self.place(offset)?;
            return self.selected().words[self.table()].get(place).copied();
        }
        if let Some(table) = COUNTS.iter().position(|register| *register == offset) {
            return Some(self.selected().count(table));
        }
        let low = |count: u64| count as u32;
        Some(match offset {
            registers::SELECT => self.select,
            registers::PAGE => self.page,
            registers::STAGED => self.staged_number,
            registers::GENERATION => self.generation,
            registers::REFUSED => self.refused,
            registers::SENT => low(self.counts.hops),
            registers::DEPTH_MAX => self.counts.depth_max as u32,
            registers::LOST => low(self.counts.lost),
            registers::STRAY => low(self.counts.stray),
            registers::DROPPED => low(self.counts.garbled),
            _ => return None,
        })
    }

    /// Writes a register, all but COMMIT.
    pub(crate) fn write(&mut self, offset: u32, value: u32) {
        if offset >= registers::WINDOW_OFFSET {
            let Some(place) = self.place(offset) else { return };
            if let Some(word) = self.staged.words[self.table()].get_mut(place) {
                *word = value;
                self.staged_number = 0;
            }
            return;
        }
        if let Some(table) = COUNTS.iter().position(|register| *register == offset) {
            self.staged.words[table].resize((value.min(ENTRIES) * ENTRY_WORDS[table]) as usize, 0);
            self.staged_number = 0;
            return;
        }
        match offset {
            registers::SELECT => self.select = value & (registers::IN_FORCE | 3),
            registers::PAGE => self.page = value.min(ENTRIES / WINDOW_ENTRIES),
            registers::STAGED => {
                let decoded = self.staged.decode();
                self.staged_number = if decoded.is_some() { value } else { 0 };
                self.staged_tables = decoded.unwrap_or_default();
            }
            _ => {}
        }
    }

    fn selected(&self) -> &Bank {
        if self.select & registers::IN_FORCE == 0 { &self.staged } else { &self.in_force }
    }

    fn table(&self) -> usize {
        (self.select & !registers::IN_FORCE) as usize
    }

    /// Returns the place of a word of the window in the selected table; `None` for a word that its entries do not have.
    fn place(&self, offset: u32) -> Option<usize> {
        let offset = offset - registers::WINDOW_OFFSET;
        let (entry, word) = (offset / registers::ENTRY_BYTES, offset % registers::ENTRY_BYTES / 4);
        let words = ENTRY_WORDS[self.table()];
        (word < words).then(|| ((self.page * WINDOW_ENTRIES + entry) * words + word) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block with two routes, a multicast of one child, and a source.
    fn block() -> RouterBlock {
        let mut block = RouterBlock::default();
        block.write(registers::ROUTES, 300);
        block.write(registers::MULTICASTS, 1);
        block.write(registers::SOURCES, 1);
        block.write(registers::PAGE, 1);
        block.write(registers::WINDOW_OFFSET + 16, 0x0500_0701);
        block.write(registers::SELECT, 1);
        block.write(registers::PAGE, 0);
        block.write(registers::WINDOW_OFFSET, 0x0004_0009);
        block.write(registers::WINDOW_OFFSET + 12, 1 << 24);
        block.write(registers::SELECT, 3);
        block.write(registers::WINDOW_OFFSET, 0x0002_0101);
        block
    }

    #[test]
    fn staged_tables_are_used_after_a_commit_and_not_before() {
        let mut block = block();
        block.write(registers::STAGED, 7);
        assert_eq!((block.staged(), block.read(registers::GENERATION)), (7, Some(0)));
        assert!(block.in_force().tables.routes.is_empty());
        block.commit();
        let Decoded { tables, sources } = block.in_force();
        assert_eq!((tables.routes[257].port, tables.routes[257].next, tables.routes.len()), (5, 7, 300));
        assert_eq!((tables.multicasts[0].children[0].port, sources[..].to_vec()), (4, vec![(0x101, 2)]));
        assert_eq!((block.staged(), block.read(registers::GENERATION)), (0, Some(7)));
        block.write(registers::SELECT, registers::IN_FORCE);
        assert_eq!(block.read(registers::ROUTES), Some(300));
    }

    #[test]
    fn an_invalid_entry_or_a_later_write_is_not_complete() {
        let mut one = block();
        one.write(registers::SELECT, 0);
        one.write(registers::WINDOW_OFFSET, 0x3000_0000);
        one.write(registers::STAGED, 7);
        assert_eq!(one.staged(), 0);
        let mut one = block();
        one.write(registers::STAGED, 7);
        one.write(registers::REDUCTIONS, 0);
        assert_eq!(one.staged(), 0);
    }
}

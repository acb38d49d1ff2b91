//! The router block of one card: what the card has room for, and its tables.

use cmdseq::routing::{Capacity, EntryError, Multicast, NodeTables, ReductionEntry, Route, Torus3};
use fpga_regs::feature_list::ROUTER_GUID;
use fpga_regs::router::{self as registers, COUNTS, ENTRY_WORDS, WINDOW_ENTRIES};

use crate::card::Card;
use crate::routed::error::{Error, Result};
use crate::sequencer::listed::{Kind, ListedBlock};

const KIND: Kind = Kind {
    guid: ROUTER_GUID,
    bytes: registers::BLOCK_BYTES,
    magic: (registers::MAGIC, registers::MAGIC_VALUE),
    version: (registers::VERSION, registers::VERSION_VALUE, "version of the registers"),
};

/// Names of the tables, by number.
const TABLES: [&str; 4] = ["routing", "multicast", "reduction", "source"];

/// Entries of the four tables, as words.
pub(super) type Words = [Vec<u32>; 4];

/// The router of one card.
#[derive(Debug)]
pub(super) struct Router {
    block: ListedBlock,
    pub(super) node: u32,
    pub(super) torus: Torus3,
    pub(super) capacity: Capacity,
}

/// What a router counted in the last run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    pub(super) sent: u32,
    pub(super) depth_max: u32,
    pub(super) lost: u32,
    pub(super) stray: u32,
    pub(super) dropped: u32,
}

impl Router {
    /// Finds the router of a card, and reads what it has room for.
    pub(super) fn open(card: &Card) -> Result<Self> {
        let missing = |why| Error::no_block(card.name(), "statically scheduled router", why);
        let block = ListedBlock::find(card.function(), &KIND).map_err(missing)?;
        let sides_of = |value: u32| [0, 8, 16].map(|first| value >> first & 0xff);
        let expected = "three sides of 1 to 16 cards";
        let is_torus = |value: u32| value >> 24 == 0 && Torus3::new(sides_of(value)).is_ok();
        let sides = sides_of(block.checked("SIDES", registers::SIDES, expected, is_torus)?);
        let Ok(torus) = Torus3::new(sides) else { unreachable!("checked above") };
        let is_own = |node| node == card.node() && node < torus.nodes();
        let node = block.checked("NODE", registers::NODE, "the node of its sequencer, in the torus", is_own)?;
        let most = 1 << 16;
        let entries =
            block.checked("ENTRIES", registers::ENTRIES, "1 to 65536", |count| (1..=most).contains(&count))?;
        let depth = block.checked("INPUT_PACKETS", registers::INPUT_PACKETS, "at least 1", |packets| packets > 0)?;
        let capacity = Capacity { entries: entries as usize, depth: depth.into() };
        Ok(Router { block, node, torus, capacity })
    }

    pub(super) fn name(&self) -> &str {
        self.block.name()
    }

    /// Writes tables to the staged bank, and reads them back.
    pub(super) fn write(&self, words: &Words) -> Result<()> {
        for (table, words) in words.iter().enumerate() {
            self.block.write(registers::SELECT, table as u32)?;
            self.block.write(COUNTS[table], words.len() as u32 / ENTRY_WORDS[table])?;
            self.each(table, words.len(), |place, register| Ok(self.block.write(register, words[place])?))?;
        }
        for (table, words) in words.iter().enumerate() {
            for (word, (written, found)) in words.iter().zip(self.read_table(table, 0)?).enumerate() {
                if *written != found {
                    let (name, table) = (self.name().to_owned(), TABLES[table]);
                    return Err(Error::Lost { name, table, word, written: *written, found });
                }
            }
            let (count, expected) = (self.block.read(COUNTS[table])?, words.len() as u32 / ENTRY_WORDS[table]);
            if count != expected {
                let name = self.name().to_owned();
                return Err(Error::NotStaged { name, written: expected, found: count });
            }
        }
        Ok(())
    }

    /// Reads the tables in force.
    pub(super) fn read_in_force(&self) -> Result<NodeTables> {
        let words = |table| self.read_table(table, registers::IN_FORCE);
        let wide: Vec<u128> = words(1)?.chunks_exact(4).map(join).collect();
        let (routes, reductions) = (words(0)?, words(2)?);
        Ok(NodeTables {
            routes: self.decoded(0, routes, Route::from_bits)?,
            multicasts: self.decoded(1, wide, Multicast::from_bits)?,
            reductions: self.decoded(2, reductions, ReductionEntry::from_bits)?,
        })
    }

    fn decoded<W, E>(
        &self,
        table: usize,
        bits: Vec<W>,
        decode: impl Fn(W) -> std::result::Result<E, EntryError>,
    ) -> Result<Vec<E>> {
        let one = |(index, bits)| {
            let place = |source| Error::Entry { name: self.name().to_owned(), table: TABLES[table], index, source };
            decode(bits).map_err(place)
        };
        bits.into_iter().enumerate().map(one).collect()
    }

    /// Reads the words of a table of a bank.
    fn read_table(&self, table: usize, bank: u32) -> Result<Vec<u32>> {
        self.block.write(registers::SELECT, table as u32 | bank)?;
        let most = self.capacity.entries as u32;
        let count =
            self.block.checked("entries of a table", COUNTS[table], "at most ENTRIES", |count| count <= most)?;
        let mut words = Vec::new();
        self.each(table, (count * ENTRY_WORDS[table]) as usize, |_, register| {
            words.push(self.block.read(register)?);
            Ok(())
        })?;
        Ok(words)
    }

    /// Calls `access` with each word of the selected table, and where it is in the window.
    fn each(&self, table: usize, words: usize, mut access: impl FnMut(usize, u32) -> Result<()>) -> Result<()> {
        let per_entry = ENTRY_WORDS[table];
        for place in 0..words as u32 {
            let (entry, word) = (place / per_entry, place % per_entry);
            if word == 0 && entry.is_multiple_of(WINDOW_ENTRIES) {
                self.block.write(registers::PAGE, entry / WINDOW_ENTRIES)?;
            }
            let offset = entry % WINDOW_ENTRIES * registers::ENTRY_BYTES + 4 * word;
            access(place as usize, registers::WINDOW_OFFSET + offset)?;
        }
        Ok(())
    }

    /// Declares the staged tables complete.
    pub(super) fn stage(&self, number: u32) -> Result<()> {
        self.block.write(registers::STAGED, number)?;
        match self.block.read_present(registers::STAGED)? {
            found if found == number => Ok(()),
            found => Err(Error::NotStaged { name: self.name().to_owned(), written: number, found }),
        }
    }

    /// Takes the tables staged under `number` into force on all cards of the torus.
    pub(super) fn commit(&self, number: u32) -> Result<()> {
        self.block.write(registers::COMMIT, number)?;
        let refused = self.block.read_present(registers::REFUSED)?;
        let (reason, card) = (refused & 0xffff, refused >> 16);
        let why = match reason {
            registers::COMMITTED => return Ok(()),
            registers::NOT_STAGED => format!("card {card} has not staged them"),
            registers::RUN_UNDER_WAY => format!("the user logic of card {card} has not ended a run"),
            _ => format!("unknown reason {reason}"),
        };
        Err(Error::NotCommitted { why })
    }

    /// Returns the number of the tables in force; 0 none.
    pub(super) fn generation(&self) -> Result<u32> {
        Ok(self.block.read_present(registers::GENERATION)?)
    }

    /// Returns what the router counted in the last run.
    pub(super) fn counts(&self) -> Result<Counts> {
        let read = |register| self.block.read_present(register);
        Ok(Counts {
            sent: read(registers::SENT)?,
            depth_max: read(registers::DEPTH_MAX)?,
            lost: read(registers::LOST)?,
            stray: read(registers::STRAY)?,
            dropped: read(registers::DROPPED)?,
        })
    }
}

/// Splits an entry of 128 bits, the lowest word first.
pub(super) fn split(bits: u128) -> [u32; 4] {
    [0, 32, 64, 96].map(|first| (bits >> first) as u32)
}

fn join(words: &[u32]) -> u128 {
    words.iter().rev().fold(0, |bits, word| bits << 32 | u128::from(*word))
}

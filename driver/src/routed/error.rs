//! What can go wrong with statically scheduled routers, and with transforms on them.

use std::fmt;

use cmdseq::routing::{CompileError, EntryError, FftMappingError, VerifyError};

use crate::sequencer::listed::Unlisted;

/// Error of a network of statically scheduled routers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The Device Feature List of the register BAR leads to no such block.
    #[error("{name} has no {what}: {looked} (mock:novo-g:4x4x4 has one)")]
    NoBlock {
        /// The card.
        name: String,
        /// The block.
        what: &'static str,
        /// Where the walk of the list ended, and why.
        looked: String,
    },
    /// Not all cards of the torus are here: tables are taken into force on all of them, or on none.
    #[error("card {node} is missing (expected all {nodes} cards of a torus of {} x {} x {})", sides[0], sides[1], sides[2])]
    MissingCard {
        /// The first card that is missing.
        node: u32,
        /// Cards of the torus.
        nodes: u32,
        /// Sides of the torus.
        sides: [u32; 3],
    },
    /// The tables are for another torus.
    #[error(
        "tables of a torus of {} x {} x {} do not fit cards in a torus of {} x {} x {} (expected cards such as mock:novo-g:{}x{}x{})",
        given[0], given[1], given[2], has[0], has[1], has[2], given[0], given[1], given[2]
    )]
    Shape {
        /// Sides of the tables' torus.
        given: [u32; 3],
        /// Sides of the cards' torus.
        has: [u32; 3],
    },
    /// The tables could lose, misdirect or keep packets. Nothing was loaded.
    #[error(transparent)]
    Tables(#[from] VerifyError),
    /// The packets of a card enter the network at more places than it has room for. Nothing was loaded.
    #[error("node {node}: {entries} sources of packets (a card holds {most}; split the collectives)")]
    Sources {
        /// The node.
        node: u32,
        /// Its sources.
        entries: usize,
        /// What fits.
        most: u32,
    },
    /// A card read back another word than was written. The old tables are in force.
    #[error("{name}: word {word} of the {table} table reads {found:#x}, but {written:#x} was written")]
    Lost {
        /// The card.
        name: String,
        /// The table.
        table: &'static str,
        /// The word.
        word: usize,
        /// What was written.
        written: u32,
        /// What the card reads.
        found: u32,
    },
    /// A card does not take the tables that were written. The old tables are in force.
    #[error("{name} does not take the tables: STAGED reads {found}, but {written} was written")]
    NotStaged {
        /// The card.
        name: String,
        /// What was written.
        written: u32,
        /// What the card reads.
        found: u32,
    },
    /// The cards did not take the tables into force. The old ones are.
    #[error("the cards did not take the tables into force: {why}")]
    NotCommitted {
        /// Why.
        why: String,
    },
    /// Two cards have other tables in force.
    #[error("card {node} has tables {found} in force, and card 0 has tables {first}; load tables again")]
    Generations {
        /// A card.
        node: u32,
        /// Its generation.
        found: u32,
        /// That of the first card.
        first: u32,
    },
    /// An entry of a card is in no format.
    #[error("{name}: entry {index} of the {table} table: {source}")]
    Entry {
        /// The card.
        name: String,
        /// The table.
        table: &'static str,
        /// The entry.
        index: usize,
        /// What is wrong.
        #[source]
        source: EntryError,
    },
    /// The corner turns of a transform cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The torus, or the buffers of its cards, hold no transform of this size.
    #[error(transparent)]
    Mapping(#[from] FftMappingError),
    /// A card has fewer cores for lines of this length.
    #[error("{cores} cores for lines of {side} points in a card (expected 1 to {most})")]
    Cores {
        /// Points of a line.
        side: u32,
        /// Cores asked for.
        cores: u32,
        /// Cores that fit.
        most: u32,
    },
    /// The cards did not start a transform.
    #[error("the cards did not start the transform: {why}")]
    NotStarted {
        /// Why.
        why: String,
    },
    /// A card waits for packets that do not come.
    #[error(transparent)]
    Stalled(Box<Stall>),
    /// The card's or the bus's, or an invalid argument.
    #[error(transparent)]
    Card(#[from] crate::error::Error),
}

impl Error {
    /// Says why a card has no such block.
    pub(super) fn no_block(name: &str, what: &'static str, why: Unlisted) -> Self {
        let looked = match why {
            Unlisted::Missing(looked) => looked,
            Unlisted::Other(magic) => format!("the block with its GUID begins with {magic:#010x}"),
            Unlisted::Card(error) => return error.into(),
        };
        Error::NoBlock { name: name.to_owned(), what, looked }
    }
}

/// Result with an [`enum@Error`] of statically scheduled routers.
pub type Result<T> = std::result::Result<T, Error>;

/// A card that lacks points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The card.
    pub node: u32,
    /// Packets of the corner turn that it got.
    pub seen: u32,
    /// Packets that it gets.
    pub expected: u32,
    /// Points that it lacks.
    pub points: u32,
    /// The first of them, as (x, y, z).
    pub first: [u32; 3],
    /// The card that has this one.
    pub from: u32,
}

/// A transform that came to a stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stall {
    /// The corner turn that is not complete: XY or YZ. Nothing is lost before it.
    pub turn: &'static str,
    /// When a card did something last, in picoseconds after the start.
    pub at_ps: u64,
    /// The cards that lack points of this corner turn; none if a card has not ended although it got all.
    pub cards: Vec<Missing>,
    /// Packets that links brought with a wrong checksum.
    pub dropped: u64,
    /// Packets that found a buffer full.
    pub lost: u64,
    /// Packets without entry.
    pub stray: u64,
}

impl std::error::Error for Stall {}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stall { turn, at_ps, cards, dropped, lost, stray } = self;
        write!(f, "the FFT stalled {:.2} us after its start, in the {turn} corner turn", *at_ps as f64 / 1e6)?;
        if let Some(Missing { node, seen, expected, points, first: [x, y, z], from }) = cards.first() {
            write!(
                f,
                ": card {node} got {seen} of {expected} packets, and lacks {points} points, first ({x}, {y}, {z}) of card {from}"
            )?;
        }
        match cards.len().saturating_sub(1) {
            0 => {}
            1 => write!(f, "; another card lacks points")?,
            others => write!(f, "; {others} other cards lack points")?,
        }
        write!(f, " (dropped for bit errors: {dropped}, by full buffers: {lost}, without entry: {stray})")
    }
}

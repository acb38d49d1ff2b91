//! What a board file says of one block of registers or memory.

use fpga_hal::BarIndex;
use fpga_regs::{cms, decoupler, hwicap, sequencer};
use serde::Deserialize;

/// Bytes of the first header of a feature list, with the GUID behind it.
const LIST_HEADER_BYTES: u32 = 24;

/// Alignment of memory for rings, for each who uses it.
pub(crate) const RING_ALIGN: u64 = 64;

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum BlockKind {
    /// The first header of a Device Feature List.
    FeatureList,
    /// The command sequencer, on a board whose feature list does not lead to it.
    Sequencer,
    /// Memory on the card for the sequencer's rings, on a board whose feature list does not describe it.
    RingMemory,
    /// The configuration port (AXI HWICAP).
    Hwicap,
    /// The decoupler of the region that is reconfigured.
    Decoupler,
    /// Card management (CMS).
    Cms,
}

impl BlockKind {
    /// Returns the name, as in board files.
    pub const fn name(self) -> &'static str {
        match self {
            BlockKind::FeatureList => "feature-list",
            BlockKind::Sequencer => "sequencer",
            BlockKind::RingMemory => "ring-memory",
            BlockKind::Hwicap => "hwicap",
            BlockKind::Decoupler => "decoupler",
            BlockKind::Cms => "cms",
        }
    }

    /// Returns the bytes of a block; `None` if the board file says how many.
    pub(super) fn bytes(self) -> Option<u64> {
        let bytes = match self {
            BlockKind::FeatureList => LIST_HEADER_BYTES,
            BlockKind::Sequencer => sequencer::BLOCK_BYTES,
            BlockKind::Hwicap => hwicap::BLOCK_BYTES,
            BlockKind::Decoupler => decoupler::BLOCK_BYTES,
            BlockKind::Cms => cms::WINDOW_BYTES,
            BlockKind::RingMemory => return None,
        };
        Some(bytes.into())
    }
}

/// How sure it is that a block is where the board file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Basis {
    /// A document or the source of the shell says so.
    Document,
    /// Whoever designed the shell chose it; other shells of the same card differ.
    Choice,
    /// Common knowledge that nobody has checked on a card.
    Unverified,
}

impl Basis {
    /// Returns the name, as in board files.
    pub const fn name(self) -> &'static str {
        match self {
            Basis::Document => "document",
            Basis::Choice => "choice",
            Basis::Unverified => "unverified",
        }
    }
}

/// A block, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// What it is.
    pub kind: BlockKind,
    /// The BAR.
    pub bar: BarIndex,
    /// Offset in the BAR, in bytes.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// What only memory for rings has.
    pub rings: Option<Rings>,
    /// How sure that is.
    pub basis: Basis,
    /// Where that is written.
    pub source: String,
}

/// The other sides of memory for rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rings {
    /// Address for the sequencer.
    pub sequencer: u64,
    /// Address for AMD's DMA engine; `None` if no engine reaches it.
    pub engine: Option<u64>,
    /// The engine's interrupt of user logic that the sequencer asserts.
    pub interrupt: Option<u32>,
}

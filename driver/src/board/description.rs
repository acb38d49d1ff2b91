//! What a board file describes: a board's functions, and what is where in their BARs.

use std::sync::Arc;

use fpga_hal::{BarIndex, Function};
use serde::Deserialize;

use crate::board::block::{Block, BlockKind};
use crate::board::feed::Feed;

/// What a function of a board is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Role {
    /// It has the sequencer, or is where one would be. A card with one function has this role.
    Card,
    /// The control function of a card with several.
    Control,
    /// A host exerciser.
    Exerciser,
}

impl Role {
    /// Returns the name, as in board files.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Card => "card",
            Role::Control => "control",
            Role::Exerciser => "exerciser",
        }
    }
}

/// Which functions an entry is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ids {
    /// Functions of which no other board file has the ids.
    Any,
    /// Functions with one of these vendor and device ids. Without any, the file is for functions that a user names it for.
    These(Vec<(u16, u16)>),
}

impl Ids {
    /// Whether the entry is for `function` without being named.
    pub(super) fn have(&self, function: &Function) -> bool {
        let identity = function.identity();
        match self {
            Ids::Any => true,
            Ids::These(these) => these.contains(&(identity.vendor, identity.device)),
        }
    }

    /// Whether the entry may be for `function` if a user names it.
    pub(super) fn may_be(&self, function: &Function) -> bool {
        *self == Ids::These(Vec::new()) || self.have(function)
    }
}

/// What a board file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Board {
    /// Its name.
    pub name: String,
    /// The file.
    pub file: String,
    /// What board that is.
    pub about: String,
    /// Its functions.
    pub functions: Vec<BoardFunction>,
}

/// One function of a board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoardFunction {
    /// Name of the board.
    pub board: Arc<str>,
    /// What it is for.
    pub role: Role,
    /// Its ids.
    pub ids: Ids,
    /// Its BARs, and their bytes.
    pub bars: Vec<(BarIndex, u64)>,
    /// How its sequencer is to be fed; `None` for what the sequencer announces.
    pub feed: Option<Feed>,
    /// What is where.
    pub blocks: Vec<Block>,
}

impl BoardFunction {
    /// Returns the block of a kind.
    pub fn block(&self, kind: BlockKind) -> Option<&Block> {
        self.blocks.iter().find(|block| block.kind == kind)
    }

    /// Says what of `function` is not as this entry has it; `None` if the function has all BARs, each long enough.
    pub(super) fn misfit(&self, function: &Function) -> Option<String> {
        let misfit = |(index, bytes): &(BarIndex, u64)| match function.bar(*index) {
            None => Some(format!("the function has no {index}")),
            Some(found) if found.bytes < *bytes => {
                Some(format!("{index} has {:#x} bytes; expected {bytes:#x} or more", found.bytes))
            }
            Some(_) => None,
        };
        self.bars.iter().find_map(misfit)
    }
}

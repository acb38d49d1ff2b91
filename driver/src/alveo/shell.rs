//! What tells that a card has this project's shell, and where its board file has the shell's parts.

use fpga_hal::Function;
use fpga_regs::feature_list::CARD_GUID;

use crate::alveo::block::Block;
use crate::alveo::error::{Error, Result};
use crate::board::{self, BlockKind, BoardFunction};
use crate::error::Error as CardError;
use crate::feature_list::{self, Walk};
use crate::sequencer::block::bus_error;
use crate::xdma;

/// A function with this project's shell, or one that a board file says has parts of it.
#[derive(Debug)]
pub(super) struct Shell {
    function: Function,
    board: &'static BoardFunction,
}

impl Shell {
    /// Looks at what is behind a function. If its board file places a feature list, that must be of an accelerator with this project's
    /// GUID, behind AMD's engine: ids alone do not tell. A board file without a list is for one shell only, and is believed.
    ///
    /// # Errors
    /// [`Error::NoShell`]; the bus's.
    pub(super) fn find(function: &Function) -> Result<Self> {
        let name = function.identity().name.clone();
        let board = board::of(function).map_err(CardError::from)?;
        let none = |looked| Error::NoShell { name: name.clone(), looked: board::with_foreign_shell(function, looked) };
        let found = Shell { function: function.clone(), board };
        let Some(list) = board.block(BlockKind::FeatureList) else { return Ok(found) };
        if !xdma::has_engine(function)? {
            return Err(none("it has no XDMA engine".to_owned()));
        }
        if function.bar(list.bar).is_none() {
            return Err(none(format!("it has no {}, where its feature list would be", list.bar)));
        }
        let window = function.window(list.bar).map_err(|error| bus_error(&name, error))?;
        match Walk::new(&window, list.offset).next() {
            Some(Ok(feature)) if feature.guid == Some(CARD_GUID) => Ok(found),
            Some(Ok(feature)) => Err(none(format!("its feature list begins with a feature of type {}", feature.kind))),
            Some(Err(feature_list::Error::List(looked))) => Err(none(looked)),
            Some(Err(feature_list::Error::Bus(error))) => Err(bus_error(&name, error).into()),
            None => Err(none("it has no feature list".to_owned())),
        }
    }

    /// Returns `bytes` bytes at `offset` of a part.
    ///
    /// # Errors
    /// [`Error::NoShell`] if the board file does not place the part; the bus's.
    pub(super) fn block(&self, kind: BlockKind, offset: u32, bytes: u32) -> Result<Block> {
        let name = &self.function.identity().name;
        let Some(place) = self.board.block(kind) else {
            let looked = format!("its board file, {}, has no block {}", self.board.board, kind.name());
            return Err(Error::NoShell { name: name.clone(), looked });
        };
        let window = self.function.window(place.bar).map_err(|error| bus_error(name, error))?;
        Block::new(&window, &self.function, place.offset + u64::from(offset), bytes)
    }
}

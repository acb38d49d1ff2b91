//! A block of registers that the feature list of a card leads to.

use std::sync::Arc;

use fpga_hal::{BarIndex, Function, Window};
use fpga_regs::pci;

use crate::card::Card;
use crate::error::Error as CardError;
use crate::feature_list;
use crate::routed::error::{Error, Result};
use crate::sequencer::block::{ALL_ONES, bus_error};

/// Which block: what it is called, its GUID, its bytes, what MAGIC reads, and its version.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) what: &'static str,
    pub(super) guid: u128,
    pub(super) bytes: u32,
    /// Offset and value.
    pub(super) magic: (u32, u32),
    pub(super) version: (u32, u32),
}

/// The block of one card.
#[derive(Debug)]
pub(super) struct Block {
    window: Window,
    name: Arc<str>,
    function: Function,
}

impl Block {
    /// Finds the block of a card, and checks that this driver knows it.
    pub(super) fn find(card: &Card, kind: Kind) -> Result<Self> {
        let (function, name) = (card.function().clone(), card.name());
        let missing = |looked: String| Error::NoBlock { name: name.to_owned(), what: kind.what, looked };
        let bus = |error| bus_error(name, error);
        let Some(bar) = BarIndex::new(pci::REGISTERS_BAR) else { unreachable!("a constant below 6") };
        let window = function.window(bar).map_err(|error| match error {
            fpga_hal::Error::NoBar { .. } => missing(error.to_string()),
            error => bus(error).into(),
        })?;
        let found = feature_list::find_block(&window, kind.guid, kind.bytes).map_err(|error| match error {
            feature_list::Error::List(looked) => missing(looked),
            feature_list::Error::Bus(error) => bus(error).into(),
        })?;
        let window = window.slice(found, u64::from(kind.bytes)).map_err(bus)?;
        let block = Block { window, name: name.into(), function };
        let (offset, expected) = kind.magic;
        let magic = block.read_present(offset)?;
        if magic != expected {
            return Err(missing(format!("the block with its GUID begins with {magic:#010x}")));
        }
        let (offset, known) = kind.version;
        let found = block.read_present(offset)?;
        if found >> 16 != known >> 16 {
            let (name, what) = (block.name.to_string(), "version of the registers");
            return Err(CardError::Version { name, what, found, known }.into());
        }
        Ok(block)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn write(&self, register: u32, value: u32) -> Result<()> {
        self.window.write_u32(register.into(), value).map_err(|error| bus_error(&self.name, error).into())
    }

    pub(super) fn read(&self, register: u32) -> Result<u32> {
        self.window.read_u32(register.into()).map_err(|error| bus_error(&self.name, error).into())
    }

    /// Reads a register that never holds all-ones.
    pub(super) fn read_present(&self, register: u32) -> Result<u32> {
        match self.read(register)? {
            ALL_ONES if self.function.is_removed() => Err(CardError::Removed { name: self.name.to_string() }.into()),
            ALL_ONES => Err(CardError::AllOnes { name: self.name.to_string(), register: register.into() }.into()),
            value => Ok(value),
        }
    }

    /// Reads a capability.
    pub(super) fn checked(
        &self,
        name: &'static str,
        register: u32,
        expected: &'static str,
        is_valid: impl FnOnce(u32) -> bool,
    ) -> Result<u32> {
        let value = self.read_present(register)?;
        if is_valid(value) {
            return Ok(value);
        }
        Err(CardError::BadCapability { name: self.name.to_string(), register: name, value, expected }.into())
    }
}

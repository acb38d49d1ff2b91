//! A block of registers beside the sequencer's, which the feature list of the register BAR leads to.

use std::sync::Arc;

use fpga_hal::{Function, Window};

use crate::error::{Error, Result};
use crate::feature_list;
use crate::sequencer::block::{ALL_ONES, bus_error};

/// Which block: its GUID, its bytes, and what identifies it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) guid: u128,
    pub(crate) bytes: u32,
    /// Offset of the register that identifies it, and what it reads.
    pub(crate) magic: (u32, u32),
    /// Offset of the register with the version, the version that this driver knows, and its name in errors.
    pub(crate) version: (u32, u32, &'static str),
}

/// Why a card has no such block, or why that cannot be said.
#[derive(Debug)]
pub(crate) enum Unlisted {
    /// Where the walk of the list ended, and why.
    Missing(String),
    /// Another block has its GUID: what the register reads that identifies it.
    Other(u32),
    /// The block's version, or the bus.
    Card(Error),
}

impl From<Error> for Unlisted {
    fn from(error: Error) -> Self {
        Unlisted::Card(error)
    }
}

/// The block of one card.
#[derive(Debug)]
pub(crate) struct ListedBlock {
    window: Window,
    name: Arc<str>,
    function: Function,
}

impl ListedBlock {
    /// Finds the block of a function in use, and checks that this driver knows it.
    pub(crate) fn find(function: &Function, kind: &Kind) -> std::result::Result<Self, Unlisted> {
        let name: Arc<str> = function.identity().name.as_str().into();
        let unlisted = |error| match error {
            feature_list::Error::List(looked) => Unlisted::Missing(looked),
            feature_list::Error::Bus(error) => bus_error(&name, error).into(),
        };
        let window = feature_list::register_bar(function).map_err(unlisted)?;
        let offset = feature_list::find_block(&window, kind.guid, kind.bytes).map_err(unlisted)?;
        let window = window.slice(offset, u64::from(kind.bytes)).map_err(|error| bus_error(&name, error))?;
        let block = ListedBlock { window, name, function: function.clone() };
        let (register, expected) = kind.magic;
        let magic = block.read_present(register)?;
        if magic != expected {
            return Err(Unlisted::Other(magic));
        }
        let (register, known, what) = kind.version;
        let found = block.read_present(register)?;
        if found >> 16 != known >> 16 {
            return Err(Error::Version { name: block.name.to_string(), what, found, known }.into());
        }
        Ok(block)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Converts an error of the bus.
    #[cold]
    pub(crate) fn bus(&self, error: fpga_hal::Error) -> Error {
        bus_error(&self.name, error)
    }

    #[inline]
    pub(crate) fn write(&self, register: u32, value: u32) -> Result<()> {
        self.window.write_u32(register.into(), value).map_err(|error| self.bus(error))
    }

    pub(crate) fn read(&self, register: u32) -> Result<u32> {
        self.window.read_u32(register.into()).map_err(|error| self.bus(error))
    }

    /// Reads a register that never holds all-ones.
    pub(crate) fn read_present(&self, register: u32) -> Result<u32> {
        match self.read(register)? {
            ALL_ONES if self.function.is_removed() => Err(Error::removed(&self.function)),
            ALL_ONES => {
                let register = self.window.offset() + u64::from(register);
                Err(Error::AllOnes { name: self.name.to_string(), register })
            }
            value => Ok(value),
        }
    }

    /// Reads a capability.
    pub(crate) fn checked(
        &self,
        name: &'static str,
        register: u32,
        expected: &'static str,
        is_valid: impl FnOnce(u32) -> bool,
    ) -> Result<u32> {
        let value = self.read_present(register)?;
        if is_valid(value) { Ok(value) } else { Err(self.bad(name, value, expected)) }
    }

    pub(crate) fn bad(&self, register: &'static str, value: u32, expected: &'static str) -> Error {
        Error::BadCapability { name: self.name.to_string(), register, value, expected }
    }
}

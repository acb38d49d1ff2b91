//! A block of registers beside the sequencer's, which the same feature list leads to.

use std::sync::Arc;

use fpga_hal::{Function, Window};
use fpga_regs::xdma::USER_INTERRUPTS;

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
    /// Finds the block in the feature list of a function's register BAR, and checks that this driver knows it.
    pub(crate) fn find(function: &Function, kind: &Kind) -> std::result::Result<Self, Unlisted> {
        match feature_list::register_bar(function) {
            Ok(list) => ListedBlock::find_in(&list, function, kind),
            Err(error) => Err(unlisted(&function.identity().name, error)),
        }
    }

    /// Finds the block in the feature list `list` of a function, and checks that this driver knows it.
    pub(crate) fn find_in(list: &Window, function: &Function, kind: &Kind) -> std::result::Result<Self, Unlisted> {
        let name: Arc<str> = function.identity().name.as_str().into();
        let offset = feature_list::find_block(list, kind.guid, kind.bytes).map_err(|error| unlisted(&name, error))?;
        let window = list.slice(offset, u64::from(kind.bytes)).map_err(|error| bus_error(&name, error))?;
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

    /// As [`find_in`](Self::find_in), of a block that a card may lack: `None`. `magic` is the name of the register that identifies it, and
    /// `letters` what it reads, in errors.
    pub(crate) fn find_optional(
        (list, function): (&Window, &Function),
        kind: &Kind,
        (magic, letters): (&'static str, &'static str),
    ) -> Result<Option<Self>> {
        let name = &function.identity().name;
        match ListedBlock::find_in(list, function, kind) {
            Ok(block) => Ok(Some(block)),
            Err(Unlisted::Missing(looked)) => {
                log::debug!("{name}: no {}: {looked}", kind.version.2);
                Ok(None)
            }
            Err(Unlisted::Other(value)) => Err(bad(name, magic, value, letters)),
            Err(Unlisted::Card(error)) => Err(error),
        }
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

    /// Reads 64 bits from two registers.
    pub(crate) fn read_pair(&self, low: u32, high: u32) -> Result<u64> {
        Ok(u64::from(self.read(low)?) | u64::from(self.read(high)?) << 32)
    }

    /// Reads from a register which interrupt of user logic the sequencer raises; `None` if it reads `none`.
    pub(crate) fn user_interrupt(&self, name: &'static str, register: u32, none: u32) -> Result<Option<u32>> {
        match self.read(register)? {
            line if line == none => Ok(None),
            line if line < USER_INTERRUPTS => Ok(Some(line)),
            line => Err(self.bad(name, line, "an interrupt of user logic, or 0xff")),
        }
    }

    pub(crate) fn bad(&self, register: &'static str, value: u32, expected: &'static str) -> Error {
        bad(&self.name, register, value, expected)
    }
}

fn unlisted(name: &str, error: feature_list::Error) -> Unlisted {
    match error {
        feature_list::Error::List(looked) => Unlisted::Missing(looked),
        feature_list::Error::Bus(error) => bus_error(name, error).into(),
    }
}

fn bad(name: &str, register: &'static str, value: u32, expected: &'static str) -> Error {
    Error::BadCapability { name: name.to_owned(), register, value, expected }
}

//! A block of the feature list by which a shell describes itself to the host.

use fpga_hal::Window;
use fpga_regs::xdma::USER_INTERRUPTS;

use crate::error::{Error, Result};
use crate::feature_list;
use crate::sequencer::block::bus_error;

/// What identifies a kind of block.
pub(crate) struct Kind {
    pub(crate) guid: u128,
    pub(crate) bytes: u32,
    /// Offset of the register that identifies it, what it reads, its name in errors, and these letters in errors.
    pub(crate) magic: (u32, u32, &'static str, &'static str),
    /// Offset of the register with the version, the version that this driver knows, and its name in errors.
    pub(crate) version: (u32, u32, &'static str),
    /// Offset of the register with the interrupt of user logic, what it reads if there is none, and its name in errors.
    pub(crate) interrupt: (u32, u32, &'static str),
}

/// A block that was found and identified.
pub(crate) struct Described<'a> {
    list: &'a Window,
    offset: u64,
    name: &'a str,
    kind: &'a Kind,
}

impl<'a> Described<'a> {
    /// Finds the block in the feature list of the function `name`, and checks its identity and version. `Ok(None)`: there is none.
    pub(crate) fn find(list: &'a Window, name: &'a str, kind: &'a Kind) -> Result<Option<Self>> {
        let offset = match feature_list::find_block(list, kind.guid, kind.bytes) {
            Ok(offset) => offset,
            Err(feature_list::Error::List(looked)) => {
                log::debug!("{name}: no {}: {looked}", kind.version.2);
                return Ok(None);
            }
            Err(feature_list::Error::Bus(error)) => return Err(bus_error(name, error)),
        };
        let found = Described { list, offset, name, kind };
        let (register, expected, label, letters) = kind.magic;
        let magic = found.read(register)?;
        if magic != expected {
            return Err(found.bad(label, magic, letters));
        }
        let (register, known, what) = kind.version;
        let version = found.read(register)?;
        if version >> 16 != known >> 16 {
            return Err(Error::Version { name: name.to_owned(), what, found: version, known });
        }
        Ok(Some(found))
    }

    pub(crate) fn read(&self, register: u32) -> Result<u32> {
        self.list.read_u32(self.offset + u64::from(register)).map_err(|error| bus_error(self.name, error))
    }

    /// Reads 64 bits from two registers.
    pub(crate) fn read_pair(&self, low: u32, high: u32) -> Result<u64> {
        Ok(u64::from(self.read(low)?) | u64::from(self.read(high)?) << 32)
    }

    /// Returns the interrupt of user logic that the sequencer raises; `None` if it has none.
    pub(crate) fn interrupt(&self) -> Result<Option<u32>> {
        let (register, none, label) = self.kind.interrupt;
        match self.read(register)? {
            line if line == none => Ok(None),
            line if line < USER_INTERRUPTS => Ok(Some(line)),
            line => Err(self.bad(label, line, "an interrupt of user logic, or 0xff")),
        }
    }

    pub(crate) fn bad(&self, register: &'static str, value: u32, expected: &'static str) -> Error {
        Error::BadCapability { name: self.name.to_owned(), register, value, expected }
    }
}

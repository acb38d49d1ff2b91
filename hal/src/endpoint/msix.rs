//! Programs the MSI-X table of an endpoint, as a kernel does for a function.

use std::ops::Range;

use super::Endpoint;
use crate::config::{self, Space};
use crate::{BarIndex, Error, Result};

/// The MSI-X capability of an endpoint, with a table that lies inside its BAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Msix {
    /// Offset of the capability in configuration space.
    capability: u16,
    /// Vectors of the table.
    vectors: u16,
    bar: BarIndex,
    /// Offset of the table in its BAR.
    table: u64,
}

impl Msix {
    /// Finds the capability. `None`: the endpoint has no MSI-X.
    pub(crate) fn find(endpoint: &dyn Endpoint) -> Result<Option<Self>> {
        let space = Space::read(|offset| {
            let mut word = [0xff; 4];
            endpoint.config_read(offset, &mut word);
            Ok::<_, Error>(word)
        })?;
        let Some(entry) = space.capabilities().find(config::CAPABILITY_MSIX.into())? else { return Ok(None) };
        let found = space.msix().ok_or(Error::CapabilityList { offset: entry.offset })?;
        let (capability, vectors) = (found.offset, found.vectors);
        let wrong = || {
            let word = space.u32(capability + config::MSIX_TABLE).unwrap_or_default();
            Error::MsixTable { bar: (word & 7) as u8, offset: u64::from(word & !7), vectors }
        };
        let (bar, range) = found.table_bytes().ok_or_else(wrong)?;
        let layout = endpoint.layout().bars[bar.index()].ok_or_else(wrong)?;
        if range.end > layout.bytes {
            return Err(wrong());
        }
        Ok(Some(Msix { capability, vectors, bar, table: range.start }))
    }

    /// Returns the number of vectors.
    pub(crate) fn vectors(&self) -> u16 {
        self.vectors
    }

    /// Returns the bytes of message control in configuration space.
    #[cfg_attr(not(feature = "vfio-user-server"), allow(dead_code, reason = "only the server uses it"))]
    pub(crate) fn control_bytes(&self) -> Range<u16> {
        let control = self.capability + config::MSIX_CONTROL;
        control..control + 2
    }

    /// Returns the BAR and the bytes of the table.
    #[cfg_attr(not(feature = "vfio-user-server"), allow(dead_code, reason = "only the server uses it"))]
    pub(crate) fn table(&self) -> (BarIndex, Range<u64>) {
        (self.bar, self.table..self.table + u64::from(self.vectors) * config::MSIX_ENTRY_BYTES)
    }

    /// Returns whether MSI-X is enabled.
    #[cfg_attr(not(feature = "vfio-user-server"), allow(dead_code, reason = "only the server uses it"))]
    pub(crate) fn is_enabled(&self, endpoint: &dyn Endpoint) -> bool {
        self.control(endpoint) & config::MSIX_ENABLE != 0
    }

    /// Enables MSI-X, and unmasks the vectors for which `is_open` returns true.
    ///
    /// The table lies in a BAR, and a function with memory decoding off drops writes to its BARs. So decoding is on while
    /// the table is written, as in the kernel (`vfio_pci_memory_lock_and_enable`).
    pub(crate) fn enable(&self, endpoint: &dyn Endpoint, is_open: impl Fn(u16) -> bool) -> Result<()> {
        // A function that is gone reads as all-ones and ignores writes.
        let command = read_u16(endpoint, config::COMMAND);
        if command & config::COMMAND_MEMORY != 0 {
            return self.write_table(endpoint, is_open);
        }
        endpoint.config_write(config::COMMAND, &(command | config::COMMAND_MEMORY).to_le_bytes());
        let written = self.write_table(endpoint, is_open);
        endpoint.config_write(config::COMMAND, &command.to_le_bytes());
        written
    }

    fn write_table(&self, endpoint: &dyn Endpoint, is_open: impl Fn(u16) -> bool) -> Result<()> {
        // All vectors are masked first, so that a half-written entry is never used.
        let control = self.control(endpoint) & !(config::MSIX_ENABLE | config::MSIX_MASK_ALL);
        self.set_control(endpoint, control | config::MSIX_ENABLE | config::MSIX_MASK_ALL);
        for vector in 0..self.vectors {
            let entry = u64::from(vector) * config::MSIX_ENTRY_BYTES;
            let is_open = is_open(vector);
            if is_open {
                // These buses ignore address and data. The values are those of an x86 machine, for functions that treat
                // zero as "not set".
                self.write(endpoint, entry, 0xfee0_0000)?;
                self.write(endpoint, entry + 4, 0)?;
                self.write(endpoint, entry + 8, u32::from(vector) + 0x20)?;
            }
            self.write(endpoint, entry + 12, u32::from(!is_open))?;
        }
        self.set_control(endpoint, control | config::MSIX_ENABLE);
        Ok(())
    }

    /// Disables MSI-X.
    pub(crate) fn disable(&self, endpoint: &dyn Endpoint) {
        let control = self.control(endpoint);
        self.set_control(endpoint, control & !config::MSIX_ENABLE);
    }

    fn control(&self, endpoint: &dyn Endpoint) -> u16 {
        read_u16(endpoint, self.capability + config::MSIX_CONTROL)
    }

    fn set_control(&self, endpoint: &dyn Endpoint, control: u16) {
        endpoint.config_write(self.capability + config::MSIX_CONTROL, &control.to_le_bytes());
    }

    fn write(&self, endpoint: &dyn Endpoint, offset: u64, value: u32) -> Result<()> {
        let at = self.table + offset;
        match endpoint.bar_memory(self.bar) {
            Some(memory) => memory.write(at, &value.to_le_bytes()),
            None => {
                endpoint.bar_write(self.bar, at, &value.to_le_bytes());
                Ok(())
            }
        }
    }
}

fn read_u16(endpoint: &dyn Endpoint, offset: u16) -> u16 {
    let mut data = [0xff; 2];
    endpoint.config_read(offset, &mut data);
    u16::from_le_bytes(data)
}

//! MSI-X of an endpoint, programmed as a kernel programs that of a function.

use std::ops::Range;

use crate::config;
use crate::endpoint::Endpoint;
use crate::{BarIndex, Error, Result};

/// The MSI-X capability of an endpoint and where its table lies.
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
    /// Finds the capability; `None` if the endpoint has none.
    pub(crate) fn find(endpoint: &dyn Endpoint) -> Result<Option<Self>> {
        let found = config::find_capability(config::CAPABILITY_MSIX, |offset, width| {
            let mut data = [0xff; 2];
            endpoint.config_read(offset, &mut data[..usize::from(width)]);
            Ok(if width == 1 { u16::from(data[0]) } else { u16::from_le_bytes(data) })
        });
        let Some(capability) = found? else { return Ok(None) };
        // Its three words must all lie in the part of the space that capabilities have.
        if capability + 12 > 256 {
            return Err(Error::CapabilityList { offset: capability });
        }
        let vectors = (read_u16(endpoint, capability + config::MSIX_CONTROL) & 0x7ff) + 1;
        let mut word = [0xff; 4];
        endpoint.config_read(capability + config::MSIX_TABLE, &mut word);
        let word = u32::from_le_bytes(word);
        let (number, table) = ((word & 7) as u8, u64::from(word & !7));
        let wrong = || Error::MsixTable { bar: number, offset: table, vectors };
        let bar = BarIndex::new(number).ok_or_else(wrong)?;
        let layout = endpoint.layout().bars[bar.index()].ok_or_else(wrong)?;
        let bytes = u64::from(vectors) * config::MSIX_ENTRY_BYTES;
        if bytes > layout.bytes || table > layout.bytes - bytes {
            return Err(wrong());
        }
        Ok(Some(Msix { capability, vectors, bar, table }))
    }

    /// Vectors of the table.
    pub(crate) fn vectors(&self) -> u16 {
        self.vectors
    }

    /// Where message control lies in configuration space.
    #[cfg_attr(not(feature = "vfio-user-server"), allow(dead_code, reason = "only the server uses it"))]
    pub(crate) fn control_bytes(&self) -> Range<u16> {
        let control = self.capability + config::MSIX_CONTROL;
        control..control + 2
    }

    /// Where the table lies.
    #[cfg_attr(not(feature = "vfio-user-server"), allow(dead_code, reason = "only the server uses it"))]
    pub(crate) fn table(&self) -> (BarIndex, Range<u64>) {
        (self.bar, self.table..self.table + u64::from(self.vectors) * config::MSIX_ENTRY_BYTES)
    }

    /// Whether MSI-X is on.
    #[cfg_attr(not(feature = "vfio-user-server"), allow(dead_code, reason = "only the server uses it"))]
    pub(crate) fn is_enabled(&self, endpoint: &dyn Endpoint) -> bool {
        self.control(endpoint) & config::MSIX_ENABLE != 0
    }

    /// Turns MSI-X on, with the vectors for which `is_open` says so unmasked.
    ///
    /// The table lies in a BAR, and a function whose memory decoding is off drops writes to a BAR. So decoding is on
    /// meanwhile, as the kernel does it (`vfio_pci_memory_lock_and_enable`).
    pub(crate) fn enable(&self, endpoint: &dyn Endpoint, is_open: impl Fn(u16) -> bool) -> Result<()> {
        // A function that is gone reads as all-ones, and takes no writes.
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
        // On with everything masked first, so that no half-written entry is ever used.
        let control = self.control(endpoint) & !(config::MSIX_ENABLE | config::MSIX_MASK_ALL);
        self.set_control(endpoint, control | config::MSIX_ENABLE | config::MSIX_MASK_ALL);
        for vector in 0..self.vectors {
            let entry = u64::from(vector) * config::MSIX_ENTRY_BYTES;
            let is_open = is_open(vector);
            if is_open {
                // Nobody looks at address and data on these buses. They are those of an x86 machine, so that a function
                // that takes zero for "not set" is content.
                self.write(endpoint, entry, 0xfee0_0000)?;
                self.write(endpoint, entry + 4, 0)?;
                self.write(endpoint, entry + 8, u32::from(vector) + 0x20)?;
            }
            self.write(endpoint, entry + 12, u32::from(!is_open))?;
        }
        self.set_control(endpoint, control | config::MSIX_ENABLE);
        Ok(())
    }

    /// Turns MSI-X off.
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

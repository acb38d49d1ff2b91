//! Configuration space that outlives what a card does to it.
//!
//! Logic that is loaded into a card, or a reset behind the bus's back, may leave a function with the configuration space of power-up:
//! without addresses, and deaf to memory accesses.
//!
//! The kernel's VFIO (`drivers/vfio/pci/vfio_pci_config.c`) drops writes of MSI-X message control, so interrupts are not saved.

use super::opened::OpenFunction;
use crate::config::Space;
use crate::{Error, Result, config};

/// In the PCI Express capability: Device Control, 16 bits. The highest bit resets the function, and reads zero.
const DEVICE_CONTROL: u16 = 8;
/// Base address registers of a header of type 0.
const BARS: [&str; 6] = ["BAR0", "BAR1", "BAR2", "BAR3", "BAR4", "BAR5"];
/// Bits of the command register that the driver and the bus set: memory, bus master, interrupt disable.
const COMMAND_BITS: u16 = config::COMMAND_MEMORY | config::COMMAND_MASTER | 1 << 10;

/// One register of configuration space. `mask`: the bits that belong to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Register {
    name: &'static str,
    offset: u16,
    is_wide: bool,
    mask: u32,
}

impl Register {
    fn read(self, function: &OpenFunction) -> Result<u32> {
        match self.is_wide {
            true => function.config_read(self.offset).map(u32::from_le_bytes),
            false => function.config_read(self.offset).map(|bytes| u16::from_le_bytes(bytes).into()),
        }
    }

    fn write(self, function: &OpenFunction, value: u32) -> Result<()> {
        match self.is_wide {
            true => function.config_write(self.offset, value.to_le_bytes()),
            false => function.config_write(self.offset, (value as u16).to_le_bytes()),
        }
    }
}

/// What the host has set in the configuration space of a function: see [`Function::save_config`](super::Function::save_config).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedConfig(Vec<(Register, u32)>);

/// A register that did not have its saved value, and has it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// Name of the register.
    pub name: &'static str,
    /// What it read.
    pub found: u32,
    /// What it reads again.
    pub value: u32,
}

impl SavedConfig {
    /// Saves the registers of a function.
    pub(super) fn save(function: &OpenFunction) -> Result<Self> {
        let wide = |(name, index): (&'static str, u16)| Register {
            name,
            offset: config::BARS + 4 * index,
            is_wide: true,
            mask: u32::MAX,
        };
        let mut registers: Vec<Register> = BARS.into_iter().zip(0..).map(wide).collect();
        let mut narrow = |name, offset, mask: u16| {
            registers.push(Register { name, offset, is_wide: false, mask: mask.into() });
        };
        let space = Space::read(|offset| function.config_read(offset))?;
        if let Some(express) = space.express() {
            narrow("Device Control", express.offset + DEVICE_CONTROL, u16::MAX >> 1);
        }
        // After the addresses, which are written while the function decodes none.
        narrow("Command", config::COMMAND, COMMAND_BITS);
        let saved = registers.into_iter().map(|one| Ok((one, one.read(function)?))).collect::<Result<_>>()?;
        if function.is_removed() { Err(function.bus.removal().error()) } else { Ok(SavedConfig(saved)) }
    }

    /// Writes the saved value to each register that has another. The caller holds the lock of the state.
    pub(super) fn restore(&self, function: &OpenFunction) -> Result<Vec<Restored>> {
        if function.is_removed() {
            return Err(function.bus.removal().error());
        }
        let mut restored = Vec::new();
        for (register, value) in &self.0 {
            let found = register.read(function)?;
            if (found ^ value) & register.mask == 0 {
                continue;
            }
            let wanted = found & !register.mask | value & register.mask;
            register.write(function, wanted)?;
            let again = register.read(function)?;
            if (again ^ wanted) & register.mask != 0 {
                return Err(Error::NotRestored { register: register.name, value: *value, found: again });
            }
            restored.push(Restored { name: register.name, found, value: *value });
        }
        Ok(restored)
    }
}

//! Directions of DMA.

/// What devices may do with mapped memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Devices read it. A write by a device is a fault.
    ToDevice,
    /// Devices write it. A read by a device is a fault.
    FromDevice,
    /// Devices read and write it.
    Both,
}

impl Direction {
    /// Returns whether devices may read the memory.
    pub(crate) const fn lets_devices_read(self) -> bool {
        matches!(self, Direction::ToDevice | Direction::Both)
    }

    /// Returns whether devices may write the memory.
    pub(crate) const fn lets_devices_write(self) -> bool {
        matches!(self, Direction::FromDevice | Direction::Both)
    }
}

//! Identity of a function.

use std::fmt;

/// Name and ids of a function. Displays as `name (vendor:device, class, revision)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Selector or bus address that it was opened by.
    pub name: String,
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// PCI class code, 24 bits.
    pub class: u32,
    /// Revision.
    pub revision: u8,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { name, vendor, device, class, revision } = self;
        write!(f, "{name} ({vendor:04x}:{device:04x}, class {class:06x}, revision {revision:02x})")
    }
}

//! PCI as plain data: addresses, configuration space, BARs, and the kinds of interrupts and resets.
//!
//! Nothing here opens a device or does any I/O. Bytes come from the caller and may be anything: every parser checks what it
//! reads, and every walk ends.
#![forbid(unsafe_code)]

pub mod address;
pub mod bar;
pub mod config;
pub mod interrupt;
pub mod reset;

pub use address::{BarIndex, NotAnAddress, PciAddress};
pub use bar::BarLayout;
pub use interrupt::InterruptKind;
pub use reset::ResetOutcome;

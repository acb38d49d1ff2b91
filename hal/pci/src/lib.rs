//! PCI as plain data: addresses, configuration space, BARs, and the kinds of interrupts and resets.
//!
//! Nothing here opens a device or does any I/O. Bytes come from the caller and may be anything: every parser checks what it
//! reads, and every walk ends.
//!
//! ```
//! use fpga_pci::PciAddress;
//! use fpga_pci::config::Space;
//!
//! let address: PciAddress = "3b:00.0".parse()?;
//! assert_eq!(address.to_string(), "0000:3b:00.0");
//!
//! let mut bytes = vec![0; 256];
//! bytes[..4].copy_from_slice(&[0x34, 0x12, 0xa0, 0xf9]);
//! let space = Space::new(bytes).expect("a whole header");
//! assert_eq!((space.header().vendor, space.header().device), (0x1234, 0xf9a0));
//! # Ok::<(), fpga_pci::NotAnAddress>(())
//! ```
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

//! The bus between a host and an FPGA card, both sides of it.
//!
//! ```text
//!            host                                            device
//!   Function: config, windows, reset  ── accesses ──▶  Endpoint: config_*, bar_*, reset
//!   Domain and DmaBuffer: host memory ◀── IOVAs ─────  DmaPort
//!   Interrupt: an eventfd             ◀── vectors ───  InterruptPort
//! ```
//!
//! The host opens a [`Function`] in a [`Domain`]. The device is any [`Endpoint`], or a real card. A bus connects both:
//!
//! - [`in_process`]: an endpoint in this process.
//! - [`vfio`]: a card that the kernel's VFIO driver has.
//! - [`vfio_user`]: an endpoint that another process serves on a socket; and, with the feature `vfio-user-server`, the
//!   server for any endpoint. The feature is on by default. A program that only drives cards does not need it.
//!
//! Devices reach two kinds of host memory:
//!
//! - [`Domain::allocate`] returns a [`DmaBuffer`] of the largest available pages; [`Domain::allocate_on`] chooses the NUMA
//!   node.
//! - [`Domain::register`] maps memory that the caller owns, without a copy: a [`memory::MmapMut`], an `Arc<SharedMemory>`, or
//!   any [`memory::HostMemory`]. Devices reach it in one [`Direction`] or both.
//!
//! This crate has these two sides, their memory, interrupts, and almost all unsafe code of the project (`docs/architecture.md` lists
//! the rest). Plain data of PCI is in `fpga-pci` ([`address`], [`config`]), the kernel's view of functions in `fpga-sysfs`
//! ([`sysfs`]). Nothing here depends on a particular card: BARs have no meaning.
//!
//! Ownership gives safety. A [`Window`] keeps its function open, and a [`DmaBuffer`] its mapping. Memory that a device
//! writes is copied, never borrowed. A forked child inherits neither memory nor functions, and gets [`Error::Forked`].
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
//! use fpga_hal::{BarIndex, Domain, Endpoint, Iova, endpoint::*, in_process};
//!
//! /// A card with one register.
//! #[derive(Default)]
//! struct Card(AtomicU32);
//! impl Endpoint for Card {
//!     fn layout(&self) -> Layout {
//!         let mut bars = [None; BarIndex::COUNT];
//!         bars[0] = Some(BarLayout { bytes: 4096, is_64_bit: false, prefetchable: false });
//!         Layout { bars, dma_bits: 64 }
//!     }
//!     fn bar_read(&self, _: BarIndex, _: u64, data: &mut [u8]) {
//!         data.copy_from_slice(&self.0.load(Ordering::Relaxed).to_le_bytes()[..data.len()]);
//!     }
//!     fn bar_write(&self, _: BarIndex, _: u64, data: &[u8]) {
//!         self.0.store(u32::from_le_bytes(data.try_into().unwrap()), Ordering::Relaxed);
//!     }
//!     fn config_read(&self, _: u16, data: &mut [u8]) { data.fill(0) }
//! #     fn attach(&self, _: Arc<dyn DmaPort>, _: Arc<dyn InterruptPort>) {}
//! #     fn config_write(&self, _: u16, _: &[u8]) {}
//! #     fn reset(&self, _: ResetKind) {}
//! #     fn dma_complete(&self, _: DmaTag, _: Result<&[u8], DmaFault>) {}
//!     // … and no DMA, interrupts or reset.
//! }
//!
//! # fn main() -> fpga_hal::Result<()> {
//! let domain = Domain::in_process();
//! let function = in_process::attach(Arc::new(Card::default()), &domain, "example")?;
//! let registers = function.window(BarIndex::new(0).unwrap())?;
//! registers.write_u32(0, 42)?;
//! assert_eq!(registers.read_u32(0)?, 42);
//! let buffer = domain.allocate(1 << 16, 1)?;
//! buffer.write(0, b"for the card")?;
//! assert!(buffer.iova() > Iova(0));
//! assert!(registers.read_u32(4096).is_err());
//! # Ok(())
//! # }
//! ```
#![deny(missing_docs)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("64-bit processors only: a 32-bit processor needs two accesses for a 64-bit register");

mod bus;
mod ending;
pub mod endpoint;
mod error;
pub mod function;
pub mod in_process;
pub mod interrupt;
#[cfg(feature = "vfio-user-server")]
#[cfg(test)]
#[path = "../tests/vfio_user/logged.rs"]
mod logged;
pub mod memory;
mod owner;
mod removal;
mod sigbus;
pub mod vfio;
pub mod vfio_user;

pub use fpga_pci::{address, config};
pub use fpga_sysfs as sysfs;

pub use bus::BusKind;
pub use ending::Ending;
pub use endpoint::Endpoint;
pub use error::{Error, IovaRanges, Result};
pub use fpga_pci::{BarIndex, InterruptKind, PciAddress, ResetOutcome};
pub use function::{Claim, Function, Identity, Restored, SavedConfig, Window};
pub use interrupt::Interrupt;
pub use memory::buffer::{Backing, DmaBuffer};
pub use memory::domain::Domain;
pub use memory::iova::Iova;
pub use memory::ring::Ring;
pub use memory::{Direction, SharedMemory};

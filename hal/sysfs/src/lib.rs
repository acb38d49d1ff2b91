//! PCI functions as the kernel shows them in sysfs, binding them to drivers, and the memory that is available.
//!
//! Nothing here opens a device. Everything is read from `/sys` and `/proc`, and only [`bind`](Sysfs::bind),
//! [`unbind`](Sysfs::unbind), [`reset`](Sysfs::reset) and a [`Port`] write. All paths lie below a root directory, which tests replace.
//! Files may hold anything. A value that cannot be read or parsed is `None` in the result, and `unread` has the reason.
//!
//! Sources: the kernel's `Documentation/ABI/testing/sysfs-bus-pci`, `sysfs-bus-pci-devices-aer_stats`, and
//! `Documentation/driver-api/vfio.rst`.
//!
//! ```
//! use fpga_sysfs::Sysfs;
//!
//! # fn main() -> Result<(), fpga_sysfs::Error> {
//! for function in Sysfs::new("/").functions()?.functions {
//!     println!("{} {:04x}:{:04x} {:?}", function.address, function.vendor, function.device, function.driver);
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod attribute;
mod attribute_writer;
mod bar;
mod bind_error;
mod binding;
mod error;
mod function;
mod group;
mod host;
mod iommu;
mod listing;
mod memory;
mod owner;
mod parse;
mod port;
mod root;
mod turn;
mod usage;

pub use attribute_writer::{AttributeWriter, DirectWriter};
pub use bar::{Bar, BarKind};
pub use bind_error::BindError;
pub use binding::{Bound, Options, VFIO_PCI};
pub use error::{Error, Result};
pub use function::{Errors, Ids, Link, PciFunction, RuntimePower, VirtualFunctions};
pub use group::{Group, Member, leaves_to_user_space};
pub use host::{Access, Credentials, Host, HugePages};
pub use iommu::{IommuMaker, MachineIommu};
pub use listing::{Listing, reset_by};
pub use memory::LockedMemory;
pub use owner::{Owners, Process};
pub use parse::parsers;
pub use port::{ErrorMasks, Port, PortError};
pub use root::Sysfs;
pub use usage::Use;

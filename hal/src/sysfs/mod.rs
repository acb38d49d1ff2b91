//! PCI functions as the kernel's sysfs tells of them, and binding them to drivers.
//!
//! Nothing here opens a device: everything is read from `/sys` and `/proc`, and only [`bind`](Sysfs::bind),
//! [`unbind`](Sysfs::unbind) and [`reset`](Sysfs::reset) write. All of it lies below a root that tests put elsewhere.
//! Files may hold anything; what cannot be read or understood is `None` in the result, and why stands in `unread`.
//!
//! Sources: the kernel's `Documentation/ABI/testing/sysfs-bus-pci`, `sysfs-bus-pci-devices-aer_stats`, and
//! `Documentation/driver-api/vfio.rst`.
//!
//! ```
//! use fpga_hal::sysfs::Sysfs;
//!
//! # fn main() -> Result<(), fpga_hal::sysfs::Error> {
//! for function in Sysfs::new("/").functions()?.functions {
//!     println!("{} {:04x}:{:04x} {:?}", function.address, function.vendor, function.device, function.driver);
//! }
//! # Ok(())
//! # }
//! ```

mod attribute;
mod bind_error;
mod binding;
mod function;
mod group;
mod host;
mod iommu;
mod owner;
mod parse;
mod turn;
mod usage;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use bind_error::BindError;
pub use binding::{AttributeWriter, Bound, DirectWriter, Options, VFIO_PCI};
pub(crate) use function::reset_by;
pub use function::{Bar, BarKind, Errors, Ids, Link, PciFunction, RuntimePower, VirtualFunctions};
pub(crate) use group::leaves_to_user_space;
pub use group::{Group, Member};
pub use host::{Access, Credentials, Host, HugePages, Limit};
pub use iommu::{IommuMaker, MachineIommu};
pub use owner::{Owners, Process};
pub use parse::parsers;
pub use usage::Use;

use crate::PciAddress;

/// Why something in sysfs cannot be read or understood.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such function.
    #[error("There is no PCI function {address}")]
    NoFunction {
        /// Who was asked for.
        address: PciAddress,
    },
    /// A file, link or directory cannot be read.
    #[error("Cannot read {}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file or link holds something else than it should.
    #[error("{} holds {content:?} and should hold {expected}", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// The beginning of what it holds.
        content: String,
        /// What it should hold.
        expected: &'static str,
    },
}

/// Result of reading sysfs.
pub type Result<T> = std::result::Result<T, Error>;

/// The kernel's view of PCI below a root directory.
#[derive(Clone)]
pub struct Sysfs {
    root: PathBuf,
    writer: Arc<dyn AttributeWriter>,
}

/// All functions, by address.
#[derive(Debug)]
pub struct Listing {
    /// Those that can be read.
    pub functions: Vec<PciFunction>,
    /// Why others cannot be.
    pub unread: Vec<Error>,
}

impl Sysfs {
    /// The view below `root`, which is `/` but for tests.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Sysfs::with_writer(root, Arc::new(DirectWriter))
    }

    /// A view whose attributes are written by `writer`.
    pub fn with_writer(root: impl Into<PathBuf>, writer: Arc<dyn AttributeWriter>) -> Self {
        Sysfs { root: root.into(), writer }
    }

    /// The root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path of something that the kernel names with an absolute path.
    pub(crate) fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let absolute = absolute.as_ref();
        self.root.join(absolute.strip_prefix("/").unwrap_or(absolute))
    }

    /// Directory of a function.
    pub fn directory(&self, address: PciAddress) -> PathBuf {
        self.path("/sys/bus/pci/devices").join(address.to_string())
    }

    /// Directory of a driver; it is there if the driver is.
    pub(crate) fn driver_directory(&self, driver: &str) -> PathBuf {
        self.path("/sys/bus/pci/drivers").join(driver)
    }

    /// Addresses of all functions, in order. None if the machine has no PCI.
    ///
    /// # Errors
    /// If the directory is there and cannot be read.
    pub fn addresses(&self) -> Result<Vec<PciAddress>> {
        let names = attribute::names(&self.path("/sys/bus/pci/devices"))?.unwrap_or_default();
        let mut addresses: Vec<PciAddress> = names.iter().filter_map(|name| name.parse().ok()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        Ok(addresses)
    }

    /// All functions. One that goes while they are read is left out.
    ///
    /// # Errors
    /// If their directory cannot be read.
    pub fn functions(&self) -> Result<Listing> {
        self.functions_where(|_| true)
    }

    /// All functions whose ids are wanted. Of others nothing else is read.
    ///
    /// # Errors
    /// If their directory cannot be read.
    pub fn functions_where(&self, is_wanted: impl Fn(&Ids) -> bool) -> Result<Listing> {
        let mut listing = Listing { functions: Vec::new(), unread: Vec::new() };
        for address in self.addresses()? {
            let function =
                self.ids(address).and_then(|ids| is_wanted(&ids).then(|| self.function(address)).transpose());
            match function {
                Ok(function) => listing.functions.extend(function),
                Err(Error::NoFunction { .. }) => {}
                Err(error) => listing.unread.push(error),
            }
        }
        Ok(listing)
    }

    /// What a function is and who drives it.
    ///
    /// # Errors
    /// [`Error::NoFunction`], or if that cannot be read.
    pub fn ids(&self, address: PciAddress) -> Result<Ids> {
        function::ids(self, address)
    }

    /// One function.
    ///
    /// # Errors
    /// [`Error::NoFunction`], or if its ids cannot be read. Of everything else the reason stands in
    /// [`PciFunction::unread`].
    pub fn function(&self, address: PciAddress) -> Result<PciFunction> {
        function::read(self, address)
    }

    /// Whether there is such a function now.
    pub(crate) fn is_there(&self, address: PciAddress) -> bool {
        self.directory(address).exists()
    }

    /// Name of the driver a function is bound to.
    ///
    /// # Errors
    /// [`Error::NoFunction`], or if the link cannot be read.
    pub fn driver(&self, address: PciAddress) -> Result<Option<String>> {
        let directory = self.directory(address);
        let driver = attribute::link_name(&directory.join("driver"))?;
        if driver.is_none() && !directory.exists() {
            return Err(Error::NoFunction { address });
        }
        Ok(driver)
    }

    /// Number of the IOMMU group a function is in, if an IOMMU translates for it.
    pub(crate) fn group_number(&self, address: PciAddress) -> Result<Option<u32>> {
        function::group_number(&self.directory(address))
    }

    /// The kernel's ways to reset a function, in the order it tries them. None if that cannot be read.
    pub(crate) fn reset_methods(&self, address: PciAddress) -> Vec<String> {
        function::reset_methods(&self.directory(address), &mut attribute::Notes::default())
    }

    /// The driver that alone may take a function, if one is set.
    ///
    /// # Errors
    /// If the attribute cannot be read.
    pub fn driver_override(&self, address: PciAddress) -> Result<Option<String>> {
        let text = attribute::text(&self.directory(address).join("driver_override"))?;
        Ok(text.filter(|text| !text.is_empty() && text != "(null)"))
    }

    /// Whether a driver is there: built in, or its module loaded.
    pub fn has_driver(&self, driver: &str) -> bool {
        self.driver_directory(driver).is_dir()
    }
}

impl std::fmt::Debug for Sysfs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sysfs").field("root", &self.root).finish_non_exhaustive()
    }
}

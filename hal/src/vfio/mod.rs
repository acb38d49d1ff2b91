//! The bus through the kernel's VFIO driver.
//!
//! A function that is bound to vfio-pci is opened by its PCI address, in a domain of [`Domain::vfio`]. DMA goes through the
//! machine's IOMMU. The kernel reports the domain's ranges, page size and entry limit when the first function is opened.
//! Functions of other groups restrict them further.
//!
//! Opening and closing reset the function, and one process has it at a time. When the kernel requests its release (unplug,
//! unbind), every wait ends with [`Error::Removed`], and the kernel waits until the function is closed. A function that is
//! gone reads as all-ones, on mapped BARs too. A function whose memory decoding is disabled while windows are used counts as
//! removed: the kernel reports both in the same way.
//!
//! The first mapped BAR installs a handler of SIGBUS for the process. It passes other signals to the previous handler. A handler
//! that is installed later must do the same.
//!
//! Memory of [`Domain::allocate`] and [`Domain::register`] is pinned and counts against `RLIMIT_MEMLOCK`.
//!
//! ```no_run
//! use fpga_hal::{Domain, vfio};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let domain = Domain::vfio()?;
//! let function = vfio::open("0000:3b:00.0".parse()?, &domain)?;
//! println!("{}", function.identity());
//! # Ok(())
//! # }
//! ```

mod container;
mod device;
mod error;
mod hot_reset;
mod info;
mod ioctl;
mod memlock;
mod token;

pub use error::OpenError;
pub use token::{NotAToken, VfToken};

use crate::memory::domain::DEFAULT_ENTRY_LIMIT;
use crate::sysfs::{self, Sysfs};
use crate::{BusKind, Domain, Error, Function, PciAddress, Result};
use container::{Container, Request};
use device::Device;

impl Domain {
    /// Creates a domain of functions that the kernel's VFIO driver has: a container. What it can map is known when the first
    /// function is opened in it ([`open`]). Before that, nothing can be allocated.
    ///
    /// # Errors
    /// If the kernel has no VFIO, or this user may not use it.
    pub fn vfio() -> Result<Self> {
        Ok(Self::with_backend(std::sync::Arc::new(Container::new()?), &[], DEFAULT_ENTRY_LIMIT))
    }
}

/// Options for opening a function.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// The token that the function shares with its physical or virtual functions, if any.
    pub vf_token: Option<VfToken>,
    /// Open the function even if no IOMMU protects the host from it.
    ///
    /// **Dangerous**: the function, and every program that drives it, can then read and write all memory of the machine. The
    /// kernel must allow it (`enable_unsafe_noiommu_mode` of module vfio) and becomes tainted. The process needs
    /// `CAP_SYS_RAWIO`. Only registers and interrupts work: such a domain maps no host memory, because nothing translates its
    /// addresses. An error is logged.
    pub no_iommu: bool,
    /// Open the function even if it cannot be reset, neither alone nor together with all functions of its bus.
    ///
    /// Work of its previous user may then still run. Use it only if the engines are known to be stopped, or stop them before
    /// [`Function::set_bus_master`]. [`Function::opening_reset`] reports whether the function was reset.
    pub without_reset: bool,
}

/// Opens the function at `address` in a `domain` of [`Domain::vfio`], with default [`Options`].
///
/// # Errors
/// [`Error::Vfio`], with the fix.
pub fn open(address: PciAddress, domain: &Domain) -> Result<Function> {
    open_with(address, domain, &Options::default())
}

/// Opens the function at `address` in a `domain` of [`Domain::vfio`].
pub fn open_with(address: PciAddress, domain: &Domain, options: &Options) -> Result<Function> {
    let container =
        domain.backend::<Container>().ok_or(Error::DomainKind { bus: BusKind::Vfio, domain: domain.kind() })?;
    let sysfs = Sysfs::new("/");
    let driver = sysfs.driver(address).map_err(|error| match error {
        sysfs::Error::NoFunction { address } => OpenError::NoFunction { address },
        error => OpenError::Sysfs(error),
    })?;
    let number = sysfs.group_number(address).map_err(OpenError::Sysfs)?;
    if number.is_none() && !options.no_iommu {
        return Err(OpenError::NoIommu { address }.into());
    }
    if !driver.as_deref().is_some_and(sysfs::leaves_to_user_space) {
        return Err(OpenError::NotBound { address, driver }.into());
    }
    let number = number.ok_or(OpenError::NoIommu { address })?;
    let group = sysfs.group(number).map_err(OpenError::Sysfs)?;
    if group.is_unprotected {
        if !options.no_iommu {
            return Err(OpenError::NoIommu { address }.into());
        }
        log::error!("{address} is opened WITHOUT AN IOMMU: it can read and write all memory of this machine");
    }
    let request = Request { address, group: &group, token: options.vf_token, sysfs: &sysfs };
    let (device, membership) = container.join(&request, |info, is_first| {
        domain.adopt(info.smallest_page, info.ranges.as_deref(), info.available, is_first);
    })?;
    let node = sysfs.numa_node(address).unwrap_or_else(|error| {
        log::info!("{error}");
        None
    });
    let methods = sysfs.reset_methods(address);
    let device = Device::new(address, device, membership, &methods)?;
    let name = address.to_string();
    Function::open(Box::new(device), domain.attach(&name, 64).on_node(node), &name, options.without_reset)
}

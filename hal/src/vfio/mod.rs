//! The bus through the kernel's VFIO driver.
//!
//! A function that is bound to vfio-pci is opened by its PCI address in a domain made by
//! [`Domain::vfio`]. DMA goes through the machine's IOMMU: the domain's ranges, granule and entry limit are what the kernel
//! says when the first function is opened, narrowed when functions of other groups follow.
//!
//! Opening and closing reset the function, so one process has it at a time. When the kernel wants it back (it is being
//! unplugged or unbound), every wait ends with [`Error::Removed`]; the kernel then waits for the
//! function to be closed. What is read of a function that is gone is all-ones, on a mapped BAR too: see
//! [`Options::handle_sigbus`].
//!
//! Memory of [`Domain::allocate`] is pinned and counts against `RLIMIT_MEMLOCK`.
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

/// How a function is opened.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The token that the function shares with its physical or virtual functions, if they have one.
    pub vf_token: Option<VfToken>,
    /// Open the function even if no IOMMU protects the host from it.
    ///
    /// **Dangerous**: it can then read and write all memory of the machine, and so can whoever drives it. The kernel must
    /// allow it (`enable_unsafe_noiommu_mode` of module vfio) and marks itself tainted; the process needs
    /// `CAP_SYS_RAWIO`. Only registers and interrupts work: no host memory can be allocated in such a domain, because
    /// nothing translates its addresses. A warning is logged.
    pub no_iommu: bool,
    /// Have accesses to mapped BARs of a function that is gone read all-ones. Otherwise they end the process with
    /// SIGBUS, unless it handles that itself.
    ///
    /// The first time, a handler for SIGBUS is installed for the whole process, which hands on what is not its own. It
    /// must not be replaced later by one that does not do so too. A function whose memory decoding is turned off in its
    /// command register while windows are used counts as gone as well: the kernel makes no difference.
    pub handle_sigbus: bool,
    /// Open the function even if it cannot be reset: neither alone nor, because this process does not hold all functions that
    /// share its bus, together with them.
    ///
    /// What its last user started may then still run. Say so only for a function whose engines are known to be stopped, or
    /// stop them before [`Function::set_bus_master`]: [`Function::opening_reset`] tells that nothing was reset.
    pub without_reset: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { vf_token: None, no_iommu: false, handle_sigbus: true, without_reset: false }
    }
}

/// Opens the function at `address` in `domain`, made by [`Domain::vfio`], with default [`Options`].
///
/// Fails with [`Error::Vfio`], which says what mends it, if it cannot be had.
pub fn open(address: PciAddress, domain: &Domain) -> Result<Function> {
    open_with(address, domain, &Options::default())
}

/// Opens the function at `address` in `domain`, made by [`Domain::vfio`].
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
    let methods = sysfs.reset_methods(address);
    let device = Device::new(address, device, membership, &methods, options.handle_sigbus)?;
    let name = address.to_string();
    Function::open(Box::new(device), domain.attach(&name, 64), &name, options.without_reset)
}

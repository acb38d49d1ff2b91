//! Why a function was not bound, unbound or reset.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use fpga_pci::PciAddress;

use crate::error::Error;
use crate::group::Member;
use crate::owner::Process;
use crate::usage::Use;

/// Why a function was not bound, unbound or reset. Every function keeps its driver and driver override, except after
/// [`NotRestored`](BindError::NotRestored) and [`Unfinished`](BindError::Unfinished).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The function does not exist.
    #[error("There is no PCI function {address}")]
    NoFunction {
        /// Address asked for.
        address: PciAddress,
    },
    /// The function was removed meanwhile.
    #[error("{address} is gone")]
    Gone {
        /// The function.
        address: PciAddress,
    },
    /// The name of the driver is invalid.
    #[error("invalid driver name {driver:?}: expected letters, digits, - and _")]
    DriverName {
        /// The name.
        driver: String,
    },
    /// The driver is not loaded.
    #[error("There is no driver {driver}: its module is not loaded (modprobe {driver})")]
    DriverMissing {
        /// Name of the driver.
        driver: String,
    },
    /// The function has no IOMMU group.
    #[error("{address} has no IOMMU group: the IOMMU is off, and user-space drivers need it for DMA")]
    NoIommu {
        /// The function.
        address: PciAddress,
    },
    /// Drivers of other members prevent the use of the group.
    #[error("IOMMU group {group} of {address} is not viable: {}", names(foreign))]
    NotViable {
        /// The function.
        address: PciAddress,
        /// Number of its group.
        group: u32,
        /// The members with such drivers.
        foreign: Vec<Member>,
    },
    /// Something uses the function.
    #[error("{address} is in use: {}", sentences(uses))]
    InUse {
        /// The function.
        address: PciAddress,
        /// The uses.
        uses: Vec<Use>,
    },
    /// This user has no permission.
    #[error("No permission to write {}", path.display())]
    NoPermission {
        /// Path of the attribute or the lock file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel refused a step.
    #[error("The kernel refused to {step} {address}")]
    Refused {
        /// The function.
        address: PciAddress,
        /// The step.
        step: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel accepted a step, but the function has another driver than expected.
    #[error("The kernel was told to {step} {address}, and its driver is {}", found.as_deref().unwrap_or("none"))]
    Ineffective {
        /// The function.
        address: PciAddress,
        /// The step.
        step: &'static str,
        /// The present driver.
        found: Option<String>,
    },
    /// A step did not end in time, and was undone.
    #[error("The kernel did not {step} {address} within {} ms", waited.as_millis())]
    TimedOut {
        /// The function.
        address: PciAddress,
        /// The step.
        step: &'static str,
        /// Length of the wait.
        waited: Duration,
    },
    /// A step has not ended. When it ends, it may change what was restored meanwhile.
    #[error(
        "The kernel was told to {step} {address} and has not answered in {} ms: it may still do it, so how {address} ends \
         is not known",
        waited.as_millis()
    )]
    Unfinished {
        /// The function.
        address: PciAddress,
        /// The step.
        step: &'static str,
        /// Length of the wait.
        waited: Duration,
        /// The driver of the function at the beginning.
        before: Option<String>,
    },
    /// Another bind, unbind or reset did not end in time.
    #[error(
        "{} holds {}, because it binds, unbinds or resets functions: it did not end within {} ms",
        by.as_ref().map_or("Another process".to_owned(), |process| format!("Process {} ({})", process.id, process.name)),
        path.display(),
        waited.as_millis()
    )]
    Locked {
        /// Path of the lock file.
        path: PathBuf,
        /// The process that has the lock, if known.
        by: Option<Process>,
        /// Length of the wait.
        waited: Duration,
    },
    /// The lock that one bind, unbind or reset holds at a time was not taken.
    #[error("Locking {} failed", path.display())]
    NotLocked {
        /// Path of the lock file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The caller interrupted it.
    #[error("Interrupted at {address}")]
    Interrupted {
        /// The function that was being changed.
        address: PciAddress,
    },
    /// The function cannot be reset.
    #[error("{address} cannot be reset: the kernel has no method for it")]
    NoReset {
        /// The function.
        address: PciAddress,
    },
    /// The present state cannot be read.
    #[error(transparent)]
    Sysfs(#[from] Error),
    /// A step failed, and then restoring the previous driver failed too.
    #[error("{failure}; restoring {address} to {} failed too", driver.as_deref().unwrap_or("no driver"))]
    NotRestored {
        /// The function.
        address: PciAddress,
        /// The previous driver.
        driver: Option<String>,
        /// The first failure.
        failure: Box<BindError>,
        /// The failure of restoring.
        #[source]
        restore: Box<BindError>,
    },
}

fn names(members: &[Member]) -> String {
    let name = |member: &Member| {
        let driver = member.driver.as_deref().unwrap_or("no driver");
        format!("{} is bound to {driver}", member.name)
    };
    members.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn sentences(uses: &[Use]) -> String {
    uses.iter().map(Use::to_string).collect::<Vec<_>>().join(", ")
}

//! Why a function was not bound, unbound or reset.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use fpga_pci::PciAddress;

use crate::error::Error;
use crate::group::Member;
use crate::owner::Process;
use crate::usage::Use;

/// Why a function was not bound, unbound or reset. Unless it is [`NotRestored`](BindError::NotRestored) or
/// [`Unfinished`](BindError::Unfinished), every function has the driver and the override it had before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// There is no such function.
    #[error("There is no PCI function {address}")]
    NoFunction {
        /// Who was asked for.
        address: PciAddress,
    },
    /// The function went away meanwhile.
    #[error("{address} is gone")]
    Gone {
        /// Which.
        address: PciAddress,
    },
    /// A name that no driver has.
    #[error("{driver:?} is not the name of a driver")]
    DriverName {
        /// As given.
        driver: String,
    },
    /// The driver is not there.
    #[error("There is no driver {driver}: its module is not loaded (modprobe {driver})")]
    DriverMissing {
        /// Its name.
        driver: String,
    },
    /// The function has no IOMMU group.
    #[error("{address} has no IOMMU group: the IOMMU is off, and without it no driver of user space may do DMA")]
    NoIommu {
        /// Which.
        address: PciAddress,
    },
    /// Drivers of other members keep the group from being opened.
    #[error("IOMMU group {group} of {address} is not viable: {}", names(foreign))]
    NotViable {
        /// Which.
        address: PciAddress,
        /// Its group.
        group: u32,
        /// Those members.
        foreign: Vec<Member>,
    },
    /// Something uses the function.
    #[error("{address} is in use: {}", sentences(uses))]
    InUse {
        /// Which.
        address: PciAddress,
        /// By what.
        uses: Vec<Use>,
    },
    /// This user may not.
    #[error("No permission to write {}", path.display())]
    NoPermission {
        /// The attribute.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel refused.
    #[error("The kernel refused to {step} {address}")]
    Refused {
        /// Which.
        address: PciAddress,
        /// What it was to do.
        step: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel took it, and the function has another driver than it should have.
    #[error("The kernel was told to {step} {address}, and its driver is {}", found.as_deref().unwrap_or("none"))]
    Ineffective {
        /// Which.
        address: PciAddress,
        /// What it was to do.
        step: &'static str,
        /// The driver it has.
        found: Option<String>,
    },
    /// The kernel did not finish in time.
    #[error("The kernel did not {step} {address} within {} ms", waited.as_millis())]
    TimedOut {
        /// Which.
        address: PciAddress,
        /// What it was to do.
        step: &'static str,
        /// How long that was waited for.
        waited: Duration,
    },
    /// The kernel has not finished at all. When it does, what was put back meanwhile may be undone.
    #[error(
        "The kernel was told to {step} {address} and has not answered in {} ms: it may still do it, so how {address} ends \
         is not known",
        waited.as_millis()
    )]
    Unfinished {
        /// Which.
        address: PciAddress,
        /// What it was to do.
        step: &'static str,
        /// How long that was waited for.
        waited: Duration,
        /// The driver that the function had before all began.
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
        /// The lock's file.
        path: PathBuf,
        /// Who holds it, if that is known.
        by: Option<Process>,
        /// How long it was waited for.
        waited: Duration,
    },
    /// It was to end before it was done.
    #[error("Interrupted at {address}")]
    Interrupted {
        /// The function whose turn it was.
        address: PciAddress,
    },
    /// The function cannot be reset.
    #[error("{address} cannot be reset: the kernel has no way to")]
    NoReset {
        /// Which.
        address: PciAddress,
    },
    /// The state cannot be seen.
    #[error(transparent)]
    Sysfs(#[from] Error),
    /// Something failed, and what was before could not be brought back.
    #[error("{failure}; and {address} could not be put back to {}", driver.as_deref().unwrap_or("no driver"))]
    NotRestored {
        /// Which.
        address: PciAddress,
        /// The driver it had.
        driver: Option<String>,
        /// What failed first.
        failure: Box<BindError>,
        /// What failed when it was put back.
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

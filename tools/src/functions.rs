//! Finds PCI functions by address or selector, and tells who uses them.

use fpga_hal::PciAddress;
use fpga_hal::sysfs::{Access, Owners, PciFunction, Process, Sysfs, VFIO_PCI};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Cli;
use crate::exit::{Exit, Failure, Result};

/// Returns the machine's sysfs, or the one below `--sysfs-root`.
pub(crate) fn sysfs(cli: &Cli) -> Sysfs {
    Sysfs::new(&cli.sysfs_root)
}

/// Returns the function at an address of the command line.
pub(crate) fn find(sysfs: &Sysfs, address: PciAddress) -> Result<PciFunction> {
    sysfs.function(address).map_err(|error| match error {
        fpga_hal::sysfs::Error::NoFunction { .. } => {
            Failure::new(Exit::NoCard, format!("{error}; fpgactl list --all shows possible cards"))
        }
        error => error.into(),
    })
}

/// Whether a function can be opened now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// Available to this user.
    Free,
    /// Open in a process.
    Held(Process),
    /// Not bound to VFIO's driver.
    NotBound,
    /// Not accessible to this user, or without a node to open.
    Denied,
    /// Unresponsive.
    Silent,
}

impl State {
    pub(crate) fn of(sysfs: &Sysfs, function: &PciFunction) -> Self {
        if function.config.as_ref().is_some_and(|config| config.is_gone()) {
            return State::Silent;
        }
        if function.driver.as_deref() != Some(VFIO_PCI) {
            return State::NotBound;
        }
        if let Some(owner) = owners(sysfs, function).found.into_iter().next() {
            return State::Held(owner);
        }
        let nodes = sysfs.nodes(function).unwrap_or_default();
        let may_open = |node: &std::path::PathBuf| sysfs.access(node).is_ok_and(|access| access == Access::Granted);
        if nodes.iter().any(may_open) { State::Free } else { State::Denied }
    }

    /// Returns the name in `--json`.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            State::Free => "free",
            State::Held(_) => "held",
            State::NotBound => "not-bound",
            State::Denied => "denied",
            State::Silent => "silent",
        }
    }

    pub(crate) fn text(&self) -> String {
        match self {
            State::Held(process) => format!("held by {} ({})", process.id, process.name),
            State::NotBound => "not bound".to_owned(),
            other => other.name().to_owned(),
        }
    }

    pub(crate) fn owner(&self) -> Option<Owner> {
        match self {
            State::Held(process) => Some(process.into()),
            _ => None,
        }
    }
}

/// Returns the processes that have the function open, as far as this user can see.
pub(crate) fn owners(sysfs: &Sysfs, function: &PciFunction) -> Owners {
    sysfs.owners_of(function).unwrap_or_else(|error| {
        log::info!("Cannot determine the owner of {}: {error}", function.address);
        Owners::default()
    })
}

/// A process in `--json`.
#[derive(Debug, Clone, JsonSchema, Serialize)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    pub(crate) name: String,
}

impl From<&Process> for Owner {
    fn from(process: &Process) -> Self {
        Owner { pid: process.id, name: process.name.clone() }
    }
}

/// Returns the driver's name for a table.
pub(crate) fn driver(function: &PciFunction) -> String {
    function.driver.clone().unwrap_or_else(|| "none".to_owned())
}

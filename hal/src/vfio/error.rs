//! Why a function cannot be opened.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::PciAddress;
use crate::sysfs::{self, Member, Process};

/// Why a function cannot be opened through kernel VFIO, and the fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No function has the address.
    #[error("There is no PCI function at {address}")]
    NoFunction {
        /// The address asked for.
        address: PciAddress,
    },
    /// The function is bound to another driver, or to none.
    #[error(
        "{address} is bound to {}, not to vfio-pci; bind it with: fpgactl bind {address}",
        .driver.as_deref().unwrap_or("no driver")
    )]
    NotBound {
        /// The function.
        address: PciAddress,
        /// The driver that has it, if any.
        driver: Option<String>,
    },
    /// No IOMMU translates for the function.
    #[error(
        "{address} is in no IOMMU group: switch the IOMMU on in the machine's firmware, and with intel_iommu=on or \
         amd_iommu=on on the kernel's command line"
    )]
    NoIommu {
        /// The function.
        address: PciAddress,
    },
    /// The kernel has no VFIO.
    #[error("{} cannot be opened because the kernel's VFIO driver is not loaded; load it with: modprobe vfio-pci", .path.display())]
    NoDriver {
        /// The node that is missing.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// This user may not open a node.
    #[error("This user may not open {}, which belongs to group {group}: {}", .path.display(), JoinIt(group))]
    Permission {
        /// The node.
        path: PathBuf,
        /// Name (or number) of the group that owns it.
        group: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel refuses a node to this process, whatever the node's mode.
    #[error(
        "The kernel does not let this process open {}: a group without an IOMMU needs CAP_SYS_RAWIO; in a container, the container \
         must allow the device",
        .path.display()
    )]
    NotPermitted {
        /// The node.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Another user has the group open.
    #[error("{address} is held by {}: {} opens once at a time", Holders(.holders), .path.display())]
    Busy {
        /// The function.
        address: PciAddress,
        /// Its group's node.
        path: PathBuf,
        /// Processes that have it open, as far as this user may see. This process too, if another of its domains has it.
        holders: Vec<Process>,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The domain holds the function already.
    #[error("{address} is open already")]
    AlreadyOpen {
        /// The function.
        address: PciAddress,
    },
    /// Other drivers use functions of the group.
    #[error(
        "IOMMU group {group} of {address} holds functions that other drivers use: {}; bind those to vfio-pci as well, \
         or unbind them",
        Members(.others)
    )]
    NotViable {
        /// The function.
        address: PciAddress,
        /// Number of its group.
        group: u32,
        /// Other members of the group and their drivers.
        others: Vec<Member>,
    },
    /// The VF token is missing or wrong.
    #[error("{address} shares a VF token with its physical or virtual functions: open it with that token")]
    Token {
        /// The function.
        address: PciAddress,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A VF token was given for a function without one.
    #[error("{address} has no VF token: open it without a token")]
    NeedlessToken {
        /// The function.
        address: PciAddress,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel refuses the IOMMU.
    #[error("The kernel refuses to use the IOMMU for {address}{}", Remapping(.source))]
    Iommu {
        /// The function.
        address: PciAddress,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A domain has functions with an IOMMU, or functions without an IOMMU.
    #[error("{address} needs another domain: functions with and without an IOMMU cannot share a domain")]
    Mixed {
        /// The function.
        address: PciAddress,
    },
    /// The kernel's description of a device, region or IOMMU is invalid.
    #[error("The kernel's description of the {what} is invalid at byte {at}")]
    Info {
        /// Subject of the description.
        what: &'static str,
        /// Offset in the description.
        at: usize,
    },
    /// Function or group cannot be read from sysfs.
    #[error(transparent)]
    Sysfs(sysfs::Error),
    /// A system call failed.
    #[error("The kernel cannot {action} {address}")]
    Kernel {
        /// The function.
        address: PciAddress,
        /// The operation.
        action: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// vfio-ioctls cannot create a container.
    #[error("Cannot create a VFIO container")]
    Container {
        /// The cause.
        #[source]
        source: vfio_ioctls::VfioError,
    },
}

/// How to get access to a node of this group.
struct JoinIt<'a>(&'a str);

impl fmt::Display for JoinIt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "root" => f.write_str("give it to a group by the rules in udev/, and join the group"),
            group => write!(f, "join it with `sudo usermod -aG {group} $USER`, and log in again"),
        }
    }
}

struct Members<'a>(&'a [Member]);

impl fmt::Display for Members<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("(sysfs names none)");
        }
        for (index, Member { name, driver, .. }) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{name} ({})", driver.as_deref().unwrap_or("no driver"))?;
        }
        Ok(())
    }
}

struct Holders<'a>(&'a [Process]);

impl fmt::Display for Holders<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("a process of another user");
        }
        for (index, Process { id, name }) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let whose = if *id == std::process::id() { ", this process" } else { "" };
            write!(f, "{separator}process {id} ({name}{whose})")?;
        }
        Ok(())
    }
}

/// The one cause with a known fix.
struct Remapping<'a>(&'a io::Error);

impl fmt::Display for Remapping<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.raw_os_error() {
            Some(number) if number == nix::errno::Errno::EPERM as i32 => {
                f.write_str(": it needs interrupt remapping, which this machine's IOMMU lacks or has disabled")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_name_what_mends() {
        let address: PciAddress = "3b:00.0".parse().unwrap();
        let text = OpenError::NotBound { address, driver: Some("xocl".to_owned()) }.to_string();
        assert!(text.contains("xocl") && text.contains("fpgactl bind 0000:3b:00.0"), "{text}");
        let driver = Some("xclmgmt".to_owned());
        let others = vec![Member { name: "0000:3b:00.1".to_owned(), address: None, class: None, driver }];
        let text = OpenError::NotViable { address, group: 7, others }.to_string();
        assert!(text.contains("group 7") && text.contains("0000:3b:00.1 (xclmgmt)"), "{text}");
        let denied = |group: &str| OpenError::Permission {
            path: PathBuf::from("/dev/vfio/7"),
            group: group.to_owned(),
            source: io::Error::from_raw_os_error(13),
        };
        assert!(
            denied("fpga")
                .to_string()
                .contains("/dev/vfio/7, which belongs to group fpga: join it with `sudo usermod -aG fpga")
        );
        assert!(denied("root").to_string().contains("udev/"));
        let busy = |holders: &[(u32, &str)]| OpenError::Busy {
            address,
            path: PathBuf::from("/dev/vfio/7"),
            holders: holders.iter().map(|&(id, name)| Process { id, name: name.to_owned() }).collect(),
            source: io::Error::from_raw_os_error(16),
        };
        assert!(busy(&[]).to_string().contains("held by a process of another user: /dev/vfio/7"));
        let text = busy(&[(0, "fpgactl"), (std::process::id(), "x")]).to_string();
        assert!(text.contains("process 0 (fpgactl), process ") && text.contains("(x, this process)"), "{text}");
        let refused = |number| OpenError::Iommu { address, source: io::Error::from_raw_os_error(number) }.to_string();
        assert!(refused(1).contains("interrupt remapping") && !refused(22).contains("remapping"));
    }
}

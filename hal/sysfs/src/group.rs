//! IOMMU groups: functions that the IOMMU cannot isolate from each other. VFIO opens a whole group or nothing.

use std::path::{Path, PathBuf};

use fpga_pci::PciAddress;

use crate::attribute::{self, Notes};
use crate::error::{Error, Result};
use crate::parse;
use crate::root::Sysfs;

/// An IOMMU group.
#[derive(Debug)]
#[non_exhaustive]
pub struct Group {
    /// Number.
    pub number: u32,
    /// Devices.
    pub members: Vec<Member>,
    /// Whether the group has no IOMMU (`vfio-noiommu`), so its devices can access all memory.
    pub is_unprotected: bool,
    /// Errors of values that could not be read.
    pub unread: Vec<Error>,
}

/// A device of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Name; of a PCI function, its address.
    pub name: String,
    /// Address of a PCI function.
    pub address: Option<PciAddress>,
    /// Class code, 24 bits, of a PCI function.
    pub class: Option<u32>,
    /// The driver that it is bound to.
    pub driver: Option<String>,
}

/// Returns whether a group stays usable beside this driver: it leaves its device to user space, or does no DMA.
pub(crate) fn shares_group(driver: &str) -> bool {
    // Ports do no DMA. Vendors name their variants of VFIO's driver like mlx5_vfio_pci or vfio-pci-….
    matches!(driver, "pci-stub" | "pcieport" | "shpchp") || leaves_to_user_space(driver)
}

/// Returns whether a driver leaves its device to user space through VFIO.
pub fn leaves_to_user_space(driver: &str) -> bool {
    driver.starts_with("vfio-pci") || driver.ends_with("vfio_pci") || driver.ends_with("vfio-pci")
}

impl Member {
    /// Returns whether its driver prevents the use of the group.
    pub fn is_foreign(&self) -> bool {
        // PCI-to-PCI bridges. Host bridges count as devices.
        let is_bridge = self.class.is_some_and(|class| class >> 8 == 0x0604);
        !is_bridge && self.driver.as_deref().is_some_and(|driver| !shares_group(driver))
    }
}

impl Group {
    /// Returns the members whose drivers prevent the use of the group.
    pub fn foreign(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.is_foreign())
    }

    /// Returns whether no driver prevents the use of the group.
    pub fn is_viable(&self) -> bool {
        self.foreign().next().is_none()
    }

    /// Returns the path of its character device.
    pub fn node(&self) -> PathBuf {
        let prefix = if self.is_unprotected { "noiommu-" } else { "" };
        Path::new("/dev/vfio").join(format!("{prefix}{}", self.number))
    }
}

impl Sysfs {
    /// Reads an IOMMU group.
    ///
    /// # Errors
    /// If the group does not exist, or its devices cannot be listed.
    pub fn group(&self, number: u32) -> Result<Group> {
        let directory = self.path("/sys/kernel/iommu_groups").join(number.to_string());
        let devices = directory.join("devices");
        let names =
            attribute::names(&devices)?.ok_or_else(|| attribute::malformed(&directory, "nothing", "an IOMMU group"))?;
        let mut notes = Notes::default();
        let mut member = |name: String| {
            let path = devices.join(&name);
            let class = attribute::parsed(&path.join("class"), "a class code", |text| parse::hex(text, 6));
            Member {
                address: name.parse().ok(),
                class: notes.keep(class).map(|class| class as u32),
                driver: notes.keep(attribute::link_name(&path.join("driver"))),
                name,
            }
        };
        let members = names.into_iter().map(&mut member).collect();
        let name = notes.keep(attribute::text(&directory.join("name")));
        let is_unprotected = name.as_deref() == Some("vfio-noiommu");
        Ok(Group { number, members, is_unprotected, unread: notes.0 })
    }

    /// Returns the numbers of all IOMMU groups. Empty: there is no IOMMU, or it is off.
    ///
    /// # Errors
    /// If their directory cannot be read.
    pub fn groups(&self) -> Result<Vec<u32>> {
        let names = attribute::names(&self.path("/sys/kernel/iommu_groups"))?.unwrap_or_default();
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_beside_which_a_group_is_viable() {
        let member = |driver: Option<&str>, class| Member {
            name: "0000:3b:00.0".into(),
            address: None,
            class,
            driver: driver.map(str::to_owned),
        };
        for driver in [None, Some("vfio-pci"), Some("pci-stub"), Some("pcieport"), Some("mlx5_vfio_pci")] {
            assert!(!member(driver, Some(0x12_0000)).is_foreign(), "{driver:?}");
        }
        for driver in ["xocl", "nvme", "dfl-pci", "vfio", "uio_pci_generic"] {
            assert!(member(Some(driver), Some(0x12_0000)).is_foreign(), "{driver}");
            assert!(member(Some(driver), None).is_foreign(), "{driver}");
            assert!(!member(Some(driver), Some(0x06_0400)).is_foreign(), "{driver}");
        }
    }
}

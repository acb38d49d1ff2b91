//! The machine's IOMMU: its maker, and what firmware and kernel report. How to enable it depends on both.
//!
//! Sources: the kernel's `Documentation/admin-guide/kernel-parameters.txt` (`intel_iommu`, `amd_iommu`, `iommu`) and
//! `arch/x86/kernel/cpu` (vendor ids); the ACPI specification's list of table signatures (`DMAR` of VT-d, `IVRS` of AMD-Vi,
//! `IORT` of Arm's SMMU).

use crate::attribute;
use crate::root::Sysfs;

/// Maker of an IOMMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IommuMaker {
    /// VT-d.
    Intel,
    /// AMD-Vi, also in Hygon's processors.
    Amd,
    /// The SMMU.
    Arm,
}

impl IommuMaker {
    const ALL: [IommuMaker; 3] = [IommuMaker::Intel, IommuMaker::Amd, IommuMaker::Arm];

    /// Returns the ACPI table by which firmware reports it.
    pub const fn table(self) -> &'static str {
        match self {
            IommuMaker::Intel => "DMAR",
            IommuMaker::Amd => "IVRS",
            IommuMaker::Arm => "IORT",
        }
    }

    /// Finds the maker in `/proc/cpuinfo`.
    fn of_processor(cpuinfo: &str) -> Option<Self> {
        cpuinfo.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            match (name.trim(), value.trim()) {
                ("vendor_id", "GenuineIntel") => Some(IommuMaker::Intel),
                ("vendor_id", "AuthenticAMD" | "HygonGenuine") => Some(IommuMaker::Amd),
                ("CPU implementer", _) => Some(IommuMaker::Arm),
                _ => None,
            }
        })
    }
}

/// The machine's IOMMU, enabled or not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MachineIommu {
    /// Maker, by the processor or else by the tables of the firmware.
    pub maker: Option<IommuMaker>,
    /// Whether the firmware reports it. `None`: the tables cannot be listed, as in a container.
    pub is_in_firmware: Option<bool>,
    /// Parameters of the kernel.
    pub parameters: Vec<String>,
}

impl Sysfs {
    /// Examines the machine's IOMMU. Values that cannot be read are `None` or empty.
    pub fn machine_iommu(&self) -> MachineIommu {
        let text = |path: &str| attribute::text(&self.path(path)).ok().flatten().unwrap_or_default();
        let tables = attribute::names(&self.path("/sys/firmware/acpi/tables")).ok().flatten();
        let has = |maker: IommuMaker| Some(tables.as_ref()?.iter().any(|name| name == maker.table()));
        let of_tables = || IommuMaker::ALL.into_iter().find(|maker| has(*maker) == Some(true));
        let maker = IommuMaker::of_processor(&text("/proc/cpuinfo")).or_else(of_tables);
        let parameters = text("/proc/cmdline").split_ascii_whitespace().map(str::to_owned).collect();
        MachineIommu { maker, is_in_firmware: maker.and_then(has), parameters }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_have_their_makers_iommu() {
        let maker = |text| IommuMaker::of_processor(text);
        assert_eq!(maker("processor\t: 0\nvendor_id\t: GenuineIntel\n"), Some(IommuMaker::Intel));
        assert_eq!(maker("vendor_id\t: AuthenticAMD"), Some(IommuMaker::Amd));
        assert_eq!(maker("vendor_id\t: HygonGenuine"), Some(IommuMaker::Amd));
        assert_eq!(maker("processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\n"), Some(IommuMaker::Arm));
        assert_eq!(maker("vendor_id\t: CentaurHauls"), None);
        assert_eq!(maker("model name\t: GenuineIntel\n:\n"), None);
    }
}

//! Checks whether an IOMMU protects memory from a card, and tells how to enable the IOMMU of this machine.
//!
//! Source: the kernel's `Documentation/admin-guide/kernel-parameters.txt`. The kernel uses AMD's and Arm's IOMMUs if the
//! firmware reports them; for Intel's, the default depends on the kernel's configuration.

use fpga_hal::sysfs::{Group, IommuMaker, MachineIommu, PciFunction, Sysfs};

use super::finding::{Finding, Fix};

/// File with the kernel command line for GRUB on Debian.
const GRUB: &str = "etc/default/grub";

/// Returns the fix for the kernel command line: `sed` for GRUB's file, else the instruction `hand`.
fn edit(sysfs: &Sysfs, script: &str, hand: &str) -> Fix {
    if sysfs.root().join(GRUB).exists() {
        return Fix::Root(format!("sed -i '{script}' /{GRUB} && update-grub && reboot"));
    }
    Fix::Hand(format!("{hand} on the kernel command line, in the boot loader of this machine, then reboot"))
}

pub(super) fn check(sysfs: &Sysfs, function: &PciFunction, group: Option<&Group>) -> Finding {
    let bad = |found: &str, cause: String, fix| Finding::Bad { found: found.to_owned(), cause, fix };
    if let Some(number) = function.group {
        if !group.is_some_and(|group| group.is_unprotected) {
            return Finding::Good(format!("on, group {number}"));
        }
        let (cause, fix) = off(sysfs);
        let cause = format!("VFIO runs in no-IOMMU mode, where cards can write all memory: {cause}");
        return bad("off: a no-IOMMU group", cause, fix);
    }
    let is_protected = |number: &u32| sysfs.group(*number).is_ok_and(|group| !group.is_unprotected);
    if sysfs.groups().is_ok_and(|groups| groups.iter().any(is_protected)) {
        let fix = "update the firmware, or move the card to another slot";
        let cause = "the firmware tables omit this part of the bus".to_owned();
        return bad("on, but not for this card", cause, Fix::Hand(fix.to_owned()));
    }
    let (cause, fix) = off(sysfs);
    bad("off", cause, fix)
}

/// Returns why the IOMMU is off, and the fix.
fn off(sysfs: &Sysfs) -> (String, Fix) {
    let machine = &sysfs.machine_iommu();
    let Some(maker) = machine.maker else {
        let fix =
            "enable the IOMMU in the firmware setup; dmesg | grep -i iommu shows whether the kernel uses the IOMMU";
        return ("the IOMMU is disabled in the firmware or the kernel".into(), Fix::Hand(fix.into()));
    };
    let name = match maker {
        IommuMaker::Intel => "VT-d",
        IommuMaker::Amd => "AMD-Vi",
        IommuMaker::Arm => "the SMMU",
    };
    let in_setup = format!("enable {name} in the firmware setup");
    // Arm's table also lists interrupt controllers.
    if maker == IommuMaker::Arm {
        return ("the firmware reports no SMMU".into(), Fix::Hand(in_setup));
    }
    if machine.is_in_firmware == Some(false) {
        let cause = format!("{name} is disabled in the firmware: no ACPI table {}", maker.table());
        return (cause, Fix::Hand(in_setup));
    }
    if let Some(parameter) = parameter_with(machine, maker, "off") {
        let instead = if maker == IommuMaker::Intel { "intel_iommu=on" } else { "" };
        let hand = match instead {
            "" => format!("remove {parameter}"),
            instead => format!("replace {parameter} by {instead}"),
        };
        let fix = edit(sysfs, &format!("s/\\b{parameter}\\b/{instead}/"), &hand);
        return (format!("the kernel command line has {parameter}"), fix);
    }
    if maker == IommuMaker::Intel && parameter_with(machine, maker, "on").is_none() {
        let fix = edit(sysfs, "s/^GRUB_CMDLINE_LINUX=\"/&intel_iommu=on iommu=pt /", "add intel_iommu=on iommu=pt");
        return ("the kernel command line lacks intel_iommu=on".into(), fix);
    }
    let tag = if maker == IommuMaker::Intel { "DMAR" } else { "AMD-Vi" };
    let log = format!("dmesg | grep {tag} shows why the kernel does not use {name}");
    match machine.is_in_firmware {
        Some(_) => (format!("the firmware reports {name}, but the kernel does not use it"), Fix::Hand(log)),
        None => (format!("{name} is probably disabled in the firmware"), Fix::Hand(format!("{in_setup}; {log}"))),
    }
}

/// Returns the kernel parameter that sets the IOMMU to `to`, `on` or `off`.
fn parameter_with<'a>(machine: &'a MachineIommu, maker: IommuMaker, to: &str) -> Option<&'a str> {
    let own = if maker == IommuMaker::Intel { "intel_iommu" } else { "amd_iommu" };
    let parameters = machine.parameters.iter().map(String::as_str);
    parameters.rev().find(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let mut values = value.split(',');
        (name == own || (name == "iommu" && to == "off")) && values.any(|value| value == to)
    })
}

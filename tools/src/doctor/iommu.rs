//! Whether an IOMMU stands between a card and memory, and what turns it on, which depends on whose it is.
//!
//! Source: the kernel's `Documentation/admin-guide/kernel-parameters.txt`. Whether Intel's is used without a parameter is up
//! to who built the kernel; AMD's and Arm's are used wherever the firmware tells of them.

use fpga_hal::sysfs::{Group, IommuMaker, MachineIommu, PciFunction, Sysfs};

use super::{Finding, Mend};

/// Where Debian's GRUB has the parameters that the kernel is started with.
const GRUB: &str = "etc/default/grub";

/// Edits the kernel's parameters: by `sed` where there is a file to edit, else by what `hand` says of another boot loader.
fn edit(sysfs: &Sysfs, script: &str, hand: &str) -> Mend {
    if sysfs.root().join(GRUB).exists() {
        return Mend::Root(format!("sed -i '{script}' /{GRUB} && update-grub && reboot"));
    }
    Mend::Hand(format!("{hand} on the kernel command line, in the boot loader of this machine, then reboot"))
}

pub(super) fn check(sysfs: &Sysfs, function: &PciFunction, group: Option<&Group>) -> Finding {
    let bad = |found: &str, cause: String, mend| Finding::Bad { found: found.to_owned(), cause, mend };
    if let Some(number) = function.group {
        if !group.is_some_and(|group| group.is_unprotected) {
            return Finding::Good(format!("on, group {number}"));
        }
        let (cause, mend) = off(sysfs);
        let cause = format!("VFIO runs in no-IOMMU mode, where cards can write all memory: {cause}");
        return bad("off: a no-IOMMU group", cause, mend);
    }
    let is_protected = |number: &u32| sysfs.group(*number).is_ok_and(|group| !group.is_unprotected);
    if sysfs.groups().is_ok_and(|groups| groups.iter().any(is_protected)) {
        let mend = "update the firmware, or move the card to another slot";
        let cause = "the firmware tables omit this part of the bus".to_owned();
        return bad("on, but not for this card", cause, Mend::Hand(mend.to_owned()));
    }
    let (cause, mend) = off(sysfs);
    bad("off", cause, mend)
}

/// Why it is off, and what turns it on.
fn off(sysfs: &Sysfs) -> (String, Mend) {
    let machine = &sysfs.machine_iommu();
    let Some(maker) = machine.maker else {
        let mend =
            "enable the IOMMU in the firmware setup; dmesg | grep -i iommu shows whether the kernel uses the IOMMU";
        return ("the IOMMU is disabled in the firmware or the kernel".into(), Mend::Hand(mend.into()));
    };
    let name = match maker {
        IommuMaker::Intel => "VT-d",
        IommuMaker::Amd => "AMD-Vi",
        IommuMaker::Arm => "the SMMU",
    };
    let in_setup = format!("enable {name} in the firmware setup");
    // Arm's table tells of interrupt controllers as well.
    if maker == IommuMaker::Arm {
        return ("the firmware reports no SMMU".into(), Mend::Hand(in_setup));
    }
    if machine.is_in_firmware == Some(false) {
        let cause = format!("{name} is disabled in the firmware: no ACPI table {}", maker.table());
        return (cause, Mend::Hand(in_setup));
    }
    if let Some(parameter) = switched(machine, maker, "off") {
        let instead = if maker == IommuMaker::Intel { "intel_iommu=on" } else { "" };
        let hand = match instead {
            "" => format!("remove {parameter}"),
            instead => format!("replace {parameter} by {instead}"),
        };
        let mend = edit(sysfs, &format!("s/\\b{parameter}\\b/{instead}/"), &hand);
        return (format!("the kernel command line has {parameter}"), mend);
    }
    if maker == IommuMaker::Intel && switched(machine, maker, "on").is_none() {
        let mend = edit(sysfs, "s/^GRUB_CMDLINE_LINUX=\"/&intel_iommu=on iommu=pt /", "add intel_iommu=on iommu=pt");
        return ("the kernel command line lacks intel_iommu=on".into(), mend);
    }
    let tag = if maker == IommuMaker::Intel { "DMAR" } else { "AMD-Vi" };
    let log = format!("dmesg | grep {tag} shows why the kernel does not use {name}");
    match machine.is_in_firmware {
        Some(_) => (format!("the firmware reports {name}, but the kernel does not use it"), Mend::Hand(log)),
        None => (format!("{name} is probably disabled in the firmware"), Mend::Hand(format!("{in_setup}; {log}"))),
    }
}

/// The parameter that switches the IOMMU on or off.
fn switched<'a>(machine: &'a MachineIommu, maker: IommuMaker, to: &str) -> Option<&'a str> {
    let own = if maker == IommuMaker::Intel { "intel_iommu" } else { "amd_iommu" };
    let parameters = machine.parameters.iter().map(String::as_str);
    parameters.rev().find(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let mut values = value.split(',');
        (name == own || (name == "iommu" && to == "off")) && values.any(|value| value == to)
    })
}

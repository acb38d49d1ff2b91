//! What the kernel is like: parameters, log, and whether everything is there that the other tests stand on.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::command::{User, run};
use crate::{Guest, tests};

tests! {
    ["devices", "bus", "cards", "private"] => [the_kernel_has_vfio_and_an_iommu],
}

/// The value of a kernel parameter.
pub(crate) fn parameter(name: &str) -> Option<String> {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
}

/// All of the kernel's log.
pub(crate) fn log() -> String {
    run(User::Root, &["dmesg"], Duration::from_secs(20)).good().stdout
}

/// What the kernel has logged since this test began.
pub(crate) fn log_since(test: &str) -> String {
    let log = log();
    let begin = log.rfind(&mark(test)).unwrap_or(0);
    log[begin..].to_owned()
}

/// What is put into the kernel's log when a test begins.
pub(crate) fn mark(test: &str) -> String {
    format!("begin of {test}\n")
}

/// Lines of the kernel's log in which the IOMMU reports that it stopped a DMA.
pub(crate) fn dma_faults() -> Vec<String> {
    log().lines().filter(|line| line.contains("DMAR: [DMA")).map(str::to_owned).collect()
}

fn the_kernel_has_vfio_and_an_iommu(guest: &Guest) {
    guest.log(fs::read_to_string("/proc/version").unwrap_or_default());
    assert!(Path::new("/dev/vfio/vfio").exists(), "VFIO's container");
    let groups = fs::read_dir("/sys/kernel/iommu_groups").expect("IOMMU groups").count();
    assert!(groups > 0, "no IOMMU group");
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    for module in ["vfio", "vfio_iommu_type1", "vfio_pci"] {
        assert!(modules.lines().any(|line| line.split(' ').next() == Some(module)), "module {module} in\n{modules}");
    }
    guest.log(format!("{groups} IOMMU groups"));
}

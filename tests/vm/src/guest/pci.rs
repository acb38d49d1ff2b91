//! Functions in sysfs, and what only root may do with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use fpga_vm::CARDS;

use crate::permissions;

const DEVICES: &str = "/sys/bus/pci/devices";
const BOUND: Duration = Duration::from_secs(10);

/// One function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PciFunction {
    /// As `0000:3b:00.0`.
    pub(crate) address: String,
}

impl PciFunction {
    /// All with this vendor and device id, in the order of their addresses.
    pub(crate) fn all(vendor: &str, device: &str) -> Vec<PciFunction> {
        let mut found: Vec<_> = names(Path::new(DEVICES))
            .into_iter()
            .map(|address| PciFunction { address })
            .filter(|function| function.attribute("vendor") == vendor && function.attribute("device") == device)
            .collect();
        found.sort();
        found
    }

    /// The one at an address.
    pub(crate) fn at(address: &str) -> PciFunction {
        let function = PciFunction { address: address.to_owned() };
        assert!(function.exists(), "no function at {address}");
        function
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(DEVICES).join(&self.address).join(name)
    }

    /// An attribute without its line's end; empty if there is none.
    pub(crate) fn attribute(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).map(|text| text.trim_end().to_owned()).unwrap_or_default()
    }

    /// Its driver.
    pub(crate) fn driver(&self) -> Option<String> {
        last_part(&self.path("driver"))
    }

    /// The node of its IOMMU group.
    pub(crate) fn node(&self) -> String {
        format!("/dev/vfio/{}", self.group())
    }

    /// Its IOMMU group.
    pub(crate) fn group(&self) -> String {
        last_part(&self.path("iommu_group")).unwrap_or_else(|| panic!("{} is in no IOMMU group", self.address))
    }

    /// Gives it to vfio-pci, as an administrator would without our tools.
    pub(crate) fn give_to_vfio(&self) {
        write(&self.path("driver_override"), "vfio-pci");
        if self.driver().is_some() {
            write(&self.path("driver/unbind"), &self.address);
        }
        write(Path::new("/sys/bus/pci/drivers_probe"), &self.address);
        assert_eq!(self.driver().as_deref(), Some("vfio-pci"), "driver of {}", self.address);
    }

    /// Has the kernel choose a driver, as it does when it finds a device.
    pub(crate) fn let_the_kernel_choose(&self) {
        write(Path::new("/sys/bus/pci/drivers_probe"), &self.address);
    }

    /// Whether it sits behind a port, where it can be pulled.
    pub(crate) fn is_behind_a_port(&self) -> bool {
        !self.address.starts_with("0000:00:")
    }

    /// The port above it.
    pub(crate) fn port_above(&self) -> Option<PciFunction> {
        let directory = self.path("").canonicalize().ok()?;
        let address = directory.parent()?.file_name()?.to_str()?.to_owned();
        address.contains('.').then_some(PciFunction { address })
    }

    /// What its Advanced Error Reporting masks: uncorrectable and correctable errors.
    pub(crate) fn error_masks(&self) -> [u32; 2] {
        let config = fs::read(self.path("config")).expect("configuration space");
        let word = |at: usize| u32::from_le_bytes(config[at..at + 4].try_into().expect("all of it"));
        let mut at = 0x100;
        while word(at) & 0xffff != 1 {
            at = (word(at) >> 20) as usize;
            assert!(at >= 0x100, "{} has no error reporting", self.address);
        }
        [word(at + 8), word(at + 0x14)]
    }

    /// Has the kernel forget it, once whoever has it open has closed it.
    pub(crate) fn take_away(&self) {
        write(&self.path("remove"), "1");
    }

    /// Takes from the kernel every way to reset it: for one that is dead it would wait a minute and more.
    pub(crate) fn forbid_reset(&self) {
        write(&self.path("reset_method"), "\n");
    }

    /// Whether it is there.
    pub(crate) fn exists(&self) -> bool {
        self.path("vendor").exists()
    }
}

/// The cards of a machine, in order of nodes, at the worker's disposal.
pub(crate) fn cards(vendor: &str, device: &str) -> Vec<PciFunction> {
    let found = PciFunction::all(vendor, device);
    assert_eq!(found.len(), CARDS, "cards");
    give_to_worker(&found);
    found
}

/// Installs the rules if they are not yet, binds functions to vfio-pci, and waits until udev has given them to the group.
pub(crate) fn give_to_worker(functions: &[PciFunction]) {
    permissions::install();
    let mut fresh = functions.iter().filter(|function| function.driver().as_deref() != Some("vfio-pci")).peekable();
    if fresh.peek().is_none() {
        return;
    }
    let log_level = |level: &str| {
        let option = format!("--log-level={level}");
        permissions::udevadm(&["control", &option]);
    };
    log_level("debug");
    fresh.for_each(PciFunction::give_to_vfio);
    let deadline = Instant::now() + BOUND;
    for function in functions {
        while !Path::new(&function.node()).exists() {
            assert!(Instant::now() < deadline, "{} does not appear", function.node());
            thread::sleep(Duration::from_millis(5));
        }
    }
    permissions::udevadm(&["settle"]);
    log_level("info");
    let fpga = permissions::group_id("fpga");
    let lost: Vec<_> = functions.iter().filter(|function| permissions::owner(&function.node()).0 != fpga).collect();
    if lost.is_empty() {
        return;
    }
    // On a busy machine udev has lost the event of a node, which its log may explain. The errors of this project's commands name what
    // helps then.
    for function in lost {
        eprintln!("udev did not give away {}; it says of it:", function.node());
        let name = format!("{}: ", function.group());
        let log = fs::read_to_string("/run/udevd.log").unwrap_or_default();
        log.lines()
            .filter(|line| line.starts_with(&name) || !line.contains(": "))
            .for_each(|line| eprintln!("  {line}"));
    }
    permissions::udevadm(&["trigger", "--action=add", "--subsystem-match=vfio"]);
    permissions::udevadm(&["settle"]);
    for function in functions {
        let node = function.node();
        assert_eq!(permissions::owner(&node).0, fpga, "group of {node}");
    }
}

/// Has the kernel look for functions again.
pub(crate) fn rescan() {
    write(Path::new("/sys/bus/pci/rescan"), "1");
}

/// Names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// The last part of what a link points to.
fn last_part(link: &Path) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_str()?.to_owned())
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("writing {text:?} to {}: {error}", path.display()));
}

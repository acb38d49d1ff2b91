//! Present uses of a function: reasons not to unbind it from its driver.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use fpga_pci::PciAddress;
use nix::sys::stat::makedev;

use crate::attribute;
use crate::error::{Error, Result};
use crate::function::PciFunction;
use crate::group::leaves_to_user_space;
use crate::owner::{Owners, Process};
use crate::parse;
use crate::root::Sysfs;

/// Limit of examined directories below a function. A controller with hundreds of disks has thousands.
const MOST_DIRECTORIES: usize = 1 << 18;
/// Limit of the depth of directories below a function. A partition of a disk behind five USB hubs is at 14.
const DEEPEST: usize = 32;
/// Base class of display controllers.
const CLASS_DISPLAY: u32 = 0x03;
/// An interface that is up (Linux `include/uapi/linux/if.h`).
const INTERFACE_UP: u64 = 1;

/// Directory of device nodes.
const NODES: &str = "/dev";

/// One use of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Use {
    /// A process has the function open through VFIO.
    Process(Process),
    /// A process has a character device of its driver open: a channel of XDMA, a render node, a port of DFL.
    Node {
        /// The process.
        process: Process,
        /// Path of the device node.
        node: PathBuf,
    },
    /// A virtual function of this physical function has a driver. A reset or unbind of the physical function ends the virtual
    /// function.
    VirtualFunction {
        /// The virtual function.
        address: PciAddress,
        /// Its driver.
        driver: String,
    },
    /// A file system on it is mounted.
    Mounted {
        /// Name of the disk or partition.
        disk: String,
        /// Mount point.
        at: String,
    },
    /// It is swap space.
    Swap {
        /// Name of the disk or partition.
        disk: String,
    },
    /// Another block device uses it: a volume, an array, an encrypted disk.
    Held {
        /// Name of the disk or partition.
        disk: String,
        /// Name of the other device.
        by: String,
    },
    /// Its network interface is up.
    Interface {
        /// Name of the interface.
        name: String,
    },
    /// It drives a display.
    Display,
    /// It is a bridge to other functions.
    Bridge,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Use::Process(process) => write!(f, "process {} ({}) has it open", process.id, process.name),
            Use::Node { process, node } => {
                write!(f, "process {} ({}) has {} open", process.id, process.name, node.display())
            }
            Use::VirtualFunction { address, driver } => {
                write!(f, "its virtual function {address} is bound to {driver}")
            }
            Use::Mounted { disk, at } => write!(f, "its disk {disk} is mounted at {at}"),
            Use::Swap { disk } => write!(f, "memory is swapped to its disk {disk}"),
            Use::Held { disk, by } => write!(f, "{by} is built on its disk {disk}"),
            Use::Interface { name } => write!(f, "its network interface {name} is up"),
            Use::Display => f.write_str("it drives a display"),
            Use::Bridge => f.write_str("it is a bridge to other functions"),
        }
    }
}

impl Sysfs {
    /// Returns the nodes that open a function through VFIO.
    ///
    /// # Errors
    /// If its IOMMU group cannot be read.
    pub fn nodes(&self, function: &PciFunction) -> Result<Vec<PathBuf>> {
        let own = function.vfio_devices.iter().map(|name| Path::new("/dev/vfio/devices").join(name));
        let mut nodes: Vec<PathBuf> = own.collect();
        if let Some(number) = function.group {
            nodes.push(self.group(number)?.node());
        }
        Ok(nodes)
    }

    /// Returns the processes that have a function open through VFIO.
    ///
    /// # Errors
    /// If its group or `/proc` cannot be read.
    pub fn owners_of(&self, function: &PciFunction) -> Result<Owners> {
        if !function.driver.as_deref().is_some_and(leaves_to_user_space) {
            return Ok(Owners::default());
        }
        self.owners(&self.nodes(function)?)
    }

    /// Returns the present uses of a function, as far as this user may see.
    ///
    /// # Errors
    /// If a source cannot be read.
    pub fn uses(&self, function: &PciFunction) -> Result<Vec<Use>> {
        let mut uses: Vec<Use> = self.owners_of(function)?.found.into_iter().map(Use::Process).collect();
        if function.is_bridge() {
            uses.push(Use::Bridge);
        }
        for &address in function.virtual_functions.iter().flat_map(|functions| &functions.addresses) {
            match self.driver(address) {
                Ok(Some(driver)) => uses.push(Use::VirtualFunction { address, driver }),
                // It has no driver, or was removed meanwhile.
                Ok(None) | Err(Error::NoFunction { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let Some(driver) = &function.driver else { return Ok(uses) };
        if function.class >> 16 == CLASS_DISPLAY && !leaves_to_user_space(driver) {
            uses.push(Use::Display);
        }
        let devices = self.devices_below(&self.directory(function.address))?;
        let mounts = Mounts::read(self)?;
        uses.extend(self.node_uses(&devices)?);
        for device in devices {
            match device.kind {
                Kind::Node { .. } => {}
                Kind::Disk => uses.extend(mounts.uses_of(&device)?),
                Kind::Interface => {
                    let flags = attribute::parsed(&device.directory.join("flags"), "flags of an interface", |text| {
                        parse::hex(text, 8)
                    })?;
                    if flags.is_some_and(|flags| flags & INTERFACE_UP != 0) {
                        uses.push(Use::Interface { name: device.name });
                    }
                }
            }
        }
        Ok(uses)
    }

    /// Returns the processes that have character devices open. A node elsewhere, as in a container, has the same number.
    fn node_uses(&self, devices: &[Device]) -> Result<Vec<Use>> {
        let nodes: Vec<(&Path, u64)> = devices.iter().filter_map(Device::node).collect();
        if nodes.is_empty() {
            return Ok(Vec::new());
        }
        let (found, _) = self.holders(&|target, path| {
            // Other paths are not examined: their file system might never answer.
            if !target.starts_with(NODES) {
                return None;
            }
            let is_character = |entry: &fs::Metadata| entry.file_type().is_char_device();
            let number = fs::metadata(path).ok().filter(is_character).map(|entry| entry.rdev());
            let open = nodes.iter().find(|(node, of)| *node == target || number == Some(*of));
            open.map(|(node, _)| node.to_path_buf())
        })?;
        Ok(found.into_iter().map(|(process, node)| Use::Node { process, node }).collect())
    }

    /// Returns disks, partitions, network interfaces and character devices below a function.
    fn devices_below(&self, function: &Path) -> Result<Vec<Device>> {
        let mut found = Vec::new();
        let mut open = vec![(function.to_owned(), 0)];
        let mut looked_into = 0;
        while let Some((directory, depth)) = open.pop() {
            looked_into += 1;
            if depth > DEEPEST || looked_into > MOST_DIRECTORIES {
                let limit = format!("{MOST_DIRECTORIES} directories, or {DEEPEST} levels of them");
                return Err(Error::Unreadable { path: function.to_owned(), source: attribute::exceeds(limit) });
            }
            for name in attribute::names(&directory)?.unwrap_or_default() {
                let path = directory.join(&name);
                // Links lead out of the function.
                if !path.symlink_metadata().is_ok_and(|entry| entry.is_dir()) {
                    continue;
                }
                let kind = match attribute::link_name(&path.join("subsystem")).ok().flatten().as_deref() {
                    Some("block") => Some(Kind::Disk),
                    Some("net") => Some(Kind::Interface),
                    // Opened through VFIO: `owners_of` knows.
                    Some("vfio-dev") => None,
                    _ => character_device(&path, &name)?,
                };
                // Functions behind a bridge are checked separately.
                if path.join("vendor").exists() && path.join("resource").exists() {
                    continue;
                }
                if let Some(kind) = kind {
                    found.push(Device { name, kind, directory: path.clone() });
                }
                open.push((path, depth + 1));
            }
        }
        found.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }
}

#[derive(Debug)]
struct Device {
    name: String,
    kind: Kind,
    directory: PathBuf,
}

#[derive(Debug)]
enum Kind {
    Disk,
    Interface,
    /// A character device: its node and its number.
    Node {
        node: PathBuf,
        number: u64,
    },
}

impl Device {
    fn node(&self) -> Option<(&Path, u64)> {
        match &self.kind {
            Kind::Node { node, number } => Some((node, *number)),
            Kind::Disk | Kind::Interface => None,
        }
    }
}

/// Returns the character device of a directory, if there is one: it has a number, and may have a name below `/dev` (Linux
/// `Documentation/ABI/testing/sysfs-devices`, `uevent`).
fn character_device(directory: &Path, name: &str) -> Result<Option<Kind>> {
    let parse = |text: &str| {
        let (major, minor) = text.split_once(':')?;
        Some(makedev(major.parse().ok()?, minor.parse().ok()?))
    };
    let number = attribute::parsed(&directory.join("dev"), "the number of a device, as 10:200", parse)?;
    let Some(number) = number else { return Ok(None) };
    let event = attribute::text(&directory.join("uevent"))?.unwrap_or_default();
    let named = event.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    let node = Path::new(NODES).join(named.unwrap_or(name).trim_start_matches('/'));
    Ok(Some(Kind::Node { node, number }))
}

/// Mounts and swap space.
struct Mounts {
    /// Device number, name of the source, and mount point.
    mounted: BTreeSet<(String, String, String)>,
    /// Names of devices.
    swaps: Vec<String>,
}

impl Mounts {
    fn read(sysfs: &Sysfs) -> Result<Self> {
        let mut mounted = BTreeSet::new();
        // A container sees only its own mounts. Process 1, if readable, has those of the machine.
        for process in ["1", "self"] {
            let path = sysfs.path("/proc").join(process).join("mountinfo");
            let text = match attribute::text(&path) {
                Err(Error::Unreadable { source, .. })
                    if process == "1" && source.kind() == io::ErrorKind::PermissionDenied =>
                {
                    continue;
                }
                text => text?.unwrap_or_default(),
            };
            mounted.extend(text.lines().filter_map(mount));
        }
        let swaps = attribute::text(&sysfs.path("/proc/swaps"))?.unwrap_or_default();
        let first = |line: &str| line.split_ascii_whitespace().next().map(last_part);
        Ok(Mounts { mounted, swaps: swaps.lines().skip(1).filter_map(first).collect() })
    }

    fn uses_of(&self, disk: &Device) -> Result<Vec<Use>> {
        let number = attribute::text(&disk.directory.join("dev"))?.unwrap_or_default();
        let here = self.mounted.iter().filter(|(device, source, _)| *device == number || *source == disk.name);
        let mut uses: Vec<Use> =
            here.map(|(_, _, at)| Use::Mounted { disk: disk.name.clone(), at: at.clone() }).collect();
        if self.swaps.contains(&disk.name) {
            uses.push(Use::Swap { disk: disk.name.clone() });
        }
        for by in attribute::names(&disk.directory.join("holders"))?.unwrap_or_default() {
            uses.push(Use::Held { disk: disk.name.clone(), by });
        }
        Ok(uses)
    }
}

/// Parses a line of `mountinfo` (Linux `Documentation/filesystems/proc.rst`): device number, mount point, and after a dash the
/// source. Some file systems have their own device numbers, so the name of the source counts too.
fn mount(line: &str) -> Option<(String, String, String)> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split_ascii_whitespace().skip(2);
    let (device, at) = (before.next()?, before.nth(1)?);
    let source = after.split_ascii_whitespace().nth(1)?;
    Some((device.to_owned(), last_part(source), at.to_owned()))
}

fn last_part(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts() {
        let line = "36 35 259:2 / /boot/efi rw,noatime shared:1 - vfat /dev/nvme0n1p1 rw";
        let expected = ("259:2".to_owned(), "nvme0n1p1".to_owned(), "/boot/efi".to_owned());
        assert_eq!(mount(line), Some(expected));
        for wrong in ["", "36 35", "36 35 259:2 / /x rw", " - ", "a - b c"] {
            assert_eq!(mount(wrong), None, "{wrong}");
        }
    }
}

//! Memory that this process can still allocate.

use std::path::{Path, PathBuf};

use crate::attribute;
use crate::error::Result;
use crate::parse;
use crate::root::Sysfs;

const MEMINFO: &str = "/proc/meminfo";
/// Mount point of control groups, version 2.
const CGROUPS: &str = "/sys/fs/cgroup";
/// Fields of a group's `memory.stat`: bytes in use that the kernel takes back when it needs memory.
const RECLAIMED: [&str; 3] = ["inactive_file", "active_file", "slab_reclaimable"];

impl Sysfs {
    /// Returns the bytes available without swapping: the minimum over the machine, the control groups of this process (version 2),
    /// and its limit of address space. Reserved huge pages are excluded. A limit that cannot be read is no limit.
    ///
    /// # Errors
    /// If the kernel's estimate for the machine cannot be read.
    pub fn available_memory(&self) -> Result<u64> {
        let path = self.path(MEMINFO);
        let expected = "the available memory";
        let machine = attribute::parsed(&path, expected, |text| kib(text, "MemAvailable:"))?
            .ok_or_else(|| attribute::malformed(&path, "nothing", expected))?;
        let groups = self.control_groups().into_iter().filter_map(|group| available_in_group(&group));
        Ok(groups.chain(self.address_space()).fold(machine, u64::min))
    }

    /// Returns the directories of this process's control group and of the groups above.
    fn control_groups(&self) -> Vec<PathBuf> {
        let text = read(&self.path("/proc/self/cgroup")).unwrap_or_default();
        let group = text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        Path::new(group).ancestors().map(|group| self.path(CGROUPS).join(group)).collect()
    }

    /// Returns the bytes of address space that this process may still map; `None` without a limit.
    fn address_space(&self) -> Option<u64> {
        let (soft, _) = parse::limit(&read(&self.path("/proc/self/limits"))?, "Max address space")?;
        let mapped = kib(&read(&self.path("/proc/self/status"))?, "VmSize:").unwrap_or(0);
        soft.map(|limit| limit.saturating_sub(mapped))
    }
}

fn read(path: &Path) -> Option<String> {
    attribute::text(path).ok().flatten()
}

/// Returns the bytes of a line of KiB, such as `VmSize:  3892 kB`.
fn kib(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the bytes that a control group has available; `None` without a limit. What the kernel takes back when it needs memory counts as
/// available, as it does for the machine: pages of files, and slabs that can be reclaimed.
fn available_in_group(group: &Path) -> Option<u64> {
    let most: u64 = read(&group.join("memory.max"))?.parse().ok()?;
    let used: u64 = read(&group.join("memory.current"))?.parse().ok()?;
    let stat = read(&group.join("memory.stat")).unwrap_or_default();
    let fields = stat.lines().filter_map(|line| line.split_once(' '));
    let reclaimed = fields.filter(|(name, _)| RECLAIMED.contains(name));
    let idle = reclaimed.filter_map(|(_, bytes)| bytes.trim().parse().ok()).fold(0, u64::saturating_add);
    Some(most.saturating_sub(used.saturating_sub(idle)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_least_of_machine_groups_and_address_space_is_available() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::new(root.path());
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            sysfs.available_memory().ok()
        };
        assert_eq!(sysfs.available_memory().ok(), None);
        for wrong in
            ["", "MemAvailable:", "MemAvailable: 1", "MemAvailable: x kB", "MemAvailable: 99999999999999999 kB"]
        {
            assert_eq!(write("proc/meminfo", wrong), None, "{wrong:?}");
        }
        let meminfo = "MemTotal:       24684084 kB\nMemFree:         9412540 kB\nMemAvailable:   4 kB\nBuffers: 1 kB\n";
        assert_eq!(write("proc/meminfo", meminfo), Some(4096));
        let limits = |soft: &str| format!("Max address space         {soft}            unlimited            bytes\n");
        assert_eq!(write("proc/self/limits", &limits("unlimited")), Some(4096));
        assert_eq!(write("proc/self/status", "VmSize:\t       2 kB\n"), Some(4096));
        assert_eq!(write("proc/self/limits", &limits("5000")), Some(5000 - 2048));
        assert_eq!(write("proc/self/limits", &limits("2000")), Some(0));
        assert_eq!(write("proc/self/limits", &limits("unlimited")), Some(4096));
        // A group without a limit, below one with a limit.
        assert_eq!(write("proc/self/cgroup", "1:name=systemd:/x\n0::/slice/scope\n"), Some(4096));
        write("sys/fs/cgroup/slice/scope/memory.max", "max\n");
        assert_eq!(write("sys/fs/cgroup/slice/scope/memory.current", "600\n"), Some(4096));
        write("sys/fs/cgroup/slice/memory.current", "600\n");
        assert_eq!(write("sys/fs/cgroup/slice/memory.max", "1000\n"), Some(400));
        let stat = "anon 300\nfile 200\ninactive_file 100\nactive_file 90\nslab_reclaimable 7\nslab 50\n";
        assert_eq!(write("sys/fs/cgroup/slice/memory.stat", stat), Some(597));
        assert!(Sysfs::new("/").available_memory().is_ok_and(|bytes| bytes > 0));
    }
}

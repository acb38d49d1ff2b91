//! Memory that this process can still allocate, and memory that it may lock.

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
/// Capability to lock memory without a limit (Linux `include/uapi/linux/capability.h`).
const CAP_IPC_LOCK: u64 = 1 << 14;
/// The initial user namespace: one range, of every user, each with its own number (user_namespaces(7)).
const INITIAL_USERS: [&str; 3] = ["0", "0", "4294967295"];

/// Memory that a process has locked or pinned, and its limit (`RLIMIT_MEMLOCK`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockedMemory {
    /// Locked or pinned bytes.
    pub bytes: u64,
    /// The limit in force, in bytes. `None`: unlimited.
    pub soft: Option<u64>,
    /// The highest limit that the process may set, in bytes. `None`: unlimited.
    pub hard: Option<u64>,
    /// Whether the limit does not apply: the process has `CAP_IPC_LOCK` in the initial user namespace, the only one where the
    /// kernel looks for it.
    pub is_exempt: bool,
}

impl LockedMemory {
    /// Returns whether the process may lock or pin `bytes` more bytes.
    pub fn admits(&self, bytes: u64) -> bool {
        let limit = self.soft.filter(|_| !self.is_exempt);
        limit.is_none_or(|limit| self.bytes.checked_add(bytes).is_some_and(|sum| sum <= limit))
    }
}

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

    /// Returns what this process has locked, and its limit. `None`: the kernel reports no limits. Other values that cannot be read
    /// count as nothing locked, and as a limit that applies.
    ///
    /// # Errors
    /// If the limit cannot be read.
    pub fn locked_memory(&self) -> Result<Option<LockedMemory>> {
        let process = self.path("/proc/self");
        let limits = attribute::parsed(&process.join("limits"), "a limit on locked memory", |text| {
            parse::limit(text, "Max locked memory")
        })?;
        let Some((soft, hard)) = limits else { return Ok(None) };
        let status = read(&process.join("status")).unwrap_or_default();
        let may_lock = parse::capabilities(&status).is_some_and(|bits| bits & CAP_IPC_LOCK != 0);
        // Kernels without user namespaces have no such file.
        let users = || read(&process.join("uid_map"));
        let is_initial = || users().is_none_or(|users| users.split_ascii_whitespace().eq(INITIAL_USERS));
        let bytes = kib(&status, "VmLck:").unwrap_or(0);
        Ok(Some(LockedMemory { bytes, soft, hard, is_exempt: may_lock && is_initial() }))
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

/// Returns the bytes that a control group has available; `None` without a limit. What the kernel takes back when it needs memory
/// counts as available, as it does for the machine: pages of files, and slabs that can be reclaimed.
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

    #[test]
    fn the_limit_counts_what_is_locked_already() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::new(root.path());
        let process = root.path().join("proc/self");
        fs::create_dir_all(&process).unwrap();
        let write = |file: &str, text: &str| fs::write(process.join(file), text).unwrap();
        let read = || sysfs.locked_memory().unwrap().unwrap();
        assert_eq!(sysfs.locked_memory().unwrap(), None);
        write("limits", "Max locked memory         196608         unlimited            bytes\n");
        let limited = LockedMemory { bytes: 0, soft: Some(192 << 10), hard: None, is_exempt: false };
        assert_eq!(read(), limited);
        let status = "Name:\tx\nVmLck:\t     128 kB\nVmPin:\t       0 kB\nCapInh:\t00\nCapEff:\t000001ffffffbfff\n";
        write("status", status);
        let limited = LockedMemory { bytes: 128 << 10, ..limited };
        assert_eq!(read(), limited);
        assert!(limited.admits(64 << 10) && !limited.admits((64 << 10) + 1) && !limited.admits(u64::MAX));
        assert!(LockedMemory { soft: None, ..limited }.admits(u64::MAX));
        // The capability lifts the limit in the initial user namespace, and not in that of a rootless container.
        write("status", &status.replace("bfff", "ffff"));
        let exempt = LockedMemory { is_exempt: true, ..limited };
        for (users, expected) in [
            (None, exempt),
            (Some("         0          0 4294967295\n"), exempt),
            (Some("         0       1000          1\n         1     100000      65536\n"), limited),
        ] {
            users.iter().for_each(|users| write("uid_map", users));
            assert_eq!(read(), expected, "{users:?}");
        }
        assert!(exempt.admits(u64::MAX));
    }

    #[test]
    fn the_kernel_writes_it_as_it_is_read() {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        assert!(kib(&status, "VmLck:").is_some() && parse::capabilities(&status).is_some(), "{status}");
        assert!(Sysfs::new("/").locked_memory().unwrap().unwrap().admits(0));
    }
}

//! What the host has for cards: limits, huge pages, and what this process may open.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};

use crate::attribute::{self, Notes};
use crate::error::{Error, Result};
use crate::memory::LockedMemory;
use crate::parse;
use crate::root::Sysfs;

/// Capability to pass file permissions (Linux `include/uapi/linux/capability.h`).
const CAP_DAC_OVERRIDE: u64 = 1 << 1;

/// Resources of the host that cards need.
#[derive(Debug)]
#[non_exhaustive]
pub struct Host {
    /// Memory that this process has locked, and its limit.
    pub memlock: Option<LockedMemory>,
    /// Pools of huge pages, the smallest pages first.
    pub huge_pages: Vec<HugePages>,
    /// User, groups and capabilities of this process.
    pub credentials: Option<Credentials>,
    /// Errors of values that could not be read.
    pub unread: Vec<Error>,
}

/// A pool of huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePages {
    /// Page size in bytes.
    pub bytes: u64,
    /// Number of pages.
    pub total: u64,
    /// Number of unused pages.
    pub free: u64,
}

/// User, groups and capabilities of a process, for access to files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Effective user id.
    pub user: u32,
    /// Effective group id and supplementary groups.
    pub groups: Vec<u32>,
    /// Effective capabilities, one bit each.
    pub capabilities: u64,
}

impl Credentials {
    /// Returns whether it may read and write a file with this owner and mode.
    fn may_open(&self, user: u32, group: u32, mode: u32) -> bool {
        let bits = if self.user == user {
            mode >> 6
        } else if self.groups.contains(&group) {
            mode >> 3
        } else {
            mode
        };
        self.capabilities & CAP_DAC_OVERRIDE != 0 || bits & 0o6 == 0o6
    }
}

/// Access to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// The node does not exist.
    Missing,
    /// It may be read and written.
    Granted,
    /// It may not be read and written.
    Denied {
        /// Its permissions.
        mode: u32,
        /// Number of its group.
        group: u32,
        /// Name of its group, if it has one.
        group_name: Option<String>,
    },
}

impl Sysfs {
    /// Reads the resources of the host.
    pub fn host(&self) -> Host {
        let mut notes = Notes::default();
        let memlock = notes.keep(self.locked_memory());
        let credentials = notes.keep(self.credentials());
        let huge_pages = notes.keep(self.huge_pages()).unwrap_or_default();
        Host { memlock, huge_pages, credentials, unread: notes.0 }
    }

    fn huge_pages(&self) -> Result<Option<Vec<HugePages>>> {
        let directory = self.path("/sys/kernel/mm/hugepages");
        let Some(names) = attribute::names(&directory)? else { return Ok(None) };
        let mut pools = Vec::new();
        for name in names {
            let kibibytes = name.strip_prefix("hugepages-").and_then(|rest| rest.strip_suffix("kB"));
            let Some(bytes) = kibibytes.and_then(|n| n.parse::<u64>().ok()?.checked_mul(1024)) else { continue };
            let count = |file: &str| {
                let path = directory.join(&name).join(file);
                attribute::parsed(&path, "a number of pages", |text| text.parse().ok())
            };
            let (total, free) = (count("nr_hugepages")?.unwrap_or(0), count("free_hugepages")?.unwrap_or(0));
            pools.push(HugePages { bytes, total, free });
        }
        pools.sort_unstable_by_key(|pool| pool.bytes);
        Ok(Some(pools))
    }

    /// Returns whether this process may open a node for reading and writing. Opens nothing.
    ///
    /// # Errors
    /// If the process or the node cannot be examined, or if something other than permissions keeps the node shut.
    pub fn access(&self, node: &Path) -> Result<Access> {
        let path = self.path(node);
        let node = match fs::metadata(&path) {
            Ok(node) => node,
            Err(error) if attribute::is_absence(&error) => return Ok(Access::Missing),
            Err(source) => return Err(Error::Unreadable { path, source }),
        };
        if self.may_open(&path, &node)? {
            return Ok(Access::Granted);
        }
        let group_name = self.group_name(node.gid());
        Ok(Access::Denied { mode: node.mode() & 0o7777, group: node.gid(), group_name })
    }

    /// Below `/` the kernel decides, by access control lists too. Below another root, mode, owner and group decide for the process
    /// described there.
    fn may_open(&self, path: &Path, node: &fs::Metadata) -> Result<bool> {
        if self.root() == Path::new("/") {
            return match faccessat(AT_FDCWD, path, AccessFlags::R_OK | AccessFlags::W_OK, AtFlags::AT_EACCESS) {
                Ok(()) => Ok(true),
                Err(Errno::EACCES) => Ok(false),
                Err(errno) => Err(Error::Unreadable { path: path.to_owned(), source: errno.into() }),
            };
        }
        let who = self.credentials()?.ok_or_else(|| {
            attribute::malformed(&self.path("/proc/self/status"), "nothing", "user, groups and capabilities")
        })?;
        Ok(who.may_open(node.uid(), node.gid(), node.mode()))
    }

    fn credentials(&self) -> Result<Option<Credentials>> {
        attribute::parsed(&self.path("/proc/self/status"), "user, groups and capabilities", credentials)
    }

    /// Returns the name of a group in `/etc/group`.
    pub fn group_name(&self, group: u32) -> Option<String> {
        self.name_of("/etc/group", group)
    }

    /// Returns the name of a user in `/etc/passwd`.
    pub fn user_name(&self, user: u32) -> Option<String> {
        self.name_of("/etc/passwd", user)
    }

    /// Lines of both files have name, password and number.
    fn name_of(&self, file: &str, number: u32) -> Option<String> {
        let text = attribute::text(&self.path(file)).ok()??;
        let named = text.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
        });
        named.filter(|name| !name.is_empty())
    }
}

fn credentials(status: &str) -> Option<Credentials> {
    // Real, effective, saved, and that of file accesses.
    let effective = |name| parse::process_ids(status, name)?.get(1).copied();
    let mut groups = parse::process_ids(status, "Groups:").unwrap_or_default();
    groups.push(effective("Gid:")?);
    Some(Credentials { user: effective("Uid:")?, groups, capabilities: parse::capabilities(status)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_open_what() {
        let who = |user, groups: &[u32], capabilities| Credentials { user, groups: groups.to_vec(), capabilities };
        let user = who(1000, &[1000, 990], 0);
        assert!(user.may_open(0, 990, 0o660));
        assert!(!user.may_open(0, 991, 0o660));
        assert!(!user.may_open(0, 990, 0o640));
        assert!(user.may_open(0, 0, 0o666));
        // The owner is judged as the owner, even if others may more.
        assert!(!user.may_open(1000, 0, 0o066));
        assert!(who(0, &[0], CAP_DAC_OVERRIDE).may_open(5, 5, 0));
        assert!(!who(0, &[0], 0).may_open(5, 5, 0o600));
    }

    #[test]
    fn credentials_of_a_status_file() {
        let text = "Name:\tx\nUid:\t1000\t1001\t0\t0\nGid:\t5\t6\t7\t8\nGroups:\t4 27 \nCapEff:\t0000000000004000\n";
        let found = credentials(text).unwrap();
        assert_eq!((found.user, found.groups.as_slice()), (1001, &[4, 27, 6][..]));
        assert_eq!(found.capabilities, 0x4000);
        assert!(credentials("Uid:\t1\n").is_none());
    }
}

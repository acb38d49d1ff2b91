//! The limits of what a process's clients hold.

use std::fs;

use nix::errno::Errno;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::unistd::{SysconfVar, sysconf};

/// Address space for clients' files at most: a process has 128 TiB.
const ADDRESS_SPACE: u64 = 32 << 40;
/// DMA mappings of all clients, at some hundred bytes each.
const MAPPINGS: u64 = 1 << 20;
/// The default of `vm.max_map_count`: mappings that the kernel allows a process.
const KERNEL_MAPPINGS: u64 = 65530;

/// What the clients of servers that share a [`Budget`](super::Budget) may hold together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of address space for files that clients have passed.
    pub address_space: u64,
    /// Bytes of these files, each counted once; one client may have half. The kernel charges a page to the process that
    /// touches it first, and a file can have holes at any time, so this bounds what the server may be charged. The server
    /// does not touch files beyond it, and transfers their bytes by messages.
    pub memory: u64,
    /// Files that are mapped.
    pub files: u64,
    /// DMA mappings.
    pub mappings: u64,
    /// Descriptors kept open: of files that cannot be mapped, of interrupts, in replies that were not read, and of clients
    /// that are being refused.
    pub descriptors: u64,
    /// Bytes kept for clients: of replies that were not read, and of DMA requests that wait for a client's replies. A client
    /// that needs more is disconnected.
    pub buffered: u64,
}

impl Limits {
    /// Limits that leave this process half of its descriptors and of its mappings, and three quarters of its address space.
    /// Files may have twice the bytes of this machine's memory, and an eighth of it may be buffered.
    pub fn of_process() -> Self {
        let soft = |resource, otherwise| getrlimit(resource).map_or(otherwise, |(soft, _)| soft);
        let kernel = fs::read_to_string("/proc/sys/vm/max_map_count").ok().and_then(|text| text.trim().parse().ok());
        let of_system = |what| sysconf(what).ok().flatten().and_then(|value| u64::try_from(value).ok());
        let pages = of_system(SysconfVar::_PHYS_PAGES).unwrap_or(u64::MAX);
        let memory = pages.saturating_mul(of_system(SysconfVar::PAGE_SIZE).unwrap_or(4096));
        Self::beside(&Limits {
            address_space: soft(Resource::RLIMIT_AS, RLIM_INFINITY),
            memory,
            files: kernel.unwrap_or(KERNEL_MAPPINGS),
            mappings: MAPPINGS,
            descriptors: soft(Resource::RLIMIT_NOFILE, 1024),
            buffered: memory,
        })
    }

    /// Returns the part that clients may have of what this process has.
    fn beside(all: &Limits) -> Self {
        Limits {
            address_space: ADDRESS_SPACE.min(all.address_space / 4),
            memory: all.memory.saturating_mul(2),
            files: all.files / 2,
            mappings: all.mappings,
            descriptors: all.descriptors / 2,
            buffered: all.buffered / 8,
        }
    }

    pub(super) fn of(&self, item: Item) -> u64 {
        match item {
            Item::AddressSpace => self.address_space,
            Item::Memory => self.memory,
            Item::Files => self.files,
            Item::Mappings => self.mappings,
            Item::Descriptors => self.descriptors,
            Item::Buffered => self.buffered,
        }
    }
}

/// What to do if this process has no free descriptors, for the log.
pub(super) const RAISE_DESCRIPTORS: &str = "raise the limit of open files (`ulimit -n`)";

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item {
    AddressSpace,
    Memory,
    Files,
    Mappings,
    Descriptors,
    Buffered,
}

pub(super) const ITEMS: usize = 6;

impl Item {
    /// Returns the name of the field of [`Limits`].
    pub(super) fn name(self) -> &'static str {
        match self {
            Item::AddressSpace => "address_space",
            Item::Memory => "memory",
            Item::Files => "files",
            Item::Mappings => "mappings",
            Item::Descriptors => "descriptors",
            Item::Buffered => "buffered",
        }
    }

    /// Returns the errno for a request that exceeds the client's share.
    pub(super) fn errno(self) -> Errno {
        match self {
            Item::AddressSpace | Item::Memory | Item::Files => Errno::ENOMEM,
            Item::Mappings => Errno::ENOSPC,
            Item::Descriptors => Errno::EMFILE,
            Item::Buffered => Errno::ENOBUFS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_room_for_a_client() {
        let limits = Limits::of_process();
        assert!(limits.address_space >= limits.memory.min(1 << 30) && limits.memory > 1 << 20, "{limits:?}");
        assert!(limits.files > 100 && limits.descriptors > 100 && limits.buffered > 8 << 20, "{limits:?}");
    }

    #[test]
    fn clients_may_hold_part_of_what_the_process_has() {
        let (files, mappings, descriptors) = (65530, 1 << 20, 1001);
        let all = Limits { address_space: 1 << 40, memory: 3 << 30, files, mappings, descriptors, buffered: 8 << 30 };
        let (files, descriptors) = (32765, 500);
        let part = Limits { address_space: 1 << 38, memory: 6 << 30, files, mappings, descriptors, buffered: 1 << 30 };
        assert_eq!(Limits::beside(&all), part);
        let endless = Limits { address_space: u64::MAX, memory: u64::MAX, ..all };
        let bounded = Limits { address_space: 32 << 40, memory: u64::MAX, ..part };
        assert_eq!(Limits::beside(&endless), bounded);
        assert_eq!(Limits::of_process().mappings, 1 << 20);
    }

    #[test]
    fn every_item_has_its_limit_its_name_and_its_errno() {
        let limits = Limits { address_space: 1, memory: 2, files: 3, mappings: 4, descriptors: 5, buffered: 6 };
        for (item, limit, name, errno) in [
            (Item::AddressSpace, 1, "address_space", Errno::ENOMEM),
            (Item::Memory, 2, "memory", Errno::ENOMEM),
            (Item::Files, 3, "files", Errno::ENOMEM),
            (Item::Mappings, 4, "mappings", Errno::ENOSPC),
            (Item::Descriptors, 5, "descriptors", Errno::EMFILE),
            (Item::Buffered, 6, "buffered", Errno::ENOBUFS),
        ] {
            assert_eq!((limits.of(item), item.name(), item.errno()), (limit, name, errno));
        }
    }
}

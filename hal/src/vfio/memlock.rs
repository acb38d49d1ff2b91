//! The limit on memory that this process may pin for DMA.
//!
//! The kernel counts every page of a mapping against `RLIMIT_MEMLOCK`, huge or not, unless the process has
//! `CAP_IPC_LOCK`. A mapping over the limit fails as if memory had run out, so the limit is checked before.

use std::fs;
use std::io;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use crate::{Error, Result};

/// The capability that lifts the limit, from `linux/capability.h`.
const CAP_IPC_LOCK: u32 = 14;

/// Usage and limit, as the kernel counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Account {
    /// Locked or pinned bytes.
    locked: u64,
    /// The limit in bytes. `None`: no limit.
    limit: Option<u64>,
}

impl Account {
    /// Reads those of this process. Unreadable values count as no usage and no limit.
    fn read() -> Self {
        let (limit, _) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap_or((RLIM_INFINITY, RLIM_INFINITY));
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self::of(&status, (limit != RLIM_INFINITY).then_some(limit))
    }

    /// Parses `/proc/self/status`.
    fn of(status: &str, limit: Option<u64>) -> Self {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.split_whitespace().next()
        };
        let locked = field("VmLck").and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| kib.saturating_mul(1024));
        let capabilities = field("CapEff").and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0);
        let lifted = capabilities >> CAP_IPC_LOCK & 1 == 1;
        Account { locked, limit: limit.filter(|_| !lifted) }
    }

    fn admits(self, bytes: u64) -> bool {
        self.limit.is_none_or(|limit| self.locked.checked_add(bytes).is_some_and(|sum| sum <= limit))
    }
}

/// Fails if `bytes` more bytes exceed the limit.
pub(super) fn check(bytes: u64) -> Result<()> {
    let account = Account::read();
    if account.admits(bytes) { Ok(()) } else { Err(error(bytes, account, None)) }
}

/// Returns the error of a mapping that the kernel refused for lack of memory.
pub(super) fn refused(bytes: u64, source: io::Error) -> Error {
    error(bytes, Account::read(), Some(source))
}

fn error(bytes: u64, account: Account, source: Option<io::Error>) -> Error {
    Error::Memlock { bytes, locked: account.locked, limit: account.limit, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nVmLck:\t     128 kB\nVmPin:\t       0 kB\nCapInh:\t00\nCapEff:\t000001ffffffbfff\n";

    #[test]
    fn the_limit_counts_what_is_locked_already() {
        let account = Account::of(STATUS, Some(192 << 10));
        assert_eq!(account, Account { locked: 128 << 10, limit: Some(192 << 10) });
        assert!(account.admits(64 << 10) && !account.admits((64 << 10) + 1) && !account.admits(u64::MAX));
        assert!(Account::of(STATUS, None).admits(u64::MAX));
        // The same with the capability.
        assert!(Account::of(&STATUS.replace("bfff", "ffff"), Some(0)).admits(u64::MAX));
        assert_eq!(Account::of("", Some(9)), Account { locked: 0, limit: Some(9) });
    }

    #[test]
    fn the_kernel_writes_it_as_it_is_read() {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        assert!(status.contains("\nVmLck:\t") && status.contains("\nCapEff:\t"), "{status}");
        check(0).unwrap();
    }

    #[test]
    fn the_error_says_how_much_and_what_to_do() {
        let text = error(1 << 20, Account { locked: 3 << 10, limit: Some(65536) }, None).to_string();
        for part in ["1048576", "3072", "65536", "LimitMEMLOCK", "ulimit -l"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

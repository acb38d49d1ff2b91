//! The machine's memory that the cards of one fabric may use together.
//!
//! A card has 8 GiB and a fabric up to a thousand cards: no machine has that. Pages are charged when they are first written,
//! and returned when a card is reset. Half of the budget is divided among the cards, so that no card can use up the
//! memory of the others; the other half goes to the first card that asks.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

/// Memory assumed if the machine does not report its size.
const UNKNOWN_MACHINE: u64 = 4 << 30;

/// The budget of one fabric.
#[derive(Debug)]
pub(crate) struct Budget {
    usage: Mutex<Usage>,
}

#[derive(Debug)]
struct Usage {
    total: u64,
    /// By node.
    charged: Vec<u64>,
    /// Charged to cards beyond their shares.
    shared: u64,
}

impl Usage {
    /// Share of each card, whatever the others do.
    fn share(&self) -> u64 {
        self.total / 2 / self.charged.len().max(1) as u64
    }

    /// Bytes beyond the shares.
    fn pool(&self) -> u64 {
        self.total - self.share() * self.charged.len() as u64
    }
}

impl Budget {
    pub(crate) fn new(total: u64, cards: u32) -> Arc<Self> {
        Arc::new(Budget { usage: Mutex::new(Usage { total, charged: vec![0; cards as usize], shared: 0 }) })
    }

    /// Changes the total. Charges stay.
    pub(crate) fn set_total(&self, total: u64) {
        let mut usage = self.usage();
        usage.total = total;
        let share = usage.share();
        usage.shared = usage.charged.iter().map(|charged| charged.saturating_sub(share)).sum();
    }

    pub(crate) fn total(&self) -> u64 {
        self.usage().total
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One card's charges to a budget; returned on drop.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    node: usize,
    bytes: u64,
}

impl Charge {
    pub(crate) fn new(budget: &Arc<Budget>, node: u32) -> Self {
        Charge { budget: Arc::clone(budget), node: node as usize, bytes: 0 }
    }

    /// Returns the bytes charged so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Charges `bytes` more to the card. Returns `false`, and charges nothing, if the budget has less.
    pub(crate) fn add(&mut self, bytes: u64) -> bool {
        let mut usage = self.budget.usage();
        let share = usage.share();
        let before = usage.charged[self.node];
        let after = before.saturating_add(bytes);
        let shared = usage.shared + (after.saturating_sub(share) - before.saturating_sub(share));
        if after > share && shared > usage.pool() {
            return false;
        }
        usage.charged[self.node] = after;
        usage.shared = shared;
        self.bytes += bytes;
        true
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut usage = self.budget.usage();
        let share = usage.share();
        let before = usage.charged[self.node];
        let after = before.saturating_sub(self.bytes);
        usage.shared = usage.shared.saturating_sub(before.saturating_sub(share) - after.saturating_sub(share));
        usage.charged[self.node] = after;
    }
}

/// Half of the process's memory limit, which is the least of the machine's memory, its cgroup's and RLIMIT_AS: the other half is for users of the cards on the same machine, and for the
/// system.
pub(crate) fn of_this_machine() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_of(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").map(|text| limit_files(&text)).unwrap_or_default();
    let limits = groups.iter().filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    let of_process =
        getrlimit(Resource::RLIMIT_AS).ok().map(|(limit, _)| limit).filter(|limit| *limit != RLIM_INFINITY);
    limits.chain(machine).chain(of_process).min().unwrap_or(UNKNOWN_MACHINE) / 2
}

/// Returns the machine's memory in bytes, from `/proc/meminfo` (proc(5)).
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the files that limit the memory of this process's control group (version 2), and of the groups above
/// (cgroups(7)). Without a limit a file says "max".
fn limit_files(cgroup: &str) -> Vec<PathBuf> {
    let Some(group) = cgroup.lines().find_map(|line| line.strip_prefix("0::/")) else { return Vec::new() };
    let groups = Path::new(group).ancestors();
    groups.map(|group| Path::new("/sys/fs/cgroup").join(group).join("memory.max")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_keeps_its_share_whatever_the_others_use() {
        let budget = Budget::new(800, 4);
        let mut greedy = Charge::new(&budget, 0);
        assert!(greedy.add(100 + 400), "its share, and all that is shared");
        assert!(!greedy.add(1));
        let mut modest = Charge::new(&budget, 1);
        assert!(!modest.add(101));
        assert!(modest.add(100));
        drop(greedy);
        assert!(modest.add(400));
        assert!(!modest.add(1));
    }

    #[test]
    fn what_is_given_back_can_be_had_again() {
        let budget = Budget::new(800, 2);
        for _ in 0..3 {
            let mut all = Charge::new(&budget, 1);
            assert!(all.add(150) && all.add(450));
            assert!(!all.add(1));
        }
        budget.set_total(80);
        let mut less = Charge::new(&budget, 0);
        assert!(!less.add(61));
        assert!(less.add(60));
    }

    #[test]
    fn the_machine_and_its_groups_say_how_much_there_is() {
        assert_eq!(total_of("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16 << 20));
        assert_eq!(total_of("MemFree: 1 kB\n"), None);
        let files = limit_files("1:name=systemd:/x\n0::/user.slice/a.scope\n");
        let names = ["user.slice/a.scope/memory.max", "user.slice/memory.max", "memory.max"];
        assert_eq!(files, names.map(|name| Path::new("/sys/fs/cgroup").join(name)));
        assert!(of_this_machine() > 0);
    }
}

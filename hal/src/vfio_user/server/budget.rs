//! Counts what all clients of one process's servers hold, against its limits.
//!
//! A process has one address space, one table of mappings and one of descriptors. So the limits apply to the process, and
//! each client has a share of them, which no other client can use up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::limits::ITEMS;
pub(crate) use super::limits::Item;
pub use super::limits::Limits;

/// Limits shared by the clients of several servers, and what the clients hold.
///
/// The client of each server may hold an equal part of each limit, and half of [`Limits::memory`]. Beyond that, its request
/// fails with ENOMEM, ENOSPC or EMFILE, or it is disconnected ([`Limits::buffered`]); the log names the limit.
#[derive(Debug)]
pub struct Budget {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    servers: u64,
    used: [u64; ITEMS],
    /// By device and inode.
    files: HashMap<(u64, u64), Counted>,
}

/// A file that clients have passed.
#[derive(Debug, Default)]
struct Counted {
    holders: u64,
    bytes: u64,
}

impl Budget {
    /// Creates a budget, of which nothing is used.
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Budget { limits, state: Mutex::default() })
    }

    /// Creates a budget for a process that mainly serves, and raises its soft limit of descriptors to the hard limit.
    pub fn of_process() -> Arc<Self> {
        if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
            && let Err(errno) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
        {
            log::warn!("Raising the limit of descriptors from {soft} to {hard}: {errno}");
        }
        Self::new(Limits::of_process())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A server that shares a budget.
#[derive(Debug)]
pub(crate) struct Member {
    budget: Arc<Budget>,
    /// The name of the server, for the log.
    name: String,
}

impl Member {
    pub(crate) fn new(budget: &Arc<Budget>, name: String) -> Self {
        budget.state().servers += 1;
        Member { budget: Arc::clone(budget), name }
    }

    /// Creates the share of a client.
    pub(crate) fn share(&self) -> Arc<Share> {
        let used = Mutex::new(Used::default());
        Arc::new(Share { budget: Arc::clone(&self.budget), name: self.name.clone(), used })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.budget.state().servers -= 1;
    }
}

/// Counts what one client holds.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    name: String,
    /// Locked before the budget's state.
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    amounts: [u64; ITEMS],
    /// Limits that the log has named already.
    told: [bool; ITEMS],
}

impl Share {
    /// The share of the one client of a server with a budget of its own.
    #[cfg(test)]
    pub(crate) fn alone(limits: Limits) -> Arc<Self> {
        Member::new(&Budget::new(limits), "test".to_owned()).share()
    }

    /// The name of the server, for the log.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns how much this client may hold now, including what it holds.
    pub(crate) fn limit(&self, item: Item) -> u64 {
        let used = self.used();
        self.limit_in(&used, &self.budget.state(), item)
    }

    fn limit_in(&self, used: &Used, state: &State, item: Item) -> u64 {
        let limit = self.budget.limits.of(item);
        if item == Item::Memory {
            return limit / 2;
        }
        let others = state.used[item as usize] - used.amounts[item as usize];
        limit.saturating_sub(others).min(limit / state.servers.max(1))
    }

    /// Counts `amount` until the result is dropped.
    pub(crate) fn take(self: &Arc<Self>, item: Item, amount: u64) -> Result<Charge, Errno> {
        let mut used = self.used();
        let mut state = self.budget.state();
        let limit = self.limit_in(&used, &state, item);
        if amount > limit.saturating_sub(used.amounts[item as usize]) {
            return Err(self.refuse(&mut used, item, limit));
        }
        used.amounts[item as usize] += amount;
        state.used[item as usize] += amount;
        Ok(Charge { share: Arc::clone(self), item, amount, file: None })
    }

    /// Counts a file of `bytes` bytes with this device and inode until the result is dropped. A file that several clients
    /// have passed counts once in the share of each, and once in the budget.
    pub(crate) fn take_memory(self: &Arc<Self>, file: (u64, u64), bytes: u64) -> Result<Charge, Errno> {
        let item = Item::Memory;
        let mut used = self.used();
        let mut state = self.budget.state();
        let limit = self.limit_in(&used, &state, item);
        let counted = state.files.get(&file).map_or(0, |counted| counted.bytes);
        let more = bytes.saturating_sub(counted);
        let is_free = more <= self.budget.limits.memory.saturating_sub(state.used[item as usize]);
        if !is_free || bytes > limit.saturating_sub(used.amounts[item as usize]) {
            return Err(self.refuse(&mut used, item, limit));
        }
        used.amounts[item as usize] += bytes;
        state.used[item as usize] += more;
        let counted = state.files.entry(file).or_default();
        counted.holders += 1;
        counted.bytes += more;
        Ok(Charge { share: Arc::clone(self), item, amount: bytes, file: Some(file) })
    }

    fn refuse(&self, used: &mut Used, item: Item, limit: u64) -> Errno {
        if !std::mem::replace(&mut used.told[item as usize], true) {
            let (name, limits) = (item.name(), &self.budget.limits);
            log::error!("{}: limit {name} exceeded: a client may hold {limit} of {}", self.name, limits.of(item));
        }
        item.errno()
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts something as long as it lives.
#[derive(Debug)]
pub(crate) struct Charge {
    share: Arc<Share>,
    item: Item,
    amount: u64,
    file: Option<(u64, u64)>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut used = self.share.used();
        let mut state = self.share.budget.state();
        used.amounts[self.item as usize] -= self.amount;
        let Some(file) = self.file else {
            state.used[self.item as usize] -= self.amount;
            return;
        };
        let Some(counted) = state.files.get_mut(&file) else { return };
        counted.holders -= 1;
        if counted.holders == 0
            && let Some(counted) = state.files.remove(&file)
        {
            state.used[self.item as usize] -= counted.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { address_space: 100, memory: 100, files: 10, mappings: 100, descriptors: 10, buffered: 50 };

    fn members<const N: usize>() -> (Arc<Budget>, [Member; N]) {
        let budget = Budget::new(LIMITS);
        let members = std::array::from_fn(|index| Member::new(&budget, index.to_string()));
        (budget, members)
    }

    #[test]
    fn each_client_has_an_equal_share() {
        let (budget, members) = members::<3>();
        let shares = members.each_ref().map(Member::share);
        for share in &shares {
            assert_eq!(share.limit(Item::Mappings), 33);
            let charge = share.take(Item::Mappings, 30).unwrap();
            assert_eq!(share.take(Item::Mappings, 4).unwrap_err(), Errno::ENOSPC);
            let more = share.take(Item::Mappings, 3).unwrap();
            assert_eq!(share.take(Item::Mappings, 1).unwrap_err(), Errno::ENOSPC);
            drop(charge);
            assert!(share.take(Item::Mappings, 30).is_ok());
            std::mem::forget(more);
        }
        assert_eq!(shares[0].take(Item::Descriptors, 4).unwrap_err(), Errno::EMFILE);
        assert_eq!(shares[0].take(Item::AddressSpace, u64::MAX).unwrap_err(), Errno::ENOMEM);
        assert_eq!(budget.state().used, [0, 0, 0, 9, 0, 0]);
    }

    #[test]
    fn later_servers_cannot_exceed_the_limit() {
        let (budget, members) = members::<1>();
        let first = members[0].share();
        let all = first.take(Item::Files, 9).unwrap();
        let other = Member::new(&budget, "other".into());
        let share = other.share();
        assert_eq!((share.limit(Item::Files), first.limit(Item::Files)), (1, 5));
        assert!(first.take(Item::Files, 1).is_err());
        let one = share.take(Item::Files, 1).unwrap();
        assert!(share.take(Item::Files, 1).is_err());
        drop((all, one));
        assert_eq!(share.limit(Item::Files), 5);
        drop(other);
        assert_eq!(first.limit(Item::Files), 10);
    }

    #[test]
    fn a_file_counts_once_while_any_client_has_it() {
        let (budget, members) = members::<4>();
        let [first, second, third, fourth] = members.each_ref().map(Member::share);
        let (one, other) = ((1, 1), (1, 2));
        let held = first.take_memory(one, 40).unwrap();
        assert_eq!(first.take_memory(other, 11).unwrap_err(), Errno::ENOMEM, "half of it for one client");
        let same = second.take_memory(one, 50).unwrap();
        assert_eq!(budget.state().used[Item::Memory as usize], 50, "it has grown");
        drop(held);
        assert_eq!(budget.state().used[Item::Memory as usize], 50, "the second has it still");
        let rest = third.take_memory(other, 50).unwrap();
        assert!(fourth.take_memory((1, 3), 1).is_err());
        assert!(fourth.take_memory(one, 50).is_ok());
        drop((same, rest));
        assert_eq!(budget.state().used, [0; ITEMS]);
        assert!(budget.state().files.is_empty());
    }

    #[test]
    fn the_budget_of_a_process_raises_the_soft_limit_of_descriptors() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, hard - 2, hard).unwrap();
        let budget = Budget::of_process();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (hard, hard));
        assert_eq!(budget.limits.descriptors, hard / 2);
    }

    #[test]
    fn the_log_names_an_exceeded_limit_once_for_each_client() {
        let lines = crate::logged::lines(|one| one.level() <= log::Level::Warn);
        let told = || lines.take(|_, line| line.starts_with("the card of this test: "));
        let member = Member::new(&Budget::new(LIMITS), "the card of this test".into());
        let _neighbour = Member::new(&member.budget, "neighbour".into());
        for share in [member.share(), member.share()] {
            assert!(share.take(Item::Files, 6).is_err());
            assert_eq!(told(), ["the card of this test: limit files exceeded: a client may hold 5 of 10"]);
            assert!(share.take(Item::Files, 7).is_err());
            assert!(told().is_empty());
            assert!(share.take_memory((1, 1), 51).is_err());
            assert_eq!(told(), ["the card of this test: limit memory exceeded: a client may hold 50 of 100"]);
        }
    }

    /// Random clients that take and release, against sums over what they hold.
    mod model {
        use super::*;
        use proptest::prelude::*;

        /// All that is counted once for each client.
        const SIMPLE: [Item; 5] = [Item::AddressSpace, Item::Files, Item::Mappings, Item::Descriptors, Item::Buffered];

        #[derive(Debug, Clone)]
        enum Step {
            Take(usize, Item, u64),
            TakeMemory(usize, u64, u64),
            Drop(prop::sample::Index),
        }

        fn step() -> impl Strategy<Value = Step> {
            let item = prop::sample::select(SIMPLE.to_vec());
            prop_oneof![
                (0..3usize, item, 0..40u64).prop_map(|(client, item, amount)| Step::Take(client, item, amount)),
                (0..3usize, 0..3u64, 0..60u64).prop_map(|(client, file, bytes)| Step::TakeMemory(client, file, bytes)),
                any::<prop::sample::Index>().prop_map(Step::Drop),
            ]
        }

        struct Held {
            client: usize,
            item: Item,
            file: Option<u64>,
            amount: u64,
            _charge: Charge,
        }

        proptest! {
            #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
            #[test]
            fn shares_agree_with_sums(steps in prop::collection::vec(step(), 1..60)) {
                let (budget, members) = members::<3>();
                let shares = members.each_ref().map(Member::share);
                let mut held: Vec<Held> = Vec::new();
                // A file counts for as much as it ever had while anybody has it.
                let mut files = [0u64; 3];
                for step in steps {
                    let sum = |of: &dyn Fn(&Held) -> bool| held.iter().filter(|it| of(it)).map(|it| it.amount).sum::<u64>();
                    match step {
                        Step::Take(client, item, amount) => {
                            let own = sum(&|it| it.client == client && it.item == item);
                            let all = sum(&|it| it.item == item);
                            let limit = LIMITS.of(item);
                            let fits = own + amount <= limit / 3 && all + amount <= limit;
                            let taken = shares[client].take(item, amount);
                            prop_assert_eq!(taken.is_ok(), fits, "{:?}: {} of {}, {} of all", item, amount, own, all);
                            if let Ok(charge) = taken {
                                held.push(Held { client, item, file: None, amount, _charge: charge });
                            }
                        }
                        Step::TakeMemory(client, file, bytes) => {
                            let own = sum(&|it| it.client == client && it.item == Item::Memory);
                            let grown = bytes.saturating_sub(files[file as usize]);
                            let fits = own + bytes <= LIMITS.memory / 2
                                && files.iter().sum::<u64>() + grown <= LIMITS.memory;
                            let taken = shares[client].take_memory((7, file), bytes);
                            prop_assert_eq!(taken.is_ok(), fits, "{} of {}, {:?}", bytes, own, files);
                            if let Ok(charge) = taken {
                                files[file as usize] += grown;
                                let file = Some(file);
                                held.push(Held { client, item: Item::Memory, file, amount: bytes, _charge: charge });
                            }
                        }
                        Step::Drop(_) if held.is_empty() => {}
                        Step::Drop(index) => {
                            let Held { file, .. } = held.swap_remove(index.index(held.len()));
                            if let Some(file) = file && held.iter().all(|it| it.file != Some(file)) {
                                files[file as usize] = 0;
                            }
                        }
                    }
                    let state = budget.state();
                    prop_assert_eq!(state.used[Item::Memory as usize], files.iter().sum::<u64>());
                    prop_assert_eq!(state.files.len() as u64, (0..3).filter(|f| held.iter().any(|it| it.file == Some(*f))).count() as u64);
                    for item in SIMPLE {
                        let all = held.iter().filter(|it| it.item == item).map(|it| it.amount).sum::<u64>();
                        prop_assert_eq!(state.used[item as usize], all);
                    }
                }
                drop(held);
                prop_assert_eq!(budget.state().used, [0; ITEMS]);
            }
        }
    }
}

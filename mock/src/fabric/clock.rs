//! Advances virtual time, inside the access that starts work or on a thread.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::environment::Pace;
use crate::world::Core;

/// Events the thread handles before it lets accesses in.
const SLICE: usize = 64;
/// Longest time the thread yields to waiting accesses.
const STAND_BACK: Duration = Duration::from_micros(200);

/// The fabric behind its lock.
pub(crate) struct Shared {
    core: Mutex<Core>,
    /// Signals work to the thread.
    work: Condvar,
    /// Number of accesses that wait for the lock: the lock is not fair.
    waiting: AtomicUsize,
    /// Reason of the model's failure.
    failure: Mutex<Option<String>>,
}

impl Shared {
    pub(crate) fn new(core: Core) -> Self {
        Shared { core: Mutex::new(core), work: Condvar::new(), waiting: AtomicUsize::new(0), failure: Mutex::default() }
    }

    /// Runs `access` on the fabric, and wakes the clock if the access started work.
    pub(crate) fn access<R>(&self, access: impl FnOnce(&mut Core) -> R) -> R {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut core = self.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        core.env.hold_bytes = 0;
        let result = access(&mut core);
        if core.env.pace == Pace::Due {
            self.work.notify_one();
        }
        self.release(core);
        result
    }

    /// Runs a host's access, as [`Shared::access`] does. If the model panics, the fabric fails and the caller continues.
    pub(crate) fn try_access<R>(&self, access: impl FnOnce(&mut Core) -> R) -> Option<R> {
        self.access(|core| match catch_unwind(AssertUnwindSafe(|| access(core))) {
            Ok(result) => Some(result),
            Err(panic) => {
                self.fail(core, &*panic);
                None
            }
        })
    }

    /// Releases the lock, and then frees the memory that cards discarded, which may take long.
    fn release(&self, mut core: MutexGuard<'_, Core>) {
        core.env.statistics.most_held_bytes = core.env.statistics.most_held_bytes.max(core.env.hold_bytes);
        let discarded = std::mem::take(&mut core.env.discarded);
        drop(core);
        drop(discarded);
    }

    /// Removes all cards after a panic, since their state is unknown.
    fn fail(&self, core: &mut Core, panic: &(dyn Any + Send)) {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let reason = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        log::error!("the mock fabric has failed, all its cards are gone: {reason}");
        core.give_up();
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let core = self.lock();
            let idle = |core: &mut Core| core.env.pace == Pace::Idle;
            let mut core = self.work.wait_while(core, idle).unwrap_or_else(PoisonError::into_inner);
            if core.env.pace == Pace::Stop {
                core.env.pace = Pace::Access;
                return;
            }
            core.env.hold_bytes = 0;
            let goes_on = catch_unwind(AssertUnwindSafe(|| core.run_some(SLICE)));
            let goes_on = goes_on.unwrap_or_else(|panic| {
                self.fail(&mut core, &*panic);
                false
            });
            if !goes_on {
                core.env.pace = Pace::Idle;
            }
            self.release(core);
            let start = Instant::now();
            while self.waiting.load(Ordering::Relaxed) > 0 && start.elapsed() < STAND_BACK {
                thread::yield_now();
            }
        }
    }
}

/// A thread that advances a fabric's time, until it is dropped.
///
/// With this thread an access returns at once, like a posted write to a real card, and the started work runs on its own.
/// Figures do not change: they are in virtual time.
pub struct Clock {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Clock {
    /// Starts the thread. Returns `None` if the fabric has one already, or if the system refuses a thread.
    pub(crate) fn start(shared: &Arc<Shared>) -> Option<Self> {
        shared.access(|core| (core.env.pace == Pace::Access).then(|| core.env.pace = Pace::Due))?;
        let runner = Arc::clone(shared);
        let thread = thread::Builder::new().name("fabric".into()).spawn(move || runner.run());
        match thread {
            Ok(thread) => Some(Clock { shared: Arc::clone(shared), thread: Some(thread) }),
            Err(_) => {
                shared.access(|core| core.env.pace = Pace::Access);
                None
            }
        }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.shared.lock().env.pace = Pace::Stop;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the thread of the fabric's clock has panicked");
        }
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

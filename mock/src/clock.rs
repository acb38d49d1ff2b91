//! Who makes the fabric's time go on: whoever gives it something to do, or a thread of its own.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::fabric::Core;

/// Events the thread handles before it lets accesses in.
const SLICE: usize = 64;
/// How long the thread stands back for accesses that wait.
const STAND_BACK: Duration = Duration::from_micros(200);

/// The fabric behind its lock.
pub(crate) struct Shared {
    core: Mutex<Core>,
    /// There is something to do for the thread.
    work: Condvar,
    /// Accesses that wait for the lock, which is not fair by itself.
    waiting: AtomicUsize,
    /// Why the model is not to be believed any more.
    failure: Mutex<Option<String>>,
}

/// What the thread is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Pace {
    /// There is none: time goes on inside of the access that starts something.
    #[default]
    Access,
    /// It sleeps.
    Idle,
    /// It has something to do.
    Due,
    /// It is to end.
    Stop,
}

impl Shared {
    pub(crate) fn new(core: Core) -> Self {
        Shared { core: Mutex::new(core), work: Condvar::new(), waiting: AtomicUsize::new(0), failure: Mutex::default() }
    }

    /// Runs `access` on the fabric, and wakes its clock if that gave it something to do.
    pub(crate) fn access<R>(&self, access: impl FnOnce(&mut Core) -> R) -> R {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut core = self.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        core.hold_bytes = 0;
        let result = access(&mut core);
        if core.pace == Pace::Due {
            self.work.notify_one();
        }
        self.release(core);
        result
    }

    /// As [`Shared::access`], by a host. If the model panics, the fabric has failed, and whoever made the access goes on.
    pub(crate) fn try_access<R>(&self, access: impl FnOnce(&mut Core) -> R) -> Option<R> {
        self.access(|core| match catch_unwind(AssertUnwindSafe(|| access(core))) {
            Ok(result) => Some(result),
            Err(panic) => {
                self.fail(core, &*panic);
                None
            }
        })
    }

    /// Gives the lock back, and then the memory that cards have no more use for, which may take a while.
    fn release(&self, mut core: MutexGuard<'_, Core>) {
        core.statistics.most_held_bytes = core.statistics.most_held_bytes.max(core.hold_bytes);
        let discarded = std::mem::take(&mut core.discarded);
        drop(core);
        drop(discarded);
    }

    /// Nobody knows what state the cards are in: they are gone, all of them, and hosts see that.
    fn fail(&self, core: &mut Core, panic: &(dyn Any + Send)) {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let reason = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        log::error!("The mock fabric has failed, and its cards are gone: {reason}");
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
            let idle = |core: &mut Core| core.pace == Pace::Idle;
            let mut core = self.work.wait_while(core, idle).unwrap_or_else(PoisonError::into_inner);
            if core.pace == Pace::Stop {
                core.pace = Pace::Access;
                return;
            }
            core.hold_bytes = 0;
            let goes_on = catch_unwind(AssertUnwindSafe(|| core.run_some(SLICE)));
            let goes_on = goes_on.unwrap_or_else(|panic| {
                self.fail(&mut core, &*panic);
                false
            });
            if !goes_on {
                core.pace = Pace::Idle;
            }
            self.release(core);
            let start = Instant::now();
            while self.waiting.load(Ordering::Relaxed) > 0 && start.elapsed() < STAND_BACK {
                thread::yield_now();
            }
        }
    }
}

/// A thread that makes a fabric's time go on, until it is dropped.
///
/// With it an access returns at once, as a posted write to a real card does, and what it started goes on by itself.
/// Figures stay the same: they are of the fabric's time.
pub struct Clock {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Clock {
    /// `None` if the fabric has one already, or the system has no thread.
    pub(crate) fn start(shared: &Arc<Shared>) -> Option<Self> {
        shared.access(|core| (core.pace == Pace::Access).then(|| core.pace = Pace::Due))?;
        let runner = Arc::clone(shared);
        let thread = thread::Builder::new().name("fabric".into()).spawn(move || runner.run());
        match thread {
            Ok(thread) => Some(Clock { shared: Arc::clone(shared), thread: Some(thread) }),
            Err(_) => {
                shared.access(|core| core.pace = Pace::Access);
                None
            }
        }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.shared.lock().pace = Pace::Stop;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("The fabric's clock has panicked");
        }
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

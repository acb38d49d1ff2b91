//! The cards that a `Cards` and its plans and operations share: used by one thread at a time, and closed once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};
use std::thread::{self, ThreadId};

use fpga_collective::{Cards, Class, CollectiveId, DmaBuffer, Request};
use pyo3::prelude::*;

use crate::error::{Error, Result};
use crate::exit::process;
use crate::memory::Mapped;
use crate::operation::{Launch, Phase};

/// Plans that calls such as `cards.allreduce(x)` have made, and that stay on the cards for the next call.
const PLANS_KEPT: usize = 16;

/// Least bytes of a staging buffer.
const STAGING_LEAST: usize = 1 << 20;

const CLOSED: &str = "these cards were closed";

/// Opened cards.
pub(crate) struct Shared {
    state: Mutex<Option<State>>,
    /// The thread that waits, between parts of its wait, too: others are refused. Changed with `state` locked, or by that thread.
    waiter: Mutex<Option<ThreadId>>,
    /// What Python objects that are gone had on the cards, to be ended by whoever uses the cards next.
    orphans: Mutex<Vec<Orphan>>,
    /// Host memory of these cards that Python objects show.
    memories: Mutex<Vec<Weak<Mapped>>>,
    /// Number of cards.
    pub(crate) ranks: usize,
    /// The process that has opened them.
    process: usize,
}

/// What nobody holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Orphan {
    Launch(CollectiveId),
    Plan(CollectiveId),
}

/// What one thread at a time uses.
pub(crate) struct State {
    pub(crate) cards: Cards,
    /// The one used last is the last.
    plans: Vec<(Key, CollectiveId)>,
    /// Where data of other memory is on its way to and from the cards.
    staging: Option<Arc<Mapped>>,
    /// What was launched last: nothing else is in flight.
    pub(crate) launched: Weak<Launch>,
    /// How long a call may take, seconds.
    pub(crate) timeout: f64,
}

/// What a plan is for: a [`Request`] that owns its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) operation: String,
    pub(crate) reduction: Option<String>,
    pub(crate) element: Option<String>,
    pub(crate) algorithm: Option<String>,
    pub(crate) root: u32,
    pub(crate) peer: u32,
    pub(crate) bytes: u64,
}

impl Key {
    fn of(request: &Request<'_>) -> Self {
        Key {
            operation: request.operation.to_owned(),
            reduction: request.reduction.map(str::to_owned),
            element: request.element.map(str::to_owned),
            algorithm: request.algorithm.map(str::to_owned),
            root: request.root,
            peer: request.peer,
            bytes: request.bytes,
        }
    }

    fn is(&self, request: &Request<'_>) -> bool {
        self.operation == request.operation
            && self.reduction.as_deref() == request.reduction
            && self.element.as_deref() == request.element
            && self.algorithm.as_deref() == request.algorithm
            && (self.root, self.peer, self.bytes) == (request.root, request.peer, request.bytes)
    }
}

impl Shared {
    pub(crate) fn new(cards: Cards, timeout: f64) -> Self {
        let ranks = cards.count() as usize;
        let state = State { cards, plans: Vec::new(), staging: None, launched: Weak::new(), timeout };
        Shared {
            state: Mutex::new(Some(state)),
            waiter: Mutex::default(),
            orphans: Mutex::default(),
            memories: Mutex::default(),
            ranks,
            process: process(),
        }
    }

    /// Runs `body` on the cards. Refuses to wait for another thread: that thread may wait for the interpreter's lock.
    pub(crate) fn with<T>(&self, py: Python<'_>, body: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        self.check_process()?;
        self.on(|state| {
            let state = state.as_mut().ok_or_else(|| Error::usage(CLOSED))?;
            // Taken out: threads with the interpreter's lock add more.
            let orphans = std::mem::take(&mut *unpoisoned(&self.orphans));
            if !orphans.is_empty() {
                let cards = &mut state.cards;
                py.detach(|| end(cards, &orphans));
            }
            let outcome = body(state);
            if outcome.is_err() {
                state.end_launch();
            }
            outcome
        })
    }

    /// Runs `body` on the cards without the interpreter's lock.
    pub(crate) fn without_lock<T: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut Cards) -> fpga_collective::Result<T> + Send,
    ) -> Result<T> {
        self.with(py, |state| state.transfer(py, body))
    }

    /// Keeps other threads from the cards until the guard is dropped. This thread may use them: handlers of signals run between the parts
    /// of a wait.
    pub(crate) fn reserve(&self) -> Result<Reserved<'_>> {
        self.check_process()?;
        self.on(|_| Ok(Reserved { shared: self, before: unpoisoned(&self.waiter).replace(thread::current().id()) }))
    }

    /// Whether the cards were closed. `false` while another thread uses them.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.try_lock().is_ok_and(|state| state.is_none())
    }

    /// Closes the cards; aborts what is in flight.
    pub(crate) fn close(&self, py: Python<'_>) -> Result<()> {
        let taken = match self.on(|state| Ok(state.take())) {
            // What a panic has left goes too, and then the lock is as that of any closed cards.
            Err(Error::Internal(_)) => {
                let taken = unpoisoned(&self.state).take();
                self.state.clear_poison();
                taken
            }
            taken => taken?,
        };
        if let Some(launch) = taken.as_ref().and_then(|state| state.launched.upgrade()) {
            launch.end(Phase::Withdrawn(CLOSED));
        }
        py.detach(|| drop(taken));
        Ok(())
    }

    /// Refuses calls of a forked child, before they find cards that do not answer it.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.process == process() {
            return Ok(());
        }
        Err(Error::usage("these cards belong to the process that forked this one: open cards in this process"))
    }

    fn on<T>(&self, body: impl FnOnce(&mut Option<State>) -> Result<T>) -> Result<T> {
        // A panic poisons the lock on its way through here, so nobody sees what it left.
        let caught = catch_unwind(AssertUnwindSafe(|| match self.state.try_lock() {
            Ok(_) if unpoisoned(&self.waiter).is_some_and(|waiter| waiter != thread::current().id()) => {
                Err(Error::Busy)
            }
            Ok(mut state) => body(&mut state),
            Err(TryLockError::WouldBlock) => Err(Error::Busy),
            Err(TryLockError::Poisoned(_)) => {
                Err(Error::Internal("an earlier call failed inside the library: close the cards".into()))
            }
        }));
        caught.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            Err(Error::Internal(format!("the library failed: {text}")))
        })
    }

    /// Ends what nobody holds: now, or, if another call is using the cards, when the next call does.
    pub(crate) fn let_go(&self, py: Python<'_>, orphan: Orphan) {
        unpoisoned(&self.orphans).push(orphan);
        if self.with(py, |_| Ok(())).is_err() && self.is_closed() {
            unpoisoned(&self.orphans).clear();
        }
    }

    /// Notes memory of these cards, to find it again by its address.
    pub(crate) fn note(&self, memory: &Arc<Mapped>) {
        let mut memories = unpoisoned(&self.memories);
        memories.retain(|memory| memory.strong_count() > 0);
        memories.push(Arc::downgrade(memory));
    }

    /// Finds the memory of these cards that has `bytes` bytes at `address`, and their offset in it.
    pub(crate) fn find(&self, address: usize, bytes: usize) -> Option<(Arc<DmaBuffer>, usize)> {
        let memories = unpoisoned(&self.memories);
        memories.iter().find_map(|memory| {
            let memory = memory.upgrade()?;
            let offset = memory.offset_of(address, bytes)?;
            Some((Arc::clone(memory.buffer()), offset))
        })
    }
}

/// Cards that only one thread uses.
pub(crate) struct Reserved<'s> {
    shared: &'s Shared,
    /// The same thread if a handler of a signal waits within a wait.
    before: Option<ThreadId>,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        *unpoisoned(&self.shared.waiter) = self.before;
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // Cards that do not stop take their time.
        Python::try_attach(|py| py.detach(|| drop(state)));
    }
}

impl State {
    /// Returns the collective whose operation is in flight. It may be done on the cards, its output still there.
    pub(crate) fn in_flight(&self) -> Option<CollectiveId> {
        let launched = self.launched.upgrade().filter(|launch| launch.is_in_flight());
        launched.map(|launch| launch.id).or(self.cards.in_flight())
    }

    /// Ends the operation in flight if the cards have given up its launch: a call has found a card that halted.
    fn end_launch(&self) {
        if let Some(launch) = self.launched.upgrade()
            && self.cards.in_flight() != Some(launch.id)
            && matches!(self.cards.times(launch.id), Ok(None))
        {
            launch.end(Phase::Over);
        }
    }

    /// Refuses to replace what is in flight.
    pub(crate) fn check_idle(&self) -> Result<()> {
        self.in_flight().map_or(Ok(()), |_| {
            let message = "an operation of these cards is in flight: wait for it, or abort it";
            Err(fpga_collective::Error::new(Class::Refused, message).into())
        })
    }

    /// Returns the plan of a request: one that is on the cards, or a new one.
    pub(crate) fn planned(&mut self, py: Python<'_>, request: &Request<'_>) -> Result<CollectiveId> {
        // Most calls are as the one before.
        if let Some(at) = self.plans.iter().rposition(|(key, _)| key.is(request)) {
            self.plans[at..].rotate_left(1);
        } else {
            if self.plans.len() == PLANS_KEPT {
                self.release_oldest(py)?;
            }
            let id = self.plan(py, request)?;
            self.plans.push((Key::of(request), id));
        }
        Ok(self.plans[self.plans.len() - 1].1)
    }

    /// Plans, and makes room on the cards if there is none.
    pub(crate) fn plan(&mut self, py: Python<'_>, request: &Request<'_>) -> Result<CollectiveId> {
        loop {
            let (cards, timeout) = (&mut self.cards, self.timeout);
            match py.detach(|| cards.plan(request)) {
                // Not the planner's refusal, which has a reason: the cards have no room.
                Err(error) if error.class == Class::Refused && error.reason.is_none() => {
                    if !self.release_oldest(py)? {
                        return Err(error.into());
                    }
                }
                planned => return planned.map_err(|error| Error::from(error).with_timeout(timeout)),
            }
        }
    }

    /// Removes a collective from the cards; ends its launch if it is in flight.
    pub(crate) fn release(&mut self, py: Python<'_>, id: CollectiveId) -> Result<()> {
        let released = self.transfer(py, |cards| cards.release(id));
        if let Some(launch) = self.launched.upgrade().filter(|launch| launch.id == id) {
            launch.end(Phase::Withdrawn("this collective was released"));
        }
        released
    }

    /// Releases the plan that was not used for the longest time. Returns whether there was one.
    fn release_oldest(&mut self, py: Python<'_>) -> Result<bool> {
        let in_flight = self.in_flight();
        let Some(at) = self.plans.iter().position(|(_, id)| Some(*id) != in_flight) else { return Ok(false) };
        let (_, id) = self.plans.remove(at);
        let cards = &mut self.cards;
        py.detach(|| cards.release(id))?;
        Ok(true)
    }

    /// Moves data between cards and host memory, without the interpreter's lock. After a failure the staging buffer is not used again:
    /// cards may still write to it.
    pub(crate) fn transfer<T: Send>(
        &mut self,
        py: Python<'_>,
        body: impl FnOnce(&mut Cards) -> fpga_collective::Result<T> + Send,
    ) -> Result<T> {
        let (cards, timeout) = (&mut self.cards, self.timeout);
        let moved = py.detach(|| body(cards));
        if moved.is_err() {
            self.staging = None;
        }
        moved.map_err(|error| Error::from(error).with_timeout(timeout))
    }

    /// Memory of at least `bytes` bytes for data on its way.
    pub(crate) fn staging(&mut self, bytes: usize) -> Result<Arc<Mapped>> {
        if let Some(staging) = self.staging.as_ref().filter(|staging| staging.len() >= bytes) {
            return Ok(Arc::clone(staging));
        }
        // The smaller one goes first: both together may be more than there is.
        self.staging = None;
        let staging = Arc::new(Mapped::allocate(&self.cards, staging_bytes(bytes))?);
        self.staging = Some(Arc::clone(&staging));
        Ok(staging)
    }
}

/// Bytes of a staging buffer for `bytes` bytes: at most a quarter more, in few sizes, so that growing arrays seldom need a new one.
fn staging_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(STAGING_LEAST))
}

/// Ends launches and removes plans.
fn end(cards: &mut Cards, orphans: &[Orphan]) {
    for orphan in orphans {
        // The user has let go of these. If the cards do not stop, the next launch says so.
        drop(match *orphan {
            Orphan::Launch(id) => cards.abort(id),
            Orphan::Plan(id) => cards.release(id),
        });
    }
}

/// The content of a lock under which nothing panics.
fn unpoisoned<T>(lock: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

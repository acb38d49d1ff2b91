//! Handles: numbers in the form of pointers, never given twice and never followed. A handle that was closed, or never was one, is
//! not found.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, TryLockError};

use ::fpga_collective::{Cards, CollectiveId};

use crate::error::{Error, Result};
use crate::fork;

/// Cards of one fabric. The pointer is a handle: it leads nowhere, and no two clusters of a process ever have the same.
///
/// A cluster and its collectives are used by one thread at a time; a second one gets FPGA_BUSY.
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct fpga_cluster {
    _private: (),
}

/// A collective that is planned, and stored on the cards. The pointer is a handle, as that of a cluster.
///
/// All collectives of a cluster use the same card memory, so one is in flight at a time: write the input, launch, wait and read
/// the output before the next.
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct fpga_collective {
    _private: (),
}

/// The cards of a cluster, used by one thread at a time; `None` once it is closed.
type Shared = Arc<Mutex<Option<Cards>>>;

/// The clusters that a process has opened.
#[derive(Default)]
struct Table {
    clusters: HashMap<usize, Shared>,
    /// Of collectives, the cluster.
    collectives: HashMap<usize, (usize, CollectiveId)>,
}

/// A process that uses this library, and its child, if it is one that was forked.
#[derive(Default)]
struct Process {
    table: RwLock<Table>,
    child: OnceLock<Box<Process>>,
}

static FIRST: OnceLock<Process> = OnceLock::new();
/// Forks between the first process and this one.
static FORKS: AtomicUsize = AtomicUsize::new(0);
/// The handle that was given last, by whichever process.
static LAST: AtomicUsize = AtomicUsize::new(0);
/// Handles up to this one are those of the processes before.
static INHERITED: AtomicUsize = AtomicUsize::new(0);

/// Gives a forked child a table of its own. That of its parent stays as it is: a thread that does not exist here may hold its locks.
extern "C" fn forked_off() {
    INHERITED.store(LAST.load(Ordering::Relaxed), Ordering::Relaxed);
    FORKS.fetch_add(1, Ordering::Relaxed);
    process();
}

/// This process. Only [`forked_off`] and the first call make one, so no other thread is in the middle of it.
fn process() -> &'static Process {
    let first = FIRST.get_or_init(Process::default);
    (0..FORKS.load(Ordering::Relaxed)).fold(first, |process, _| process.child.get_or_init(Box::default))
}

/// Nothing that holds this lock calls other code, so no panic leaves the table half changed.
macro_rules! table {
    ($access:ident) => {
        process().table.$access().unwrap_or_else(std::sync::PoisonError::into_inner)
    };
}

fn next() -> usize {
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

fn absent(what: &str, number: usize) -> Error {
    if number <= INHERITED.load(Ordering::Relaxed) { forked() } else { closed(what) }
}

/// Returns the handle of new cards.
pub(crate) fn add(cards: Cards) -> *mut fpga_cluster {
    fork::tell_children(forked_off);
    let number = next();
    table!(write).clusters.insert(number, Arc::new(Mutex::new(Some(cards))));
    std::ptr::without_provenance_mut(number)
}

/// Runs `body` on the cards of a cluster.
pub(crate) fn with<T>(cluster: *mut fpga_cluster, body: impl FnOnce(&mut Cards) -> Result<T>) -> Result<T> {
    on(&shared(cluster.addr())?, |cards| body(cards.as_mut().ok_or_else(|| closed("cluster"))?))
}

/// Closes a cluster and its collectives.
pub(crate) fn close(cluster: *mut fpga_cluster) -> Result<()> {
    let number = cluster.addr();
    let taken = match on(&shared(number)?, |cards| Ok(cards.take())) {
        // After a panic nobody sees the cards again. They are dropped with the table's entry.
        Err(error) if error.is_internal() => None,
        taken => taken?,
    };
    let removed = {
        let mut table = table!(write);
        table.collectives.retain(|_, (of, _)| *of != number);
        table.clusters.remove(&number)
    };
    // Without the table's lock: closing a card takes a moment.
    drop((taken, removed));
    Ok(())
}

/// Plans with `body`, and returns the handle of the collective.
pub(crate) fn plan(
    cluster: *mut fpga_cluster,
    body: impl FnOnce(&mut Cards) -> Result<CollectiveId>,
) -> Result<*mut fpga_collective> {
    let id = with(cluster, body)?;
    let number = next();
    table!(write).collectives.insert(number, (cluster.addr(), id));
    Ok(std::ptr::without_provenance_mut(number))
}

/// Runs `body` on a collective and its cards.
pub(crate) fn with_collective<T>(
    collective: *mut fpga_collective,
    body: impl FnOnce(&mut Cards, CollectiveId) -> Result<T>,
) -> Result<T> {
    let number = collective.addr();
    if number == 0 {
        return Err(Error::usage("collective is NULL"));
    }
    let (cluster, id) = table!(read).collectives.get(&number).copied().ok_or_else(|| absent("collective", number))?;
    on(&shared(cluster)?, |cards| body(cards.as_mut().ok_or_else(|| closed("cluster"))?, id))
}

/// Removes a collective.
pub(crate) fn release(collective: *mut fpga_collective) -> Result<()> {
    let released = with_collective(collective, |cards, id| Ok(cards.release(id)))?;
    table!(write).collectives.remove(&collective.addr());
    Ok(released?)
}

fn shared(number: usize) -> Result<Shared> {
    if number == 0 {
        return Err(Error::usage("cluster is NULL"));
    }
    table!(read).clusters.get(&number).cloned().ok_or_else(|| absent("cluster", number))
}

/// Refuses to wait for another thread.
fn on<T>(shared: &Shared, body: impl FnOnce(&mut Option<Cards>) -> Result<T>) -> Result<T> {
    match shared.try_lock() {
        Ok(mut cards) => body(&mut cards),
        Err(TryLockError::WouldBlock) => Err(Error::busy()),
        Err(TryLockError::Poisoned(_)) => {
            Err(Error::internal("an earlier call failed inside the library: close the cluster".into()))
        }
    }
}

fn forked() -> Error {
    Error::usage("handles are not inherited: this one belongs to the process that forked this one; open the cards here")
}

fn closed(what: &str) -> Error {
    Error::usage(format!("this {what} was closed, or the pointer is no handle of a {what}"))
}

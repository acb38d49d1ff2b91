//! Handles: numbers in the form of pointers, never given twice and never followed. A handle that was closed, or never was one, is
//! not found.

use std::collections::HashMap;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, RwLock, TryLockError};

use ::fpga_collective::{Cards, CollectiveId};

use crate::error::{Error, Result};

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

#[derive(Default)]
struct Table {
    last: usize,
    /// Numbers up to this one are those of the process that forked this one.
    inherited: usize,
    clusters: HashMap<usize, Shared>,
    /// Of collectives, the cluster.
    collectives: HashMap<usize, (usize, CollectiveId)>,
}

impl Table {
    fn next(&mut self) -> usize {
        self.last += 1;
        self.last
    }

    fn cluster(&self, number: usize) -> Result<Shared> {
        self.clusters.get(&number).cloned().ok_or_else(|| self.absent("cluster", number))
    }

    fn collective(&self, number: usize) -> Result<(usize, CollectiveId)> {
        self.collectives.get(&number).copied().ok_or_else(|| self.absent("collective", number))
    }

    fn absent(&self, what: &str, number: usize) -> Error {
        if number <= self.inherited { forked() } else { closed(what) }
    }
}

/// The process whose clusters the table has; 0 before the first.
static OWNER: AtomicU32 = AtomicU32::new(0);

static TABLE: LazyLock<RwLock<Table>> = LazyLock::new(RwLock::default);

/// Nothing that holds this lock calls other code, so no panic leaves the table half changed.
macro_rules! table {
    ($access:ident) => {
        TABLE.$access().unwrap_or_else(std::sync::PoisonError::into_inner)
    };
}

/// Refuses the handles of the process that forked this one. Takes no lock: a thread that does not exist here may hold it.
fn check_process() -> Result<()> {
    match OWNER.load(Ordering::Relaxed) {
        0 => Ok(()),
        owner if owner == process::id() => Ok(()),
        _ => Err(forked()),
    }
}

/// Returns the handle of new cards.
pub(crate) fn add(cards: Cards) -> *mut fpga_cluster {
    let mut table = table!(write);
    let own = process::id();
    if OWNER.swap(own, Ordering::Relaxed) != own {
        // Not dropped: they are the parent's, and a thread that does not exist here may hold their locks.
        std::mem::forget(std::mem::take(&mut table.clusters));
        table.collectives.clear();
        table.inherited = table.last;
    }
    let number = table.next();
    table.clusters.insert(number, Arc::new(Mutex::new(Some(cards))));
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
    let mut table = table!(write);
    let number = table.next();
    table.collectives.insert(number, (cluster.addr(), id));
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
    check_process()?;
    let (shared, id) = {
        let table = table!(read);
        let (cluster, id) = table.collective(number)?;
        (table.cluster(cluster)?, id)
    };
    on(&shared, |cards| body(cards.as_mut().ok_or_else(|| closed("cluster"))?, id))
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
    check_process()?;
    table!(read).cluster(number)
}

/// Runs `body`, after which the descriptor is readable for what is in flight only. Refuses to wait for another thread.
fn on<T>(shared: &Shared, body: impl FnOnce(&mut Option<Cards>) -> Result<T>) -> Result<T> {
    match shared.try_lock() {
        Ok(mut cards) => {
            let outcome = body(&mut cards);
            if let Some(cards) = cards.as_mut() {
                cards.clear_event();
            }
            outcome
        }
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

//! The end of the interpreter, while other threads use cards.
//!
//! Before Python 3.14, a thread that runs Python code then ends where it waits for the interpreter's lock, and frames of Rust below
//! it do not survive that. So at exit no thread is in Python code that this library has called. PyO3 stops those that return from
//! cards. Numbers whose class converts them by Python code (`__float__`) are read before, and not counted.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Calls of Python code are short.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(1);

static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// Threads in Python code that this library has called. Changed with the interpreter's lock, but by threads that stop.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// Forks between the first process with this library and this one.
static FORKS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Calls of Python code that this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread ends the interpreter, and goes on.
    static ENDS_IT: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, its thread calls Python code, in which another thread may take the interpreter's lock.
pub(crate) struct InPython(());

impl InPython {
    /// Does not return once the interpreter ends.
    pub(crate) fn enter(py: Python<'_>) -> Self {
        if IS_ENDING.load(Ordering::SeqCst) {
            py.detach(stop_if_ending);
        }
        if DEPTH.replace(DEPTH.get() + 1) == 0 {
            INSIDE.fetch_add(1, Ordering::SeqCst);
        }
        InPython(())
    }
}

impl Drop for InPython {
    fn drop(&mut self) {
        if DEPTH.replace(DEPTH.get() - 1) == 1 {
            INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Stops this thread for good if the interpreter ends. Called without the interpreter's lock.
pub(crate) fn stop_if_ending() {
    if !IS_ENDING.load(Ordering::SeqCst) || ENDS_IT.get() {
        return;
    }
    if DEPTH.get() > 0 {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
    loop {
        std::thread::park();
    }
}

/// Drops what may call Python.
pub(crate) fn drop_in_python<T>(py: Python<'_>, value: T) {
    let _inside = InPython::enter(py);
    drop(value);
}

/// Called in a child that Python code has forked: of the threads it has only the one that forked.
#[pyfunction]
pub(crate) fn after_fork() {
    FORKS.fetch_add(1, Ordering::SeqCst);
    INSIDE.store(usize::from(DEPTH.get() > 0), Ordering::SeqCst);
    // The interpreter ends here, too, if the thread that ends it has forked.
    IS_ENDING.store(ENDS_IT.get(), Ordering::SeqCst);
}

/// What differs between a process and a child that Python code has forked.
pub(crate) fn process() -> usize {
    FORKS.load(Ordering::Relaxed)
}

/// Has the other threads stop before the next call of Python code, and waits for those that are in one.
#[pyfunction]
pub(crate) fn at_exit(py: Python<'_>) {
    ENDS_IT.set(true);
    IS_ENDING.store(true, Ordering::SeqCst);
    py.detach(|| {
        let began = Instant::now();
        while INSIDE.load(Ordering::SeqCst) > 0 && began.elapsed() < PATIENCE {
            std::thread::sleep(LOOK_EVERY);
        }
    });
}

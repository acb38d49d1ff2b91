//! Where a thread is: in the program, in a function that this library exports, or in the MPI library.

use std::cell::Cell;

use crate::handlers;

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::Outside) };
}

/// Where a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// In the program.
    Outside,
    /// In a function that this library exports.
    Inside,
    /// In the function of the MPI library that the program has called, by way of this library.
    Passing,
}

/// Where this thread is.
pub(crate) fn state() -> State {
    STATE.get()
}

/// Makes the program's call of the MPI library by `call`.
pub(crate) fn passing<T>(call: impl FnOnce() -> T) -> T {
    within(if state() == State::Inside { State::Passing } else { state() }, call)
}

/// Has the program run its `handler`.
pub(crate) fn outside<T>(handler: impl FnOnce() -> T) -> T {
    within(State::Outside, handler)
}

/// Nothing is restored if `run` does not return: a handler that leaves by an exception or by `longjmp` leaves the exported function,
/// too.
fn within<T>(state: State, run: impl FnOnce() -> T) -> T {
    let before = STATE.replace(state);
    let result = run();
    STATE.set(before);
    result
}

/// Held while a thread is inside an exported function. MPI libraries call their own functions by names that are exported here; such
/// calls belong to the call that the program has made.
pub(crate) struct Inside(());

impl Inside {
    /// `None` if the thread is inside already.
    pub(crate) fn enter() -> Option<Self> {
        (state() == State::Outside).then(|| {
            STATE.set(State::Inside);
            // Of a call before, which did not look.
            handlers::take_handled();
            Inside(())
        })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        STATE.set(State::Outside);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_inside_once() {
        let outer = Inside::enter().unwrap();
        assert!(Inside::enter().is_none());
        assert!(std::thread::spawn(|| Inside::enter().is_some()).join().unwrap(), "each thread has its own");
        passing(|| assert!(Inside::enter().is_none()));
        passing(|| outside(|| assert!(Inside::enter().is_some())));
        assert_eq!(state(), State::Inside);
        drop(outer);
        assert!(Inside::enter().is_some());
        assert_eq!(passing(state), State::Outside);
    }
}

//! Error handlers of the program.
//!
//! MPI calls them inside of a call that came here, but what they do is the program's: the card takes their collectives, as it takes
//! those that other ranks make meanwhile in no handler. So MPI is given a function of this library for each. It passes nothing by
//! which one function could tell which handler is meant, so there is a fixed number of them.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::entry::{State, outside, state};
use crate::foreign::{Code, SUCCESS, Word};
use crate::session;

/// An error handler of the program: communicator, code, and what the MPI library adds.
type Handler = unsafe extern "C-unwind" fn(Word, Word, ...);

/// One of the functions that MPI calls instead.
type StandIn = unsafe extern "C-unwind" fn(Word, Word, Word, Word);

/// Those of the program that have a stand-in. They keep it: a handler that is freed may be in use by a communicator.
static HANDLERS: [AtomicPtr<c_void>; STAND_INS.len()] = [const { AtomicPtr::new(ptr::null_mut()) }; STAND_INS.len()];

macro_rules! stand_ins {
    ($($index:literal)*) => { &[$(stand_in::<$index>),*] };
}

/// mpi4py has 32 handlers.
const STAND_INS: &[StandIn] = stand_ins! {
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
};

/// The function that MPI is to call instead of `handler`: `handler` itself if there is none left.
pub(crate) fn instead_of(handler: Word) -> Word {
    let own = handler as *mut c_void;
    let has_taken = |slot: &AtomicPtr<c_void>| {
        let taken = slot.compare_exchange(ptr::null_mut(), own, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok() || taken == Err(own)
    };
    // A handler at no address is MPI's to refuse. A stand-in comes from a tool, which passes on what it was given.
    let index = if own.is_null() || STAND_INS.iter().any(|one| *one as Word == handler) {
        None
    } else {
        HANDLERS.iter().position(has_taken)
    };
    index.map_or(handler, |index| STAND_INS[index] as Word)
}

thread_local! {
    /// The code of an error of a call that this library makes for itself.
    static HANDLED: Cell<Code> = const { Cell::new(SUCCESS) };
}

/// The error that MPI has raised in a call of this library since this was asked last, if the program has a handler.
pub(crate) fn take_handled() -> Code {
    HANDLED.replace(SUCCESS)
}

/// Calls a handler of the program.
///
/// # Safety
/// MPI calls it, with what it passes to a handler: registers that it does not set have any value.
unsafe extern "C-unwind" fn stand_in<const INDEX: usize>(comm: Word, code: Word, third: Word, fourth: Word) {
    let handler = HANDLERS[INDEX].load(Ordering::Relaxed);
    // SAFETY: MPI has this function from `instead_of`, which has stored the address of an error handler before.
    let handler = unsafe { std::mem::transmute::<*mut c_void, Handler>(handler) };
    // SAFETY: MPI calls the handler with these arguments, of which it reads those that MPI has passed.
    let call = || unsafe { handler(comm, code, third, fourth) };
    match state() {
        // A call that this library makes for itself, while it holds the session. The program has the error when its own call fails.
        // SAFETY: MPI passes the address of the code.
        State::Inside => HANDLED.set(unsafe { (code as *const Code).read() }),
        // A delete function of the program has failed inside of such a call.
        State::Passing if session::is_held() => call(),
        State::Passing => outside(call),
        State::Outside => call(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Inside, passing};

    thread_local! {
        static CALLS: Cell<u32> = const { Cell::new(0) };
    }

    /// A handler that finds its thread outside of all calls.
    unsafe extern "C-unwind" fn handler(comm: Word, code: Word, _: Word, _: Word) {
        // SAFETY: `raise` passes the address of the code.
        assert_eq!((comm, unsafe { (code as *const Code).read() }), (7, 8));
        assert!(Inside::enter().is_some());
        CALLS.set(CALLS.get() + 1);
    }

    unsafe extern "C-unwind" fn thrower(_: Word, _: Word, _: Word, _: Word) {
        panic!("thrown by a handler");
    }

    /// What MPI does when an error occurs.
    fn raise(handler: StandIn) {
        let given = instead_of(handler as Word);
        assert_eq!(given, instead_of(handler as Word), "a function has one stand-in");
        assert_eq!(given, instead_of(given), "which has none of its own");
        let index = STAND_INS.iter().position(|one| *one as Word == given).unwrap();
        let code: Code = 8;
        // SAFETY: the stand-in is that of `handler`, which takes the address of a code.
        unsafe { STAND_INS[index](7, (&raw const code) as Word, 0, 0) };
    }

    #[test]
    fn handlers_run_outside_of_calls() {
        raise(handler);
        let inside = Inside::enter().unwrap();
        passing(|| raise(handler));
        assert!(Inside::enter().is_none(), "the call goes on when the handler returns");
        assert_eq!(CALLS.get(), 2);
        raise(handler);
        assert_eq!(CALLS.get(), 2, "calls of this library have no handler");
        assert_eq!((take_handled(), take_handled()), (8, SUCCESS), "but they fail");
        drop(inside);
    }

    #[test]
    fn handlers_may_throw() {
        let thrown = std::panic::catch_unwind(|| {
            let _inside = Inside::enter().unwrap();
            passing(|| raise(thrower));
        });
        assert!(thrown.is_err() && Inside::enter().is_some());
    }
}

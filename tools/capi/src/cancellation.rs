//! Cancellation of threads: it takes effect after a call.
#![allow(unsafe_code)]

use std::ffi::c_int;

/// `PTHREAD_CANCEL_DISABLE` of pthread.h, in glibc and musl.
const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// As long as it lives, the calling thread is not cancelled. glibc unwinds the stack of a cancelled thread, and functions in Rust end
/// the process then.
pub(crate) struct Held {
    before: c_int,
}

impl Held {
    pub(crate) fn new() -> Self {
        Held { before: set(DISABLE) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        set(self.before);
    }
}

/// Sets the calling thread's state, and returns the one before.
fn set(state: c_int) -> c_int {
    let mut before = 0;
    // SAFETY: The pointer leads to a local, which the function writes before it returns. The function has no other requirement:
    // it fails for an unknown state only, and `state` is `DISABLE` or one that it has given.
    unsafe { pthread_setcancelstate(state, &raw mut before) };
    before
}

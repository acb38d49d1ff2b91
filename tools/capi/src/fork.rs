//! Forks of the process: a child is told at once, before another call can find a lock that a thread of its parent holds.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> c_int;
}

/// Has `child` called in every forked child, by its only thread.
pub(crate) fn tell_children(child: unsafe extern "C" fn()) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    if !IS_TOLD.swap(true, Ordering::Relaxed) {
        // SAFETY: the function is called without arguments for as long as this library is loaded; glibc forgets it with the library.
        // The call fails only without memory: then children are refused by the driver, access by access.
        let _ = unsafe { pthread_atfork(None, None, Some(child)) };
    }
}

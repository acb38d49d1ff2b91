//! Texts: of statuses, of errors, of the version.

use std::ffi::{CStr, c_char, c_int};

use crate::error;
use crate::status::fpga_status::{
    FPGA_BUSY, FPGA_FAILED, FPGA_GONE, FPGA_INTERNAL, FPGA_NO_CARD, FPGA_OK, FPGA_REFUSED, FPGA_TIMEOUT, FPGA_USAGE,
};

/// Returns the version of the library, such as "0.1.0". Valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Returns what a status means, in a few words. Valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_status_text(status: c_int) -> *const c_char {
    let text: &CStr = match status {
        one if one == FPGA_OK as c_int => c"done",
        one if one == FPGA_FAILED as c_int => c"the operation failed",
        one if one == FPGA_USAGE as c_int => c"an argument is invalid",
        one if one == FPGA_NO_CARD as c_int => c"a card does not exist, or this user may not open it",
        one if one == FPGA_TIMEOUT as c_int => c"a time limit expired",
        one if one == FPGA_GONE as c_int => c"a card or a link is gone",
        one if one == FPGA_REFUSED as c_int => c"refused before anything was launched",
        one if one == FPGA_BUSY as c_int => c"another thread is using the cluster",
        one if one == FPGA_INTERNAL as c_int => c"an error of the library",
        _ => c"unknown status",
    };
    text.as_ptr()
}

/// Returns the text of the last call that failed on this thread: what is wrong, the value, and the causes. Empty before the first.
/// Valid until the next call that fails on this thread, or the thread ends; calls that succeed keep it.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_error_text() -> *const c_char {
    error::last_text()
}

/// Returns the rank that failed in the last call that failed on this thread; -1 if none is known.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_error_rank() -> i64 {
    error::last_rank()
}

//! The way out of every function that can fail: the status, the text of this thread, and no panic.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use fpga_collective::Class;

use crate::cancellation;
use crate::status::fpga_status;

/// A failed call.
#[derive(Debug)]
pub(crate) struct Error {
    status: fpga_status,
    text: String,
    rank: Option<u32>,
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Error { status: Class::Usage.into(), text: text.into(), rank: None }
    }

    pub(crate) fn busy() -> Self {
        let text = "another thread is using this cluster: one thread at a time".to_owned();
        Error { status: fpga_status::FPGA_BUSY, text, rank: None }
    }

    pub(crate) fn internal(text: String) -> Self {
        Error { status: fpga_status::FPGA_INTERNAL, text, rank: None }
    }

    pub(crate) fn is_internal(&self) -> bool {
        self.status == fpga_status::FPGA_INTERNAL
    }
}

impl From<fpga_collective::Error> for Error {
    fn from(error: fpga_collective::Error) -> Self {
        Error { status: error.class.into(), text: error.to_string(), rank: error.rank }
    }
}

/// Of the last call that failed on a thread.
struct Last {
    text: CString,
    rank: Option<u32>,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::new(Last { text: CString::default(), rank: None });
}

pub(crate) fn last_text() -> *const c_char {
    // At the end of a thread there is no text left.
    LAST.try_with(|last| last.borrow().text.as_ptr()).unwrap_or(c"".as_ptr())
}

pub(crate) fn last_rank() -> i64 {
    LAST.try_with(|last| last.borrow().rank.map_or(-1, i64::from)).unwrap_or(-1)
}

/// Runs the body of a function that can fail. All of them go through here.
pub(crate) fn call(body: impl FnOnce() -> Result<()>) -> c_int {
    let _held = cancellation::Held::new();
    // What a panic interrupted is behind a lock, which is poisoned then: nothing sees it again.
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(of_panic(&*panic)));
    match outcome {
        Ok(()) => fpga_status::FPGA_OK as c_int,
        Err(error) => note(error) as c_int,
    }
}

fn of_panic(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    Error::internal(format!("error of the library: {}", text.unwrap_or("panic")))
}

fn note(error: Error) -> fpga_status {
    let text = CString::new(error.text.replace('\0', "\\0")).unwrap_or_default();
    let _ = LAST.try_with(|last| *last.borrow_mut() = Last { text, rank: error.rank });
    error.status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_text() {
        assert_eq!(call(|| panic!("on {}", "purpose")), fpga_status::FPGA_INTERNAL as c_int);
        LAST.with(|last| assert_eq!(last.borrow().text.to_str().unwrap(), "error of the library: on purpose"));
        assert_eq!(call(|| Ok(())), 0);
        LAST.with(|last| assert_ne!(last.borrow().text.as_c_str(), c""));
    }

    #[test]
    fn every_thread_has_its_own_text() {
        assert_eq!(call(|| Err(Error::usage("here\0there"))), fpga_status::FPGA_USAGE as c_int);
        std::thread::spawn(|| LAST.with(|last| assert!(last.borrow().text.is_empty()))).join().unwrap();
        LAST.with(|last| assert_eq!(last.borrow().text.to_str().unwrap(), "here\\0there"));
    }
}

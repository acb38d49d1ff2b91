//! Codes of this library's errors. MPI has few classes, and keeps each code for ever: all errors are of one class, and each text has one
//! code.

use std::collections::HashMap;
use std::ffi::{CString, c_int};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::foreign::{Code, pmpi};
use crate::mpi::{Result, check};

/// Longest text, without its terminator: MPI_MAX_ERROR_STRING is 256 in Open MPI, and more in the others.
const TEXT_MAX: usize = 255;
/// Most codes. Later texts have the code of the first, which names what most of them come from.
const CODES_MAX: usize = 64;

#[derive(Debug, Default)]
struct Codes {
    class: Option<c_int>,
    first: Option<Code>,
    by_text: HashMap<String, Code>,
}

static CODES: LazyLock<Mutex<Codes>> = LazyLock::new(Mutex::default);

/// Returns the code of the error with `text`.
///
/// # Errors
/// That of MPI, which has no more classes or codes.
pub(crate) fn of(text: &str) -> Result<Code> {
    let most = (0..=TEXT_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let text = &text[..most];
    let mut codes = CODES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(code) = codes.by_text.get(text) {
        return Ok(*code);
    }
    if let Some(first) = codes.first.filter(|_| codes.by_text.len() >= CODES_MAX) {
        return Ok(first);
    }
    let class = match codes.class {
        Some(class) => class,
        None => {
            let mut class = 0;
            // SAFETY: MPI writes one integer.
            check(unsafe { pmpi!(MPI_Add_error_class, &raw mut class) })?;
            *codes.class.insert(class)
        }
    };
    let mut code = 0;
    // SAFETY: the class was made by MPI, which writes one integer.
    check(unsafe { pmpi!(MPI_Add_error_code, class, &raw mut code) })?;
    let shown = CString::new(text.replace('\0', " ")).unwrap_or_default();
    codes.first.get_or_insert(code);
    codes.by_text.insert(text.to_owned(), code);
    // A code without its text is one, too.
    // SAFETY: the code was made above; the text is terminated and below MPI_MAX_ERROR_STRING, and MPI copies it.
    let _ = check(unsafe { pmpi!(MPI_Add_error_string, code, shown.as_ptr()) });
    Ok(code)
}

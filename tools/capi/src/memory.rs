//! Memory of the caller. All `unsafe` code of the library that touches it is here.
//!
//! What the caller owes is in `fpga.h`: a pointer that is not NULL leads to memory of the stated size that no other thread changes
//! during the call. NULL, and sizes that no memory has, are refused.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};

use crate::error::{Error, Result};

/// More bytes than a structure of any version of the library has: a size that is none.
const LARGEST_STRUCTURE: usize = 4096;

/// Reads a text.
pub(crate) fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str> {
    option(pointer, what)?.ok_or_else(|| Error::usage(format!("{what} is NULL")))
}

/// Reads a text that may be NULL.
pub(crate) fn option<'a>(pointer: *const c_char, what: &str) -> Result<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: Not NULL; that a zero byte ends it, and that nobody changes it during the call, the caller sees to (fpga.h). No
    // function of the library keeps it.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Error::usage(format!("{what} is not UTF-8: {text:?}")))
}

/// Bytes that the caller has.
pub(crate) fn bytes<'a>(pointer: *const c_void, bytes: usize) -> Result<&'a [u8]> {
    if !check(pointer, bytes)? {
        return Ok(&[]);
    }
    // SAFETY: Not NULL, and not longer than memory can be, by `check`; that there are so many initialised bytes, and that nobody
    // changes them during the call, the caller sees to (fpga.h). No function of the library keeps them.
    Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), bytes) })
}

/// Bytes of the caller to be overwritten.
pub(crate) fn bytes_mut<'a>(pointer: *mut c_void, bytes: usize) -> Result<&'a mut [u8]> {
    if !check(pointer, bytes)? {
        return Ok(&mut []);
    }
    // SAFETY: Not NULL, and not longer than memory can be, by `check`; that there are so many bytes, and that nobody uses them
    // during the call, the caller sees to (fpga.h). Every pattern is a `u8`. No function of the library keeps them.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer.cast(), bytes) })
}

/// Whether there are any bytes.
fn check(pointer: *const c_void, bytes: usize) -> Result<bool> {
    match (bytes, pointer.is_null()) {
        (0, _) => Ok(false),
        (_, true) => Err(Error::usage(format!("data is NULL, but {bytes} bytes long"))),
        _ if bytes > isize::MAX as usize => {
            Err(Error::usage(format!("data of {bytes} bytes is longer than any memory")))
        }
        _ => Ok(true),
    }
}

/// Writes one value, which must not be NULL. Called before anything else is done, to refuse NULL early.
pub(crate) fn out<T>(pointer: *mut T, what: &'static str) -> Result<Out<T>> {
    if pointer.is_null() { Err(Error::usage(format!("{what} is NULL"))) } else { Ok(Out(pointer)) }
}

/// Where the caller wants a value. Not NULL.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    pub(crate) fn set(self, value: T) {
        // SAFETY: Not NULL, by `out`; that it leads to memory for a `T`, the caller sees to (fpga.h). Not aligned, if it comes
        // from packed memory.
        unsafe { self.0.write_unaligned(value) }
    }

    /// Writes the first `bytes` bytes of the value: what a caller with an older header knows. Zeros what a caller with a later header
    /// has beyond the value.
    pub(crate) fn set_prefix(self, value: T, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Err(Error::usage("the size of the structure is 0: pass sizeof"));
        }
        if bytes > LARGEST_STRUCTURE {
            let message = format!("a structure of {bytes} bytes: expected at most {LARGEST_STRUCTURE}; pass sizeof");
            return Err(Error::usage(message));
        }
        let length = bytes.min(size_of::<T>());
        let to = bytes_mut(self.0.cast(), bytes)?;
        to[length..].fill(0);
        // SAFETY: The source is `length` bytes of a value that lives here, at most all of them. The destination has `bytes` bytes,
        // at least `length`. They do not overlap: the source is a local.
        unsafe { std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), to.as_mut_ptr(), length) }
        Ok(())
    }
}

/// Reads one value, or the part of it that a caller with an older header knows; the rest is `T`'s default. The first version had
/// `first` bytes: fewer may end within a pointer.
pub(crate) fn structure<T: Copy + Default>(pointer: *const T, bytes: usize, first: usize, what: &str) -> Result<T> {
    if pointer.is_null() {
        return Err(Error::usage(format!("{what} is NULL")));
    }
    if bytes < first || bytes > size_of::<T>() {
        let known = size_of::<T>();
        let message = format!("{what} has {bytes} bytes: expected at least {first} and at most {known}; pass sizeof");
        return Err(Error::usage(message));
    }
    let mut value = T::default();
    // SAFETY: The destination is a local of at least `bytes` bytes, by the check. The source is not NULL and has `bytes` bytes, as
    // the caller says. `T` is one of the structures of fpga.h: pointers and integers, for which every pattern is a value.
    unsafe { std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut value).cast::<u8>(), bytes) }
    Ok(value)
}

/// Copies a text and its end to `bytes` bytes at `pointer`.
pub(crate) fn copy_text(text: &str, pointer: *mut c_char, bytes: usize) -> Result<()> {
    let needed = text.len() + 1;
    if bytes < needed {
        return Err(Error::usage(format!("{bytes} bytes are too few for {text:?}: it needs {needed}")));
    }
    let buffer = bytes_mut(pointer.cast(), bytes)?;
    buffer[..text.len()].copy_from_slice(text.as_bytes());
    buffer[text.len()] = 0;
    Ok(())
}

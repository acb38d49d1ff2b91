//! Integer arguments: those of Python have any size, and a refusal names the argument.

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::error::{Error, Result};

/// Reads an integer. One that does not fit is the nearest that does: no argument may be so large.
pub(crate) fn integer(object: &Bound<'_, PyAny>) -> PyResult<i128> {
    match object.extract::<i128>() {
        Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => {
            Ok(if object.lt(0)? { i128::MIN } else { i128::MAX })
        }
        extracted => extracted,
    }
}

/// Reads an integer, or `None`.
pub(crate) fn optional(object: &Bound<'_, PyAny>) -> PyResult<Option<i128>> {
    if object.is_none() { Ok(None) } else { integer(object).map(Some) }
}

/// Returns a rank. Whether it is one of the `ranks`, the planner says, unless no rank has such a number.
pub(crate) fn rank(name: &str, value: i128, ranks: usize) -> Result<u32> {
    let invalid = |_| Error::usage(format!("{name} {value} is not a rank (the last is {})", ranks - 1));
    u32::try_from(value).map_err(invalid)
}

/// Returns a size or an address.
pub(crate) fn size(name: &str, value: i128, last: u64) -> Result<u64> {
    let found = u64::try_from(value).ok().filter(|found| *found <= last);
    found.ok_or_else(|| Error::usage(format!("invalid {name} {value}: expected 0 to {last}")))
}

//! Errors, and the exceptions that they become: classes of `python/fpga/_errors.py`.

use fpga_collective::Class;
use pyo3::prelude::*;

use crate::exit::InPython;
use crate::names::Names;

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Error {
    /// The cards, or an argument for them.
    Cards {
        error: Box<fpga_collective::Error>,
        /// The time limit that expired, seconds.
        timeout: Option<f64>,
    },
    /// Another thread is using the cards.
    Busy,
    /// A panic.
    Internal(String),
    /// Of Python: a wrong type, Ctrl-C.
    Python(PyErr),
}

impl Error {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        fpga_collective::Error::new(Class::Usage, message).into()
    }

    /// Adds the time limit to the error of a wait, if it has none: a step of the wait may have a limit of its own.
    pub(crate) fn with_timeout(mut self, limit: f64) -> Self {
        if let Error::Cards { error, timeout } = &mut self
            && error.class == Class::Timeout
        {
            timeout.get_or_insert(limit);
        }
        self
    }

    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self, Error::Cards { error, .. } if error.class == Class::Timeout)
    }
}

impl From<fpga_collective::Error> for Error {
    fn from(error: fpga_collective::Error) -> Self {
        Error::Cards { error: Box::new(error), timeout: None }
    }
}

impl From<PyErr> for Error {
    fn from(error: PyErr) -> Self {
        Error::Python(error)
    }
}

/// What the exceptions have as `kind`: the names of the exit codes of `fpgactl`.
fn kind(class: Class) -> &'static str {
    match class {
        Class::Failed => "failed",
        Class::Usage => "usage",
        Class::NoCard => "no-card",
        Class::Timeout => "timeout",
        Class::Gone => "gone",
        Class::Refused => "refused",
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        let (kind, error, timeout) = match error {
            Error::Python(error) => return error,
            Error::Busy => {
                let message = "another thread is using these cards: one thread at a time";
                ("busy", fpga_collective::Error::new(Class::Refused, message), None)
            }
            Error::Internal(message) => ("internal", fpga_collective::Error::new(Class::Failed, message), None),
            Error::Cards { error, timeout } => (kind(error.class), *error, timeout),
        };
        let reason = error.reason.map(|reason| reason.to_string());
        let fields = (kind, error.message, error.causes, error.rank, error.instruction, reason, timeout);
        Python::attach(|py| {
            let _inside = InPython::enter(py);
            match Names::get(py).and_then(|names| names.exception.bind(py).call1(fields)) {
                Ok(value) => PyErr::from_value(value),
                Err(error) => error,
            }
        })
    }
}

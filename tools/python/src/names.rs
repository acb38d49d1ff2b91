//! Functions and classes of Python that this library uses. All are found when the module is imported: while the interpreter ends,
//! nothing can be imported.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

pub(crate) struct Names {
    pub(crate) asarray: Py<PyAny>,
    pub(crate) empty: Py<PyAny>,
    pub(crate) frombuffer: Py<PyAny>,
    pub(crate) generic: Py<PyAny>,
    pub(crate) ndarray: Py<PyAny>,
    pub(crate) zeros: Py<PyAny>,
    /// `fpga._arrays.zeros`.
    pub(crate) card_zeros: Py<PyAny>,
    /// Makes an exception of the fields of an error.
    pub(crate) exception: Py<PyAny>,
}

impl Names {
    pub(crate) fn get(py: Python<'_>) -> PyResult<&'static Names> {
        static NAMES: PyOnceLock<Names> = PyOnceLock::new();
        NAMES.get_or_try_init(py, || {
            let numpy = py.import("numpy")?;
            let of_numpy = |name: &str| Ok::<_, PyErr>(numpy.getattr(name)?.unbind());
            Ok(Names {
                asarray: of_numpy("asarray")?,
                empty: of_numpy("empty")?,
                frombuffer: of_numpy("frombuffer")?,
                generic: of_numpy("generic")?,
                ndarray: of_numpy("ndarray")?,
                zeros: of_numpy("zeros")?,
                card_zeros: py.import("fpga._arrays")?.getattr("zeros")?.unbind(),
                exception: py.import("fpga._errors")?.getattr("exception")?.unbind(),
            })
        })
    }
}

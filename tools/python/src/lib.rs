//! `fpga._fpga`, the part of the Python package `fpga` that is not Python.
//!
//! The interpreter lock is released while cards work, and held while memory of Python objects is read or written.
#![deny(missing_docs)]

mod array;
mod card;
mod cards;
mod element;
mod error;
mod exit;
mod form;
mod integer;
mod memory;
mod names;
mod operation;
mod plan;
mod shared;

/// The functions and classes of the package `fpga` that are not Python.
#[pyo3::pymodule]
mod _fpga {
    use pyo3::exceptions::PyImportError;
    use pyo3::prelude::*;
    use pyo3::sync::PyOnceLock;
    use pyo3::types::IntoPyDict;

    #[pymodule_export]
    use crate::card::{Card, Status};
    #[pymodule_export]
    use crate::cards::{Cards, open};
    #[pymodule_export]
    use crate::memory::Memory;
    #[pymodule_export]
    use crate::operation::{Operation, Times};
    #[pymodule_export]
    use crate::plan::Plan;

    /// The version of the package.
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "its name in Python")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Each interpreter has its own.
        static SYS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
        let py = module.py();
        let sys = py.import("sys")?;
        // The exceptions, and what else is found once, are objects of one interpreter.
        if !SYS.get_or_init(py, || sys.clone().unbind()).is(&sys) {
            let message =
                "fpga serves one interpreter of a process, and another one has imported it: use a process of its own";
            return Err(PyImportError::new_err(message));
        }
        crate::names::Names::get(py)?;
        let at_exit = wrap_pyfunction!(crate::exit::at_exit, module)?;
        py.import("atexit")?.call_method1("register", (at_exit,))?;
        let after_fork = wrap_pyfunction!(crate::exit::after_fork, module)?;
        let hooks = [("after_in_child", after_fork)].into_py_dict(py)?;
        py.import("os")?.call_method("register_at_fork", (), Some(&hooks))?;
        Ok(())
    }
}

//! `fpga._fpga`, the part of the Python package `fpga` that is not Python.
//!
//! The interpreter lock is released while cards work, and held while memory of Python objects is read or written.
#![deny(missing_docs)]

mod array;
mod card;
mod cards;
mod error;
mod form;
mod memory;
mod operation;
mod plan;
mod shared;

/// The functions and classes of the package `fpga` that are not Python.
#[pyo3::pymodule]
mod _fpga {
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
}

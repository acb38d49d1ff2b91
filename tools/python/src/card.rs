//! Single cards: what they are, and their memory.

use std::sync::Arc;

use fpga_collective::CardInfo;
use pyo3::prelude::*;
use pyo3::types::PyFrozenSet;

use crate::array::Array;
use crate::exit::InPython;
use crate::shared::Shared;

/// A card of a ``Cards``: what it can do, and its memory.
#[pyclass(frozen, module = "fpga")]
pub(crate) struct Card {
    shared: Arc<Shared>,
    index: u32,
    info: CardInfo,
}

/// What a card is doing.
#[pyclass(frozen, get_all, module = "fpga")]
pub(crate) struct Status {
    /// The state of its queue: "running", "stopped", "poisoned" or "gone".
    queue: String,
    /// Its clock, in cycles.
    cycles: u64,
    /// Instructions completed since the card was reset.
    retired: u64,
}

#[pymethods]
impl Status {
    fn __repr__(&self) -> String {
        format!("<fpga.Status {}, {} cycles, {} instructions retired>", self.queue, self.cycles, self.retired)
    }
}

impl Card {
    pub(crate) fn new(shared: &Arc<Shared>, index: u32, info: CardInfo) -> Self {
        Card { shared: Arc::clone(shared), index, info }
    }
}

#[pymethods]
impl Card {
    /// The selector of the card.
    #[getter]
    fn name(&self) -> &str {
        &self.info.name
    }

    /// Kind of the bus: "mock", "vfio" or "vfio-user".
    #[getter]
    fn kind(&self) -> &'static str {
        self.info.kind
    }

    /// Whether the card is a mock, on whatever bus.
    #[getter]
    fn is_mock(&self) -> bool {
        self.info.is_mock
    }

    /// Its node in the fabric.
    #[getter]
    fn node(&self) -> u32 {
        self.info.node
    }

    /// Cards in the fabric.
    #[getter]
    fn nodes(&self) -> u32 {
        self.info.nodes
    }

    /// Links of the card.
    #[getter]
    fn ports(&self) -> u32 {
        self.info.ports
    }

    /// Exchanges that it runs at once.
    #[getter]
    fn lanes(&self) -> u32 {
        self.info.lanes
    }

    /// Clock of the counters, kHz.
    #[getter]
    fn clock_khz(&self) -> u32 {
        self.info.clock_khz
    }

    /// Card memory, bytes.
    #[getter]
    fn memory_bytes(&self) -> u64 {
        self.info.memory_bytes
    }

    /// Names of the operations that the card runs.
    #[getter]
    fn operations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyFrozenSet>> {
        PyFrozenSet::new(py, self.info.operation_names())
    }

    /// Names of the element types that reductions take.
    #[getter]
    fn elements<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyFrozenSet>> {
        PyFrozenSet::new(py, self.info.element_names())
    }

    /// Names of the reductions.
    #[getter]
    fn reductions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyFrozenSet>> {
        PyFrozenSet::new(py, self.info.reduction_names())
    }

    /// Returns what the card is doing, by its registers.
    fn status(&self, py: Python<'_>) -> PyResult<Status> {
        let index = self.index;
        let status = self.shared.without_lock(py, |cards| cards.status(index))?;
        Ok(Status { queue: status.queue, cycles: status.cycles, retired: status.retired })
    }

    /// Writes a C-contiguous array of any shape and any type without references to objects to the card's memory at a byte address.
    ///
    /// Operations use the same memory, from its beginning: do not write there while one is in flight.
    fn write(&self, py: Python<'_>, address: u64, array: &Bound<'_, PyAny>) -> PyResult<()> {
        let inside = InPython::enter(py);
        let array = Array::source(array, "the array")?;
        drop(inside);
        let (index, bytes) = (self.index, array.bytes());
        Ok(self.shared.with(py, |state| {
            let found = self.shared.find(array.address(), bytes);
            let (buffer, at) = match found {
                Some(found) => found,
                None => {
                    let staging = state.staging(bytes)?;
                    staging.copy_in(py, 0, array.view(), 0, bytes)?;
                    (Arc::clone(staging.buffer()), 0)
                }
            };
            state.transfer(py, |cards| cards.load_memory(index, address, &buffer, at, bytes as u64))
        })?)
    }

    /// Fills a writable, C-contiguous array with the card's memory from a byte address on, and returns the array.
    fn read<'py>(&self, py: Python<'py>, address: u64, out: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let inside = InPython::enter(py);
        let array = Array::destination(&out, "out")?;
        drop(inside);
        let (index, bytes) = (self.index, array.bytes());
        self.shared.with(py, |state| {
            if let Some((buffer, at)) = self.shared.find(array.address(), bytes) {
                return state.transfer(py, |cards| cards.store_memory(index, address, &buffer, at, bytes as u64));
            }
            let staging = state.staging(bytes)?;
            let buffer = staging.buffer();
            state.transfer(py, |cards| cards.store_memory(index, address, buffer, 0, bytes as u64))?;
            staging.copy_out(py, 0, array.view(), 0, bytes)
        })?;
        Ok(out)
    }

    fn __repr__(&self) -> String {
        format!("<fpga.Card {}, node {} of {}>", self.info.name, self.info.node, self.info.nodes)
    }
}

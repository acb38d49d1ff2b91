//! Single cards: what they are, and their memory.

use std::sync::Arc;

use fpga_collective::CardInfo;
use pyo3::prelude::*;
use pyo3::types::PyFrozenSet;

use crate::array::Array;
use crate::error::Result;
use crate::exit::InPython;
use crate::integer::{integer, size};
use crate::shared::Shared;

/// Bytes that go through the staging buffer at once. It stays until the cards are closed, and each part costs an instruction.
const PART: usize = 32 << 20;

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
    /// The state of its queue: "running", "halted" (the card has stopped by itself), "stopped", "poisoned" or "gone".
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

    fn address(&self, value: i128) -> Result<u64> {
        size("address", value, self.info.memory_bytes)
    }
}

/// Returns begin and length of the parts of so many bytes.
fn parts(bytes: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..bytes).step_by(PART).map(move |at| (at, PART.min(bytes - at)))
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
    fn write(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer)] address: i128,
        array: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let inside = InPython::enter(py);
        let array = Array::source(array, "the array")?;
        drop(inside);
        let (index, address, bytes) = (self.index, self.address(address)?, array.bytes());
        Ok(self.shared.with(py, |state| {
            state.cards.check_memory(index, address, bytes as u64)?;
            if let Some((buffer, at)) = self.shared.find(array.address(), bytes) {
                return state.transfer(py, |cards| cards.load_memory(index, address, &buffer, at, bytes as u64));
            }
            for (from, part) in parts(bytes) {
                let staging = state.staging(part)?;
                staging.copy_in(py, 0, array.view(), from, part)?;
                let (to, buffer) = (address + from as u64, staging.buffer());
                state.transfer(py, |cards| cards.load_memory(index, to, buffer, 0, part as u64))?;
            }
            Ok(())
        })?)
    }

    /// Fills a writable, C-contiguous array with the card's memory from a byte address on, and returns the array.
    /// After an error, the array's content is undefined.
    fn read<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = integer)] address: i128,
        out: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let inside = InPython::enter(py);
        let array = Array::destination(&out, "out")?;
        drop(inside);
        let (index, address, bytes) = (self.index, self.address(address)?, array.bytes());
        self.shared.with(py, |state| {
            state.cards.check_memory(index, address, bytes as u64)?;
            if let Some((buffer, at)) = self.shared.find(array.address(), bytes) {
                return state.transfer(py, |cards| cards.store_memory(index, address, &buffer, at, bytes as u64));
            }
            for (to, part) in parts(bytes) {
                let staging = state.staging(part)?;
                let (from, buffer) = (address + to as u64, staging.buffer());
                state.transfer(py, |cards| cards.store_memory(index, from, buffer, 0, part as u64))?;
                staging.copy_out(py, 0, array.view(), to, part)?;
            }
            Ok(())
        })?;
        Ok(out)
    }

    fn __repr__(&self) -> String {
        format!("<fpga.Card {}, node {} of {}>", self.info.name, self.info.node, self.info.nodes)
    }
}

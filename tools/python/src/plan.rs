//! Plans: collectives that are stored on the cards, to be launched any number of times.

use std::sync::Arc;

use fpga_collective::CollectiveId;
use pyo3::prelude::*;

use crate::array::Array;
use crate::error::{Error, Result};
use crate::exit::InPython;
use crate::form::{Axes, Form};
use crate::integer::integer;
use crate::operation::{Data, Operation, Times};
use crate::shared::{Orphan, Shared};

/// A collective that is planned, verified and stored on the cards: launch it any number of times.
///
/// A plan that nobody holds is released, once its operation in flight is done.
#[pyclass(frozen, module = "fpga")]
pub(crate) struct Plan {
    stored: Arc<Stored>,
    form: Form,
    /// The elements' type, of a reduction.
    element: Option<String>,
    description: fpga_collective::Description,
    bytes: u64,
}

/// A collective that is on the cards as long as its plan or an operation in flight has it.
pub(crate) struct Stored {
    shared: Arc<Shared>,
    id: CollectiveId,
}

impl Drop for Stored {
    fn drop(&mut self) {
        // It may have been released before: then there is none.
        Python::try_attach(|py| self.shared.let_go(py, Orphan::Plan(self.id)));
    }
}

/// Arrays of a launch, checked against each other.
pub(crate) struct Arrays {
    pub(crate) input: Option<Data>,
    pub(crate) output: Option<Data>,
    /// What the operation gives.
    pub(crate) result: Py<PyAny>,
    /// Bytes of a block.
    pub(crate) block_bytes: u64,
}

impl Arrays {
    /// Opens the input, and the output: `out`, or a new array.
    pub(crate) fn open(
        shared: &Shared,
        form: Form,
        input: Option<&Bound<'_, PyAny>>,
        out: Option<&Bound<'_, PyAny>>,
        py: Python<'_>,
    ) -> Result<Self> {
        let object = match (form.input, input) {
            (Axes::Nothing, None) => None,
            (Axes::Nothing, Some(_)) => return Err(Error::usage(format!("{} takes no array", form.name))),
            (_, None) => return Err(Error::usage(format!("{} takes an array", form.name))),
            (_, Some(object)) => Some(object),
        };
        let Some(object) = object else {
            return match out {
                Some(_) => Err(Error::usage(format!("{} has no output: remove out", form.name))),
                None => Ok(Arrays { input: None, output: None, result: py.None(), block_bytes: 0 }),
            };
        };
        let _inside = InPython::enter(py);
        let array = Array::source(object, "the input")?;
        let block = form.block(array.shape(), shared.ranks)?;
        let shape = form.output_shape(block, shared.ranks);
        let block_bytes = (array.bytes() / shared.ranks.pow(form.input.count() as u32)) as u64;
        let result = match out {
            Some(out) => out.clone(),
            None => crate::cards::new_like(object, array.item_bytes(), &shape, form.name == "exscan")?,
        };
        let output = Array::destination(&result, "out")?;
        if output.shape() != shape {
            let found = output.shape();
            return Err(Error::usage(format!("out has shape {found:?}: expected {shape:?}")));
        }
        // A new array has the type of the input, if NumPy spells it otherwise, too.
        if out.is_some() {
            output.check_like(&array, "out", py)?;
        }
        let (input, output) = (Data::new(shared, array), Data::new(shared, output));
        Ok(Arrays { input: Some(input), output: Some(output), result: result.unbind(), block_bytes })
    }
}

impl Plan {
    /// Has the collective `id`, which is on the cards.
    pub(crate) fn new(
        py: Python<'_>,
        shared: &Arc<Shared>,
        id: CollectiveId,
        form: Form,
        element: Option<String>,
        bytes: u64,
    ) -> Result<Self> {
        let stored = Arc::new(Stored { shared: Arc::clone(shared), id });
        let description = shared.with(py, |state| Ok(state.cards.describe(id)?))?;
        Ok(Plan { stored, form, element, description, bytes })
    }

    fn data_bytes(&self, py: Python<'_>, of: i128) -> Result<(u64, u64)> {
        let Stored { shared, id } = &*self.stored;
        let last = shared.ranks - 1;
        let of = u32::try_from(of).map_err(|_| Error::usage(format!("no rank {of} (the last is {last})")))?;
        shared.with(py, |state| Ok(state.cards.data_bytes(*id, of)?))
    }
}

#[pymethods]
impl Plan {
    /// Copies the input to the cards, and launches the collective.
    ///
    /// Shapes and types are those of the method of ``Cards`` with the name of the operation.
    #[pyo3(signature = (array = None, /, *, out = None))]
    fn launch(
        &self,
        py: Python<'_>,
        array: Option<&Bound<'_, PyAny>>,
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Operation> {
        let Stored { shared, id } = &*self.stored;
        let arrays = Arrays::open(shared, self.form, array, out, py)?;
        if self.form.input != Axes::Nothing && arrays.block_bytes != self.bytes {
            let (found, expected) = (arrays.block_bytes, self.bytes);
            return Err(Error::usage(format!("a block has {found} bytes: the plan is for {expected}")).into());
        }
        if let (Some(element), Some(input)) = (&self.element, &arrays.input) {
            input.array().elements().check(element)?;
        }
        let Arrays { input, output, result, .. } = arrays;
        Ok(shared.with(py, |state| {
            let planned = (self.form, *id, Some(Arc::clone(&self.stored)));
            Operation::launch(py, (shared, state), planned, input.as_ref(), (output, result))
        })?)
    }

    /// Removes the collective from the cards; aborts it if it is in flight.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let Stored { shared, id } = &*self.stored;
        Ok(shared.with(py, |state| state.release(py, *id))?)
    }

    /// The operation.
    #[getter]
    fn operation(&self) -> &'static str {
        self.description.operation
    }

    /// The algorithm, chosen or given.
    #[getter]
    fn algorithm(&self) -> &'static str {
        self.description.algorithm
    }

    /// Number of ranks.
    #[getter]
    fn ranks(&self) -> u32 {
        self.description.ranks
    }

    /// Predicted time until the last byte arrives at the last rank, microseconds.
    #[getter]
    fn predicted_us(&self) -> f64 {
        self.description.predicted_us
    }

    /// Bytes of a block.
    #[getter]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes of a rank's input.
    fn input_bytes(&self, py: Python<'_>, #[pyo3(from_py_with = integer)] rank: i128) -> PyResult<u64> {
        Ok(self.data_bytes(py, rank)?.0)
    }

    /// Returns the bytes of a rank's output.
    fn output_bytes(&self, py: Python<'_>, #[pyo3(from_py_with = integer)] rank: i128) -> PyResult<u64> {
        Ok(self.data_bytes(py, rank)?.1)
    }

    /// The times of the last launch that is done; None if there was none, it failed, or another is in flight.
    #[getter]
    fn times(&self, py: Python<'_>) -> PyResult<Option<Times>> {
        let Stored { shared, id } = &*self.stored;
        let times = shared.with(py, |state| Ok(state.cards.times(*id)?))?;
        Ok(times.map(Times::from))
    }

    fn __repr__(&self) -> String {
        let Plan { description, bytes, .. } = self;
        format!(
            "<fpga.Plan {}, {}, {} ranks, {bytes} bytes>",
            description.operation, description.algorithm, description.ranks
        )
    }
}

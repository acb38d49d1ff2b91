//! `open`, and the class `Cards` with a method for each collective.

use std::sync::Arc;

use fpga_collective::Request;
use pyo3::exceptions::{PyIndexError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyMemoryView, PyString, PyTuple};

use crate::card::Card;
use crate::error::{Error, Result};
use crate::exit::InPython;
use crate::form::{Axes, Form};
use crate::integer::{integer, optional, rank, size};
use crate::memory::{Mapped, Memory};
use crate::names::Names;
use crate::operation::{Operation, limit};
use crate::plan::{Arrays, Plan};
use crate::shared::Shared;

/// Opens the cards of a selector, such as "mock:optweb:4" or "vfio-user:/run/fpga", ordered by node.
///
/// ``timeout`` is the time limit of calls that have none of their own, in seconds. Use it as a context manager, or call ``close()``.
#[pyfunction]
#[pyo3(signature = (selector, *, timeout = 10.0))]
pub(crate) fn open(py: Python<'_>, selector: &str, timeout: f64) -> PyResult<Cards> {
    let limit = limit(timeout)?;
    let opened = py.detach(|| {
        let mut cards = fpga_collective::Cards::open(selector)?;
        cards.set_timeout(limit);
        Ok(cards)
    });
    Ok(Cards(Arc::new(Shared::new(opened.map_err(|error: fpga_collective::Error| Error::from(error))?, timeout))))
}

/// Opened cards of one fabric. Rank r of a collective runs on card r; N is the number of cards.
///
/// The methods with names of collectives copy the input to the cards, launch the collective, and return an ``Operation``: ``await`` it, or
/// call its ``wait()``. Arrays are those of NumPy, or other C-contiguous objects with the buffer protocol.
///
/// - ``out``: a writable array with the output's shape and the input's dtype; without it, a new NumPy array.
/// - ``reduction``: "sum", "prod", "min", "max", "and", "or", "xor", "land", "lor", "lxor", "minloc" or "maxloc".
/// - ``element``: the name of a type that NumPy lacks, such as "bf16", for an array with elements of the same size. Without it,
///   reductions take the dtypes i1 to i8, u1 to u8 and f2 to f8, in the byte order of the machine; "minloc" and "maxloc" take records of
///   a value and an index: "f4,i4" (f32i32), "i4,i4" (i32i32), and ``numpy.dtype("f8,i4", align=True)`` (f64i32, 16 bytes), with "i8" for
///   "f8" (i64i32) and "i2" (i16i32, 8 bytes), too. All other collectives take any dtype without references to objects.
/// - ``algorithm``: a name such as "ring"; without it, the one with the earliest predicted arrival.
///
/// One operation is in flight at a time, and one thread at a time uses a ``Cards``: a second one gets ``fpga.BusyError``.
#[pyclass(frozen, module = "fpga")]
pub(crate) struct Cards(Arc<Shared>);

/// What the methods of collectives have in common.
#[derive(Default)]
struct Call<'a, 'py> {
    array: Option<&'a Bound<'py, PyAny>>,
    out: Option<&'a Bound<'py, PyAny>>,
    /// The reduction, and the type of its elements, if it is given.
    reduction: Option<(&'a str, Option<&'a str>)>,
    algorithm: Option<&'a str>,
    root: i128,
    /// Without it, the last rank.
    peer: Option<i128>,
}

impl Cards {
    fn run(&self, py: Python<'_>, operation: &str, call: &Call<'_, '_>) -> PyResult<Operation> {
        let form = Form::of(operation)?;
        let arrays = Arrays::open(&self.0, form, call.array, call.out, py)?;
        let element = match (call.reduction, &arrays.input) {
            (Some((_, Some(given))), Some(input)) => {
                input.array().elements().check(given)?;
                Some(given)
            }
            (Some((reduction, None)), Some(input)) => Some(input.array().elements().of_reduction(reduction)?),
            _ => None,
        };
        let request = Request {
            operation: form.name,
            reduction: call.reduction.map(|(name, _)| name),
            element,
            algorithm: call.algorithm,
            root: rank("root", call.root, self.0.ranks)?,
            peer: self.peer(call.peer)?,
            bytes: arrays.block_bytes,
        };
        let Arrays { input, output, result, .. } = arrays;
        Ok(self.0.with(py, |state| {
            // Before it plans.
            state.check_idle()?;
            let id = state.planned(py, &request)?;
            Operation::launch(py, (&self.0, state), (form, id, None), input.as_ref(), (output, result))
        })?)
    }

    fn peer(&self, given: Option<i128>) -> Result<u32> {
        given.map_or(Ok(self.0.ranks as u32 - 1), |peer| rank("peer", peer, self.0.ranks))
    }

    fn card(&self, py: Python<'_>, index: u32) -> Result<Card> {
        let info = self.0.with(py, |state| Ok(state.cards.info(index)?))?;
        Ok(Card::new(&self.0, index, info))
    }
}

/// Returns a new NumPy array with the type of another object, whose elements have `item_bytes` bytes. If NumPy lacks the type, they
/// are raw bytes.
pub(crate) fn new_like<'py>(
    object: &Bound<'py, PyAny>,
    item_bytes: usize,
    shape: &[usize],
    is_zeroed: bool,
) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    let names = Names::get(py)?;
    let make = if is_zeroed { names.zeros.bind(py) } else { names.empty.bind(py) };
    let fits = |dtype: &Bound<'py, PyAny>| {
        dtype.getattr("itemsize").and_then(|bytes| bytes.extract::<usize>()).is_ok_and(|bytes| bytes == item_bytes)
    };
    let dtype = match object.getattr_opt("dtype")?.filter(fits) {
        Some(dtype) => dtype,
        None => {
            // Not of the object itself: NumPy takes bytes for text.
            let array = names.asarray.bind(py).call1((PyMemoryView::from(object)?,));
            let dtype = array.and_then(|array| array.getattr("dtype")).ok().filter(fits);
            dtype.unwrap_or(PyString::new(py, &format!("V{item_bytes}")).into_any())
        }
    };
    Ok(make.call1((PyTuple::new(py, shape)?, dtype))?)
}

#[pymethods]
impl Cards {
    fn __len__(&self) -> usize {
        self.0.ranks
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let cards = (0..self.0.ranks as u32).map(|index| self.card(py, index)).collect::<Result<Vec<_>>>()?;
        PyList::new(py, cards)?.try_iter()
    }

    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> PyResult<Card> {
        let py = index.py();
        let count = self.0.ranks as isize;
        let inside = InPython::enter(py);
        let extracted = index.extract::<isize>();
        drop(inside);
        let found = match extracted {
            Ok(index) => Some(if index < 0 { index + count } else { index }),
            // As of a list.
            Err(error) if error.is_instance_of::<PyOverflowError>(py) => None,
            Err(error) => return Err(error),
        };
        match found.filter(|index| (0..count).contains(index)) {
            Some(index) => Ok(self.card(py, index as u32)?),
            None => Err(PyIndexError::new_err(format!("no card {index} (the last is {})", count - 1))),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let closed = self.close(py);
        let _inside = InPython::enter(py);
        match closed {
            // The error of the body is on its way, and says more.
            Err(failure) if !error.is_none() => {
                PyErr::from_value(error.clone()).add_note(py, format!("the close failed: {failure}"))
            }
            closed => closed,
        }
    }

    /// Closes the cards; what is in flight is aborted. Memory of the cards stays valid. A second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.0.close(py)?)
    }

    /// Whether the cards were closed.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    /// The time limit of calls that have none of their own, seconds.
    #[getter]
    fn get_timeout(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.0.with(py, |state| Ok(state.timeout))?)
    }

    #[setter]
    fn set_timeout(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let limit = limit(seconds)?;
        Ok(self.0.with(py, |state| {
            state.cards.set_timeout(limit);
            state.timeout = seconds;
            Ok(())
        })?)
    }

    /// Returns zeroed host memory of at least ``nbytes`` bytes that the cards read and write themselves.
    fn memory(&self, py: Python<'_>, #[pyo3(from_py_with = integer)] nbytes: i128) -> PyResult<Memory> {
        let nbytes = size("nbytes", nbytes, isize::MAX as u64)? as usize;
        let mapped = self.0.with(py, |state| Mapped::allocate(&state.cards, nbytes))?;
        let mapped = Arc::new(mapped);
        self.0.note(&mapped);
        Ok(Memory(mapped))
    }

    /// Returns a zeroed NumPy array in memory that the cards read and write themselves: operations on it copy nothing on the host.
    #[pyo3(signature = (shape, dtype = None))]
    fn zeros<'py>(
        slf: &Bound<'py, Self>,
        shape: &Bound<'py, PyAny>,
        dtype: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let _inside = InPython::enter(py);
        Names::get(py)?.card_zeros.bind(py).call1((slf, shape, dtype))
    }

    /// Plans a collective, verifies it and stores it on the cards.
    ///
    /// ``bytes`` is the size of a block: what one rank sends to another. ``reduction`` and ``element`` are names such as "sum" and
    /// "f32", for reductions only. ``peer`` is the receiver of a send: without it, the last rank. ``algorithm`` is a name such as
    /// "ring": without it, the one with the earliest predicted arrival.
    #[pyo3(signature = (operation, bytes = 0, *, reduction = None, element = None, algorithm = None, root = 0, peer = None))]
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn plan(
        &self,
        py: Python<'_>,
        operation: &str,
        #[pyo3(from_py_with = integer)] bytes: i128,
        reduction: Option<&str>,
        element: Option<&str>,
        algorithm: Option<&str>,
        #[pyo3(from_py_with = integer)] root: i128,
        #[pyo3(from_py_with = optional)] peer: Option<i128>,
    ) -> PyResult<Plan> {
        let form = Form::of(operation)?;
        if form.input == Axes::Nothing && bytes > 0 {
            return Err(Error::usage(format!("{operation} has no data: {bytes} bytes are given")).into());
        }
        let (root, peer) = (rank("root", root, self.0.ranks)?, self.peer(peer)?);
        let bytes = size("bytes", bytes, u64::MAX)?;
        let request = Request { operation: form.name, reduction, element, algorithm, root, peer, bytes };
        let id = self.0.with(py, |state| state.plan(py, &request))?;
        Ok(Plan::new(py, &self.0, id, form, element.map(str::to_owned), bytes)?)
    }

    /// Launches a barrier: done when all ranks have arrived.
    #[pyo3(signature = (*, algorithm = None))]
    fn barrier(&self, py: Python<'_>, algorithm: Option<&str>) -> PyResult<Operation> {
        self.run(py, "barrier", &Call { algorithm, ..Call::default() })
    }

    /// Launches a send of an array of shape (...) from rank ``root`` to rank ``peer`` (the last). Output: shape (...).
    #[pyo3(signature = (array, /, *, root = 0, peer = None, out = None, algorithm = None))]
    fn send(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = integer)] root: i128,
        #[pyo3(from_py_with = optional)] peer: Option<i128>,
        out: Option<&Bound<'_, PyAny>>,
        algorithm: Option<&str>,
    ) -> PyResult<Operation> {
        self.run(py, "send", &Call { array: Some(array), out, algorithm, root, peer, ..Call::default() })
    }

    /// Launches a shift by one: rank r sends row r of an array of shape (N, ...) to rank r + 1, modulo N. Output: shape (N, ...).
    #[pyo3(signature = (array, /, *, out = None, algorithm = None))]
    fn sendrecv(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        algorithm: Option<&str>,
    ) -> PyResult<Operation> {
        self.run(py, "sendrecv", &Call { array: Some(array), out, algorithm, ..Call::default() })
    }

    /// Launches a scatter of an array of shape (N, ...) of rank ``root``. Output: shape (N, ...), row r at rank r.
    #[pyo3(signature = (array, /, *, root = 0, out = None, algorithm = None))]
    fn scatter(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = integer)] root: i128,
        out: Option<&Bound<'_, PyAny>>,
        algorithm: Option<&str>,
    ) -> PyResult<Operation> {
        self.run(py, "scatter", &Call { array: Some(array), out, algorithm, root, ..Call::default() })
    }

    /// Launches a gather of an array of shape (N, ...), row r at rank r, to rank ``root``. Output: shape (N, ...).
    #[pyo3(signature = (array, /, *, root = 0, out = None, algorithm = None))]
    fn gather(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = integer)] root: i128,
        out: Option<&Bound<'_, PyAny>>,
        algorithm: Option<&str>,
    ) -> PyResult<Operation> {
        self.run(py, "gather", &Call { array: Some(array), out, algorithm, root, ..Call::default() })
    }

    /// Launches a broadcast of an array of shape (...) of rank ``root``. Output: shape (N, ...), row r at rank r.
    #[pyo3(signature = (array, /, *, root = 0, out = None, algorithm = None))]
    fn broadcast(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = integer)] root: i128,
        out: Option<&Bound<'_, PyAny>>,
        algorithm: Option<&str>,
    ) -> PyResult<Operation> {
        self.run(py, "broadcast", &Call { array: Some(array), out, algorithm, root, ..Call::default() })
    }

    /// Launches an exchange of blocks: [r, s] of an array of shape (N, N, ...) goes from rank r to rank s. Output: shape
    /// (N, N, ...), [s, r] is what rank s has from rank r.
    #[pyo3(signature = (array, /, *, out = None, algorithm = None))]
    fn alltoall(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        algorithm: Option<&str>,
    ) -> PyResult<Operation> {
        self.run(py, "alltoall", &Call { array: Some(array), out, algorithm, ..Call::default() })
    }

    /// Launches an allgather of an array of shape (N, ...), row r at rank r. Output: shape (N, N, ...), row r at rank r.
    #[pyo3(signature = (array, /, *, out = None, algorithm = None))]
    fn allgather(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        algorithm: Option<&str>,
    ) -> PyResult<Operation> {
        self.run(py, "allgather", &Call { array: Some(array), out, algorithm, ..Call::default() })
    }

    /// Launches a reduction of an array of shape (N, ...), row r at rank r, to rank ``root``. Output: shape (...).
    #[pyo3(signature = (array, /, reduction = "sum", *, root = 0, out = None, element = None, algorithm = None))]
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn reduce(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        reduction: &str,
        #[pyo3(from_py_with = integer)] root: i128,
        out: Option<&Bound<'_, PyAny>>,
        element: Option<&str>,
        algorithm: Option<&str>,
    ) -> PyResult<Operation> {
        let reduction = Some((reduction, element));
        self.run(py, "reduce", &Call { array: Some(array), out, reduction, algorithm, root, ..Call::default() })
    }

    /// Launches a reduction of an array of numbers of shape (N, ...), row r at rank r, to all ranks. Output: shape (N, ...), the
    /// same dtype.
    #[pyo3(signature = (array, /, reduction = "sum", *, out = None, element = None, algorithm = None))]
    fn allreduce(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        reduction: &str,
        out: Option<&Bound<'_, PyAny>>,
        element: Option<&str>,
        algorithm: Option<&str>,
    ) -> PyResult<Operation> {
        let reduction = Some((reduction, element));
        self.run(py, "allreduce", &Call { array: Some(array), out, reduction, algorithm, ..Call::default() })
    }

    /// Launches a reduction of an array of shape (N, N, ...), row r at rank r, block s of which goes to rank s. Output: shape
    /// (N, ...).
    #[pyo3(signature = (array, /, reduction = "sum", *, out = None, element = None, algorithm = None))]
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        reduction: &str,
        out: Option<&Bound<'_, PyAny>>,
        element: Option<&str>,
        algorithm: Option<&str>,
    ) -> PyResult<Operation> {
        let reduction = Some((reduction, element));
        self.run(py, "reduce_scatter", &Call { array: Some(array), out, reduction, algorithm, ..Call::default() })
    }

    /// Launches a prefix reduction of an array of shape (N, ...): row r of the output, of shape (N, ...), is of rows 0 to r.
    #[pyo3(signature = (array, /, reduction = "sum", *, out = None, element = None, algorithm = None))]
    fn scan(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        reduction: &str,
        out: Option<&Bound<'_, PyAny>>,
        element: Option<&str>,
        algorithm: Option<&str>,
    ) -> PyResult<Operation> {
        let reduction = Some((reduction, element));
        self.run(py, "scan", &Call { array: Some(array), out, reduction, algorithm, ..Call::default() })
    }

    /// Launches a prefix reduction of an array of shape (N, ...): row r of the output, of shape (N, ...), is of rows 0 to
    /// r - 1. Row 0 is left as it is; zeros in a new array.
    #[pyo3(signature = (array, /, reduction = "sum", *, out = None, element = None, algorithm = None))]
    fn exscan(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        reduction: &str,
        out: Option<&Bound<'_, PyAny>>,
        element: Option<&str>,
        algorithm: Option<&str>,
    ) -> PyResult<Operation> {
        let reduction = Some((reduction, element));
        self.run(py, "exscan", &Call { array: Some(array), out, reduction, algorithm, ..Call::default() })
    }

    fn __repr__(&self) -> String {
        format!("<fpga.Cards, {} cards{}>", self.0.ranks, if self.0.is_closed() { ", closed" } else { "" })
    }
}

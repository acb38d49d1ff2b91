//! Arrays of Python: any object with the buffer protocol, checked.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::element::Elements;
use crate::error::{Error, Result};
use crate::names::Names;

/// What formats begin with that say nothing but the byte order of this machine.
const NATIVE: [char; 3] = ['@', '=', '<'];

/// A contiguous view of an object's memory. While it lives, the object neither moves nor resizes that memory.
pub(crate) struct Array {
    view: PyUntypedBuffer,
    /// Axes of the object: those of the view, or none: then the view has one.
    axes: usize,
    /// The elements' type, if NumPy gives no view of it: then the view has another one of the same size.
    dtype: Option<Py<PyAny>>,
    /// That type is one of records.
    is_record: bool,
    /// The array of NumPy that `view` is a view of, for the garbage collector.
    owner: Option<Py<PyAny>>,
}

/// Opens an object. `what` names it in errors.
fn open(object: &Bound<'_, PyAny>, what: &str) -> Result<Array> {
    let py = object.py();
    let error = match PyUntypedBuffer::get(object) {
        Ok(view) => {
            let axes = view.dimensions();
            return Ok(Array { view, axes, dtype: None, is_record: false, owner: None });
        }
        Err(error) => error,
    };
    let is_incomplete = error.is_instance_of::<PyBufferError>(py);
    // A scalar of NumPy with a type that has no format is no wrong type. Others may have a dtype and no memory.
    let is_without_format = error.is_instance_of::<PyValueError>(py)
        || error.is_instance_of::<PyTypeError>(py) && object.is_instance(Names::get(py)?.generic.bind(py))?;
    if !is_incomplete && !is_without_format {
        return Err(error.into());
    }
    match stand_in(object, is_incomplete, what)? {
        Some((plain, dtype)) => {
            let is_record = has_fields(&dtype)?;
            Ok(Array { dtype: Some(dtype.unbind()), is_record, ..open_incomplete(&plain, what)? })
        }
        None if is_incomplete => open_incomplete(object, what),
        None => Err(error.into()),
    }
}

/// Opens an object whose views have no strides, or no axes: PyO3 gives none of these.
fn open_incomplete(object: &Bound<'_, PyAny>, what: &str) -> Result<Array> {
    let py = object.py();
    let names = Names::get(py)?;
    // Python fills in the strides of the axes that there are.
    let memory = PyMemoryView::from(object)?;
    let axes = memory.getattr("ndim")?.extract::<usize>()?;
    if axes > 0 {
        return Ok(Array { view: PyUntypedBuffer::get(&memory)?, axes, dtype: None, is_record: false, owner: None });
    }
    if has_objects(memory.getattr("format")?.extract::<String>()?.as_bytes()) {
        return Err(references(what));
    }
    let bytes = format!("V{}", memory.getattr("itemsize")?.extract::<usize>()?);
    // Not of the object itself: NumPy copies its scalars, which are read-only, to a writable array.
    let array = match names.asarray.bind(py).call1((&memory,)) {
        Ok(array) => array,
        // NumPy has no such type, as the pointers of ctypes.
        Err(_) => names.frombuffer.bind(py).call1((&memory, &bytes))?,
    };
    let array = array.call_method1("reshape", (1,))?;
    if let Ok(view) = PyUntypedBuffer::get(&array) {
        return Ok(Array { view, axes, dtype: None, is_record: false, owner: None });
    }
    // The fields of a union overlap: NumPy has such types, and gives no view of them.
    let dtype = array.getattr("dtype")?;
    let view = PyUntypedBuffer::get(&array.call_method1("view", (bytes,))?)?;
    let is_record = has_fields(&dtype)?;
    Ok(Array { view, axes, dtype: Some(dtype.unbind()), is_record, owner: None })
}

fn has_fields(dtype: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(!dtype.getattr("fields")?.is_none())
}

/// Returns dates of NumPy as the numbers that they are, and elements of other types without a format as bytes, each with their type:
/// records with dates or with fields that overlap, and types that NumPy lacks. NumPy refuses to give a view of an array of these. Of
/// scalar dates its view is incomplete. Returns `None` for other objects.
fn stand_in<'py>(
    object: &Bound<'py, PyAny>,
    is_incomplete: bool,
    what: &str,
) -> Result<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    let Some(dtype) = object.getattr_opt("dtype")? else { return Ok(None) };
    let Some(kind) = dtype.getattr_opt("kind")? else { return Ok(None) };
    let is_date = matches!(kind.extract()?, "M" | "m");
    if !is_date && is_incomplete {
        return Ok(None);
    }
    if dtype.getattr("hasobject")?.extract()? {
        return Err(references(what));
    }
    let plain = if is_date {
        // Such as "<M8[s]": the byte order is before the type.
        let name: String = dtype.getattr("str")?.extract()?;
        name.replace(['M', 'm'], "i").split('[').next().unwrap_or_default().to_owned()
    } else {
        format!("V{}", dtype.getattr("itemsize")?.extract::<usize>()?)
    };
    Ok(Some((object.call_method1("view", (plain,))?, dtype)))
}

/// Whether elements of a format have pointers to Python objects.
fn has_objects(format: &[u8]) -> bool {
    // Names of fields are between colons. Those of ctypes may have colons, too, but it writes a byte order before each type.
    let is_type = format.split(|byte| *byte == b':').step_by(2).any(|types| types.contains(&b'O'));
    is_type || format.windows(2).any(|pair| matches!(pair, [b'<' | b'>' | b'=' | b'@' | b'!', b'O']))
}

/// Whether a ctypes object has pointers to Python objects, by the types of its elements and fields. `false` for other objects.
fn ctypes_has_objects(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let mut owner = object.clone();
    // Of a memoryview, what it is a view of.
    while owner.is_instance_of::<PyMemoryView>() {
        owner = owner.getattr("obj")?;
    }
    let mut types = vec![owner.get_type().into_any()];
    while let Some(one) = types.pop() {
        if let Some(element) = one.getattr_opt("_type_")? {
            match element.extract::<String>() {
                Ok(code) if code == "O" => return Ok(true),
                Ok(_) => {}
                // Of an array. What a pointer leads to is no part of the object.
                Err(_) if one.hasattr("_length_")? => types.push(element),
                Err(_) => {}
            }
        }
        for class in one.getattr("__mro__")?.try_iter()? {
            let fields = class?.getattr("__dict__")?.call_method1("get", ("_fields_", ()))?;
            for field in fields.try_iter()? {
                types.push(field?.get_item(1)?);
            }
        }
    }
    Ok(false)
}

/// Copies of pointers own no references.
fn references(what: &str) -> Error {
    Error::usage(format!("{what} has references to objects: expected numbers"))
}

impl Array {
    /// Opens an object to be read. `what` names it in errors.
    pub(crate) fn source(object: &Bound<'_, PyAny>, what: &str) -> Result<Self> {
        Array::contiguous(object, what, "pass a contiguous copy of it, such as numpy.ascontiguousarray makes")
    }

    /// Opens an object, or refuses one that is not contiguous, with a hint.
    fn contiguous(object: &Bound<'_, PyAny>, what: &str, hint: &str) -> Result<Self> {
        let array = open(object, what)?;
        let (format, bytes) = (array.view.format().to_bytes(), array.view.item_size());
        // ctypes gives its unions and packed structures as bytes.
        let is_opaque = format == b"B" && bytes > 1;
        if has_objects(format) || is_opaque && ctypes_has_objects(object)? {
            return Err(references(what));
        }
        if !array.view.is_c_contiguous() {
            return Err(Error::usage(format!("{what} is not C-contiguous: {hint}")));
        }
        Ok(array)
    }

    /// Opens an object to be written.
    pub(crate) fn destination(object: &Bound<'_, PyAny>, what: &str) -> Result<Self> {
        let py = object.py();
        let hint = "pass a contiguous array, and copy the result from it";
        let mut array = Array::contiguous(object, what, hint)?;
        if array.view.readonly() {
            return Err(Error::usage(format!("{what} is read-only: pass a writable array")));
        }
        // Not of other objects: a memoryview that the collector has cleared crashes Python when its last view goes.
        if let Some(owner) = array.view.obj(py)
            && owner.is_instance(Names::get(py)?.ndarray.bind(py))?
        {
            array.owner = Some(owner.clone().unbind());
        }
        Ok(array)
    }

    /// Shows the object to the garbage collector, if it is an array whose own view this is. A cycle through another stays until this is
    /// let go of.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        // Once for `owner`, and once for `view`, which holds it, too.
        visit.call(&self.owner)?;
        visit.call(&self.owner)
    }

    pub(crate) fn view(&self) -> &PyUntypedBuffer {
        &self.view
    }

    /// Bytes of an element.
    pub(crate) fn item_bytes(&self) -> usize {
        self.view.item_size()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.view.len_bytes()
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.view.shape()[..self.axes]
    }

    pub(crate) fn address(&self) -> usize {
        self.view.buf_ptr().addr()
    }

    /// Refuses elements of another type than those of `other`. Where NumPy gives no view of both, their own types count; of one, those
    /// of the views: dates are integers then, and others are bytes.
    pub(crate) fn check_like(&self, other: &Array, what: &str, py: Python<'_>) -> Result<()> {
        if let (Some(own), Some(expected)) = (&self.dtype, &other.dtype) {
            let (own, expected) = (own.bind(py), expected.bind(py));
            return match own.eq(expected)? {
                true => Ok(()),
                false => Err(Error::usage(format!("{what} has dtype {own}: expected {expected}, as the input"))),
            };
        }
        let (own, expected) = (self.elements(), other.elements());
        // One type may have several letters, as long and long long.
        let is_same = match (own.number(), expected.number()) {
            (Some(one), Some(other)) => one == other,
            // ctypes writes the byte order of this machine, and NumPy does not.
            _ => own.format.trim_start_matches(NATIVE) == expected.format.trim_start_matches(NATIVE),
        };
        if is_same && own.bytes == expected.bytes {
            return Ok(());
        }
        let (own, expected) = (own.format, expected.format);
        Err(Error::usage(format!("{what} has elements of format {own:?}: expected {expected:?}, as the input")))
    }

    pub(crate) fn elements(&self) -> Elements<'_> {
        // Of records that NumPy gives no view of, nobody knows the fields here.
        let format = if self.is_record { "T{}" } else { self.view.format().to_str().unwrap_or("") };
        Elements { format, bytes: self.view.item_size() }
    }
}

//! Host memory that the cards reach, as Python sees it: the only unsafe code of this crate.

use std::ffi::{c_int, c_void};
use std::os::fd::AsFd;
use std::sync::Arc;

use fpga_collective::{Cards, Class, DmaBuffer};
use memmap2::{MmapOptions, MmapRaw};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::error::{Error, Result};

/// A buffer of the cards, mapped once more for this process. It stays in place and keeps its length until it is dropped.
pub(crate) struct Mapped {
    buffer: Arc<DmaBuffer>,
    /// The buffer's memory file: the same bytes. The file is sealed against shrinking.
    map: MmapRaw,
}

impl Mapped {
    pub(crate) fn allocate(cards: &Cards, bytes: usize) -> Result<Self> {
        let buffer = cards.allocate(bytes)?;
        let map = MmapOptions::new().map_raw(&buffer.as_fd()).map_err(|error| {
            let error = format!("no memory for a view of {bytes} bytes: {error}");
            fpga_collective::Error::new(Class::Failed, error)
        })?;
        Ok(Mapped { buffer, map })
    }

    pub(crate) fn buffer(&self) -> &Arc<DmaBuffer> {
        &self.buffer
    }

    /// Bytes that cards reach, all of which are mapped.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len().min(self.map.len())
    }

    /// Returns where in this memory `bytes` bytes at `address` are, if all of them are.
    pub(crate) fn offset_of(&self, address: usize, bytes: usize) -> Option<usize> {
        let offset = address.checked_sub(self.map.as_ptr().addr())?;
        (offset <= self.len() && bytes <= self.len() - offset).then_some(offset)
    }

    /// Returns the address of `bytes` bytes from `at` on.
    fn range(&self, at: usize, bytes: usize) -> Result<*mut u8> {
        let is_inside = at <= self.len() && bytes <= self.len() - at;
        let outside = || Error::Internal(format!("{bytes} bytes from {at} of {} bytes", self.len()));
        // Not `add`, which is unsafe: the range is inside by the check.
        is_inside.then(|| self.map.as_mut_ptr().wrapping_add(at)).ok_or_else(outside)
    }

    /// Copies bytes `from` and on of an object's memory to `at`. The lock keeps other Python code from changing them.
    pub(crate) fn copy_in(
        &self,
        _py: Python<'_>,
        at: usize,
        object: &PyUntypedBuffer,
        from: usize,
        bytes: usize,
    ) -> Result<()> {
        let source = place(object, from, bytes)?;
        let destination = self.range(at, bytes)?;
        // SAFETY: `place` and `range` have checked that both ranges have `bytes` bytes. `object` is a contiguous view, which its
        // owner keeps in place until it is released. The ranges may overlap, if the object is a view of this memory.
        unsafe { std::ptr::copy(source, destination, bytes) }
        Ok(())
    }

    /// Copies bytes from `at` on to byte `to` and on of an object's memory, which is writable.
    pub(crate) fn copy_out(
        &self,
        _py: Python<'_>,
        at: usize,
        object: &PyUntypedBuffer,
        to: usize,
        bytes: usize,
    ) -> Result<()> {
        if object.readonly() {
            return Err(Error::Internal("the destination is read-only".into()));
        }
        let destination = place(object, to, bytes)?;
        let source = self.range(at, bytes)?;
        // SAFETY: `place` and `range` have checked that both ranges have `bytes` bytes. `object` is a contiguous view, which its
        // owner keeps in place until it is released, and writable, by the check above. The ranges may overlap, if the object is a
        // view of this memory.
        unsafe { std::ptr::copy(source, destination, bytes) }
        Ok(())
    }
}

/// Returns the address of `bytes` bytes from `at` on of a view, all of which it has.
fn place(object: &PyUntypedBuffer, at: usize, bytes: usize) -> Result<*mut u8> {
    let length = object.len_bytes();
    let is_inside = object.is_c_contiguous() && at <= length && bytes <= length - at;
    let outside = || Error::Internal(format!("{bytes} bytes from {at} of a view of {length} bytes"));
    is_inside.then(|| object.buf_ptr().cast::<u8>().wrapping_add(at)).ok_or_else(outside)
}

/// Host memory that the cards read and write themselves. NumPy sees it without a copy.
///
/// ``numpy.frombuffer(memory, dtype)`` and ``memoryview(memory)`` are views of it. It stays valid after the cards were closed.
#[pyclass(frozen, module = "fpga")]
pub(crate) struct Memory(pub(crate) Arc<Mapped>);

#[pymethods]
impl Memory {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __repr__(&self) -> String {
        format!("<fpga.Memory of {} bytes>", self.0.len())
    }

    /// # Safety
    /// Called by Python only, with a view to be filled.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("the view is NULL"));
        }
        let mapped = &slf.get().0;
        let (address, length) = (mapped.map.as_mut_ptr().cast::<c_void>(), mapped.len() as isize);
        // SAFETY: `view` leads to a view, by the buffer protocol. The memory has `length` bytes, and stays in place as long as this
        // object, which the view holds from here on. A `Memory` never changes its mapping.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address, length, 0, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

//! A range of a BAR.

use std::fmt;
use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::function;
use crate::memory::SharedMemory;
use crate::owner::Owner;
use crate::{BarIndex, Error, Result};

/// A range of a BAR: mapped into this process, or trapped access by access.
///
/// It keeps its function open. Registers are little-endian, and accesses are of exactly the width named. A function that
/// is gone reads as all-ones: give a value that could be that to
/// [`Function::check_alive`](crate::Function::check_alive).
#[derive(Clone)]
pub struct Window {
    access: Access,
    /// Where it begins in the BAR, in bytes.
    base: u64,
    len: u64,
    function: Arc<function::Inner>,
}

#[derive(Clone)]
enum Access {
    Mapped(Mapped),
    Trapped(Trapped),
}

/// A BAR that lies in this process's address space.
#[derive(Clone)]
struct Mapped {
    /// Start of the BAR.
    start: *mut u8,
    owner: Owner,
    _memory: Arc<SharedMemory>,
}

// SAFETY: `start` points into the mapping that `_memory` owns and keeps in place. It is only used for volatile accesses,
// which may come from any thread just as a device's own may.
unsafe impl Send for Mapped {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapped {}

/// A BAR whose accesses an endpoint answers.
#[derive(Clone)]
struct Trapped {
    endpoint: Arc<dyn Endpoint>,
    bar: BarIndex,
}

impl Window {
    /// All of a BAR over `memory`, whose length the caller has checked to be `len`.
    pub(crate) fn mapped(memory: Arc<SharedMemory>, len: u64, function: Arc<function::Inner>) -> Self {
        debug_assert!(len <= memory.len());
        let (start, owner) = (memory.region().base(), memory.region().owner());
        let len = len.min(memory.len());
        Window { access: Access::Mapped(Mapped { start, owner, _memory: memory }), base: 0, len, function }
    }

    /// All of a BAR that `endpoint` answers for.
    pub(crate) fn trapped(
        endpoint: Arc<dyn Endpoint>,
        bar: BarIndex,
        len: u64,
        function: Arc<function::Inner>,
    ) -> Self {
        Window { access: Access::Trapped(Trapped { endpoint, bar }), base: 0, len, function }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether accesses go to memory of this process; otherwise each is a call to the endpoint.
    pub fn is_mapped(&self) -> bool {
        matches!(self.access, Access::Mapped(_))
    }

    /// A part of this window.
    pub fn slice(&self, offset: u64, len: u64) -> Result<Window> {
        if len > self.len || offset > self.len - len {
            return Err(self.out_of_bounds(offset, len));
        }
        Ok(Window { base: self.base + offset, len, ..self.clone() })
    }

    /// Reads a 32-bit register. `offset` must be aligned and inside.
    #[inline]
    pub fn read_u32(&self, offset: u64) -> Result<u32> {
        let at = self.at(offset, 4)?;
        match &self.access {
            Access::Mapped(mapped) => {
                let register = mapped.register::<u32>(at)?;
                // SAFETY: `at` checked that the register lies inside of the BAR and is aligned.
                Ok(u32::from_le(unsafe { register.read_volatile() }))
            }
            Access::Trapped(trapped) => Ok(u32::from_le_bytes(trapped.read(at))),
        }
    }

    /// Writes a 32-bit register. `offset` must be aligned and inside.
    #[inline]
    pub fn write_u32(&self, offset: u64, value: u32) -> Result<()> {
        let at = self.at(offset, 4)?;
        match &self.access {
            Access::Mapped(mapped) => {
                let register = mapped.register::<u32>(at)?;
                // SAFETY: `at` checked that the register lies inside of the BAR and is aligned.
                unsafe { register.write_volatile(value.to_le()) };
            }
            Access::Trapped(trapped) => trapped.endpoint.bar_write(trapped.bar, at, &value.to_le_bytes()),
        }
        Ok(())
    }

    /// Reads a 64-bit register. `offset` must be aligned and inside.
    #[inline]
    pub fn read_u64(&self, offset: u64) -> Result<u64> {
        let at = self.at(offset, 8)?;
        match &self.access {
            Access::Mapped(mapped) => {
                let register = mapped.register::<u64>(at)?;
                // SAFETY: `at` checked that the register lies inside of the BAR and is aligned.
                Ok(u64::from_le(unsafe { register.read_volatile() }))
            }
            Access::Trapped(trapped) => Ok(u64::from_le_bytes(trapped.read(at))),
        }
    }

    /// Writes a 64-bit register. `offset` must be aligned and inside.
    #[inline]
    pub fn write_u64(&self, offset: u64, value: u64) -> Result<()> {
        let at = self.at(offset, 8)?;
        match &self.access {
            Access::Mapped(mapped) => {
                let register = mapped.register::<u64>(at)?;
                // SAFETY: `at` checked that the register lies inside of the BAR and is aligned.
                unsafe { register.write_volatile(value.to_le()) };
            }
            Access::Trapped(trapped) => trapped.endpoint.bar_write(trapped.bar, at, &value.to_le_bytes()),
        }
        Ok(())
    }

    /// Offset in the BAR of a register of `width` bytes that lies inside and is aligned there.
    #[inline]
    fn at(&self, offset: u64, width: u64) -> Result<u64> {
        if width > self.len || offset > self.len - width {
            return Err(self.out_of_bounds(offset, width));
        }
        let at = self.base + offset;
        if !at.is_multiple_of(width) {
            return Err(self.misaligned(offset, width));
        }
        Ok(at)
    }

    #[cold]
    fn out_of_bounds(&self, offset: u64, bytes: u64) -> Error {
        Error::OutOfBounds { what: "window", offset, bytes, len: self.len }
    }

    #[cold]
    fn misaligned(&self, offset: u64, bytes: u64) -> Error {
        Error::Misaligned { what: "window", offset, bytes }
    }
}

impl Mapped {
    /// Address of the register at `at`, which [`Window::at`] has checked. A forked child has no mapping.
    #[inline]
    fn register<T>(&self, at: u64) -> Result<*mut T> {
        self.owner.check()?;
        // SAFETY: `Window::at` checked `at` against the window, which lies inside of the mapping: `Window::mapped` and
        // `Window::slice` see to it.
        Ok(unsafe { self.start.add(at as usize) }.cast::<T>())
    }
}

impl Trapped {
    #[inline]
    fn read<const WIDTH: usize>(&self, at: u64) -> [u8; WIDTH] {
        // What nobody answers reads as all-ones.
        let mut data = [0xff; WIDTH];
        self.endpoint.bar_read(self.bar, at, &mut data);
        data
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("function", &self.function.name())
            .field("mapped", &self.is_mapped())
            .field("base", &self.base)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

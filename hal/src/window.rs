//! A range of a BAR.

use std::fmt;
use std::sync::Arc;

use crate::bus::Piece;
use crate::function;
use crate::{BarIndex, Error, Result};

/// A range of a BAR: mapped into this process, or trapped access by access.
///
/// Where the bus maps only some of a BAR (the MSI-X table is left out, say), a window that reaches beyond is trapped as a
/// whole; a [`slice`](Self::slice) that lies in what is mapped is mapped.
///
/// It keeps its function open. Registers are little-endian, and accesses are of exactly the width named. A function that
/// is gone reads as all-ones: give a value that could be that to
/// [`Function::check_alive`](crate::Function::check_alive).
#[derive(Clone)]
pub struct Window {
    access: Access,
    bar: BarIndex,
    /// Where it begins in the BAR, in bytes.
    base: u64,
    len: u64,
    /// What of the BAR is mapped.
    pieces: Arc<[Piece]>,
    function: Arc<function::Inner>,
}

#[derive(Clone)]
enum Access {
    /// The piece that all of the window lies in.
    Mapped(Piece),
    /// The bus is asked each time.
    Trapped,
}

impl Window {
    /// All of a BAR of `len` bytes, of which `pieces` are mapped.
    pub(crate) fn new(bar: BarIndex, len: u64, pieces: Arc<[Piece]>, function: Arc<function::Inner>) -> Self {
        Window { access: access(&pieces, 0, len), bar, base: 0, len, pieces, function }
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

    /// Whether accesses go to memory of this process; otherwise the bus is asked each time.
    pub fn is_mapped(&self) -> bool {
        matches!(self.access, Access::Mapped(_))
    }

    /// A part of this window.
    pub fn slice(&self, offset: u64, len: u64) -> Result<Window> {
        if len > self.len || offset > self.len - len {
            return Err(self.out_of_bounds(offset, len));
        }
        let base = self.base + offset;
        Ok(Window { access: access(&self.pieces, base, len), base, len, ..self.clone() })
    }

    /// Reads a 32-bit register. `offset` must be aligned and inside.
    #[inline]
    pub fn read_u32(&self, offset: u64) -> Result<u32> {
        let at = self.at(offset, 4)?;
        match &self.access {
            Access::Mapped(piece) => {
                // SAFETY: `at` checked that the register lies inside of the window, which the piece holds: `access` saw to it.
                let register = unsafe { piece.register::<u32>(at) }?;
                // SAFETY: the register is inside, as above, and aligned: `at` checked it in the BAR, and the piece is as aligned.
                Ok(u32::from_le(unsafe { register.read_volatile() }))
            }
            Access::Trapped => self.trapped_read(at).map(u32::from_le_bytes),
        }
    }

    /// Writes a 32-bit register. `offset` must be aligned and inside.
    #[inline]
    pub fn write_u32(&self, offset: u64, value: u32) -> Result<()> {
        let at = self.at(offset, 4)?;
        match &self.access {
            Access::Mapped(piece) => {
                // SAFETY: `at` checked that the register lies inside of the window, which the piece holds: `access` saw to it.
                let register = unsafe { piece.register::<u32>(at) }?;
                // SAFETY: the register is inside, as above, and aligned: `at` checked it in the BAR, and the piece is as aligned.
                unsafe { register.write_volatile(value.to_le()) };
                Ok(())
            }
            Access::Trapped => self.trapped_write(at, &value.to_le_bytes()),
        }
    }

    /// Reads a 64-bit register in one access. `offset` must be aligned and inside.
    ///
    /// Fails with [`Error::AccessWidth`] where the bus would make two of it: trapped windows on kernel VFIO.
    #[inline]
    pub fn read_u64(&self, offset: u64) -> Result<u64> {
        let at = self.at(offset, 8)?;
        match &self.access {
            Access::Mapped(piece) => {
                // SAFETY: `at` checked that the register lies inside of the window, which the piece holds: `access` saw to it.
                let register = unsafe { piece.register::<u64>(at) }?;
                // SAFETY: the register is inside, as above, and aligned: `at` checked it in the BAR, and the piece is as aligned.
                Ok(u64::from_le(unsafe { register.read_volatile() }))
            }
            Access::Trapped => self.trapped_read(at).map(u64::from_le_bytes),
        }
    }

    /// Writes a 64-bit register in one access, as [`read_u64`](Self::read_u64) reads.
    #[inline]
    pub fn write_u64(&self, offset: u64, value: u64) -> Result<()> {
        let at = self.at(offset, 8)?;
        match &self.access {
            Access::Mapped(piece) => {
                // SAFETY: `at` checked that the register lies inside of the window, which the piece holds: `access` saw to it.
                let register = unsafe { piece.register::<u64>(at) }?;
                // SAFETY: the register is inside, as above, and aligned: `at` checked it in the BAR, and the piece is as aligned.
                unsafe { register.write_volatile(value.to_le()) };
                Ok(())
            }
            Access::Trapped => self.trapped_write(at, &value.to_le_bytes()),
        }
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

    #[inline]
    fn trapped_read<const WIDTH: usize>(&self, at: u64) -> Result<[u8; WIDTH]> {
        // What nobody answers reads as all-ones.
        let mut data = [0xff; WIDTH];
        self.function.bus().bar_read(self.bar, at, &mut data)?;
        Ok(data)
    }

    #[inline]
    fn trapped_write(&self, at: u64, data: &[u8]) -> Result<()> {
        self.function.bus().bar_write(self.bar, at, data)
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

/// How a range of a BAR is reached of which `pieces` are mapped.
fn access(pieces: &[Piece], base: u64, len: u64) -> Access {
    pieces.iter().find(|piece| piece.holds(base, len)).map_or(Access::Trapped, |piece| Access::Mapped(piece.clone()))
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

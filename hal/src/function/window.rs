//! Windows: ranges of a BAR.

use std::fmt;
use std::sync::Arc;

use super::opened::OpenFunction;
use crate::bus::Piece;
use crate::memory::barrier;
use crate::{BarIndex, Error, Result};

/// A range of a BAR: mapped into this process, or trapped, with one call to the bus per access.
///
/// The bus may map only parts of a BAR, for example all but the MSI-X table. A window that reaches outside of the mapped
/// parts is trapped. A [`slice`](Self::slice) inside of a mapped part is mapped.
///
/// A window keeps its function open. Registers are little-endian, and accesses have exactly the named width. A function
/// that is gone reads as all-ones: check such values by [`Function::check_alive`](crate::Function::check_alive).
#[derive(Clone)]
pub struct Window {
    access: Access,
    bar: BarIndex,
    /// Offset in the BAR, in bytes.
    base: u64,
    len: u64,
    /// Mapped parts of the BAR.
    pieces: Arc<[Piece]>,
    function: Arc<OpenFunction>,
}

#[derive(Clone)]
enum Access {
    /// The window lies in this piece.
    Mapped(Piece),
    /// The bus makes each access.
    Trapped,
}

impl Window {
    /// Creates the window of a BAR of `len` bytes with these mapped parts.
    pub(crate) fn new(bar: BarIndex, len: u64, pieces: Arc<[Piece]>, function: Arc<OpenFunction>) -> Self {
        Window { access: access(&pieces, 0, len), bar, base: 0, len, pieces, function }
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns the offset in the BAR, in bytes.
    pub fn offset(&self) -> u64 {
        self.base
    }

    /// Returns whether the window has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether accesses are loads and stores of this process. Otherwise each is a call to the bus.
    pub fn is_mapped(&self) -> bool {
        matches!(self.access, Access::Mapped(_))
    }

    /// Returns a part of this window.
    pub fn slice(&self, offset: u64, len: u64) -> Result<Window> {
        if len > self.len || offset > self.len - len {
            return Err(self.out_of_bounds(offset, len));
        }
        let base = self.base + offset;
        Ok(Window { access: access(&self.pieces, base, len), base, len, ..self.clone() })
    }

    /// Reads a 32-bit register. `offset` must be aligned and inside. Later reads of memory see what the device wrote before it answered.
    #[inline]
    pub fn read_u32(&self, offset: u64) -> Result<u32> {
        let at = self.at(offset, 4)?;
        match &self.access {
            Access::Mapped(piece) => {
                // SAFETY: `at` lies inside of the window (checked by `self.at`), and the window inside of the piece (`access`).
                let register = unsafe { piece.register::<u32>(at) }?;
                // SAFETY: `register` points into the piece, which lives as long as `self`. It is aligned: `self.at` checked the
                // alignment in the BAR, and a piece keeps alignments of up to 8 bytes (`Piece::new`).
                let value = u32::from_le(unsafe { register.read_volatile() });
                barrier::device_word_before_data();
                Ok(value)
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
                // SAFETY: `at` lies inside of the window (checked by `self.at`), and the window inside of the piece (`access`).
                let register = unsafe { piece.register::<u32>(at) }?;
                // SAFETY: `register` points into the piece, which lives as long as `self`. It is aligned: `self.at` checked the
                // alignment in the BAR, and a piece keeps alignments of up to 8 bytes (`Piece::new`).
                unsafe { register.write_volatile(value.to_le()) };
                Ok(())
            }
            Access::Trapped => self.trapped_write(at, &value.to_le_bytes()),
        }
    }

    /// Reads a 64-bit register in one access. `offset` must be aligned and inside. Later reads of memory see what the device wrote before
    /// it answered.
    ///
    /// Fails with [`Error::AccessWidth`] where the bus would split the access: trapped windows on kernel VFIO.
    #[inline]
    pub fn read_u64(&self, offset: u64) -> Result<u64> {
        let at = self.at(offset, 8)?;
        match &self.access {
            Access::Mapped(piece) => {
                // SAFETY: `at` lies inside of the window (checked by `self.at`), and the window inside of the piece (`access`).
                let register = unsafe { piece.register::<u64>(at) }?;
                // SAFETY: `register` points into the piece, which lives as long as `self`. It is aligned: `self.at` checked the
                // alignment in the BAR, and a piece keeps alignments of up to 8 bytes (`Piece::new`).
                let value = u64::from_le(unsafe { register.read_volatile() });
                barrier::device_word_before_data();
                Ok(value)
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
                // SAFETY: `at` lies inside of the window (checked by `self.at`), and the window inside of the piece (`access`).
                let register = unsafe { piece.register::<u64>(at) }?;
                // SAFETY: `register` points into the piece, which lives as long as `self`. It is aligned: `self.at` checked the
                // alignment in the BAR, and a piece keeps alignments of up to 8 bytes (`Piece::new`).
                unsafe { register.write_volatile(value.to_le()) };
                Ok(())
            }
            Access::Trapped => self.trapped_write(at, &value.to_le_bytes()),
        }
    }

    /// Returns the offset in the BAR of a register of `width` bytes, if it lies inside and is aligned in the BAR.
    #[inline]
    fn at(&self, offset: u64, width: u64) -> Result<u64> {
        // One comparison where the register is a constant.
        if offset.checked_add(width).is_none_or(|end| end > self.len) {
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
        // All-ones: the value if no device answers.
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

/// Returns how to access a range of a BAR with these mapped parts.
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

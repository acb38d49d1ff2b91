//! Pipes with the semantics of Linux (pipe(7)) between software on two boards.

use super::address::Target;
use super::error::FabricError;
use super::fabric::Fabric;
use super::pipe_unit::PipeUnit;
use crate::engine::Time;

/// Most bytes of a write that is not divided (pipe(7), "PIPE_BUF").
pub const PIPE_BUF: usize = 4_096;

/// Error of a pipe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PipeError {
    /// EAGAIN: a non-blocking end would have to wait.
    #[error("the pipe would block")]
    WouldBlock,
    /// EPIPE: the reader has closed its end.
    #[error("broken pipe")]
    Broken,
    /// A blocking end has waited for the time given.
    #[error("the pipe still blocks after {waited} ps")]
    TimedOut {
        /// Picoseconds of the fabric's time.
        waited: Time,
    },
    /// The end is not there, or not any more.
    #[error("no pipe on board {board}, channel {channel}", board = .0.board, channel = .0.channel)]
    Missing(Target),
    /// One channel for both ends.
    #[error("both ends of a pipe on board {board}, channel {channel}", board = .0.board, channel = .0.channel)]
    Same(Target),
    /// A flit that is not of this pipe.
    #[error("invalid flit in a pipe: {0:#018x}")]
    Flit(u64),
    /// Error of the fabric.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// Opens a pipe: `writer` and `reader` are two channels, of two boards or of one.
///
/// ```
/// use fpga_mock::bluelink::{Fabric, Parameters, Target, pipe};
///
/// let mut fabric = Fabric::new(Parameters::published(), 2, &[(0, 1)])?;
/// let (writer, reader) = pipe(&mut fabric, Target { board: 0, channel: 3 }, Target { board: 1, channel: 3 })?;
/// assert_eq!(writer.write(&mut fabric, b"hello", 1_000_000)?, 5);
/// assert_eq!(reader.read(&mut fabric, 100, 1_000_000)?, b"hello");
/// writer.close(&mut fabric)?;
/// assert_eq!(reader.read(&mut fabric, 100, 1_000_000)?, b"");
/// # Ok::<(), fpga_mock::bluelink::PipeError>(())
/// ```
///
/// # Errors
/// [`PipeError::Same`] for one channel twice, [`FabricError::Unknown`] for a board or channel that is not there.
pub fn pipe(fabric: &mut Fabric, writer: Target, reader: Target) -> Result<(PipeWriter, PipeReader), PipeError> {
    if writer == reader {
        return Err(PipeError::Same(writer));
    }
    fabric.add_pipe_end(writer, PipeUnit::new(writer, reader, true))?;
    fabric.add_pipe_end(reader, PipeUnit::new(reader, writer, false))?;
    Ok((PipeWriter { own: writer, is_blocking: true }, PipeReader { own: reader, is_blocking: true }))
}

/// The end of a pipe that writes.
#[derive(Debug)]
pub struct PipeWriter {
    own: Target,
    is_blocking: bool,
}

/// The end of a pipe that reads.
#[derive(Debug)]
pub struct PipeReader {
    own: Target,
    is_blocking: bool,
}

/// Returns the unit, which has followed the protocol.
fn unit(fabric: &mut Fabric, own: Target) -> Result<&mut PipeUnit, PipeError> {
    let unit = fabric.pipe_end(own)?.filter(|unit| !unit.is_closed).ok_or(PipeError::Missing(own))?;
    match unit.violation {
        Some(flit) => Err(PipeError::Flit(flit)),
        None => Ok(unit),
    }
}

impl PipeWriter {
    /// With `false`, writes return [`PipeError::WouldBlock`] rather than wait (O_NONBLOCK).
    pub fn set_blocking(&mut self, is_blocking: bool) {
        self.is_blocking = is_blocking;
    }

    /// Writes bytes, and returns how many. A blocking end writes all of them, unless `most` picoseconds go by or the reader
    /// closes its end in the middle. Up to [`PIPE_BUF`] bytes are written at once or not at all; a non-blocking end writes a
    /// part of more.
    ///
    /// # Errors
    /// [`PipeError::Broken`] if the reader has closed its end, [`PipeError::WouldBlock`], [`PipeError::TimedOut`] if nothing
    /// was written, and errors of the fabric.
    pub fn write(&self, fabric: &mut Fabric, data: &[u8], most: Time) -> Result<usize, PipeError> {
        let end = fabric.now().saturating_add(most);
        let is_whole = data.len() <= PIPE_BUF;
        let mut written = 0;
        loop {
            let unit = unit(fabric, self.own)?;
            if data.is_empty() {
                return Ok(0);
            }
            if unit.is_other_closed {
                return if written > 0 { Ok(written) } else { Err(PipeError::Broken) };
            }
            let count = unit.write(&data[written..], is_whole);
            if count > 0 {
                written += count;
                fabric.tell(self.own.board.into())?;
            }
            if written == data.len() || (written > 0 && !self.is_blocking) {
                return Ok(written);
            }
            if !self.is_blocking {
                return Err(PipeError::WouldBlock);
            }
            if !fabric.advance(end)? {
                return if written > 0 { Ok(written) } else { Err(PipeError::TimedOut { waited: most }) };
            }
        }
    }

    /// Closes the end. The reader gets what was written before, and then the end of the file.
    ///
    /// # Errors
    /// Errors of the fabric.
    pub fn close(self, fabric: &mut Fabric) -> Result<(), PipeError> {
        unit(fabric, self.own)?.close();
        Ok(fabric.tell(self.own.board.into())?)
    }
}

impl PipeReader {
    /// With `false`, reads return [`PipeError::WouldBlock`] rather than wait (O_NONBLOCK).
    pub fn set_blocking(&mut self, is_blocking: bool) {
        self.is_blocking = is_blocking;
    }

    /// Reads up to `bytes` bytes: those that are there, or else those that come first. No bytes are the end of the file.
    ///
    /// # Errors
    /// [`PipeError::WouldBlock`], [`PipeError::TimedOut`] after `most` picoseconds, and errors of the fabric.
    pub fn read(&self, fabric: &mut Fabric, bytes: usize, most: Time) -> Result<Vec<u8>, PipeError> {
        let end = fabric.now().saturating_add(most);
        loop {
            let unit = unit(fabric, self.own)?;
            if unit.has_bytes() || bytes == 0 {
                let data = unit.read(bytes);
                fabric.tell(self.own.board.into())?;
                return Ok(data);
            }
            if unit.is_other_closed {
                return Ok(Vec::new());
            }
            if !self.is_blocking {
                return Err(PipeError::WouldBlock);
            }
            if !fabric.advance(end)? {
                return Err(PipeError::TimedOut { waited: most });
            }
        }
    }

    /// Closes the end. What was not read is lost, and writes fail with [`PipeError::Broken`] once the writer's board knows.
    ///
    /// # Errors
    /// Errors of the fabric.
    pub fn close(self, fabric: &mut Fabric) -> Result<(), PipeError> {
        unit(fabric, self.own)?.close();
        Ok(fabric.tell(self.own.board.into())?)
    }
}

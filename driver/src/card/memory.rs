//! Data between the host and card memory: by the engine of the card's shell, or by copy instructions through two halves of a staging
//! buffer, one being filled or emptied by the host while the card works on the other.

use std::collections::VecDeque;
use std::sync::Arc;

use cmdseq::{Instruction, Operand};
use fpga_hal::DmaBuffer;

use crate::card::Card;
use crate::deadline::Deadline;
use crate::error::Result;
use crate::ledger::bound::Bound;
use crate::ledger::token::Token;
use crate::shell::DataEngine;

/// Bytes of one half of the staging buffer: long enough that the copy outweighs its doorbell, short enough for caches.
const HALF: usize = 1 << 17;
/// Pieces in the staging buffer begin on a cache line, so that no two copies share one.
const LINE: usize = 64;

impl Card {
    /// Writes `data` to card memory at `address`.
    ///
    /// # Errors
    /// [`Error::BadArgument`](crate::Error::BadArgument) outside of card memory, and [`Error::Full`](crate::Error::Full) if only tokens
    /// that the caller keeps fill the queue: then nothing was written. Else those of [`wait`](Card::wait).
    pub fn write_memory(&mut self, address: u64, data: &[u8]) -> Result<()> {
        self.write_pieces([(address, data)])
    }

    /// Reads card memory at `address`.
    ///
    /// # Errors
    /// As [`write_memory`](Card::write_memory).
    pub fn read_memory(&mut self, address: u64, data: &mut [u8]) -> Result<()> {
        self.read_pieces([(address, data)])
    }

    /// Writes several pieces, in order.
    pub(crate) fn write_pieces<'d>(&mut self, pieces: impl IntoIterator<Item = (u64, &'d [u8])>) -> Result<()> {
        if self.shell.engine().is_some() {
            for (address, data) in pieces {
                self.check_range(address, data.len() as u64)?;
                self.by_engine(|mut engine| engine.write(address, data))?;
            }
            return Ok(());
        }
        let align = u64::from(self.capabilities().address_align);
        let mut stage = Stage::new(self)?;
        for (mut address, mut data) in pieces {
            stage.card.check_range(address, data.len() as u64)?;
            let skip = (address % align) as usize;
            if skip != 0 && !data.is_empty() {
                // The card takes aligned addresses only: what lies before in the first block is written back with it.
                let head = data.len().min(align as usize - skip);
                let mut block = vec![0; skip + head];
                let start = address - skip as u64;
                stage.read_now(start, &mut block[..skip])?;
                block[skip..].copy_from_slice(&data[..head]);
                stage.write(start, &block)?;
                address += head as u64;
                data = &data[head..];
            }
            stage.write(address, data)?;
        }
        stage.finish()
    }

    /// Reads several pieces.
    pub(crate) fn read_pieces<'d>(&mut self, pieces: impl IntoIterator<Item = (u64, &'d mut [u8])>) -> Result<()> {
        if self.shell.engine().is_some() {
            for (address, data) in pieces {
                self.check_range(address, data.len() as u64)?;
                self.by_engine(|mut engine| engine.read(address, data))?;
            }
            return Ok(());
        }
        let mut stage = Stage::new(self)?;
        for (address, data) in pieces {
            stage.card.check_range(address, data.len() as u64)?;
            stage.read(address, data)?;
        }
        stage.finish()
    }

    /// Moves data by the shell's engine, behind all that was submitted before, as copy instructions would.
    fn by_engine(&mut self, act: impl FnOnce(DataEngine<'_>) -> Result<()>) -> Result<()> {
        let deadline = Deadline::after(self.timeout());
        self.queue_mut().drain(deadline)?;
        let Some(mut engine) = self.shell.engine() else { unreachable!("the caller has looked") };
        engine.set_timeout(deadline.left());
        act(engine)
    }
}

/// A copy on its way, and where its bytes go once they are in the staging buffer.
struct Copy<'d> {
    token: Token,
    at: usize,
    destination: &'d mut [u8],
}

/// The staging buffer in use. After a failure it is not reused, because a copy may still use it.
struct Stage<'c, 'd> {
    card: &'c mut Card,
    buffer: Arc<DmaBuffer>,
    align: u64,
    /// Copies one half may hold, so that both fit into the ring.
    copies_max: usize,
    deadline: Deadline,
    half: usize,
    used: usize,
    copies: [VecDeque<Copy<'d>>; 2],
}

impl<'c, 'd> Stage<'c, 'd> {
    fn new(card: &'c mut Card) -> Result<Self> {
        let buffer = match card.staging.take() {
            Some(buffer) => buffer,
            None => card.allocate_private(2 * HALF)?,
        };
        let deadline = Deadline::after(card.timeout());
        let align = u64::from(card.capabilities().address_align);
        let copies_max = (card.queue().depth() / 2).max(1) as usize;
        Ok(Stage { card, buffer, align, copies_max, deadline, half: 0, used: 0, copies: Default::default() })
    }

    fn write(&mut self, mut address: u64, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let (at, room) = self.room()?;
            let (now, later) = data.split_at(room.min(data.len()));
            self.buffer.write(at, now).map_err(|error| self.card.bus(error))?;
            let copy = Instruction::copy(self.host(at), Operand::card(address), now.len() as u64);
            self.push(&copy, at, now.len(), &mut [])?;
            address += now.len() as u64;
            data = later;
        }
        Ok(())
    }

    fn read(&mut self, mut address: u64, mut data: &'d mut [u8]) -> Result<()> {
        while !data.is_empty() {
            let skip = (address % self.align) as usize;
            let (at, room) = self.room()?;
            let (now, later) = data.split_at_mut((room - skip).min(data.len()));
            let bytes = now.len() + skip;
            let copy = Instruction::copy(Operand::card(address - skip as u64), self.host(at), bytes as u64);
            address += now.len() as u64;
            self.push(&copy, at, bytes, now)?;
            data = later;
        }
        Ok(())
    }

    /// Waits for all that is on its way, then reads a few bytes.
    fn read_now(&mut self, address: u64, data: &mut [u8]) -> Result<()> {
        self.settle_all()?;
        let (at, _) = self.room()?;
        let copy = Instruction::copy(Operand::card(address), self.host(at), data.len() as u64);
        self.push(&copy, at, data.len(), &mut [])?;
        self.settle_all()?;
        self.buffer.read(at, data).map_err(|error| self.card.bus(error))
    }

    fn host(&self, at: usize) -> Operand {
        Operand::host(self.buffer.iova().0 + at as u64)
    }

    /// Where the next copy's bytes go in the buffer, and how many may. Turns to the other half if this one is full, and waits for all
    /// copies if the queue is: tokens that the caller keeps may leave it few places.
    fn room(&mut self) -> Result<(usize, usize)> {
        if self.used >= HALF || self.copies[self.half].len() >= self.copies_max {
            self.card.queue_mut().ring()?;
            self.half ^= 1;
            self.used = 0;
            self.settle(self.half)?;
        }
        if !self.card.queue_mut().has_room() {
            self.settle_all()?;
        }
        Ok((self.half * HALF + self.used, HALF - self.used))
    }

    fn push(&mut self, copy: &Instruction, at: usize, bytes: usize, destination: &'d mut [u8]) -> Result<()> {
        let copy = Bound::from(copy).holding(Arc::clone(&self.buffer));
        let token = self.card.queue_mut().push_when_room(copy, self.deadline)?;
        let at = at + bytes - destination.len();
        self.copies[self.half].push_back(Copy { token, at, destination });
        self.used += bytes.next_multiple_of(LINE.max(self.align as usize));
        Ok(())
    }

    /// Waits for the copies of one half, and copies their bytes to their destinations.
    fn settle(&mut self, half: usize) -> Result<()> {
        while let Some(Copy { token, at, destination }) = self.copies[half].pop_front() {
            self.card.wait_done(&token, self.deadline)?;
            if !destination.is_empty() {
                self.buffer.read(at, destination).map_err(|error| self.card.bus(error))?;
            }
        }
        Ok(())
    }

    fn settle_all(&mut self) -> Result<()> {
        self.settle(self.half ^ 1)?;
        self.settle(self.half)?;
        self.used = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        // Both halves go on while the first is waited for.
        self.card.queue_mut().ring()?;
        self.settle_all()?;
        self.card.staging = Some(self.buffer);
        Ok(())
    }
}

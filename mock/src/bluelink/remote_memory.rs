//! Remote DMA, as software on a board makes it.

use std::collections::VecDeque;

use super::address::Target;
use super::fabric::Fabric;
use super::memory_unit::{BURST, DONE, READ, REFUSED, WRITE};
use super::packet::PacketError;
use super::packet_port::PacketPort;
use crate::engine::Time;

/// Error of an access to a remote memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// Outside of the memory, or no operation of it.
    #[error("remote memory refused {bytes} bytes at {address:#x}")]
    Refused {
        /// First address.
        address: u64,
        /// Length.
        bytes: usize,
    },
    /// The access before has not ended.
    #[error("the access before has not ended")]
    Busy,
    /// An answer that answers nothing.
    #[error("unexpected answer of {bytes} bytes from board {board}")]
    Answer {
        /// Its length.
        bytes: usize,
        /// Its sender.
        board: u8,
    },
    /// Error of a packet or of the fabric.
    #[error(transparent)]
    Packet(#[from] PacketError),
}

/// Reads and writes a memory of another board, one access at a time. The channel of the memory serves no other board.
///
/// ```
/// use fpga_mock::bluelink::{Fabric, Parameters, RemoteMemory, Target};
///
/// let mut fabric = Fabric::new(Parameters::published(), 2, &[(0, 1)])?;
/// let dram = Target { board: 1, channel: 15 };
/// fabric.add_memory(dram, 1 << 20, 32)?;
/// let mut memory = RemoteMemory::new(Target { board: 0, channel: 0 }, dram);
/// memory.begin_write(0x1001, b"blue")?;
/// assert_eq!(memory.wait(&mut fabric, 10_000_000)?, Some(vec![]));
/// memory.begin_read(0x1000, 6)?;
/// assert_eq!(memory.wait(&mut fabric, 10_000_000)?, Some(b"\0blue\0".to_vec()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RemoteMemory {
    memory: Target,
    port: PacketPort,
    /// Bursts that are not answered, the first of them under way.
    bursts: VecDeque<Request>,
    is_sent: bool,
    data: Vec<u8>,
}

/// A burst of an access.
#[derive(Debug)]
struct Request {
    address: u64,
    bytes: usize,
    /// Of a write.
    data: Option<Vec<u8>>,
}

impl RemoteMemory {
    /// Accesses the memory on the channel `memory`; answers come to the channel `own`.
    pub fn new(own: Target, memory: Target) -> Self {
        RemoteMemory { memory, port: PacketPort::new(own), bursts: VecDeque::new(), is_sent: false, data: Vec::new() }
    }

    /// Begins to read `bytes` bytes. [`RemoteMemory::wait`] returns them.
    ///
    /// # Errors
    /// [`MemoryError::Busy`] before the access before has ended.
    pub fn begin_read(&mut self, address: u64, bytes: usize) -> Result<(), MemoryError> {
        let starts = (0..bytes).step_by(BURST);
        let burst = |start: usize| Request {
            address: address.saturating_add(start as u64),
            bytes: BURST.min(bytes - start),
            data: None,
        };
        self.begin(starts.map(burst).collect())
    }

    /// Begins to write `data`. [`RemoteMemory::wait`] returns no bytes when it is done.
    ///
    /// # Errors
    /// [`MemoryError::Busy`] before the access before has ended.
    pub fn begin_write(&mut self, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        let starts = (0..).step_by(BURST);
        let burst = |(start, data): (u64, &[u8])| Request {
            address: address.saturating_add(start),
            bytes: data.len(),
            data: Some(data.to_vec()),
        };
        self.begin(starts.zip(data.chunks(BURST)).map(burst).collect())
    }

    /// Blocks until the access has ended, or `most` picoseconds have gone: then it returns `None`, and can be called again.
    ///
    /// # Errors
    /// [`MemoryError::Refused`] if the memory has refused a burst, and [`MemoryError::Answer`] if its answer is invalid; the rest of
    /// the access is not made. [`MemoryError::Answer`] for a packet from elsewhere, too: the access goes on with the next call.
    pub fn wait(&mut self, fabric: &mut Fabric, most: Time) -> Result<Option<Vec<u8>>, MemoryError> {
        let end = fabric.now().saturating_add(most);
        while let Some(burst) = self.bursts.front() {
            if !self.is_sent {
                let head = [if burst.data.is_some() { WRITE } else { READ }, 0, 0, 0];
                let length = (burst.bytes as u32).to_le_bytes();
                let data = burst.data.as_deref().unwrap_or_default();
                self.port.send(self.memory, &[&head, &length, &burst.address.to_le_bytes()[..], data].concat())?;
                self.is_sent = true;
            }
            let Some(packet) = self.port.wait(fabric, end.saturating_sub(fabric.now()))? else { return Ok(None) };
            let answer = MemoryError::Answer { bytes: packet.bytes.len(), board: packet.from.board };
            if packet.from != self.memory {
                return Err(answer);
            }
            self.is_sent = false;
            let expected = if burst.data.is_some() { 0 } else { burst.bytes };
            let error = match packet.bytes.split_first_chunk::<8>() {
                Some(([DONE, ..], data)) if data.len() == expected => {
                    self.data.extend_from_slice(data);
                    self.bursts.pop_front();
                    continue;
                }
                Some(([REFUSED, ..], [])) => MemoryError::Refused { address: burst.address, bytes: burst.bytes },
                _ => answer,
            };
            self.bursts.clear();
            self.data.clear();
            return Err(error);
        }
        Ok(Some(std::mem::take(&mut self.data)))
    }

    fn begin(&mut self, bursts: VecDeque<Request>) -> Result<(), MemoryError> {
        if !self.bursts.is_empty() {
            return Err(MemoryError::Busy);
        }
        self.bursts = bursts;
        self.data.clear();
        Ok(())
    }
}

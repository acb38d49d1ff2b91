//! What the masters do for one descriptor.

use fpga_hal::Iova;
use fpga_hal::endpoint::{DmaFault, DmaPort, DmaProgress, DmaTag};
use fpga_regs::msgdma::{ALIGN, MAGIC};

use crate::fabric::Fabric;
use crate::msgdma::descriptor::{Descriptor, Side, Space};

/// Most bytes of one access.
const PIECE_BYTES: u64 = 256 << 10;

/// What is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outstanding {
    Read(DmaTag),
    Write(DmaTag),
    /// A read that is never answered.
    Lost,
}

/// The transfer of one descriptor.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) descriptor: Descriptor,
    /// Bytes written.
    done: u64,
    /// What was read and is not written yet.
    data: Option<Vec<u8>>,
    outstanding: Option<Outstanding>,
}

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Bytes moved.
    Moved(u64),
    /// An access was not answered yet.
    Pending,
    /// All bytes have moved.
    Ended,
    /// An access was answered with an error.
    Failed,
}

/// What the masters reach.
pub(super) struct Reach<'a> {
    pub(super) fabric: &'a Fabric,
    pub(super) node: u32,
    pub(super) host: Result<&'a dyn DmaPort, DmaFault>,
    pub(super) tag: DmaTag,
    /// The write is lost on its way.
    pub(super) loses_write: bool,
}

impl Transfer {
    pub(super) fn new(descriptor: Descriptor) -> Self {
        Transfer { descriptor, done: 0, data: None, outstanding: None }
    }

    pub(super) fn is_outstanding(&self) -> bool {
        self.outstanding.is_some()
    }

    /// The next access is never answered.
    pub(super) fn lose(&mut self) {
        self.outstanding = Some(Outstanding::Lost);
    }

    /// Returns whether the next access writes host memory.
    pub(super) fn writes_host(&self) -> bool {
        self.data.is_some() && self.descriptor.destination.space == Space::Host
    }

    /// Returns the address and length of a side's next access.
    fn next(&self, side: &Side) -> (u64, u64) {
        let is_fixed = self.descriptor.source.is_fixed || self.descriptor.destination.is_fixed;
        let most = if is_fixed { ALIGN } else { PIECE_BYTES };
        let address = if side.is_fixed { side.address } else { side.address + self.done };
        (address, most.min(u64::from(self.descriptor.bytes) - self.done))
    }

    /// Makes the next access: of the source, then of the destination.
    pub(super) fn step(&mut self, reach: &Reach<'_>) -> Step {
        if self.outstanding.is_some() {
            return Step::Pending;
        }
        match self.data.take() {
            None => self.read(reach),
            Some(data) => self.write(data, reach),
        }
    }

    fn read(&mut self, reach: &Reach<'_>) -> Step {
        let source = self.descriptor.source;
        let (address, bytes) = self.next(&source);
        let mut data = Vec::new();
        let is_read = match source.space {
            Space::Card => {
                let read = |memory: &mut crate::card::memory::CardMemory| memory.read(address, bytes);
                match reach.fabric.memory(reach.node, bytes, read) {
                    Ok(read) => {
                        data = read;
                        true
                    }
                    Err(_) => false,
                }
            }
            Space::Rom => {
                data.resize(bytes as usize, 0);
                data[..8].copy_from_slice(&MAGIC.to_le_bytes());
                address == 0 && bytes == ALIGN
            }
            Space::Host => {
                data.resize(bytes as usize, 0);
                match reach.host.map(|port| port.read(reach.tag, Iova(address), &mut data)) {
                    Ok(DmaProgress::Pending) => {
                        self.outstanding = Some(Outstanding::Read(reach.tag));
                        return Step::Pending;
                    }
                    Ok(DmaProgress::Done(result)) => result.is_ok(),
                    Err(_) => false,
                }
            }
        };
        if !is_read {
            return Step::Failed;
        }
        self.data = Some(data);
        Step::Moved(0)
    }

    fn write(&mut self, data: Vec<u8>, reach: &Reach<'_>) -> Step {
        let destination = self.descriptor.destination;
        let (address, bytes) = self.next(&destination);
        match destination.space {
            Space::Rom => return Step::Failed,
            Space::Card => {
                if reach.fabric.memory(reach.node, bytes, |memory| memory.write(address, &data)).is_err() {
                    return Step::Failed;
                }
            }
            // Writes are posted: nobody hears of one that was lost.
            Space::Host if reach.loses_write => {}
            Space::Host => {
                if let Ok(port) = reach.host
                    && port.write(reach.tag, Iova(address), &data) == DmaProgress::Pending
                {
                    self.outstanding = Some(Outstanding::Write(reach.tag));
                    return Step::Pending;
                }
            }
        }
        self.written(bytes)
    }

    fn written(&mut self, bytes: u64) -> Step {
        self.done += bytes;
        if self.done == u64::from(self.descriptor.bytes) { Step::Ended } else { Step::Moved(bytes) }
    }

    /// Ends an access that was on its way. `None` if it is not of this transfer.
    pub(super) fn answered(&mut self, tag: DmaTag, result: Result<&[u8], DmaFault>) -> Option<Step> {
        match self.outstanding? {
            Outstanding::Read(of) if of == tag => {
                self.outstanding = None;
                let Ok(data) = result else { return Some(Step::Failed) };
                self.data = Some(data.to_vec());
                Some(Step::Moved(0))
            }
            Outstanding::Write(of) if of == tag => {
                self.outstanding = None;
                let destination = self.descriptor.destination;
                let (_, bytes) = self.next(&destination);
                Some(self.written(bytes))
            }
            Outstanding::Read(_) | Outstanding::Write(_) | Outstanding::Lost => None,
        }
    }
}

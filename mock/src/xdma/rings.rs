//! Memory for the rings of a sequencer that masters no bus. The host, the sequencer and the engine reach it, each by a master of its own.
//!
//! In the user BAR the host's words and the sequencer's registers go through one master, which keeps their order. In the bypass
//! window they do not: words arrive in their own order, at a time that chance chooses, and a read of the window is answered behind
//! them. So a write to the sequencer may overtake words that the host stored before.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fpga_hal::Iova;
use fpga_hal::endpoint::{DmaFault, DmaPort, DmaProgress, DmaTag};

use crate::net::noise::Dice;
use crate::xdma::block::Block;

/// Most words of the host that are late: the bus stores no more.
const LATE_MAX: usize = 256;
/// Bytes of the memory.
pub(super) const BYTES: u32 = 0xc000;
/// Where the sequencer has it.
pub(super) const OF_SEQUENCER: u64 = 0x2_0000_0000;
/// Where the engine has it.
pub(super) const OF_ENGINE: u64 = 1 << 40;

/// The memory for rings in the user BAR.
pub(super) struct RingBlock(pub(super) Arc<RingMemory>);

impl Block for RingBlock {
    fn read32(&mut self, offset: u32) -> u32 {
        let mut word = [0; 4];
        if let Some(bytes) = self.0.lock().bytes_at(offset.into(), 4) {
            word.copy_from_slice(bytes);
        }
        u32::from_le_bytes(word)
    }

    fn write32(&mut self, offset: u32, value: u32) {
        self.0.lock().store(offset.into(), &value.to_le_bytes());
    }
}

/// Memory that the host, the sequencer and the engine reach. Its contents outlive a reset.
pub(super) struct RingMemory(Mutex<Rings>);

/// Contents of the memory for rings.
struct Rings {
    bytes: Vec<u8>,
    /// The next words that the host stores arrive behind the next write to the sequencer.
    delayed: u32,
    /// What the host has stored and has not arrived, oldest first.
    late: VecDeque<(u64, Vec<u8>)>,
    /// Chooses when that arrives; `None`: one master keeps the order of words and registers.
    chance: Option<Dice>,
}

impl Rings {
    /// Returns `bytes` bytes at `offset`, if they are inside.
    fn bytes_at(&mut self, offset: u64, bytes: u64) -> Option<&mut [u8]> {
        let end = offset.checked_add(bytes)?;
        self.bytes.get_mut(usize::try_from(offset).ok()?..usize::try_from(end).ok()?)
    }

    fn store(&mut self, offset: u64, data: &[u8]) {
        if self.delayed > 0 || self.chance.is_some() {
            self.delayed = self.delayed.saturating_sub(1);
            self.late.push_back((offset, data.to_vec()));
            if self.late.len() > LATE_MAX {
                self.arrive(1);
            }
        } else {
            self.put(offset, data);
        }
    }

    fn put(&mut self, offset: u64, data: &[u8]) {
        if let Some(bytes) = self.bytes_at(offset, data.len() as u64) {
            bytes.copy_from_slice(data);
        }
    }

    /// Has the oldest `count` late words arrive.
    fn arrive(&mut self, count: usize) {
        for _ in 0..count {
            let Some((offset, data)) = self.late.pop_front() else { return };
            self.put(offset, &data);
        }
    }
}

impl RingMemory {
    /// Empty memory. `seed`: it is in the bypass window, and the seed chooses when words arrive.
    pub(super) fn new(seed: Option<u64>) -> Self {
        let chance = seed.map(Dice::new);
        RingMemory(Mutex::new(Rings { bytes: vec![0; BYTES as usize], delayed: 0, late: VecDeque::new(), chance }))
    }

    fn lock(&self) -> MutexGuard<'_, Rings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the next `words` words that the host stores arrive behind the next write to the sequencer.
    pub(super) fn delay(&self, words: u32) {
        self.lock().delayed = words;
    }

    /// Chooses anew when words in the bypass window arrive.
    pub(super) fn reseed(&self, seed: u64) {
        if let Some(chance) = &mut self.lock().chance {
            *chance = Dice::new(seed);
        }
    }

    /// Runs a write to the sequencer: behind some of the words that are late, and before others.
    pub(super) fn before_and_after(&self, write: impl FnOnce()) {
        let mut rings = self.lock();
        let count = rings.late.len() as u64;
        // In three of four cases behind all of them: the way to the registers is no shorter than the other.
        let before = match &mut rings.chance {
            Some(chance) => match chance.below(4) {
                0 => chance.below(count + 1),
                _ => count,
            },
            None => 0,
        };
        rings.arrive(before as usize);
        drop(rings);
        write();
        self.settle();
    }

    /// Everything that the host has stored arrives.
    fn settle(&self) {
        self.lock().arrive(usize::MAX);
    }

    /// The host stores `data` through the bypass window.
    pub(super) fn write_window(&self, offset: u64, data: &[u8]) {
        self.lock().store(offset, data);
    }

    /// The host reads through the bypass window, behind what it has stored. `None` outside of the memory.
    pub(super) fn read_window(&self, offset: u64, data: &mut [u8]) -> Option<()> {
        self.settle();
        data.copy_from_slice(self.lock().bytes_at(offset, data.len() as u64)?);
        Some(())
    }

    /// Runs `act` on the bytes that the engine has at `address`, if they are inside.
    pub(super) fn of_engine<R>(&self, address: u64, bytes: u64, act: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let offset = address.checked_sub(OF_ENGINE)?;
        self.lock().bytes_at(offset, bytes).map(act)
    }

    /// Runs `act` on what the sequencer has at `address`.
    fn at(&self, Iova(address): Iova, bytes: usize, act: impl FnOnce(&mut [u8])) -> DmaProgress {
        let mut rings = self.lock();
        let offset = address.checked_sub(OF_SEQUENCER);
        let found = offset.and_then(|offset| rings.bytes_at(offset, bytes as u64));
        DmaProgress::Done(found.map(act).ok_or(DmaFault::Unmapped { iova: Iova(address) }))
    }
}

/// What the sequencer takes for its host.
impl DmaPort for RingMemory {
    fn read(&self, _: DmaTag, address: Iova, data: &mut [u8]) -> DmaProgress {
        self.at(address, data.len(), |bytes| data.copy_from_slice(bytes))
    }

    fn write(&self, _: DmaTag, address: Iova, data: &[u8]) -> DmaProgress {
        self.at(address, data.len(), |bytes| bytes.copy_from_slice(data))
    }
}

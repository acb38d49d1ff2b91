//! The state of one end of a channel, as its registers show it.

use fpga_hal::Iova;
use fpga_hal::endpoint::DmaTag;
use fpga_regs::channel::{end, slot};

use crate::proto::circus::Direction;

/// Most bytes of a slot, and most slots of a ring.
pub(super) const SLOT_BYTES_MAX: u32 = 4096;
pub(super) const SLOTS_MAX: u32 = 1024;
/// Registers that hold what was written.
const KEPT: usize = (end::ENABLE / 4) as usize;

/// What an end waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// A slot that the host has filled.
    Fetch,
    /// The number of slots taken, to the host.
    Report,
    /// Bytes of a slot, to the host.
    Fill,
    /// The header of that slot.
    Header,
}

/// Why an end has stopped: the values of FAULT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Read = 1,
    Write = 2,
    Slot = 3,
    Doorbell = 4,
}

#[derive(Debug, Default)]
pub(super) struct End {
    /// From DIRECTION to VECTOR.
    kept: [u32; KEPT],
    pub(super) is_enabled: bool,
    /// Slots since ENABLE: rung by the host, taken or filled by the card, and of the latter those that the host certainly sees.
    pub(super) rung: u32,
    pub(super) count: u32,
    pub(super) seen: u32,
    pub(super) armed: Option<u32>,
    pub(super) fault: Option<Fault>,
    pub(super) outstanding: Option<(DmaTag, Request)>,
    /// Bytes behind the header of the slot that is being filled.
    pub(super) filling: u32,
}

impl End {
    fn kept(&self, register: u32) -> u32 {
        self.kept[(register / 4) as usize]
    }

    fn address(&self, low: u32, index: u32, stride: u32) -> Iova {
        let base = u64::from(self.kept(low)) | u64::from(self.kept(low + 4)) << 32;
        Iova(base.wrapping_add(u64::from(index) * u64::from(stride)))
    }

    pub(super) fn read(&self, register: u32) -> u32 {
        match register {
            end::ENABLE => u32::from(self.is_enabled || self.outstanding.is_some()),
            end::COUNT => self.count,
            end::FAULT => self.fault.map_or(0, |fault| fault as u32),
            _ if (register / 4) < KEPT as u32 => self.kept(register),
            _ => 0,
        }
    }

    /// Keeps the value of a register that is fixed while the end is enabled.
    pub(super) fn keep(&mut self, register: u32, value: u32) {
        let is_fixed = self.is_enabled || self.outstanding.is_some();
        if let Some(kept) = self.kept.get_mut((register / 4) as usize)
            && (!is_fixed || register == end::VECTOR)
        {
            *kept = value;
        }
    }

    pub(super) fn is_reader(&self) -> bool {
        self.kept(end::DIRECTION) == end::READS
    }

    pub(super) fn vector(&self) -> u32 {
        self.kept(end::VECTOR)
    }

    pub(super) fn channel(&self) -> u8 {
        self.kept(end::CHANNEL) as u8
    }

    pub(super) fn word_bytes(&self) -> usize {
        self.kept(end::WORD_BYTES) as usize
    }

    pub(super) fn slot_bytes(&self) -> u32 {
        self.kept(end::SLOT_BYTES)
    }

    /// Bytes of whole words in a slot.
    pub(super) fn payload_bytes(&self) -> u32 {
        let room = self.slot_bytes() - slot::HEADER_BYTES;
        room - room % self.kept(end::WORD_BYTES)
    }

    pub(super) fn slots(&self) -> u32 {
        self.kept(end::SLOTS)
    }

    /// Where slot `number` since ENABLE is.
    pub(super) fn slot_address(&self, number: u32) -> Iova {
        self.address(end::RING_BASE_LO, number & (self.slots() - 1), self.slot_bytes())
    }

    pub(super) fn count_address(&self) -> Iova {
        self.address(end::COUNT_BASE_LO, 0, 0)
    }

    /// Slots that an end that reads may fill.
    pub(super) fn free_slots(&self) -> u32 {
        self.slots() - self.count.wrapping_sub(self.rung)
    }

    /// Checks the registers, and returns what they say; `nodes` are the nodes of the network.
    pub(super) fn checked(&self, nodes: u32) -> Option<Direction> {
        let is_power = |value: u32, least: u32, most: u32| value.is_power_of_two() && (least..=most).contains(&value);
        let is_aligned = |low: u32, align: u64| self.address(low, 0, 0).0.is_multiple_of(align);
        let is_valid = is_power(self.slot_bytes(), slot::BYTES_MIN, SLOT_BYTES_MAX)
            && is_power(self.slots(), 2, SLOTS_MAX)
            && is_aligned(end::RING_BASE_LO, 64)
            && is_aligned(end::COUNT_BASE_LO, 8)
            && self.kept(end::CHANNEL) <= 0xff
            && (1..=64).contains(&self.kept(end::WORD_BYTES))
            && self.kept(end::WORD_BYTES) + slot::HEADER_BYTES <= self.slot_bytes();
        match self.kept(end::DIRECTION) {
            _ if !is_valid => None,
            end::WRITES if self.kept(end::PEER) < nodes => Some(Direction::Writes(self.kept(end::PEER))),
            end::READS => Some(Direction::Reads),
            _ => None,
        }
    }

    /// Zeroes all counts, and takes the end into use.
    pub(super) fn enable(&mut self) {
        *self = End { kept: self.kept, is_enabled: true, ..End::default() };
    }

    /// Takes a doorbell.
    pub(super) fn ring(&mut self, rung: u32) {
        let is_valid = match self.is_reader() {
            // The host has taken no more than there are, and not less than before.
            true => rung.wrapping_sub(self.rung) <= self.count.wrapping_sub(self.rung),
            false => rung.wrapping_sub(self.count) <= self.slots() && rung.wrapping_sub(self.rung) <= self.slots(),
        };
        match is_valid {
            true => self.rung = rung,
            false => self.fault = Some(Fault::Doorbell),
        }
    }

    /// Returns whether the interrupt is due, and disarms it then.
    pub(super) fn is_due(&mut self) -> bool {
        let is_due = self.armed.is_some_and(|armed| self.seen.wrapping_sub(armed) as i32 > 0);
        if is_due {
            self.armed = None;
        }
        is_due
    }

    /// Whether the end does something by itself.
    pub(super) fn is_running(&self) -> bool {
        self.is_enabled && self.fault.is_none() && self.outstanding.is_none()
    }
}

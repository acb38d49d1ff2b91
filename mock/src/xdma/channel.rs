//! One channel: its registers, and the list that it runs.

use std::collections::VecDeque;

use fpga_hal::endpoint::DmaTag;
use fpga_regs::xdma::{Block, Control, DESCRIPTOR_BYTES, Descriptor, Status, channel, writeback};

/// Which way the data of a channel goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From host to card.
    H2c,
    /// From card to host.
    C2h,
}

impl Direction {
    /// The block with the registers of its channels.
    pub(super) fn block(self) -> Block {
        match self {
            Direction::H2c => Block::H2c,
            Direction::C2h => Block::C2h,
        }
    }

    /// The block with the registers of its channels' descriptors.
    pub(super) fn descriptors(self) -> Block {
        match self {
            Direction::H2c => Block::H2cDescriptors,
            Direction::C2h => Block::C2hDescriptors,
        }
    }
}

/// What a channel asks the host for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// Descriptors.
    Fetch { count: u32 },
    /// Data of the present descriptor, from the host.
    Read { bytes: u32 },
    /// Data of the present descriptor, to the host.
    Write { bytes: u32 },
    /// The word for poll mode.
    Writeback,
}

/// A run, from a rising edge of RUN until the channel stops.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// IOVA of the next descriptors, and how many follow one another there.
    pub(super) next: u64,
    pub(super) block_left: u32,
    pub(super) fetched: VecDeque<[u8; DESCRIPTOR_BYTES]>,
    /// The present descriptor, and its bytes that were moved.
    pub(super) present: Option<(Descriptor, u32)>,
    pub(super) outstanding: Option<(DmaTag, Request)>,
    /// The word to write next.
    pub(super) writeback: Option<u32>,
    /// It stops behind the writeback.
    pub(super) is_over: bool,
    /// An AXI transfer never ends.
    pub(super) is_hung: bool,
}

/// What has happened on a channel whose descriptors the sequencer loads, since the card looked last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    /// Descriptors completed.
    pub(super) completed: u32,
    /// Events.
    pub(super) events: Status,
}

impl Default for Progress {
    fn default() -> Self {
        Progress { completed: 0, events: Status::empty() }
    }
}

/// A channel.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) direction: Direction,
    pub(super) number: u32,
    /// The sequencer loads its descriptors.
    pub(super) is_bypassed: bool,
    pub(super) control: u32,
    /// Without BUSY.
    status: u32,
    pub(super) completed: u32,
    pub(super) writeback: u64,
    pub(super) interrupt_enable: u32,
    monitor_control: u32,
    monitor_beats: u64,
    pub(super) first: u64,
    pub(super) first_adjacent: u32,
    pub(super) credits: u32,
    pub(super) run: Option<Run>,
}

/// Bytes that the data path moves in a cycle.
pub(super) const BEAT_BYTES: u64 = 64;
/// ALIGNMENTS: addresses and lengths to the byte, addresses of 64 bits.
const ALIGNMENTS: u32 = 1 << 16 | 1 << 8 | 64;
/// Bits of CONTROL that exist in each direction.
const CONTROL_H2C: u32 = Control::EVENTS.bits() | Control::RUN.bits() | Control::WRITEBACK.bits();
const CONTROL_C2H: u32 = CONTROL_H2C & !Control::WRITE_ERRORS.bits() | Control::FIXED_ADDRESS.bits();
/// Errors that the word for poll mode reports.
const FAILURES: u32 = Status::FAILURES.bits();
const MONITOR_RUN: u32 = 1;
const MONITOR_CLEAR: u32 = 1 << 1;
const MONITOR_AUTO: u32 = 1 << 2;

impl Channel {
    pub(super) fn new(direction: Direction, number: u32, is_bypassed: bool) -> Self {
        Channel {
            direction,
            number,
            is_bypassed,
            control: 0,
            status: 0,
            completed: 0,
            writeback: 0,
            interrupt_enable: 0,
            monitor_control: 0,
            monitor_beats: 0,
            first: 0,
            first_adjacent: 0,
            credits: 0,
            run: None,
        }
    }

    /// Its bit in registers that channels share: H2C from bit 0, C2H from bit 16.
    pub(super) fn common_bit(&self) -> u32 {
        match self.direction {
            Direction::H2c => 1 << self.number,
            Direction::C2h => 1 << (16 + self.number),
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.control & Control::RUN.bits() != 0
    }

    fn status(&self) -> u32 {
        self.status | if self.run.is_some() { Status::BUSY.bits() } else { 0 }
    }

    /// Whether its interrupt is asserted.
    pub(super) fn interrupts(&self) -> bool {
        self.status & self.interrupt_enable != 0
    }

    /// Notes an event if CONTROL lets it, and returns whether it does.
    pub(super) fn note(&mut self, event: Status) -> bool {
        self.status |= event.bits() & self.control;
        self.control & event.bits() != 0
    }

    /// Returns the word for poll mode.
    pub(super) fn writeback_word(&self) -> u32 {
        let error = if self.status & FAILURES != 0 { writeback::ERROR } else { 0 };
        self.completed & writeback::COUNT | error
    }

    pub(super) fn count_data(&mut self, bytes: u64) {
        if self.monitor_control & MONITOR_RUN != 0 {
            self.monitor_beats += bytes.div_ceil(BEAT_BYTES);
        }
    }

    /// Ends the run.
    pub(super) fn stop(&mut self) {
        self.run = None;
        if self.monitor_control & MONITOR_AUTO != 0 {
            self.monitor_control &= !MONITOR_RUN;
        }
    }

    /// Reads a register. A read of STATUS_CLEAR clears.
    pub(super) fn read(&mut self, register: u32) -> u32 {
        match register {
            channel::IDENTIFIER => self.direction.block().identifier(self.number),
            channel::CONTROL | channel::CONTROL_SET | channel::CONTROL_CLEAR => self.control,
            channel::STATUS => self.status(),
            channel::STATUS_CLEAR => {
                let status = self.status();
                self.status = 0;
                status
            }
            channel::COMPLETED => self.completed,
            channel::ALIGNMENTS => ALIGNMENTS,
            channel::WRITEBACK_LO => self.writeback as u32,
            channel::WRITEBACK_HI => (self.writeback >> 32) as u32,
            channel::INTERRUPT_ENABLE | channel::INTERRUPT_ENABLE_SET | channel::INTERRUPT_ENABLE_CLEAR => {
                self.interrupt_enable
            }
            channel::MONITOR_CONTROL => self.monitor_control,
            // A beat a cycle.
            channel::MONITOR_CYCLES_LO | channel::MONITOR_DATA_LO => self.monitor_beats as u32,
            channel::MONITOR_CYCLES_HI | channel::MONITOR_DATA_HI => (self.monitor_beats >> 32) as u32 & 0x3ff,
            _ => 0,
        }
    }

    /// Writes a register. Returns whether RUN was set and had not been.
    pub(super) fn write(&mut self, register: u32, value: u32) -> bool {
        let was_running = self.is_running();
        let control = match self.direction {
            Direction::H2c => CONTROL_H2C,
            Direction::C2h => CONTROL_C2H,
        };
        // Events can interrupt in the directions in which they can happen.
        let events = control & Control::EVENTS.bits();
        match register {
            channel::CONTROL => self.control = value & control,
            channel::CONTROL_SET => self.control |= value & control,
            channel::CONTROL_CLEAR => self.control &= !value,
            channel::STATUS => self.status &= !value,
            channel::WRITEBACK_LO => self.writeback = self.writeback >> 32 << 32 | u64::from(value),
            channel::WRITEBACK_HI => self.writeback = u64::from(value) << 32 | self.writeback & 0xffff_ffff,
            channel::INTERRUPT_ENABLE => self.interrupt_enable = value & events,
            channel::INTERRUPT_ENABLE_SET => self.interrupt_enable |= value & events,
            channel::INTERRUPT_ENABLE_CLEAR => self.interrupt_enable &= !value,
            channel::MONITOR_CONTROL => {
                self.monitor_control = value & (MONITOR_RUN | MONITOR_AUTO);
                if value & MONITOR_CLEAR != 0 {
                    self.monitor_beats = 0;
                }
            }
            _ => {}
        }
        if was_running && !self.is_running() {
            self.credits = 0;
            if self.is_bypassed {
                self.note(Status::IDLE_STOPPED);
            }
        }
        !was_running && self.is_running()
    }

    /// Takes over what the sequencer's requests have done.
    pub(super) fn add(&mut self, Progress { completed, events }: Progress) {
        self.completed = self.completed.wrapping_add(completed);
        self.note(events);
    }

    /// Begins a run. A channel whose descriptors the sequencer loads fetches none.
    pub(super) fn start(&mut self) {
        self.status = 0;
        self.completed = 0;
        if self.monitor_control & MONITOR_AUTO != 0 {
            self.monitor_beats = 0;
        }
        if self.is_bypassed {
            return;
        }
        let block_left = self.first_adjacent + 1;
        self.run = Some(Run { next: self.first, block_left, ..Run::default() });
    }
}

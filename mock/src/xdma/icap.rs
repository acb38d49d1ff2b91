//! AXI HWICAP, and the FPGA's configuration logic behind it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fpga_regs::hwicap::{
    ABORT, BLOCK_BYTES, CLEAR, CONTROL, DONE, END_OF_STARTUP, FIFO_WORDS, INTERRUPT_ENABLE, INTERRUPT_GLOBAL,
    OCCUPANCY, READ, READ_FIFO, RESET, SIZE, STATUS, VACANCY, WRITE, WRITE_FIFO, words,
};

use crate::card::image::Checker;
use crate::xdma::behind::Behind;
use crate::xdma::block::Block;
use crate::xdma::region::{IDCODE, Region};

/// Reads of CONTROL until an operation has ended.
const OPERATION_READS: u32 = 2;
/// Words of the read queue.
const READ_WORDS: usize = 256;

/// Makes the stream of a .bit file of about `bytes` bytes that configures the logic with this GUID in an FPGA of this IDCODE.
pub fn stream(guid: u128, idcode: u32, bytes: usize) -> Vec<u8> {
    let data = crate::card::image::image(guid, bytes);
    let data: Vec<u32> = data.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let mut crc = 0;
    let mut stream = vec![words::DUMMY; 8];
    stream.extend([words::SYNC, words::NOOP, words::write(words::COMMAND, 1), words::RESET_CRC]);
    stream.extend([words::write(words::IDCODE, 1), idcode]);
    crc = checksum(crc, words::IDCODE, idcode);
    stream.extend([words::write(words::COMMAND, 1), words::WRITE_CONFIGURATION]);
    crc = checksum(crc, words::COMMAND, words::WRITE_CONFIGURATION);
    stream.extend([words::write(words::FRAME_DATA, 0), words::more(data.len() as u32)]);
    crc = data.iter().fold(crc, |crc, word| checksum(crc, words::FRAME_DATA, *word));
    stream.extend(data);
    stream.extend([words::write(words::CRC, 1), crc, words::write(words::COMMAND, 1), words::DESYNC, words::NOOP]);
    stream.into_iter().flat_map(u32::to_be_bytes).collect()
}

/// Takes a write of a register into the checksum. The polynomial is the devices'; how they feed it is not modelled.
fn checksum(before: u32, register: u32, word: u32) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(before, &[register as u8]), &word.to_le_bytes())
}

/// What is wrong with the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IcapFault {
    /// Nothing.
    #[default]
    None,
    /// Operations never end.
    Hangs,
    /// The write queue takes no words.
    Full,
    /// The FPGA does not say that it has started.
    NoStartup,
    /// The function loses its configuration space when the new logic starts.
    LosesConfiguration,
}

/// The block. Clones are handles to the same.
#[derive(Clone)]
pub struct Icap(Arc<Mutex<Port>>);

struct Port {
    fault: IcapFault,
    queue: VecDeque<u32>,
    read: VecDeque<u32>,
    size: u32,
    kept: [u32; 2],
    /// Operation, and reads of CONTROL until it has ended.
    operation: Option<(u32, u32)>,
    logic: Configuration,
    /// Data was written while the region was not cut off.
    was_coupled: bool,
    /// The function has lost its configuration space.
    has_lost: bool,
}

impl Icap {
    pub(super) fn new(region: Region, behind: Option<Behind>) -> Self {
        Icap(Arc::new(Mutex::new(Port {
            fault: IcapFault::None,
            queue: VecDeque::new(),
            read: VecDeque::new(),
            size: 0,
            kept: [0; 2],
            operation: None,
            logic: Configuration::new(region, behind),
            was_coupled: false,
            has_lost: false,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Port> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what is wrong with the port.
    pub fn fail(&self, fault: IcapFault) {
        self.lock().fault = fault;
    }

    /// Sets whether the decoupler does nothing.
    pub fn stick_decoupler(&self, is_stuck: bool) {
        self.lock().logic.region.lock().is_stuck = is_stuck;
    }

    /// Returns whether the function has lost its configuration space, since the last call.
    pub(super) fn take_loss(&self) -> bool {
        std::mem::take(&mut self.lock().has_lost)
    }

    /// Returns whether the region was configured without being cut off, since the last call.
    pub fn take_coupled(&self) -> bool {
        std::mem::take(&mut self.lock().was_coupled)
    }
}

impl Port {
    fn read(&mut self, offset: u32) -> u32 {
        match offset {
            INTERRUPT_GLOBAL => self.kept[0],
            INTERRUPT_ENABLE => self.kept[1],
            READ_FIFO => self.read.pop_front().unwrap_or(0),
            SIZE => self.size,
            CONTROL => self.go_on(),
            STATUS => {
                let startup = if self.fault == IcapFault::NoStartup { 0 } else { END_OF_STARTUP };
                startup | if self.operation.is_none() { DONE } else { 0 }
            }
            VACANCY if self.fault == IcapFault::Full => 0,
            VACANCY => FIFO_WORDS - self.queue.len() as u32,
            OCCUPANCY => self.read.len() as u32,
            _ => 0,
        }
    }

    /// Returns CONTROL, and ends the operation if it is time.
    fn go_on(&mut self) -> u32 {
        let Some((operation, reads)) = self.operation else { return 0 };
        let left = reads - u32::from(self.fault != IcapFault::Hangs);
        self.operation = (left > 0).then_some((operation, left));
        if left > 0 { operation } else { 0 }
    }

    fn write(&mut self, offset: u32, value: u32) {
        match offset {
            INTERRUPT_GLOBAL => self.kept[0] = value & 1 << 31,
            INTERRUPT_ENABLE => self.kept[1] = value & 0xf,
            WRITE_FIFO if self.queue.len() < FIFO_WORDS as usize => self.queue.push_back(value),
            SIZE => self.size = value & 0xfff,
            CONTROL => self.control(value),
            _ => {}
        }
    }

    fn control(&mut self, value: u32) {
        if value & (CLEAR | RESET | ABORT) != 0 {
            (self.queue, self.read, self.operation) = (VecDeque::new(), VecDeque::new(), None);
            if value & (RESET | ABORT) != 0 {
                self.logic.desynchronise();
            }
            return;
        }
        if self.operation.is_some() || value & (WRITE | READ) == 0 {
            return;
        }
        self.operation = Some((value & (WRITE | READ), OPERATION_READS));
        if value & WRITE != 0 {
            for word in std::mem::take(&mut self.queue) {
                self.was_coupled |= self.logic.take(word);
            }
            self.has_lost |= self.logic.take_start() && self.fault == IcapFault::LosesConfiguration;
        } else {
            let words = self.logic.read.drain(..).take(self.size as usize);
            self.read.extend(words);
            self.read.truncate(READ_WORDS);
        }
    }
}

impl Block for Icap {
    fn read32(&mut self, offset: u32) -> u32 {
        debug_assert!(offset < BLOCK_BYTES);
        self.lock().read(offset)
    }

    fn write32(&mut self, offset: u32, value: u32) {
        self.lock().write(offset, value);
    }

    fn reset(&mut self) {
        let mut port = self.lock();
        port.control(RESET);
        (port.size, port.kept) = (0, [0; 2]);
    }
}

/// The configuration logic of the FPGA.
struct Configuration {
    region: Region,
    behind: Option<Behind>,
    is_synchronised: bool,
    /// Register of the packet, and its words that are to come.
    packet: (u32, u32),
    crc: u32,
    errors: u32,
    image: Option<Checker>,
    read: VecDeque<u32>,
    /// New logic has started.
    has_started: bool,
}

impl Configuration {
    fn new(region: Region, behind: Option<Behind>) -> Self {
        Configuration {
            region,
            behind,
            is_synchronised: false,
            packet: (0, 0),
            crc: 0,
            errors: 0,
            image: None,
            read: VecDeque::new(),
            has_started: false,
        }
    }

    /// Returns whether new logic has started, since the last call.
    fn take_start(&mut self) -> bool {
        std::mem::take(&mut self.has_started)
    }

    fn desynchronise(&mut self) {
        (self.is_synchronised, self.packet, self.image) = (false, (0, 0), None);
    }

    /// Takes a word. Returns whether it was data for a region that is not cut off.
    fn take(&mut self, word: u32) -> bool {
        if !self.is_synchronised {
            self.is_synchronised = word == words::SYNC;
            return false;
        }
        if self.packet.1 > 0 {
            self.packet.1 -= 1;
            return self.write(self.packet.0, word);
        }
        let (kind, operation, register) = (word >> 29, word >> 27 & 3, word >> 13 & 0x3fff);
        match (kind, operation) {
            (1, 1) => {
                let value = match register {
                    words::STATUS => self.errors,
                    words::IDCODE => IDCODE,
                    _ => 0,
                };
                self.read.extend((0..word & 0x7ff).map(|_| value).take(READ_WORDS));
                self.read.truncate(READ_WORDS);
            }
            (1, 2) => self.packet = (register, word & 0x7ff),
            (2, 2) => self.packet.1 = word & 0x7ff_ffff,
            _ => {}
        }
        false
    }

    fn write(&mut self, register: u32, word: u32) -> bool {
        match register {
            words::CRC => {
                if word != self.crc {
                    self.errors |= words::CRC_ERROR;
                }
                self.crc = 0;
                return false;
            }
            words::COMMAND if word == words::RESET_CRC => {
                (self.crc, self.errors) = (0, 0);
                return false;
            }
            words::COMMAND if word == words::DESYNC => {
                let guid = self.image.take().and_then(|image| image.finish()).filter(|_| self.errors == 0);
                if guid.is_some() {
                    self.region.lock().logic = guid;
                    self.has_started = true;
                }
                self.desynchronise();
                return false;
            }
            words::IDCODE if (word ^ IDCODE) & words::IDCODE_DEVICE != 0 => self.errors |= words::IDCODE_ERROR,
            words::FRAME_DATA if self.errors == 0 => {
                let image = self.image.get_or_insert_with(|| {
                    // What was there is gone with the first word.
                    if let Some(behind) = &self.behind {
                        behind.reset();
                    }
                    self.region.lock().logic = None;
                    Checker::default()
                });
                image.push(word);
            }
            _ => {}
        }
        self.crc = checksum(self.crc, register, word);
        register == words::FRAME_DATA && !self.region.lock().is_cut_off
    }
}

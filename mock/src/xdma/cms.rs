//! AMD's card management (CMS) in the user BAR: sensors, and a mailbox that tells about the board.
//!
//! Time is counted in reads of the host: how long a real one takes to start and to answer is not known.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fpga_regs::cms::{
    BOARD_INFO, CLEAR_ERROR, CONTROL, ERROR, FEATURES, ID, ID_VALUE, MAP, MAP_BYTES, MESSAGE_BYTES, MESSAGE_FAILED,
    OPCODE_SHIFT, REQUEST, RESET, RUNS, SENSOR_STEP, STATUS, VERSION, state,
};

use crate::xdma::block::Block;

/// Reads of STATUS_2 from the start of the processor until the map is ready.
const START_READS: u32 = 8;
/// Reads of CONTROL from a request to its answer.
const ANSWER_READS: u32 = 4;
/// Version of the firmware.
const FIRMWARE: u32 = 0x0c01_0200;
/// The satellite controller works normally, and talks in version 4.
const NORMAL: u32 = 1 << 28 | 4 << 24;
/// Where in the map the mailbox is.
const MAILBOX: u32 = 0x1000;
/// Why a message failed: its opcode, the board's information, its length.
const BAD_OPCODE: u32 = 1;
const NO_BOARD_INFO: u32 = 2;
const BAD_LENGTH: u32 = 3;

/// What sensors of the model read: offset, and present value. The largest is a tenth more, the average equals it.
const READINGS: [(u32, u32); 12] = [
    (0x020, 12_180),
    (0x02c, 3_310),
    (0x038, 3_340),
    (0x044, 12_210),
    (0x074, 1_805),
    (0x0c8, 2_100),
    (0x0e0, 850),
    (0x0ec, 14_500),
    (0x0f8, 44),
    (0x164, 1_180),
    (0x260, 41),
    (0x2b4, 40),
];

/// The board of the model: keys, and their values.
const BOARD: [(u8, &[u8]); 6] = [
    (0x21, b"MOCK00000001"),
    (0x22, &[0x02, 0x00, 0x00, 0x00, 0x00, 0x01]),
    (0x26, b"1.0"),
    (0x27, b"mock Alveo"),
    (0x28, b"5.0"),
    (0x29, &[225]),
];

/// Card management of one card. Clones are handles to the same.
#[derive(Debug, Clone)]
pub struct Cms(Arc<Mutex<Firmware>>);

#[derive(Debug)]
struct Firmware {
    runs: bool,
    /// Reads until the map is ready.
    starting: u32,
    sensors: BTreeMap<u32, u32>,
    heartbeat: u32,
    control: u32,
    error: u32,
    message_error: u32,
    mailbox: Vec<u32>,
    /// Reads until a request is answered.
    answering: u32,
    board: Option<Vec<u8>>,
    id: u32,
    is_stuck: bool,
    is_silent: bool,
    never_starts: bool,
}

impl Cms {
    pub(super) fn new() -> Self {
        let mut firmware = Firmware {
            runs: false,
            starting: START_READS,
            sensors: BTreeMap::new(),
            heartbeat: 0,
            control: 0,
            error: 0,
            message_error: 0,
            mailbox: vec![0; ((MAP_BYTES - MAILBOX) / 4) as usize],
            answering: 0,
            board: Some(BOARD.iter().flat_map(|(key, value)| entry(*key, value)).collect()),
            id: ID_VALUE,
            is_stuck: false,
            is_silent: false,
            never_starts: false,
        };
        for (offset, value) in READINGS {
            firmware.set(offset, [value + value / 10, value, value]);
        }
        Cms(Arc::new(Mutex::new(firmware)))
    }

    fn lock(&self) -> MutexGuard<'_, Firmware> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the three registers of the sensor at `offset` of the map: largest, average and present value.
    pub fn set_sensor(&self, offset: u32, values: [u32; 3]) {
        self.lock().set(offset, values);
    }

    /// Sets what the map reads as its identifier.
    pub fn set_id(&self, id: u32) {
        self.lock().id = id;
    }

    /// Sets whether the firmware has stopped to count its heartbeat.
    pub fn stop_heartbeat(&self, is_stuck: bool) {
        self.lock().is_stuck = is_stuck;
    }

    /// Sets whether requests in the mailbox are never answered.
    pub fn silence_mailbox(&self, is_silent: bool) {
        self.lock().is_silent = is_silent;
    }

    /// Sets whether the firmware never gets ready.
    pub fn withhold_start(&self, never_starts: bool) {
        self.lock().never_starts = never_starts;
    }

    /// Sets what the board says: a list of key, length and value. `None`: nothing, which is an error of the mailbox.
    pub fn set_board(&self, board: Option<Vec<u8>>) {
        self.lock().board = board;
    }
}

/// Returns an entry of the board's list.
fn entry(key: u8, value: &[u8]) -> Vec<u8> {
    [&[key, value.len() as u8], value].concat()
}

impl Firmware {
    fn set(&mut self, offset: u32, values: [u32; 3]) {
        for (offset, value) in (offset..).step_by(SENSOR_STEP as usize).zip(values) {
            self.sensors.insert(offset, value);
        }
    }

    fn is_ready(&self) -> bool {
        self.runs && self.starting == 0
    }

    fn read(&mut self, offset: u32) -> u32 {
        if offset == RESET {
            return u32::from(self.runs) * RUNS;
        }
        let Some(offset) = offset.checked_sub(MAP).filter(|_| self.runs) else { return 0 };
        if offset == state::STATUS_2 {
            self.starting = self.starting.saturating_sub(u32::from(!self.never_starts));
            return u32::from(self.is_ready()) * state::READY;
        }
        if !self.is_ready() {
            return 0;
        }
        match offset {
            ID => self.id,
            VERSION => FIRMWARE,
            STATUS => NORMAL,
            ERROR => self.error,
            FEATURES => 0,
            CONTROL => {
                self.answer();
                self.control
            }
            state::HEARTBEAT => {
                self.heartbeat = self.heartbeat.wrapping_add(u32::from(!self.is_stuck));
                self.heartbeat
            }
            state::MESSAGE_OFFSET => MAILBOX,
            state::MESSAGE_ERROR => self.message_error,
            MAILBOX.. => self.mailbox.get(((offset - MAILBOX) / 4) as usize).copied().unwrap_or(0),
            _ => self.sensors.get(&offset).copied().unwrap_or(0),
        }
    }

    fn write(&mut self, offset: u32, value: u32) {
        if offset == RESET {
            let runs = value & RUNS != 0;
            if runs && !self.runs {
                self.starting = START_READS;
            }
            self.runs = runs;
            (self.control, self.error, self.message_error, self.heartbeat) = (0, 0, 0, 0);
            return;
        }
        let Some(offset) = offset.checked_sub(MAP).filter(|_| self.is_ready()) else { return };
        match offset {
            CONTROL => {
                if value & CLEAR_ERROR != 0 {
                    (self.error, self.message_error) = (0, 0);
                }
                if value & REQUEST != 0 && self.control & REQUEST == 0 {
                    self.control |= REQUEST;
                    self.answering = ANSWER_READS;
                }
            }
            MAILBOX.. if self.control & REQUEST == 0 => {
                if let Some(word) = self.mailbox.get_mut(((offset - MAILBOX) / 4) as usize) {
                    *word = value;
                }
            }
            _ => {}
        }
    }

    /// Goes on with the request in the mailbox.
    fn answer(&mut self) {
        if self.control & REQUEST == 0 || self.is_silent {
            return;
        }
        self.answering = self.answering.saturating_sub(1);
        if self.answering > 0 {
            return;
        }
        self.control &= !REQUEST;
        let header = self.mailbox[0];
        let board = self.board.as_ref();
        self.message_error = match (header >> OPCODE_SHIFT, header & MESSAGE_BYTES, board) {
            (BOARD_INFO, 0, Some(board)) => {
                let words = board.chunks(4).map(|bytes| {
                    let mut word = [0; 4];
                    word[..bytes.len()].copy_from_slice(bytes);
                    u32::from_le_bytes(word)
                });
                let answer = std::iter::once(BOARD_INFO << OPCODE_SHIFT | board.len() as u32 & MESSAGE_BYTES);
                for (place, word) in self.mailbox.iter_mut().zip(answer.chain(words)) {
                    *place = word;
                }
                0
            }
            (BOARD_INFO, 0, None) => NO_BOARD_INFO,
            (BOARD_INFO, ..) => BAD_LENGTH,
            _ => BAD_OPCODE,
        };
        self.error = if self.message_error == 0 { 0 } else { MESSAGE_FAILED };
    }
}

/// The subsystem in the user BAR.
impl Block for Cms {
    fn read32(&mut self, offset: u32) -> u32 {
        self.lock().read(offset)
    }

    fn write32(&mut self, offset: u32, value: u32) {
        self.lock().write(offset, value);
    }

    fn reset(&mut self) {
        self.lock().write(RESET, 0);
    }
}

//! The controller of the board behind the serial link: the link's core, the bridge at its other end, and the sensors.

use std::collections::{BTreeMap, VecDeque};

use fpga_regs::dfl::board::core::{CAN_SEND, CONTROL, IDLE, RECEIVE, RECEIVED, SELECT, SLAVE, STATUS, TRANSMIT};
use fpga_regs::dfl::board::{SYSTEM, link};

/// Idle words that the bridge sends before an answer.
const PAUSE: usize = 3;
/// Bytes of a packet that are kept.
const PACKET_MAX: usize = 64;

/// What sensors of the model read: offset and value.
const READINGS: [(u32, u32); 35] = [
    (0x100, 56),
    (0x110, 92),
    (0x11c, 70),
    (0x12c, 84),
    (0x138, 66),
    (0x148, 68),
    (0x158, 66),
    (0x168, 68),
    (0x178, 80),
    (0x184, 3_302),
    (0x188, u32::MAX),
    (0x194, u32::MAX),
    (0x198, 850),
    (0x19c, 22_400),
    (0x1a0, 74),
    (0x1ac, 3_296),
    (0x1b8, 1_900),
    (0x1bc, 76),
    (0x1c8, 901),
    (0x1d4, 1_350),
    (0x1d8, 78),
    (0x1e4, 1_118),
    (0x1f0, 2_050),
    (0x1f4, 78),
    (0x200, 899),
    (0x20c, 1_730),
    (0x210, 72),
    (0x21c, 1_801),
    (0x228, 1_260),
    (0x22c, 70),
    (0x238, 12_080),
    (0x240, 3_400),
    (0x248, 70),
    (0x254, 12_110),
    (0x25c, 2_900),
];

/// What is wrong with the controller's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BoardFault {
    /// Nothing.
    #[default]
    None,
    /// The bridge sends no answers.
    Silent,
    /// The core never receives a word.
    Dead,
    /// Answers come on another channel.
    WrongChannel,
    /// Answers end early.
    Short,
    /// Answers go on without an end.
    Endless,
}

/// How a byte from the link is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Next {
    #[default]
    Any,
    Channel,
}

/// Core, bridge and controller.
#[derive(Debug)]
pub(super) struct Board {
    registers: BTreeMap<u32, u32>,
    /// Of the core.
    control: u32,
    slave: u32,
    received: Option<u32>,
    /// What the last read of the core brought.
    pub(super) read_data: u32,
    /// The packet that is coming in: its bytes, whether its next byte is escaped, whether it is its last.
    packet: Option<Vec<u8>>,
    is_escaped: bool,
    is_last: bool,
    next: Next,
    answer: VecDeque<u8>,
    pub(super) fault: BoardFault,
}

impl Board {
    pub(super) fn new() -> Self {
        Board {
            registers: READINGS.into_iter().map(|(offset, value)| (SYSTEM + offset, value)).collect(),
            control: 0,
            slave: 0,
            received: None,
            read_data: 0,
            packet: None,
            is_escaped: false,
            is_last: false,
            next: Next::Any,
            answer: VecDeque::new(),
            fault: BoardFault::None,
        }
    }

    /// Sets a register of the controller.
    pub(super) fn set(&mut self, address: u32, value: u32) {
        self.registers.insert(address, value);
    }

    /// Writes a register of the core.
    pub(super) fn write_core(&mut self, register: u32, value: u32) {
        match register {
            TRANSMIT => self.send(value as u8),
            CONTROL => self.control = value,
            SLAVE => self.slave = value,
            _ => {}
        }
    }

    /// Reads a register of the core into READ_DATA.
    pub(super) fn read_core(&mut self, register: u32) {
        self.read_data = match register {
            RECEIVE => self.received.take().unwrap_or(0),
            STATUS => IDLE | CAN_SEND | if self.received.is_some() { RECEIVED } else { 0 },
            CONTROL => self.control,
            SLAVE => self.slave,
            _ => 0,
        };
    }

    /// Sends a byte, and receives one.
    fn send(&mut self, byte: u8) {
        if self.fault == BoardFault::Dead {
            return;
        }
        let is_selected = self.control & SELECT != 0 && self.slave & 1 != 0;
        self.received = Some(match is_selected {
            true => {
                let answer = self.answer.pop_front().unwrap_or(link::IDLE);
                self.take(byte);
                answer.into()
            }
            false => 0xff,
        });
    }

    /// The bridge takes a byte.
    fn take(&mut self, byte: u8) {
        match byte {
            link::IDLE => {}
            link::ESCAPE | link::PACKET_ESCAPE => self.is_escaped = true,
            link::START if !self.is_escaped => {
                (self.packet, self.is_last, self.next) = (Some(Vec::new()), false, Next::Any);
            }
            link::END if !self.is_escaped => self.is_last = true,
            link::CHANNEL if !self.is_escaped => self.next = Next::Channel,
            _ => {
                let byte = if std::mem::take(&mut self.is_escaped) { byte ^ link::CHANGE } else { byte };
                if std::mem::take(&mut self.next) == Next::Channel {
                    return;
                }
                let Some(packet) = &mut self.packet else { return };
                // Longer ones are no requests.
                if packet.len() < PACKET_MAX {
                    packet.push(byte);
                }
                if std::mem::take(&mut self.is_last) {
                    let packet = std::mem::take(packet);
                    self.packet = None;
                    self.run(&packet);
                }
            }
        }
    }

    /// Runs a request.
    fn run(&mut self, packet: &[u8]) {
        let [code, _, size @ .., a, b, c, d] = packet.get(..8).unwrap_or_default() else { return };
        let address = u32::from_be_bytes([*a, *b, *c, *d]);
        let answer = match (*code, size, &packet[8..]) {
            (link::READ, [0, 4], []) => self.registers.get(&address).copied().unwrap_or(0).to_le_bytes().to_vec(),
            // The sensors are not to be written.
            (link::WRITE, [0, 4], [_, _, _, _]) => vec![link::WRITE | link::ANSWER, 0, 0, 4],
            _ => return,
        };
        self.reply(&answer);
    }

    fn reply(&mut self, data: &[u8]) {
        let data = if self.fault == BoardFault::Short { &data[..1] } else { data };
        if self.fault == BoardFault::Silent {
            return;
        }
        let channel = u8::from(self.fault == BoardFault::WrongChannel);
        self.answer.extend([link::IDLE; PAUSE]);
        self.answer.extend([link::START, link::CHANNEL, channel]);
        for (at, byte) in data.iter().enumerate() {
            if at + 1 == data.len() && self.fault != BoardFault::Endless {
                self.answer.push_back(link::END);
            }
            match *byte {
                link::IDLE | link::ESCAPE => self.answer.extend([link::ESCAPE, byte ^ link::CHANGE]),
                link::START | link::END | link::CHANNEL | link::PACKET_ESCAPE => {
                    self.answer.extend([link::PACKET_ESCAPE, byte ^ link::CHANGE]);
                }
                other => self.answer.push_back(other),
            }
        }
        if self.fault == BoardFault::Endless {
            self.answer.extend([0; 4096]);
        }
    }
}

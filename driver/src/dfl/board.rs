//! The controller of the board, behind a serial link: requests and answers are packets of bytes.
//!
//! Source: Linux `drivers/base/regmap/regmap-spi-avmm.c`, `drivers/spi/spi-altera-core.c`, `spi-altera-dfl.c`.

use std::time::Duration;

use fpga_regs::dfl::board::core::{CONTROL, RECEIVE, RECEIVED, SELECT, SLAVE, STATUS, TRANSMIT};
use fpga_regs::dfl::board::{READ_CORE, WIDTH_SHIFT, WRITE_CORE, link};
use fpga_regs::dfl::fme::board::{ADDRESS, CORE, READ_DATA, WRITE_DATA};

use crate::deadline::Deadline;
use crate::dfl::block::Block;
use crate::dfl::error::{Error, Result};

/// Time limit of one access of the serial core's registers.
const ACCESS: Duration = Duration::from_millis(100);
/// Time limit of one word on the link, and of an answer. Linux waits 200 ms for the next byte of an answer.
const ANSWER: Duration = Duration::from_secs(1);
/// The slave that the controller is.
const CONTROLLER: u32 = 1 << 0;
/// Bytes of a register, and of an answer to a read.
const REGISTER_BYTES: usize = 4;

/// The controller of the board.
#[derive(Debug)]
pub(crate) struct BoardController(Block);

impl BoardController {
    pub(super) fn new(block: Block) -> Self {
        BoardController(block)
    }

    /// Reads a register of the controller.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Board`], [`Error::Refused`] for a link whose words are neither 1 nor 4 bytes.
    pub(crate) fn read(&self, address: u32) -> Result<u32> {
        let width = (self.0.read(CORE)? >> WIDTH_SHIFT & 0x3f) as usize;
        if !matches!(width, 8 | 32) {
            let what = format!("the serial link to the board's controller has words of {width} bits; expected 8 or 32");
            return Err(Error::Refused { name: self.0.name(), what });
        }
        let word_bytes = width / 8;
        self.write_core(SLAVE, CONTROLLER)?;
        self.write_core(CONTROL, SELECT)?;
        let answer = self.exchange(address, word_bytes);
        // Whatever came of it, the controller is not left selected.
        let released = self.write_core(CONTROL, 0).and_then(|()| self.write_core(SLAVE, 0));
        let value = answer?;
        released?;
        Ok(value)
    }

    fn exchange(&self, address: u32, word_bytes: usize) -> Result<u32> {
        for word in packed(&request(address), word_bytes) {
            self.transfer(word)?;
        }
        let mut answer = Answer::default();
        let deadline = Deadline::after(ANSWER);
        loop {
            let is_last = deadline.left().is_zero();
            // What is sent meanwhile means nothing.
            let word = self.transfer(u32::from_be_bytes([link::IDLE; 4]) >> (32 - 8 * word_bytes))?;
            for byte in &word.to_be_bytes()[4 - word_bytes..] {
                let wrong = |what| Error::Board { name: self.0.name(), address, what };
                if let Some(value) = answer.take(*byte).map_err(wrong)? {
                    return Ok(value);
                }
            }
            if is_last {
                let last_seen = format!("{} bytes of its answer", answer.data.len());
                let to = "let the board's controller answer";
                return Err(Error::TimedOut { name: self.0.name(), to, waited: deadline.waited(), last_seen });
            }
        }
    }

    /// Sends a word, and returns what came at the same time.
    fn transfer(&self, word: u32) -> Result<u32> {
        self.write_core(TRANSMIT, word)?;
        let deadline = Deadline::after(ANSWER);
        let mut status = 0;
        let received = deadline.poll(None, || {
            status = self.read_core(STATUS)?;
            Ok::<_, Error>((status & RECEIVED != 0).then_some(()))
        })?;
        match received {
            Some(()) => self.read_core(RECEIVE),
            None => {
                let (to, last_seen) = ("send a word to the board's controller", format!("serial STATUS {status:#x}"));
                Err(Error::TimedOut { name: self.0.name(), to, waited: deadline.waited(), last_seen })
            }
        }
    }

    fn write_core(&self, register: u32, value: u32) -> Result<()> {
        self.0.write(WRITE_DATA, value.into())?;
        self.0.write(ADDRESS, u64::from(register) | WRITE_CORE)?;
        self.accessed(WRITE_CORE)
    }

    fn read_core(&self, register: u32) -> Result<u32> {
        self.0.write(ADDRESS, u64::from(register) | READ_CORE)?;
        self.accessed(READ_CORE)?;
        Ok(self.0.read(READ_DATA)? as u32)
    }

    fn accessed(&self, command: u64) -> Result<()> {
        let is_done = |value: u64| Ok(value & command == 0);
        self.0.spin((ADDRESS, "serial ADDRESS"), "access its serial link", ACCESS, is_done).map(drop)
    }
}

/// Returns the bytes on the link that read a register. The packet's end is marked before its last byte.
fn request(address: u32) -> Vec<u8> {
    let [a, b, c, d] = address.to_be_bytes();
    let packet = [link::READ, 0, 0, REGISTER_BYTES as u8, a, b, c, d];
    let mut bytes = vec![link::START, link::CHANNEL, 0];
    for (at, byte) in packet.into_iter().enumerate() {
        if at + 1 == packet.len() {
            bytes.push(link::END);
        }
        match byte {
            link::IDLE | link::ESCAPE => bytes.extend([link::ESCAPE, byte ^ link::CHANGE]),
            link::START | link::END | link::CHANNEL | link::PACKET_ESCAPE => {
                bytes.extend([link::PACKET_ESCAPE, byte ^ link::CHANGE]);
            }
            _ => bytes.push(byte),
        }
    }
    bytes
}

/// Puts bytes into words, the first byte into the upper bits. Words are filled up before the packet's end: the answer cannot begin
/// before the last word then.
fn packed(bytes: &[u8], word_bytes: usize) -> Vec<u32> {
    let missing = bytes.len().next_multiple_of(word_bytes) - bytes.len();
    let end = bytes.iter().rposition(|byte| *byte == link::END).unwrap_or(bytes.len());
    let filled = [&bytes[..end], &vec![link::IDLE; missing], &bytes[end..]].concat();
    filled.chunks(word_bytes).map(|word| word.iter().fold(0, |all, byte| all << 8 | u32::from(*byte))).collect()
}

/// An answer that is coming in.
#[derive(Debug, Default)]
struct Answer {
    data: Vec<u8>,
    has_begun: bool,
    is_escaped: bool,
    is_channel: bool,
    is_last: bool,
}

impl Answer {
    /// Takes a byte from the link. Returns the register's value with the last one.
    fn take(&mut self, byte: u8) -> std::result::Result<Option<u32>, String> {
        if byte == link::IDLE || !self.has_begun && byte != link::START {
            return Ok(None);
        }
        if std::mem::take(&mut self.is_channel) {
            return match byte {
                0 => Ok(None),
                other => Err(format!("a packet on channel {other}")),
            };
        }
        let is_escape = matches!(byte, link::ESCAPE | link::PACKET_ESCAPE);
        let is_mark = matches!(byte, link::END | link::CHANNEL);
        // The last byte may be escaped.
        if (is_escape || is_mark) && self.is_escaped || is_mark && self.is_last {
            return Err(format!("{byte:#04x} where the packet ends, or after an escape"));
        }
        match byte {
            link::START => *self = Answer { has_begun: true, ..Answer::default() },
            link::END => self.is_last = true,
            link::CHANNEL => self.is_channel = true,
            link::ESCAPE | link::PACKET_ESCAPE => self.is_escaped = true,
            _ => {
                let byte = if std::mem::take(&mut self.is_escaped) { byte ^ link::CHANGE } else { byte };
                self.data.push(byte);
                return match (<[u8; REGISTER_BYTES]>::try_from(self.data.as_slice()), self.is_last) {
                    (Ok(value), true) => Ok(Some(u32::from_le_bytes(value))),
                    (Err(_), true) => Err(format!("{} bytes; expected {REGISTER_BYTES}", self.data.len())),
                    (_, false) if self.data.len() >= REGISTER_BYTES => {
                        Err(format!("no end after {REGISTER_BYTES} bytes"))
                    }
                    (_, false) => Ok(None),
                };
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Retyped from the comment in Linux' `regmap-spi-avmm.c`, which reads 0x24b7d5a (escaped) and pads to words.
    #[test]
    fn requests_are_those_of_linux() {
        assert_eq!(request(0x0000_4b40), [0x7a, 0x7c, 0, 0x10, 0, 0, 4, 0, 0, 0x4b, 0x7b, 0x40]);
        // 0x7a in the middle and 0x4a at the end are escaped; the end is marked before the escape.
        assert_eq!(request(0x007a_004a), [0x7a, 0x7c, 0, 0x10, 0, 0, 4, 0, 0x7d, 0x5a, 0, 0x7b, 0x4d, 0x6a]);
        let padded = packed(&request(0x004b_7a40), 4);
        assert_eq!(padded, [0x7a7c_0010, 0x0000_0400, 0x4b7d_5a4a, 0x4a4a_7b40]);
        assert_eq!(packed(&[1, 2], 1), [1, 2]);
    }

    fn answer(bytes: &[u8]) -> std::result::Result<Option<u32>, String> {
        let mut answer = Answer::default();
        for byte in bytes {
            if let Some(value) = answer.take(*byte)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    #[test]
    fn answers_are_taken_apart_and_wrong_ones_refused() {
        let good = [0x4a, 0x99, 0x7a, 0x7c, 0, 0x78, 0x4a, 0x56, 0x7d, 0x5a, 0x7b, 0x12];
        assert_eq!(answer(&good), Ok(Some(0x127a_5678)));
        assert_eq!(answer(&[0x7a, 0x7c, 0, 1, 2, 3, 0x7b, 0x4d, 0x6a]), Ok(Some(0x4a03_0201)));
        // A second start begins anew.
        assert_eq!(answer(&[0x7a, 1, 2, 0x7a, 0x7c, 0, 1, 0, 0, 0x7b, 0]), Ok(Some(1)));
        for bad in [
            &[0x7a, 0x7c, 1][..],
            &[0x7a, 0x7c, 0, 1, 0x7b, 2],
            &[0x7a, 0x7c, 0, 1, 2, 3, 4],
            &[0x7a, 0x7c, 0, 1, 0x7b, 0x7b],
            &[0x7a, 0x7d, 0x7d],
        ] {
            assert!(answer(bad).is_err(), "{bad:x?}");
        }
        for end in 0..good.len() {
            assert_eq!(answer(&good[..end]), Ok(None));
        }
    }
}

//! Card management (CMS): sensors, and what the board says of itself.
//!
//! Source: AMD PG348, "Register Space" and "Using the Mailbox".

use std::time::Duration;

use fpga_hal::Function;
use fpga_regs::cms::{
    BOARD_ADDRESSES, BOARD_INFO, BOARD_NUMBERS, BOARD_TEXTS, CLEAR_ERROR, CONTROL, ERROR, FEATURES, ID, ID_VALUE, MAP,
    MAP_BYTES, MESSAGE_BYTES, MESSAGE_FAILED, NO_MAILBOX, OPCODE_SHIFT, REQUEST, RESET, RUNS, SENSOR_STEP, SENSORS,
    WINDOW_BYTES, state,
};
use fpga_regs::sensor::Sensor;

use crate::alveo::block::Block;
use crate::alveo::error::{Error, Result};
use crate::alveo::shell::Shell;
use crate::board::BlockKind;
use crate::deadline::Deadline;

/// Time limit for the firmware to get ready: forty times what PG348 says.
const START: Duration = Duration::from_secs(2);
/// Time within which the heartbeat counts on.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Time limit of a message. PG348 allows a minute for those that load firmware.
const MESSAGE: Duration = Duration::from_secs(2);
/// Between two looks at the heartbeat.
const POLL: Duration = Duration::from_millis(5);

/// What a sensor's registers hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sensed {
    pub(crate) sensor: Sensor,
    pub(crate) largest: u32,
    pub(crate) average: u32,
    pub(crate) now: u32,
}

/// What the board says of itself: names, and their values as text.
type Board = Vec<(&'static str, String)>;

/// The card management of one card.
#[derive(Debug)]
pub(crate) struct Cms {
    whole: Block,
    map: Block,
}

impl Cms {
    /// Finds the card management of a function, which may be held in reset.
    ///
    /// # Errors
    /// [`Error::NoShell`]; the bus's.
    pub(crate) fn find(function: &Function) -> Result<Self> {
        let shell = Shell::find(function)?;
        let whole = shell.block(BlockKind::Cms, 0, WINDOW_BYTES)?;
        let map = shell.block(BlockKind::Cms, MAP, MAP_BYTES)?;
        Ok(Cms { whole, map })
    }

    /// Finds the card management of a function, starts it if it is held in reset, and waits until it is ready.
    ///
    /// # Errors
    /// [`Error::NoShell`], [`Error::NoManagement`], [`Error::TimedOut`]; the bus's.
    pub(crate) fn start(function: &Function) -> Result<Self> {
        let cms = Cms::find(function)?;
        cms.release()?;
        let is_ready = |value| value & state::READY != 0;
        cms.map.poll((state::STATUS_2, "STATUS_2"), "start its card management", START, is_ready)?;
        cms.identified().map(|()| cms)
    }

    /// Returns whether the sensors can be read now. Starts the firmware if it is held in reset, and does not wait for it.
    ///
    /// # Errors
    /// [`Error::NoManagement`]; the bus's.
    pub(crate) fn is_ready(&self) -> Result<bool> {
        self.release()?;
        if self.map.read(state::STATUS_2)? & state::READY == 0 {
            return Ok(false);
        }
        self.identified().map(|()| true)
    }

    /// Lets the firmware run.
    fn release(&self) -> Result<()> {
        if self.whole.read(RESET)? & RUNS == 0 {
            self.whole.write(RESET, RUNS)?;
        }
        Ok(())
    }

    fn identified(&self) -> Result<()> {
        match self.map.read(ID)? {
            ID_VALUE => Ok(()),
            found => Err(Error::NoManagement { name: self.map.name(), found, expected: ID_VALUE }),
        }
    }

    /// Reads how far the heartbeat has counted.
    pub(crate) fn heartbeat(&self) -> Result<u32> {
        self.map.read(state::HEARTBEAT)
    }

    /// Returns whether the firmware works: whether its heartbeat counts.
    pub(crate) fn is_alive(&self) -> Result<bool> {
        let first = self.heartbeat()?;
        let counts = Deadline::after(HEARTBEAT).poll(Some(POLL), || {
            let now = self.heartbeat()?;
            Ok::<_, Error>((now != first).then_some(()))
        })?;
        Ok(counts.is_some())
    }

    /// Reads all sensors.
    pub(crate) fn sensors(&self) -> Result<Vec<Sensed>> {
        let sensed = |sensor: Sensor| {
            let value = |number| self.map.read(sensor.offset + number * SENSOR_STEP);
            Ok(Sensed { sensor, largest: value(0)?, average: value(1)?, now: value(2)? })
        };
        SENSORS.into_iter().map(sensed).collect()
    }

    /// Asks the board about itself. Empty if there is no mailbox.
    ///
    /// # Errors
    /// [`Error::Message`], [`Error::Answer`], [`Error::TimedOut`]; the bus's.
    pub(crate) fn board(&self) -> Result<Board> {
        if self.map.read(FEATURES)? & NO_MAILBOX != 0 {
            return Ok(Board::new());
        }
        let answer = self.ask(BOARD_INFO)?;
        described(&answer).map_err(|what| Error::Answer { name: self.map.name(), what })
    }

    /// Sends a message without data, and returns the answer's.
    fn ask(&self, opcode: u32) -> Result<Vec<u8>> {
        let wrong = |what| Err(Error::Answer { name: self.map.name(), what });
        let mailbox = self.map.read(state::MESSAGE_OFFSET)?;
        let last = mailbox.checked_add(MESSAGE_BYTES + 1).filter(|end| *end <= MAP_BYTES && mailbox % 4 == 0);
        if last.is_none() {
            return wrong(format!("its mailbox is at {mailbox:#x} of {MAP_BYTES:#x} bytes"));
        }
        let is_free = |value| value & REQUEST == 0;
        let control = self.map.poll((CONTROL, "CONTROL"), "end an earlier message", MESSAGE, is_free)?;
        self.map.write(mailbox, opcode << OPCODE_SHIFT)?;
        self.map.write(CONTROL, control | REQUEST)?;
        let control = self.map.poll((CONTROL, "CONTROL"), "answer a message", MESSAGE, is_free)?;
        let code = self.map.read(state::MESSAGE_ERROR)?;
        if code != 0 || self.map.read(ERROR)? & MESSAGE_FAILED != 0 {
            self.map.write(CONTROL, control | CLEAR_ERROR)?;
            return Err(Error::Message { name: self.map.name(), code });
        }
        let bytes = self.map.read(mailbox)? & MESSAGE_BYTES;
        if mailbox + 4 + bytes.next_multiple_of(4) > MAP_BYTES {
            return wrong(format!("{bytes} bytes in its mailbox at {mailbox:#x} of {MAP_BYTES:#x} bytes"));
        }
        let mut data = Vec::with_capacity(bytes as usize + 3);
        for offset in (4..4 + bytes).step_by(4) {
            // Data may be anything, even all-ones.
            data.extend(self.map.read_any(mailbox + offset)?.to_le_bytes());
        }
        data.truncate(bytes as usize);
        Ok(data)
    }
}

/// Takes the list of keys, lengths and values apart. Keys that are not known are left out.
fn described(mut list: &[u8]) -> std::result::Result<Board, String> {
    let mut board = Board::new();
    while let [key, bytes, rest @ ..] = list {
        let Some((value, rest)) = rest.split_at_checked(usize::from(*bytes)) else {
            return Err(format!("the value of key {key:#04x} has {bytes} bytes, and {} are left", rest.len()));
        };
        list = rest;
        let of = |known: &[(u8, &'static str)]| known.iter().find(|(one, _)| one == key).map(|(_, name)| *name);
        if let Some(name) = of(&BOARD_TEXTS) {
            let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
            board.push((name, value[..end].escape_ascii().to_string()));
        } else if let Some(name) = of(&BOARD_ADDRESSES) {
            let bytes: Vec<String> = value.iter().map(|byte| format!("{byte:02x}")).collect();
            board.push((name, bytes.join(":")));
        } else if let (Some(name), [number]) = (of(&BOARD_NUMBERS), value) {
            board.push((name, number.to_string()));
        }
    }
    match list {
        [] => Ok(board),
        [key, ..] => Err(format!("key {key:#04x} has no length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_board_are_taken_apart() {
        let list = [&[0x27, 4][..], b"U280", &[0x22, 6, 0, 0x0a, 0x35, 1, 2, 3, 0x29, 1, 225, 0x99, 2, 1, 2]].concat();
        let board = described(&list).unwrap();
        let expected = [("name", "U280"), ("mac_0", "00:0a:35:01:02:03"), ("max_power", "225")];
        assert_eq!(board, expected.map(|(name, value)| (name, value.to_owned())));
        assert_eq!(described(&[0x27, 3, b'a', 0, 7]).unwrap(), [("name", "a".to_owned())]);
        assert_eq!(described(&[]).unwrap(), []);
        for end in [1, 2, 3, 7, 9] {
            assert!(described(&list[..end]).is_err(), "{end}");
        }
    }
}

//! The user logic of a card that transforms lines, as its registers show it.

use fpga_regs::fft as registers;

use crate::profile::novog::FftCores;
use crate::proto::novog::{OnCard, Span};

/// Writable registers before ARM.
const SETTINGS: usize = ((registers::ARM - registers::SIDE) / 4) as usize;

/// The FFT block of one card.
#[derive(Debug, Default)]
pub(crate) struct FftBlock {
    /// From SIDE on.
    settings: [u32; SETTINGS],
    armed: u32,
    state: u32,
    pub(crate) refused: u32,
    seen: [u32; 2],
    missing: [(u32, u32); 2],
    /// Lines along X, Y and Z, then the corner turns.
    spans: [Span; 5],
}

impl FftBlock {
    /// Returns the number of the run that the card waits for.
    pub(crate) fn armed(&self) -> Option<u32> {
        (self.state == registers::ARMED).then_some(self.armed)
    }

    /// Returns whether a run has not ended.
    pub(crate) fn is_running(&self) -> bool {
        self.state == registers::RUNNING
    }

    /// Returns the points of a line, and the cores to use.
    pub(crate) fn transform(&self) -> (u32, u32) {
        (self.setting(registers::SIDE), self.setting(registers::CORES))
    }

    /// Returns the address of the points, and that of the result.
    pub(crate) fn addresses(&self) -> [u64; 2] {
        [registers::INPUT_LO, registers::OUTPUT_LO]
            .map(|low| u64::from(self.setting(low)) | u64::from(self.setting(low + 4)) << 32)
    }

    pub(crate) fn start(&mut self) {
        self.state = registers::RUNNING;
    }

    /// Takes over what the card did in the run with this number. Returns whether the result is complete.
    pub(crate) fn end(&mut self, run: u32, on_card: &OnCard) -> bool {
        if !self.is_running() || self.armed != run {
            return false;
        }
        let OnCard { seen, missing, phases: [x, y, z], turns: [xy, yz], .. } = *on_card;
        (self.seen, self.missing, self.spans) = (seen, missing, [x, y, z, xy, yz]);
        let expected = [registers::EXPECTED_XY, registers::EXPECTED_YZ].map(|register| self.setting(register));
        let is_done = seen == expected && missing.iter().all(|(points, _)| *points == 0);
        if is_done {
            self.state = registers::DONE;
        }
        is_done
    }

    /// Reads a register.
    pub(crate) fn read(&self, offset: u32) -> u32 {
        match offset {
            registers::CORE_KHZ => (FftCores::published().hertz / 1000) as u32,
            registers::SIDE..registers::ARM => self.setting(offset),
            registers::ARM => self.armed,
            registers::STATE => self.state,
            registers::REFUSED => self.refused,
            registers::SEEN_XY | registers::SEEN_YZ => self.seen[turn(offset - registers::SEEN_XY)],
            registers::MISSING_XY | registers::MISSING_YZ => self.missing[turn(offset - registers::MISSING_XY)].0,
            registers::FIRST_XY | registers::FIRST_YZ => self.missing[turn(offset - registers::FIRST_XY)].1,
            registers::X_BEGIN..=registers::YZ_END => {
                let place = (offset - registers::X_BEGIN) / 4;
                // No span ends before it begins.
                let (begin, end) = self.spans[place as usize / 2].unwrap_or((1, 0));
                (if place.is_multiple_of(2) { begin } else { end }) as u32
            }
            registers::CORES_16..=registers::CORES_256 => {
                let place = (offset - registers::CORES_16) / 4;
                FftCores::most(registers::SIDES[place as usize])
            }
            _ => 0,
        }
    }

    /// Writes a register, all but START.
    pub(crate) fn write(&mut self, offset: u32, value: u32) {
        match offset {
            registers::SIDE..registers::ARM if self.armed == 0 => {
                self.settings[((offset - registers::SIDE) / 4) as usize] = value;
            }
            registers::ARM => {
                *self = FftBlock { settings: self.settings, armed: value, ..FftBlock::default() };
                self.state = if value == 0 { registers::IDLE } else { registers::ARMED };
            }
            _ => {}
        }
    }

    fn setting(&self, register: u32) -> u32 {
        self.settings[((register - registers::SIDE) / 4) as usize]
    }
}

/// The corner turn that a register is of, by its distance from the first one.
const fn turn(offset: u32) -> usize {
    (offset / 4) as usize
}

//! HE-LB, the host exerciser that OFS shells have: the way to host memory and back, without an image of one's own.

use std::sync::Arc;
use std::time::Duration;

use fpga_hal::{Claim, DmaBuffer, Function};
use fpga_regs::dfl::exerciser as registers;

use crate::deadline::Deadline;
use crate::dfl::block::Block;
use crate::dfl::error::{Error, Result};
use crate::feature_list::{self, find_feature, register_bar};
use crate::sequencer::block::bus_error;
use crate::sequencer::health::master_bus;

/// Default time limit of a run.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for requests of a run that was stopped to be answered.
const STOP: Duration = Duration::from_secs(1);
/// Between two looks at a status that is not there.
const POLL: Duration = Duration::from_micros(20);
/// Bytes of a line.
const LINE: usize = registers::LINE_BYTES as usize;
/// Bytes of the longest run.
const BYTES_MAX: usize = registers::LINES_MAX as usize * LINE;
/// Bytes of the registers.
const REGISTERS_BYTES: u32 = registers::INFO + 8;
/// Buffers begin on a page.
const PAGE: usize = 4096;

/// What a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exercise {
    /// Writes what it reads.
    Loopback,
    /// Only reads.
    Read,
    /// Only writes.
    Write,
    /// Reads and writes, one independent of the other.
    Throughput,
}

impl Exercise {
    /// All of them.
    pub const ALL: [Exercise; 4] = [Exercise::Loopback, Exercise::Read, Exercise::Write, Exercise::Throughput];

    const fn code(self) -> u64 {
        match self {
            Exercise::Loopback => registers::LOOPBACK,
            Exercise::Read => registers::READ,
            Exercise::Write => registers::WRITE,
            Exercise::Throughput => registers::THROUGHPUT,
        }
    }
}

/// What a run has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exercised {
    /// Lines of 64 bytes that were read.
    pub lines_read: u64,
    /// Lines that were written.
    pub lines_written: u64,
    /// Cycles of the exerciser's clock.
    pub cycles: u64,
    /// That clock.
    pub clock_mhz: u32,
}

impl Exercised {
    /// Returns the bytes a second that were read and written.
    pub fn bytes_per_second(&self) -> f64 {
        let bytes = (self.lines_read + self.lines_written) as f64 * LINE as f64;
        bytes * f64::from(self.clock_mhz) * 1e6 / self.cycles.max(1) as f64
    }
}

/// A host exerciser, held by this process.
#[derive(Debug)]
pub struct Exerciser {
    registers: Block,
    source: Arc<DmaBuffer>,
    destination: Arc<DmaBuffer>,
    status: Arc<DmaBuffer>,
    timeout: Duration,
    /// Dropped last: until then the function takes no other driver.
    _claim: Claim,
}

impl Exerciser {
    /// Takes the exerciser of `function` into use. It is found by its GUID.
    ///
    /// # Errors
    /// [`Error::NoExerciser`]; the bus's, with [`fpga_hal::Error::InUse`] if the function has another driver.
    pub fn open(function: Function) -> Result<Self> {
        let bus = |error| Error::Card(bus_error(&function.identity().name, error));
        let claim = function.claim().map_err(bus)?;
        let block = find(&function)?;
        let allocate = |bytes| function.private_domain().allocate(bytes, PAGE).map_err(bus);
        let (source, destination, status) = (allocate(BYTES_MAX)?, allocate(BYTES_MAX)?, allocate(PAGE)?);
        block.write(registers::CONTROL, 0)?;
        master_bus(&function).map_err(bus)?;
        Ok(Exerciser { registers: block, source, destination, status, timeout: TIMEOUT, _claim: claim })
    }

    /// Sets the time limit of later runs, which is 10 s at first.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Runs an exercise on 1 to 1024 lines of 64 bytes, `request_lines` (1, 2, 4, 8 or 16) in a request, and compares what a loopback
    /// has written with what it was to read: `seed` tells the data of a run from that of others.
    ///
    /// # Errors
    /// [`Error::Refused`] for other numbers; [`Error::WrongData`]; [`Error::Exercise`] if the card notes an error;
    /// [`Error::TimedOut`], also if the exerciser was reset meanwhile.
    pub fn run(&mut self, exercise: Exercise, lines: u32, request_lines: u32, seed: u64) -> Result<Exercised> {
        let is_possible = request_lines.is_power_of_two() && request_lines.ilog2() <= registers::LENGTH_MAX;
        if !(1..=registers::LINES_MAX).contains(&lines) || !is_possible {
            let what = format!("{lines} lines, {request_lines} in a request: expected 1 to 1024, and 1, 2, 4, 8 or 16");
            return Err(Error::Refused { name: self.registers.name(), what });
        }
        let bytes = lines as usize * LINE;
        let data = data(seed, bytes);
        let untouched = 0xa5;
        self.source.write(0, &data).map_err(|error| self.bus(error))?;
        self.destination.fill(0, BYTES_MAX, untouched).map_err(|error| self.bus(error))?;
        self.status.fill(0, registers::STATUS_BYTES, 0).map_err(|error| self.bus(error))?;
        let started = self.start(exercise, lines, request_lines);
        let exercised = started.and_then(|()| self.await_status()).inspect_err(|_| self.stop())?;
        if exercise == Exercise::Loopback {
            let mut expected = vec![untouched; BYTES_MAX];
            expected[..bytes].copy_from_slice(&data);
            self.compare(&expected)?;
        }
        Ok(exercised)
    }

    fn start(&self, exercise: Exercise, lines: u32, request_lines: u32) -> Result<()> {
        let line = |buffer: &DmaBuffer| buffer.iova().0 / registers::LINE_BYTES;
        for (register, value) in [
            (registers::CONTROL, 0),
            (registers::CONTROL, registers::OUT_OF_RESET),
            (registers::STATUS_ADDRESS, line(&self.status)),
            (registers::SOURCE, line(&self.source)),
            (registers::DESTINATION, line(&self.destination)),
            (registers::LINES, u64::from(lines) - 1),
            (registers::CONFIG, config(exercise, request_lines)),
            (registers::CONTROL, registers::OUT_OF_RESET | registers::START),
        ] {
            self.registers.write(register, value)?;
        }
        Ok(())
    }

    fn compare(&self, expected: &[u8]) -> Result<()> {
        let mut found = vec![0; expected.len()];
        self.destination.read(0, &mut found).map_err(|error| self.bus(error))?;
        match expected.iter().zip(&found).position(|(expected, found)| expected != found) {
            None => Ok(()),
            Some(at) => {
                let (name, expected, found) = (self.registers.name(), expected[at], found[at]);
                Err(Error::WrongData { name, at: at as u64, expected, found })
            }
        }
    }

    /// Waits for the status of a run in host memory. A reset of the exerciser ends the run without one.
    fn await_status(&self) -> Result<Exercised> {
        let deadline = Deadline::after(self.timeout);
        let started = registers::OUT_OF_RESET | registers::START;
        loop {
            let is_last = deadline.left().is_zero();
            let ended = self.status.load_acquire(registers::STATUS_ENDED).map_err(|error| self.bus(error))?;
            if ended & 1 == 1 {
                return self.exercised(ended >> 32);
            }
            let control = self.registers.read(registers::CONTROL)?;
            if is_last || control & started != started {
                let was_reset = if control & started == started { "" } else { ": it was reset meanwhile" };
                let last_seen = format!("CONTROL {control:#x}{was_reset}");
                let name = self.registers.name();
                return Err(Error::TimedOut { name, to: "end an exercise", waited: deadline.waited(), last_seen });
            }
            std::thread::sleep(POLL);
        }
    }

    /// Stops what is left of a run that has failed, and waits until no request is unanswered: the buffers may be freed next. If some
    /// may be unanswered all the same, the buffers are never freed.
    fn stop(&self) {
        let is_idle = |requests| requests & u64::from(u32::MAX) == 0;
        let stopped = self
            .registers
            .write(registers::CONTROL, 0)
            .and_then(|()| self.registers.poll((registers::STATUS_1, "STATUS_1"), "end its requests", STOP, is_idle));
        if let Err(error) = stopped {
            log::warn!("{}: the buffers of an exercise are kept: {error}", self.registers.name());
            let buffers = [&self.source, &self.destination, &self.status].map(Arc::clone);
            std::mem::forget(buffers);
        }
    }

    fn exercised(&self, errors: u64) -> Result<Exercised> {
        if errors != 0 {
            return Err(Error::Exercise { name: self.registers.name(), errors: errors as u32 });
        }
        let (cycles, lines) = (self.status_word(registers::STATUS_CYCLES)?, self.status_word(registers::STATUS_LINES)?);
        Ok(counted(cycles, lines, (self.registers.read(registers::INFO)? & 0xffff) as u32))
    }

    fn status_word(&self, at: usize) -> Result<u64> {
        let mut word = [0; 8];
        self.status.read(at, &mut word).map_err(|error| self.bus(error))?;
        Ok(u64::from_le_bytes(word))
    }

    fn bus(&self, error: fpga_hal::Error) -> Error {
        bus_error(&self.registers.name(), error).into()
    }
}

/// Returns CONFIG of an exercise with so many lines in a request, a power of two.
fn config(exercise: Exercise, request_lines: u32) -> u64 {
    let length = u64::from(request_lines.ilog2());
    let (low, high) = ((length & 3) << registers::LENGTH_LOW_SHIFT, (length >> 2) << registers::LENGTH_HIGH_SHIFT);
    exercise.code() << registers::MODE_SHIFT | low | high
}

/// Returns what two words of a run's status have counted: the upper eight bits of both numbers of lines stand above the cycles.
fn counted(cycles: u64, lines: u64, clock_mhz: u32) -> Exercised {
    Exercised {
        lines_read: lines & 0xffff_ffff | (cycles >> 48 & 0xff) << 32,
        lines_written: lines >> 32 | (cycles >> 56) << 32,
        cycles: cycles & ((1 << 40) - 1),
        clock_mhz,
    }
}

/// What an exerciser says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Described {
    /// Version of its registers.
    pub(crate) version: u32,
    /// Its clock.
    pub(crate) clock_mhz: u32,
    /// What it has noted: bits of ERROR.
    pub(crate) errors: u64,
}

/// Reads what the exerciser of a function says of itself, and changes nothing. `None`: the function has none.
pub(crate) fn describe(function: &Function) -> Result<Option<Described>> {
    let block = match find(function) {
        Ok(block) => block,
        Err(Error::NoExerciser { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let (info, errors) = (block.read(registers::INFO)?, block.read(registers::ERROR)?);
    Ok(Some(Described { version: (info >> 16 & 0xff) as u32, clock_mhz: (info & 0xffff) as u32, errors }))
}

/// Finds the registers by their GUID.
fn find(function: &Function) -> Result<Block> {
    let name = &function.identity().name;
    let bus = |error| Error::Card(bus_error(name, error));
    let none = |looked| Error::NoExerciser { name: name.clone(), looked };
    let missing = |error| match error {
        feature_list::Error::List(looked) => none(looked),
        feature_list::Error::Bus(error) => bus(error),
    };
    let window = register_bar(function).map_err(missing)?;
    let feature = find_feature(&window, registers::GUID).map_err(|error| match error {
        _ if function.is_removed() => Error::Card(crate::Error::removed(function)),
        error => missing(error),
    })?;
    let block = Block::new(&window, function, &feature, REGISTERS_BYTES);
    block.ok_or_else(|| none("its block is shorter than its registers".to_owned()))
}

/// Bytes that tell their place and their run.
fn data(seed: u64, bytes: usize) -> Vec<u8> {
    let byte = |at: u64| (at.wrapping_add(seed << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..bytes as u64).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use fpga_fake::Fake;
    use fpga_hal::endpoint::Interposer;
    use fpga_hal::{BarIndex, Domain, Endpoint, in_process};

    use crate::feature_list::{Feature, Unit};

    use super::*;

    /// A card with registers of 64 bits, which do nothing.
    struct Kept {
        card: Arc<Fake>,
        words: Mutex<BTreeMap<u64, u64>>,
    }

    impl Interposer for Kept {
        fn behind(&self) -> &dyn Endpoint {
            &*self.card
        }

        fn bar_write(&self, _: BarIndex, offset: u64, data: &[u8]) {
            self.words.lock().unwrap().insert(offset, u64::from_le_bytes(data.try_into().unwrap()));
        }
    }

    #[test]
    fn a_run_that_is_not_started_whole_is_stopped() {
        let card = Arc::new(Kept { card: Fake::new(4), words: Mutex::default() });
        let function =
            in_process::attach(Arc::clone(&card) as Arc<dyn Endpoint>, &Domain::in_process(), "fake").unwrap();
        let (offset, kind, id, revision, version, unit, guid) = (0, 3, 0, 0, 0, Unit::Accelerator, None);
        // The bus refuses CONFIG and what is behind it.
        let registers = Some(0..registers::CONFIG.into());
        let feature = Feature { offset, kind, id, revision, version, unit, guid, registers };
        let block = Block::new(&function.window(BarIndex::new(0).unwrap()).unwrap(), &function, &feature, 0).unwrap();
        let [source, destination, status] =
            [BYTES_MAX, BYTES_MAX, PAGE].map(|bytes| function.domain().allocate(bytes, PAGE).unwrap());
        let _claim = function.claim().unwrap();
        let mut exerciser = Exerciser { registers: block, source, destination, status, timeout: TIMEOUT, _claim };
        let error = exerciser.run(Exercise::Read, 1, 1, 0).unwrap_err();
        assert!(matches!(error, Error::Card(crate::Error::Bus(fpga_hal::Error::OutOfBounds { .. }))), "{error:?}");
        assert_eq!(card.words.lock().unwrap()[&registers::CONTROL.into()], 0);
    }

    /// Bits of HE_CFG in OFS: the mode in 4:2, the length of a request in 6:5 and 31:30.
    #[test]
    fn a_request_is_described_by_its_logarithm() {
        let modes = [
            (Exercise::Loopback, 0),
            (Exercise::Read, 1 << 2),
            (Exercise::Write, 2 << 2),
            (Exercise::Throughput, 3 << 2),
        ];
        for (exercise, mode) in modes {
            for (lines, length) in [(1, 0), (2, 1 << 5), (4, 2 << 5), (8, 3 << 5), (16, 1 << 30)] {
                assert_eq!(config(exercise, lines), mode | length, "{exercise:?}, {lines} lines");
            }
        }
    }

    #[test]
    fn counts_of_more_than_32_bits_are_put_together() {
        let run = counted(0x8765_ffab_cdef_0123, 0xffff_0001_1234_5678, 400);
        let expected = Exercised {
            lines_read: 0x65_1234_5678,
            lines_written: 0x87_ffff_0001,
            cycles: 0xab_cdef_0123,
            clock_mhz: 400,
        };
        assert_eq!(run, expected);
    }

    #[test]
    fn bytes_of_both_directions_count() {
        let run = Exercised { lines_read: 1000, lines_written: 500, cycles: 3000, clock_mhz: 250 };
        // 1500 lines of 64 bytes in 12 microseconds.
        assert_eq!(run.bytes_per_second(), 8e9);
        assert_eq!(Exercised { cycles: 0, ..run }.bytes_per_second(), 8e9 * 3000.0, "as if it were one cycle");
    }
}

//! HE-LB: reads and writes host memory, line by line.
//!
//! A run works inside the access that starts it, up to requests that the bus does not answer at once, and goes on when they are answered.
//! A continuous run goes on in every later access.

use std::collections::BTreeMap;

use fpga_hal::Iova;
use fpga_hal::endpoint::{DmaFault, DmaProgress, DmaTag};
use fpga_regs::dfl::exerciser::{
    CONFIG, CONTINUOUS, CONTROL, DESTINATION, ERROR, FORCE_END, HEADER, INFO, INTERRUPT, INTERRUPT_0, LENGTH_HIGH,
    LENGTH_HIGH_SHIFT, LENGTH_LOW, LENGTH_LOW_SHIFT, LENGTH_MAX, LINE_BYTES, LINES, LOOPBACK, MODE, MODE_SHIFT,
    OUT_OF_RESET, SOURCE, START, STATUS_0, STATUS_ADDRESS, STATUS_BYTES, STATUS_CYCLES, STATUS_ENDED, STATUS_LINES,
    TABLE, THROUGHPUT, WRITE,
};
use fpga_regs::dfl::{EXERCISER, Writes};

use crate::dfl::attached::{Attached, Logic};

/// Clock in MHz, and version of the registers.
const INFO_VALUE: u64 = 250 | 1 << 16 | 1 << 24;
/// Cycles from the start to the first answer, and of each line.
const FIRST_CYCLES: u64 = 180;
const LINE_CYCLES: u64 = 1;
/// Lines that a continuous run moves in one access of the host.
const LINES_AT_ONCE: u64 = 4096;
/// Bit of ERROR and of the errors in the status: the host refused a read. Writes are posted: nobody hears of one that was lost.
const REFUSED: u64 = 1;

/// What a run does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Read,
    /// Writes what was read, or a pattern.
    Write,
    Status,
}

/// A run.
#[derive(Debug)]
struct Run {
    step: Step,
    /// Lines of this round: as LINES was at its begin.
    lines: u64,
    /// Those that are done.
    done: u64,
    /// Data of the present request.
    data: Vec<u8>,
    outstanding: Option<DmaTag>,
}

/// The exerciser.
pub(super) struct Exerciser {
    attached: Attached,
    registers: BTreeMap<u32, (Writes, u64)>,
    run: Option<Run>,
    cycles: u64,
    lines_read: u64,
    lines_written: u64,
    errors: u64,
    /// Number of runs that have ended.
    runs: u64,
    tag: u64,
}

/// Returns the registers after a reset.
fn registers() -> BTreeMap<u32, (Writes, u64)> {
    let registers = TABLE.iter().map(|one| (one.offset, (one.writes, one.reset.unwrap_or(0))));
    registers.chain([(0, (Writes::Ignored, HEADER))]).collect()
}

impl Exerciser {
    pub(super) fn new() -> Self {
        Exerciser {
            attached: Attached::new(&EXERCISER),
            registers: registers(),
            run: None,
            cycles: 0,
            lines_read: 0,
            lines_written: 0,
            errors: 0,
            runs: 0,
            tag: 0,
        }
    }

    /// Resets the logic: a run ends without its status.
    pub(super) fn reset_logic(&mut self) {
        self.run = None;
        self.errors = 0;
        self.registers = registers();
    }

    fn stored(&self, offset: u32) -> u64 {
        self.registers.get(&offset).map_or(0, |(_, value)| *value)
    }

    fn mode(&self) -> u64 {
        (self.stored(CONFIG) & MODE) >> MODE_SHIFT
    }

    /// Lines of a request.
    fn request_lines(&self) -> u64 {
        let config = self.stored(CONFIG);
        let low = (config & LENGTH_LOW) >> LENGTH_LOW_SHIFT;
        let high = (config & LENGTH_HIGH) >> LENGTH_HIGH_SHIFT;
        1 << (low | high << 2).min(LENGTH_MAX.into())
    }

    fn begin(&mut self) {
        (self.cycles, self.lines_read, self.lines_written, self.errors) = (FIRST_CYCLES, 0, 0, 0);
        let (step, lines) = (self.first_step(), self.stored(LINES) + 1);
        self.run = Some(Run { step, lines, done: 0, data: Vec::new(), outstanding: None });
        self.advance();
    }

    fn first_step(&self) -> Step {
        if self.mode() == WRITE { Step::Write } else { Step::Read }
    }

    /// Makes requests until the run is over, waits for the bus, or has done enough for one access.
    fn advance(&mut self) {
        let limit = self.lines_read + self.lines_written + LINES_AT_ONCE;
        while self.lines_read + self.lines_written < limit {
            let Some(run) = self.run.as_mut().filter(|run| run.outstanding.is_none()) else { return };
            let (step, done, mut data) = (run.step, run.done, std::mem::take(&mut run.data));
            let left = run.lines - done;
            let bytes = self.request_lines().min(left) * LINE_BYTES;
            self.tag = self.tag.wrapping_add(1);
            let tag = DmaTag(self.tag);
            let at = |register| Iova(self.stored(register).wrapping_add(done).wrapping_mul(LINE_BYTES));
            let progress = match (self.attached.dma(), step) {
                (Err(fault), _) => DmaProgress::Done(Err(fault)),
                (Ok(port), Step::Read) => {
                    data.resize(bytes as usize, 0);
                    port.read(tag, at(SOURCE), &mut data)
                }
                (Ok(port), Step::Write) => {
                    if self.mode() != LOOPBACK {
                        data = pattern(done, bytes);
                    }
                    port.write(tag, at(DESTINATION), &data)
                }
                (Ok(port), Step::Status) => {
                    let line = self.stored(STATUS_ADDRESS).wrapping_mul(LINE_BYTES);
                    port.write(tag, Iova(line), &self.status())
                }
            };
            if let Some(run) = &mut self.run {
                run.data = data;
                run.outstanding = Some(tag);
            }
            match progress {
                DmaProgress::Pending => return,
                DmaProgress::Done(result) => self.ended(result),
            }
        }
    }

    /// The present request has ended.
    fn ended(&mut self, result: Result<(), DmaFault>) {
        let (mode, next, force) = (self.mode(), self.stored(LINES) + 1, self.stored(CONTROL) & FORCE_END != 0);
        let (lines, first) = (self.request_lines(), self.first_step());
        let goes_on = self.stored(CONFIG) & CONTINUOUS != 0 && !force;
        let Some(run) = &mut self.run else { return };
        run.outstanding = None;
        let lines = lines.min(run.lines - run.done);
        match run.step {
            Step::Read => self.lines_read += lines,
            Step::Write => self.lines_written += lines,
            Step::Status => {
                self.run = None;
                self.runs += 1;
                if self.stored(CONFIG) & INTERRUPT != 0 {
                    self.attached.interrupt((self.stored(INTERRUPT_0) >> 16) as u32);
                }
                return;
            }
        }
        self.cycles += lines * LINE_CYCLES;
        if run.step == Step::Read && result.is_err() {
            self.errors |= REFUSED;
            run.step = Step::Status;
            return;
        }
        if run.step == Step::Read && matches!(mode, LOOPBACK | THROUGHPUT) {
            run.step = Step::Write;
            return;
        }
        run.done += lines;
        run.step = first;
        if run.done == run.lines {
            (run.done, run.lines) = (0, next);
            run.step = if goes_on { first } else { Step::Status };
        }
    }

    fn status(&self) -> [u8; STATUS_BYTES] {
        let mut status = [0; STATUS_BYTES];
        let mut put = |at: usize, word: u64| status[at..at + 8].copy_from_slice(&word.to_le_bytes());
        let (low, high) = (0xffff_ffff, |lines: u64| lines >> 32 & 0xff);
        put(STATUS_ENDED, 1 | (self.runs & 0x7fff) << 1 | self.errors << 32);
        let cycles = self.cycles & ((1 << 40) - 1);
        put(STATUS_CYCLES, cycles | high(self.lines_read) << 48 | high(self.lines_written) << 56);
        put(STATUS_LINES, self.lines_read & low | (self.lines_written & low) << 32);
        status
    }
}

/// What is written if nothing was read: each line has its number in its words.
fn pattern(first: u64, bytes: u64) -> Vec<u8> {
    (0..bytes / 8).flat_map(|word| (first + word / (LINE_BYTES / 8)).to_le_bytes()).collect()
}

impl Logic for Exerciser {
    fn attached(&mut self) -> &mut Attached {
        &mut self.attached
    }

    fn read(&mut self, offset: u32) -> u64 {
        self.advance();
        match offset {
            STATUS_0 => self.lines_written & 0xffff_ffff | self.lines_read << 32,
            ERROR => self.errors,
            INFO => INFO_VALUE,
            _ => self.stored(offset),
        }
    }

    fn write(&mut self, offset: u32, value: u64, mask: u64) {
        let Some((Writes::Kept(bits), stored)) = self.registers.get_mut(&offset) else { return };
        let before = *stored;
        *stored = *stored & !(*bits & mask) | value & *bits & mask;
        let now = *stored;
        if offset == CONTROL {
            let risen = now & !before;
            match now & OUT_OF_RESET {
                0 => self.run = None,
                _ if risen & START != 0 && self.run.is_none() && self.mode() <= THROUGHPUT => self.begin(),
                _ => {}
            }
        }
        self.advance();
    }

    fn reset(&mut self) {
        self.reset_logic();
    }

    fn dma_complete(&mut self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        let Some(run) = self.run.as_mut().filter(|run| run.outstanding == Some(tag)) else { return };
        if let (Step::Read, Ok(data)) = (run.step, &result) {
            run.data = data.to_vec();
        }
        self.ended(result.map(drop));
        self.advance();
    }
}

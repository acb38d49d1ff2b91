//! A host without the driver: rings in its own memory, instructions stored by hand, no checks.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::run::domain;
use cmdseq::{Completion, Instruction, completion, instruction};
use fpga_hal::{BarIndex, DmaBuffer, Endpoint, Function, Window, in_process};
use fpga_regs::sequencer::{self, queue};

/// Entries of the rings.
pub const DEPTH: u32 = 16;
/// Bytes of the rings, at the start of the host's memory; the rest is free.
pub const RINGS_BYTES: usize = 8192;
/// Offset of the sequencer's block in BAR0.
const BLOCK: u64 = 0x1000;
const COMPLETIONS: usize = 4096;

/// A card, and its host memory.
pub struct RawHost {
    /// The card's function.
    pub function: Function,
    /// Host memory, the rings first.
    pub memory: Arc<DmaBuffer>,
    registers: Window,
    stored: u32,
    taken: u32,
}

impl RawHost {
    /// Attaches to `card`, with `bytes` of memory besides the rings, and starts its queue.
    ///
    /// # Panics
    /// If the card does not answer.
    pub fn attach(card: Arc<dyn Endpoint>, bytes: usize) -> Self {
        let domain = domain();
        let function = in_process::attach(card, &domain, "raw").expect("a card");
        let registers = function.window(BarIndex::new(0).expect("BAR0")).expect("registers");
        let memory = domain.allocate(RINGS_BYTES + bytes, 4096).expect("memory");
        let mut host = RawHost { function, memory, registers, stored: 0, taken: 0 };
        host.start();
        host
    }

    /// Returns the IOVA of the memory after the rings.
    pub fn address(&self) -> u64 {
        self.memory.iova().0 + RINGS_BYTES as u64
    }

    /// Reads a register of the sequencer's block.
    pub fn read(&self, offset: u32) -> u32 {
        self.registers.read_u32(BLOCK + u64::from(offset)).unwrap_or(u32::MAX)
    }

    /// Writes a register of the sequencer's block; a write to a card that is gone is dropped.
    pub fn write(&self, offset: u32, value: u32) {
        let _ = self.registers.write_u32(BLOCK + u64::from(offset), value);
    }

    /// Writes a register of the queue.
    pub fn write_queue(&self, offset: u32, value: u32) {
        self.write(sequencer::QUEUES_OFFSET + offset, value);
    }

    /// Sets up empty rings, and starts the sequencer.
    pub fn start(&mut self) {
        let _ = self.function.set_bus_master(true);
        let iova = self.memory.iova().0;
        self.write_queue(queue::ENABLE, 0);
        self.write_queue(queue::SUBMISSION_BASE_LO, iova as u32);
        self.write_queue(queue::SUBMISSION_BASE_HI, (iova >> 32) as u32);
        self.write_queue(queue::COMPLETION_BASE_LO, (iova + COMPLETIONS as u64) as u32);
        self.write_queue(queue::COMPLETION_BASE_HI, (iova >> 32) as u32);
        self.write_queue(queue::DEPTH, DEPTH);
        self.write_queue(queue::ENABLE, 1);
        self.write(sequencer::ERROR, !0);
        self.write(sequencer::CONTROL, 1);
        (self.stored, self.taken) = (0, 0);
        let _ = self.memory.write(COMPLETIONS, &[0; COMPLETIONS]);
    }

    /// Stores an instruction and rings the doorbell.
    pub fn push(&mut self, instruction: &Instruction) {
        self.push_all(&[*instruction]);
    }

    /// Stores instructions and rings the doorbell once.
    pub fn push_all(&mut self, instructions: &[Instruction]) {
        instructions.iter().for_each(|instruction| self.store(&instruction.encode()));
        self.write_queue(queue::SUBMISSION_TAIL, self.stored);
    }

    fn store(&mut self, word: &[u8; instruction::BYTES]) {
        let place = (self.stored % DEPTH) as usize * instruction::BYTES;
        let _ = self.memory.write(place, word);
        self.stored = self.stored.wrapping_add(1);
    }

    /// Skips all completions that the card reports.
    pub fn take_all(&mut self) {
        self.taken = self.read(sequencer::QUEUES_OFFSET + queue::COMPLETION_TAIL);
        self.write_queue(queue::COMPLETION_HEAD, self.taken);
    }

    /// Takes the next completion, if it has arrived.
    pub fn take(&mut self) -> Option<Completion> {
        let mut word = [0; completion::BYTES];
        self.memory.read(COMPLETIONS + (self.taken % DEPTH) as usize * completion::BYTES, &mut word).ok()?;
        let completion = Completion::decode(&word);
        if completion.phase != (self.taken / DEPTH % 2 == 0) {
            return None;
        }
        self.taken = self.taken.wrapping_add(1);
        self.write_queue(queue::COMPLETION_HEAD, self.taken);
        Some(completion)
    }

    /// Waits for the next completion.
    ///
    /// # Panics
    /// If none arrives within a minute.
    pub fn wait(&mut self) -> Completion {
        let start = Instant::now();
        loop {
            if let Some(completion) = self.take() {
                return completion;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "no completion of the instruction");
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// Stores an instruction and waits for its completion.
    pub fn run(&mut self, instruction: &Instruction) -> Completion {
        self.run_word(&instruction.encode())
    }

    /// Stores a word, which need not be an instruction, and waits for its completion.
    pub fn run_word(&mut self, word: &[u8; instruction::BYTES]) -> Completion {
        self.store(word);
        self.write_queue(queue::SUBMISSION_TAIL, self.stored);
        self.wait()
    }
}

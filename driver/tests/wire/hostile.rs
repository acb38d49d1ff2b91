//! A card that does what none may: completions, statuses and registers at random.
//!
//! It knows what it was given and has not completed as the protocol has it. As long as the driver has not stopped or reset
//! it, it may write to that memory: it looks whether the memory is there, and is what the driver gave.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use cmdseq::{AddressSpace, Completion, Instruction, Status};
use fpga_hal::endpoint::{DmaFault, DmaPort, DmaProgress, DmaTag, Endpoint, Interposer, InterruptPort, ResetKind};
use fpga_hal::{BarIndex, Iova};

use fpga_fake::{BLOCK, Fake};

/// Numbers that a seed gives (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// One time in `count`.
    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// Values at the edges of what registers hold, or any.
    pub(crate) fn word(&mut self) -> u32 {
        match self.below(8) {
            0 => 0,
            1 => u32::MAX,
            2 => 1 << self.below(32),
            3 => (1 << self.below(32)) - 1,
            4 => self.below(64) as u32,
            _ => self.next() as u32,
        }
    }
}

/// An instruction that the card has fetched and not completed.
struct Given {
    tag: u16,
    /// Host memory that it names, and what is at its beginning.
    canary: Option<(u64, u64)>,
}

type Ports = (Arc<dyn DmaPort>, Arc<dyn InterruptPort>);

pub(crate) struct Hostile {
    fake: Arc<Fake>,
    ports: Mutex<Option<Ports>>,
    state: Mutex<State>,
    is_calm: AtomicBool,
    malformed: AtomicU64,
}

struct State {
    random: Random,
    given: VecDeque<Given>,
    tail: u32,
    fetched: u32,
    /// Where the next completion goes.
    written: u32,
    /// Completions that the protocol has: the driver takes no others.
    accepted: u32,
    is_running: bool,
    is_enabled: bool,
    is_stopping: bool,
    ignores_stop: bool,
}

impl Hostile {
    pub(crate) fn new(depth: u32, seed: u64) -> Arc<Self> {
        let state = State {
            random: Random(seed),
            given: VecDeque::new(),
            tail: 0,
            fetched: 0,
            written: 0,
            accepted: 0,
            is_running: false,
            is_enabled: false,
            is_stopping: false,
            ignores_stop: false,
        };
        Arc::new(Hostile {
            fake: Fake::new(depth),
            ports: Mutex::default(),
            state: Mutex::new(state),
            is_calm: AtomicBool::new(true),
            malformed: AtomicU64::new(0),
        })
    }

    /// Whether it is a card as the others for now.
    pub(crate) fn set_calm(&self, is_calm: bool) {
        self.is_calm.store(is_calm, Ordering::Relaxed);
    }

    /// Completions and registers so far that no card gives.
    pub(crate) fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }

    pub(crate) fn set_gone(&self, is_gone: bool) {
        self.fake.state().is_gone = is_gone;
    }

    /// Has a register of the block hold `value`.
    pub(crate) fn set_register(&self, offset: u32, value: u32) {
        self.fake.set(BLOCK + offset, value);
    }

    /// The driver has let go of the card.
    pub(crate) fn forget(&self) {
        self.state().given.clear();
    }

    /// Makes sure that all memory that the card may still write to is there, and is what it was given.
    pub(crate) fn check_memory(&self) {
        let Some((dma, _)) = self.ports.lock().unwrap().clone() else { return };
        for given in &self.state().given {
            let Some((iova, canary)) = given.canary else { continue };
            let mut found = [0; 8];
            let done = dma.read(DmaTag(0), Iova(iova), &mut found);
            assert_eq!(done, DmaProgress::Done(Ok(())), "memory at {iova:#x} was released early");
            assert_eq!(u64::from_le_bytes(found), canary, "the address {iova:#x} was handed out again");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Relaxed)
    }

    fn note(&self) {
        self.malformed.fetch_add(1, Ordering::Relaxed);
    }

    fn register(&self, offset: u32) -> u32 {
        self.fake.state().registers.get(&(BLOCK + offset)).copied().unwrap_or(0)
    }

    fn ring(&self, low: u32) -> u64 {
        u64::from(self.register(low)) | u64::from(self.register(low + 4)) << 32
    }

    /// Fetches what it was told of, and does something about each.
    fn run(&self, state: &mut State, dma: &dyn DmaPort) {
        let depth = self.register(0x410);
        let submission = self.ring(0x400);
        while state.fetched != state.tail && state.is_running && state.is_enabled && !state.is_stopping {
            let mut word = [0; 64];
            let at = submission + 64 * u64::from(state.fetched & (depth - 1));
            assert_eq!(dma.read(DmaTag(0), Iova(at), &mut word), DmaProgress::Done(Ok(())));
            let instruction = Instruction::decode(&word).expect("the driver's words are whole");
            assert_eq!(instruction.tag, state.fetched as u16);
            state.fetched = state.fetched.wrapping_add(1);
            let canary = (instruction.destination.space == AddressSpace::Host).then(|| {
                let mut canary = [0; 8];
                let done = dma.read(DmaTag(0), Iova(instruction.destination.address), &mut canary);
                assert_eq!(done, DmaProgress::Done(Ok(())), "the driver gave memory that is not there");
                (instruction.destination.address, u64::from_le_bytes(canary))
            });
            state.given.push_back(Given { tag: instruction.tag, canary });
            self.answer(state, dma, depth);
        }
    }

    /// Answers the oldest instruction, or does something else.
    fn answer(&self, state: &mut State, dma: &dyn DmaPort, depth: u32) {
        let ring = self.ring(0x408);
        let count = state.written;
        let at = |count: u32| ring + 32 * u64::from(count & (depth - 1));
        let put = |at: u64, bytes: &[u8]| {
            assert_eq!(dma.write(DmaTag(0), Iova(at), bytes), DmaProgress::Done(Ok(())));
        };
        let t1 = state.random.below(1 << 39);
        let tag = state.given.front().map_or(count as u16, |given| given.tag);
        let proper = Completion {
            tag,
            status: Status::Done,
            detail: 0,
            issued: state.random.next(),
            t1,
            t2: t1 + state.random.below(100),
            arrival: t1,
            bytes: 8,
            phase: (count / depth).is_multiple_of(2),
        };
        let kind = if self.is_calm() { 0 } else { state.random.below(12) };
        if kind > 3 {
            self.note();
        }
        match kind {
            0..=3 => {
                put(at(count), &proper.encode());
                state.written = count.wrapping_add(1);
            }
            4 => {
                let code = state.random.next() as u8;
                let status = Status::from_code(code);
                put(at(count), &Completion { status, detail: state.random.next() as u16, ..proper }.encode());
                state.written = count.wrapping_add(1);
            }
            5 => put(at(count), &Completion { tag: state.random.next() as u16, ..proper }.encode()),
            6 => put(at(count), &Completion { phase: !proper.phase, ..proper }.encode()),
            7 => put(at(count), &Completion { t2: t1.saturating_sub(1), t1: t1 + 1, ..proper }.encode()),
            8 => {
                put(at(count), &proper.encode());
                put(
                    at(count.wrapping_add(1)),
                    &Completion { phase: ((count + 1) / depth).is_multiple_of(2), ..proper }.encode(),
                );
                state.written = count.wrapping_add(2);
            }
            // Anything anywhere in the ring.
            9 | 10 => {
                let mut bytes = [0; 32];
                bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&state.random.next().to_le_bytes()));
                let count = if kind == 9 { count } else { state.random.next() as u32 };
                put(at(count), &bytes);
            }
            // Nothing.
            _ => {}
        }
        self.accept(state, dma, ring, depth);
    }

    /// What of the ring's content is a completion as the protocol has it.
    fn accept(&self, state: &mut State, dma: &dyn DmaPort, ring: u64, depth: u32) {
        while state.accepted != state.tail {
            let mut word = [0; 32];
            let at = ring + 32 * u64::from(state.accepted & (depth - 1));
            assert_eq!(dma.read(DmaTag(0), Iova(at), &mut word), DmaProgress::Done(Ok(())));
            let completion = Completion::decode(&word);
            let is_next = completion.phase == (state.accepted & depth == 0)
                && state.given.front().is_some_and(|given| given.tag == completion.tag)
                && (completion.t1 <= completion.t2 || completion.status != Status::Done);
            if !is_next {
                return;
            }
            state.given.pop_front();
            state.accepted = state.accepted.wrapping_add(1);
        }
    }

    fn read(&self, offset: u32) -> u32 {
        let mut state = self.state();
        let is_busy = !state.given.is_empty() && (!state.is_stopping || state.ignores_stop);
        let proper = match offset {
            0x104 => {
                let is_halted = self.register(0x108) != 0;
                1 | u32::from(is_busy) << 1 | u32::from(is_halted) << 2
            }
            0x110 | 0x418 | 0x41c | 0x420 => 0,
            0x428 => state.fetched,
            0x42c => state.written,
            _ => self.register(offset),
        };
        // What a card can do is read many times at once: one bad word of many is enough.
        let odds = if offset < 0x100 { 400 } else { 6 };
        let value = if !self.is_calm() && state.random.one_in(odds) { state.random.word() } else { proper };
        if value != proper {
            self.note();
        }
        // Whoever says that it is not busy once it was told to stop is not.
        if offset == 0x104 && value & 2 == 0 && state.is_stopping && !state.is_enabled {
            state.given.clear();
        }
        value
    }

    fn write(&self, offset: u32, value: u32) {
        let Some((dma, interrupts)) = self.ports.lock().unwrap().clone() else { return };
        let mut state = self.state();
        match offset {
            0x100 => {
                state.is_running = value & 1 == 1;
                if state.is_running {
                    state.is_stopping = false;
                }
                self.fake.set(BLOCK + offset, value);
            }
            0x108 => {
                let left = self.register(offset) & !value;
                self.fake.set(BLOCK + offset, left);
            }
            0x110 if value == 0x504f_5453 => {
                state.is_stopping = true;
                // Waiting for it takes the driver its whole bound.
                state.ignores_stop = !self.is_calm() && state.random.one_in(20_000);
            }
            0x414 => {
                state.is_enabled = value & 1 == 1;
                if state.is_enabled {
                    (state.tail, state.fetched, state.written, state.accepted) = (0, 0, 0, 0);
                }
                self.fake.set(BLOCK + offset, value & 1);
            }
            0x418 => {
                let depth = self.register(0x410);
                assert!(value.wrapping_sub(state.fetched) <= depth, "more than the ring has");
                state.tail = value;
                self.run(&mut state, &*dma);
                if !self.is_calm() && state.random.one_in(50) {
                    self.note();
                    self.fake.set(BLOCK + 0x108, state.random.word());
                }
            }
            0x41c => {}
            0x420 => {
                if state.random.one_in(2) {
                    interrupts.raise(0);
                }
            }
            _ => self.fake.set(BLOCK + offset, value),
        }
    }
}

impl Interposer for Hostile {
    fn behind(&self) -> &dyn Endpoint {
        &*self.fake
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        *self.ports.lock().unwrap() = Some((Arc::clone(&dma), Arc::clone(&interrupts)));
        self.fake.attach(dma, interrupts);
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        let block = u64::from(BLOCK);
        let is_gone = self.fake.state().is_gone;
        if bar.index() == 0 && !is_gone && (block..block + 0x1000).contains(&offset) {
            let value = self.read((offset - block) as u32);
            return data.copy_from_slice(&value.to_le_bytes());
        }
        self.fake.bar_read(bar, offset, data);
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        let block = u64::from(BLOCK);
        let is_gone = self.fake.state().is_gone;
        if bar.index() == 0 && !is_gone && (block..block + 0x1000).contains(&offset) {
            let value = u32::from_le_bytes(data.try_into().expect("registers are 32 bits wide"));
            return self.write((offset - block) as u32, value);
        }
        self.fake.bar_write(bar, offset, data);
    }

    fn reset(&self, kind: ResetKind) {
        self.fake.reset(kind);
        let mut state = self.state();
        state.given.clear();
        (state.is_running, state.is_enabled, state.is_stopping, state.ignores_stop) = (false, false, false, false);
    }

    fn dma_complete(&self, _tag: DmaTag, _result: std::result::Result<&[u8], DmaFault>) {}
}

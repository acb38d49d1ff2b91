//! Queue pairs: instructions in, completions out.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cmdseq::{Completion, Instruction, Operation, Status, Table, Tables, completion, instruction};
use crossbeam::utils::Backoff;
use fpga_hal::{DmaBuffer, Function, Interrupt, InterruptKind, barrier};
use fpga_regs::sequencer::{self, queue as registers};

use crate::block::Block;
use crate::error::{Error, Result};
use crate::state::SequencerState;
use crate::token::{Cells, FREE, PENDING, RELEASED, Token};

/// Entries of a ring unless the card takes fewer.
const DEPTH: u32 = 1024;
/// How long a wait spins before it sleeps: longer than a short collective takes, shorter than it takes to wake up.
const SPIN: Duration = Duration::from_micros(20);
/// First and last time a wait sleeps before it looks whether the card is still there.
const SLEEP_FIRST: Duration = Duration::from_millis(10);
const SLEEP_MAX: Duration = Duration::from_millis(200);
/// How long an aborted sequencer may take to stop.
const STOP: Duration = Duration::from_millis(100);
/// MSI-X vector of queue 0.
const VECTOR: u32 = 0;
/// Rings are pages of their own, so that an IOMMU can map nothing else with them.
const RING_ALIGNMENT: usize = 4096;

/// What is wrong with a completion: kept, because nothing read behind it can be believed.
#[derive(Debug, Clone, Copy)]
struct Broken {
    what: &'static str,
    expected: u16,
    found: u16,
}

/// One entry of the ring while an instruction is in it.
#[derive(Debug, Default)]
struct Slot {
    cell: u32,
    /// What its completion is to carry.
    tag: u16,
    /// Memory the instruction names: kept until the card is done with it.
    held: Option<Arc<DmaBuffer>>,
}

/// A submission and a completion ring in host memory, with one owner.
///
/// [`push`](QueuePair::push) stores instructions, [`ring`](QueuePair::ring) tells the card of all that were stored,
/// [`poll`](QueuePair::poll) takes completions, [`wait`](QueuePair::wait) sleeps for one. Completions come in the order
/// of the instructions; tokens may be waited for in any order. Up to twice the depth of the ring may be in flight or not
/// waited for.
///
/// Dropping a queue with instructions in flight stops the sequencer first, so that no card works on memory that is gone.
pub struct QueuePair {
    block: Block,
    function: Function,
    node: u32,
    base: u32,
    submission: Arc<DmaBuffer>,
    completion: Arc<DmaBuffer>,
    interrupt: Interrupt,
    depth: u32,
    /// Instructions ever stored, told to the card, completed, and the completions it was told are taken; modulo 2^32.
    pushed: u32,
    rung: u32,
    taken: u32,
    announced: u32,
    slots: Box<[Slot]>,
    results: Box<[Completion]>,
    free: Vec<u32>,
    cells: Arc<Cells>,
    broken: Option<Broken>,
    /// What the card's tables are known to hold, by slot.
    tables: Tables,
}

impl QueuePair {
    /// Queue 0 of the card behind `block`: allocates its rings and sets the sequencer going.
    pub(crate) fn create(
        function: &Function,
        block: &Block,
        node: u32,
        depth_max: u32,
        interrupt: Interrupt,
    ) -> Result<Self> {
        let depth = depth_max.min(DEPTH);
        let domain = function.domain();
        let allocate = |entry: usize| domain.allocate(depth as usize * entry, RING_ALIGNMENT);
        let submission = allocate(instruction::BYTES).map_err(|error| block.bus(error))?;
        let completion = allocate(completion::BYTES).map_err(|error| block.bus(error))?;
        let cells = depth * 2;
        let mut queue = QueuePair {
            block: block.clone(),
            function: function.clone(),
            node,
            base: registers::base(0),
            submission,
            completion,
            interrupt,
            depth,
            pushed: 0,
            rung: 0,
            taken: 0,
            announced: 0,
            slots: (0..depth).map(|_| Slot::default()).collect(),
            results: (0..cells).map(|_| aborted(0)).collect(),
            free: (0..cells).rev().collect(),
            cells: Cells::new(cells as usize),
            broken: None,
            tables: Tables::new(),
        };
        queue.enable()?;
        Ok(queue)
    }

    /// Entries of each ring.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Instructions stored and not completed.
    pub fn in_flight(&self) -> u32 {
        self.pushed.wrapping_sub(self.taken)
    }

    /// Stores `instruction` in the ring, with a tag of the queue's own. No MMIO: the card learns of it by
    /// [`ring`](QueuePair::ring).
    ///
    /// # Errors
    /// [`Error::Full`] with the instruction.
    #[inline]
    pub fn push(&mut self, instruction: &Instruction) -> Result<Token> {
        self.store(instruction, None)
    }

    /// As [`push`](QueuePair::push), keeping `buffer`, which the instruction names, until the card is done with it.
    ///
    /// # Errors
    /// [`Error::Full`] with the instruction.
    pub fn push_holding(&mut self, instruction: &Instruction, buffer: Arc<DmaBuffer>) -> Result<Token> {
        self.store(instruction, Some(buffer))
    }

    #[inline]
    fn store(&mut self, instruction: &Instruction, held: Option<Arc<DmaBuffer>>) -> Result<Token> {
        self.check_broken()?;
        if !self.has_room() {
            let (in_flight, depth) = (self.in_flight(), self.depth);
            return Err(Error::Full { instruction: *instruction, in_flight, depth });
        }
        let tag = self.pushed as u16;
        self.put(&instruction.with_tag(tag).encode(), tag, instruction.operation, held)
    }

    /// Stores a word that was encoded before, with the tag and the operation that are in it. There must be
    /// [room](QueuePair::has_room).
    #[inline]
    pub(crate) fn push_word(
        &mut self,
        word: &[u8; instruction::BYTES],
        tag: u16,
        operation: Operation,
    ) -> Result<Token> {
        self.check_broken()?;
        self.put(word, tag, operation, None)
    }

    /// Whether there is room for another instruction.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        if self.free.is_empty() {
            self.reclaim();
        }
        self.in_flight() < self.depth && !self.free.is_empty()
    }

    #[inline]
    fn put(
        &mut self,
        word: &[u8; instruction::BYTES],
        tag: u16,
        operation: Operation,
        held: Option<Arc<DmaBuffer>>,
    ) -> Result<Token> {
        let slot = self.pushed & (self.depth - 1);
        self.submission
            .write_word64(slot as usize * instruction::BYTES, word)
            .map_err(|error| self.block.bus(error))?;
        let Some(cell) = self.free.pop() else { unreachable!("there was room") };
        self.cells.set(cell, PENDING);
        self.slots[slot as usize] = Slot { cell, tag, held };
        self.pushed = self.pushed.wrapping_add(1);
        self.forget_tables(operation, word);
        Ok(Token::new(&self.cells, cell, tag, operation))
    }

    /// What is in the card's tables is not known any more if `word`, or a resident program that it launches, loads some.
    #[inline]
    fn forget_tables(&mut self, operation: Operation, word: &[u8; instruction::BYTES]) {
        const EXTENT: usize = instruction::offset::EXTENT;
        match operation {
            Operation::Table => {
                self.tables.remove(&u16::from_le_bytes([word[EXTENT], word[EXTENT + 1]]));
            }
            Operation::Launch => self.tables.clear(),
            _ => {}
        }
    }

    /// What the card's tables are known to hold, by slot.
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The card has `table` in `slot`.
    pub(crate) fn has_table(&mut self, slot: u16, table: Table) {
        self.tables.insert(slot, table);
    }

    /// Takes back the cells of tokens that were dropped after their completion had come.
    fn reclaim(&mut self) {
        if !self.cells.take_released() {
            return;
        }
        for cell in 0..self.results.len() as u32 {
            if self.cells.state(cell) == RELEASED {
                self.cells.set(cell, FREE);
                self.free.push(cell);
            }
        }
    }

    /// Tells the card of everything stored: one MMIO write. There is a second, before it, if more than half of the ring
    /// is in flight and the card has not yet been told of the latest completions taken.
    ///
    /// # Errors
    /// The bus's.
    #[inline]
    pub fn ring(&mut self) -> Result<()> {
        if self.pushed == self.rung {
            return Ok(());
        }
        if self.pushed.wrapping_sub(self.announced) > self.depth {
            self.announce()?;
        }
        barrier::memory_before_mmio();
        self.block.write(self.base + registers::SUBMISSION_TAIL, self.pushed)?;
        self.rung = self.pushed;
        Ok(())
    }

    /// [`push`](QueuePair::push) and [`ring`](QueuePair::ring).
    ///
    /// # Errors
    /// [`Error::Full`] with the instruction, or the bus's.
    #[inline]
    pub fn submit(&mut self, instruction: &Instruction) -> Result<Token> {
        let token = self.push(instruction)?;
        self.ring()?;
        Ok(token)
    }

    /// Takes the completions that are there and says how many. Never waits, and reads no register.
    ///
    /// # Errors
    /// [`Error::BadCompletion`], from then on until the card is reset.
    #[inline]
    pub fn poll(&mut self) -> Result<u32> {
        self.check_broken()?;
        let before = self.taken;
        while self.taken != self.rung {
            if !self.take_one()? {
                break;
            }
        }
        if self.taken == self.rung && self.is_written(self.taken)? {
            return Err(self.break_off("nothing was submitted for it"));
        }
        let count = self.taken.wrapping_sub(before);
        if self.taken.wrapping_sub(self.announced) >= self.depth / 2 {
            self.announce()?;
        }
        Ok(count)
    }

    fn take_one(&mut self) -> Result<bool> {
        let count = self.taken;
        if !self.is_written(count)? {
            return Ok(false);
        }
        let slot = (count & (self.depth - 1)) as usize;
        let completion = self.completion_at(slot)?;
        if completion.tag != self.slots[slot].tag {
            return Err(self.break_off("its tag is not the next"));
        }
        self.finish(slot, completion);
        Ok(true)
    }

    /// Hands `completion` to whoever waits for the instruction in `slot`, and lets its memory go.
    fn finish(&mut self, slot: usize, completion: Completion) {
        let Slot { cell, held, .. } = std::mem::take(&mut self.slots[slot]);
        drop(held);
        self.results[cell as usize] = completion;
        if !self.cells.complete(cell) {
            self.free.push(cell);
        }
        self.taken = self.taken.wrapping_add(1);
    }

    /// Whether the card has written completion `count`: the phase bit turns with every pass, and is true in the first.
    #[inline]
    fn is_written(&self, count: u32) -> Result<bool> {
        let slot = (count & (self.depth - 1)) as usize;
        let word = self
            .completion
            .load_acquire(slot * completion::BYTES + completion::PHASE_WORD)
            .map_err(|error| self.block.bus(error))?;
        Ok(completion::phase_of(word) == (count & self.depth == 0))
    }

    fn completion_at(&self, slot: usize) -> Result<Completion> {
        let mut word = [0; completion::BYTES];
        self.completion.read(slot * completion::BYTES, &mut word).map_err(|error| self.block.bus(error))?;
        Ok(Completion::decode(&word))
    }

    fn break_off(&mut self, what: &'static str) -> Error {
        let slot = (self.taken & (self.depth - 1)) as usize;
        let found = self.completion_at(slot).map_or(0, |completion| completion.tag);
        let expected = if self.in_flight() == 0 { self.taken as u16 } else { self.slots[slot].tag };
        let broken = Broken { what, expected, found };
        self.broken = Some(broken);
        self.bad_completion(broken)
    }

    fn bad_completion(&self, Broken { what, expected, found }: Broken) -> Error {
        Error::BadCompletion { name: self.block.name().to_owned(), what, expected, found }
    }

    #[inline]
    fn check_broken(&self) -> Result<()> {
        match self.broken {
            None => Ok(()),
            Some(broken) => Err(self.bad_completion(broken)),
        }
    }

    /// Tells the card which completions were taken, so that it may write over them.
    fn announce(&mut self) -> Result<()> {
        if self.announced != self.taken {
            self.block.write(self.base + registers::COMPLETION_HEAD, self.taken)?;
            self.announced = self.taken;
        }
        Ok(())
    }

    /// The completion of `token` if it has been taken, or the token back.
    ///
    /// # Errors
    /// [`Error::Stale`] if the token is another queue's.
    pub fn take(&mut self, token: Token) -> Result<std::result::Result<Completion, Token>> {
        if !token.is_of(&self.cells) {
            return Err(Error::Stale { what: "token" });
        }
        if !token.is_done() {
            return Ok(Err(token));
        }
        let cell = token.cell();
        token.taken();
        self.cells.set(cell, FREE);
        self.free.push(cell);
        Ok(Ok(self.results[cell as usize]))
    }

    /// Waits for the completion of `token` for at most `timeout`: spins, then sleeps on the interrupt. Rings first if
    /// that was not done. The status in the completion is the caller's to look at: see [`check`].
    ///
    /// # Errors
    /// [`Error::Timeout`], and then the token is abandoned; [`Error::Removed`], [`Error::Halted`],
    /// [`Error::BadCompletion`], [`Error::Stale`].
    pub fn wait(&mut self, token: Token, timeout: Duration) -> Result<Completion> {
        let tag = token.tag();
        match self.wait_until(token, Instant::now(), timeout)? {
            Ok(completion) => Ok(completion),
            Err(token) => {
                token.abandon();
                Err(self.timeout(format!("the completion with tag {tag}"), timeout))
            }
        }
    }

    fn wait_until(
        &mut self,
        mut token: Token,
        start: Instant,
        timeout: Duration,
    ) -> Result<std::result::Result<Completion, Token>> {
        self.ring()?;
        let mut slice = SLEEP_FIRST;
        loop {
            self.poll()?;
            token = match self.take(token)? {
                Ok(completion) => return Ok(Ok(completion)),
                Err(token) => token,
            };
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(Err(token));
            }
            if self.wait_progress(left.min(slice))? == 0 {
                slice = (slice * 2).min(SLEEP_MAX);
            }
        }
    }

    /// Waits until completions were taken, for at most `time`, and says how many. If none came, it makes sure that the
    /// card is there and its sequencer has not halted.
    ///
    /// # Errors
    /// [`Error::Removed`], [`Error::Halted`], [`Error::BadCompletion`].
    pub fn wait_progress(&mut self, time: Duration) -> Result<u32> {
        let start = Instant::now();
        let backoff = Backoff::new();
        while start.elapsed() < SPIN.min(time) {
            let count = self.poll()?;
            if count != 0 {
                return Ok(count);
            }
            backoff.spin();
        }
        self.announce()?;
        self.arm()?;
        let count = self.poll()?;
        if count != 0 {
            return Ok(count);
        }
        let raised =
            self.interrupt.wait(time.saturating_sub(start.elapsed())).map_err(|error| self.block.bus(error))?;
        if raised && self.interrupt.kind() == InterruptKind::Intx {
            // A level stays until the card is told.
            self.block.write(sequencer::PENDING, 1 << VECTOR)?;
            self.function.unmask_intx().map_err(|error| self.block.bus(error))?;
        }
        let count = self.poll()?;
        if count == 0 && !raised {
            self.block.check_health()?;
        }
        Ok(count)
    }

    /// Has the card raise the queue's interrupt, once, when there are more completions than were taken: for a caller
    /// that sleeps on the queue's descriptor itself. Poll once more after arming and before sleeping.
    ///
    /// # Errors
    /// The bus's.
    pub fn arm(&mut self) -> Result<()> {
        self.block.write(self.base + registers::INTERRUPT_ARM, self.taken)
    }

    /// Gives the completion of `token` up; the same as [`Token::abandon`].
    pub fn abandon(&mut self, token: Token) {
        token.abandon();
    }

    /// The error of a wait that was in vain; names what the sequencer says of itself.
    pub(crate) fn timeout(&self, what: String, waited: Duration) -> Error {
        let last_seen = match SequencerState::read(&self.block) {
            Ok(state) if state.completed != self.taken => {
                format!("{state}, of which {} arrived here", self.taken)
            }
            Ok(state) => state.to_string(),
            Err(error) => return error,
        };
        Error::Timeout { what, node: Some(self.node), rank: None, instruction: None, waited, last_seen }
    }

    /// Stores `instruction`, waiting until `deadline` for room. Rings before it waits.
    pub(crate) fn push_when_room(
        &mut self,
        instruction: &Instruction,
        held: Option<Arc<DmaBuffer>>,
        deadline: Instant,
    ) -> Result<Token> {
        let start = Instant::now();
        loop {
            match self.store(instruction, held.clone()) {
                Err(Error::Full { .. }) if self.in_flight() != 0 => {}
                other => return other,
            }
            self.ring()?;
            if self.poll()? != 0 {
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.timeout("room in the ring".into(), start.elapsed()));
            }
            self.wait_progress(left.min(SLEEP_MAX))?;
        }
    }

    /// Programs the queue's registers and sets the sequencer going. The rings are zeroed, the counts are zero.
    fn enable(&mut self) -> Result<()> {
        let set = |register, value| self.block.write(self.base + register, value);
        let halves = |buffer: &DmaBuffer| (buffer.iova().0 as u32, (buffer.iova().0 >> 32) as u32);
        let (submission, completion) = (halves(&self.submission), halves(&self.completion));
        set(registers::ENABLE, 0)?;
        set(registers::SUBMISSION_BASE_LO, submission.0)?;
        set(registers::SUBMISSION_BASE_HI, submission.1)?;
        set(registers::COMPLETION_BASE_LO, completion.0)?;
        set(registers::COMPLETION_BASE_HI, completion.1)?;
        set(registers::DEPTH, self.depth)?;
        set(registers::VECTOR, VECTOR)?;
        barrier::memory_before_mmio();
        set(registers::ENABLE, 1)?;
        let enabled = self.block.read_present(self.base + registers::ENABLE)?;
        if enabled != 1 {
            return Err(Error::BadCapability {
                name: self.block.name().to_owned(),
                register: "ENABLE",
                value: enabled,
                expected: "1 once base and depth are set",
            });
        }
        // A sequencer that halted does not run again before what halted it is cleared.
        self.block.write(sequencer::ERROR, self.block.read(sequencer::ERROR)?)?;
        self.block.write(sequencer::CONTROL, 1)
    }

    /// Stops the sequencer, within a bound. True if it has stopped or is gone; false if it still runs something.
    pub(crate) fn stop(&mut self) -> bool {
        let stop = || -> Result<bool> {
            self.block.write(sequencer::CONTROL, 0)?;
            self.block.write(sequencer::ABORT, sequencer::ABORT_VALUE)?;
            let start = Instant::now();
            let mut pause = Duration::from_micros(10);
            loop {
                let status = fpga_regs::bits::Status::from_bits_retain(self.block.read_present(sequencer::STATUS)?);
                if !status.contains(fpga_regs::bits::Status::BUSY) {
                    self.block.write(self.base + registers::ENABLE, 0)?;
                    return Ok(true);
                }
                if start.elapsed() > STOP {
                    return Ok(false);
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(5));
            }
        };
        match stop() {
            Ok(stopped) => stopped,
            Err(Error::Removed { .. }) => true,
            Err(error) => {
                log::warn!("{}: stopping the sequencer: {error}", self.block.name());
                false
            }
        }
    }

    /// Starts over after the sequencer was stopped or reset: takes what completions there are, gives everything else in
    /// flight the status aborted, and begins with empty rings. `interrupt` replaces the one before.
    pub(crate) fn restart(&mut self, interrupt: Option<Interrupt>) -> Result<()> {
        if self.broken.is_none() {
            let _ = self.poll();
        }
        while self.taken != self.pushed {
            let slot = (self.taken & (self.depth - 1)) as usize;
            self.finish(slot, aborted(self.slots[slot].tag));
        }
        if let Some(interrupt) = interrupt {
            self.interrupt = interrupt;
            // Only a reset gives another, and it clears the tables.
            self.tables.clear();
        }
        let zeroes = [0; instruction::BYTES];
        for slot in 0..self.depth as usize {
            let at = slot * instruction::BYTES;
            self.submission.write_word64(at, &zeroes).map_err(|error| self.block.bus(error))?;
        }
        for slot in 0..self.depth as usize {
            let at = slot * completion::BYTES;
            self.completion.write(at, &zeroes[..completion::BYTES]).map_err(|error| self.block.bus(error))?;
        }
        (self.pushed, self.rung, self.taken, self.announced) = (0, 0, 0, 0);
        self.broken = None;
        self.enable()
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("card", &self.block.name())
            .field("depth", &self.depth)
            .field("pushed", &self.pushed)
            .field("rung", &self.rung)
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

impl AsFd for QueuePair {
    /// Descriptor that becomes readable when the interrupt is raised: see [`QueuePair::arm`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.interrupt.as_fd()
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if self.broken.is_none() {
            let _ = self.poll();
        }
        if self.rung == self.taken {
            let _ = self.block.write(self.base + registers::ENABLE, 0);
            return;
        }
        if self.stop() || matches!(self.function.reset(), Ok(_) | Err(fpga_hal::Error::Removed)) {
            return;
        }
        log::error!("{} could not be stopped: the memory it may still use is kept for good", self.block.name());
        std::mem::forget(Arc::clone(&self.submission));
        std::mem::forget(Arc::clone(&self.completion));
        for slot in &mut self.slots {
            std::mem::forget(slot.held.take());
        }
    }
}

/// `completion` if its status is done, or the error that says what it was about.
///
/// # Errors
/// [`Error::Failed`] with everything given.
pub fn check(completion: Completion, node: u32, index: usize, operation: Operation) -> Result<Completion> {
    match completion.status {
        Status::Done => Ok(completion),
        status => {
            Err(Error::Failed { node, rank: None, instruction: index, operation, status, detail: completion.detail })
        }
    }
}

/// What stands in for the completion of an instruction that the card never came to.
fn aborted(tag: u16) -> Completion {
    Completion { tag, status: Status::Aborted, detail: 0, issued: 0, t1: 0, t2: 0, arrival: 0, bytes: 0, phase: false }
}

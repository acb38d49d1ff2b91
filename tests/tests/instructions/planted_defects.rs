//! What the driver's queue must not leave out: the read that pushes its writes, the barrier between phase word and completion, the
//! check of the phase. Each is planted as a defect in a copy of the queue. A card whose register writes act at once does not show
//! them; one whose writes are posted does.

use std::sync::Arc;
use std::time::Duration;

use cmdseq::{Completion, Instruction, Status, completion, instruction};
use fpga_driver::{Card, Error};
use fpga_hal::endpoint::{Endpoint, Interposer};
use fpga_hal::memory::barrier;
use fpga_hal::{BarIndex, DmaBuffer, Function, Window, in_process};
use fpga_mock::{Fabric, Hardware, Profile};
use fpga_regs::bits;
use fpga_regs::sequencer::{self, queue};
use fpga_tests::run::domain;

const BLOCK: u64 = 0x1000;
const DEPTH: u32 = 4;
/// Offset of the completion ring, and bytes of both rings.
const COMPLETIONS: usize = 4096;
const RINGS: usize = 8192;
/// Polls, each after a sleep in the driver, until a completion must be there.
const POLLS: u32 = 3;

/// Time limit of what takes microseconds.
const SOON: Duration = Duration::from_secs(1);

/// A card whose register writes act late: no more than these are ever pending here.
const POSTED: Hardware =
    Hardware { posted_writes: Some(16), split_dma: None, drift_ppm: 0, bits_per_error: None, reset_ms: 0 };
const PLAIN: Hardware = Hardware { posted_writes: None, ..POSTED };
const SPLIT: Hardware = Hardware { split_dma: Some(1), ..PLAIN };
const ALL: Hardware = Hardware { split_dma: Some(1), drift_ppm: 100, ..POSTED };

/// What a copy of the queue leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    Nothing,
    /// The read of STATUS after the sequencer was told to stop.
    ReadBack,
    /// The barrier after the load of the phase word: the rest of the completion is loaded before, when the loop begins.
    Barrier,
    /// The comparison of the phase bit.
    PhaseCheck,
}

/// The driver's queue without its bookkeeping: rings in host memory, one instruction at a time.
struct Queue {
    registers: Window,
    memory: Arc<DmaBuffer>,
    count: u32,
    defect: Defect,
    /// The completion as of the first poll for it.
    early: Option<[u8; completion::BYTES]>,
}

fn attach(card: Arc<dyn Endpoint>) -> Function {
    in_process::attach(card, &domain(), "planted").expect("a card")
}

impl Queue {
    fn start(hardware: Hardware, defect: Defect) -> Self {
        let fabric = Fabric::new(Profile { hardware, ..Profile::optweb(2) }).expect("a fabric");
        let function = attach(fabric.endpoint(0));
        function.set_bus_master(true).expect("bus mastering");
        let registers = function.window(BarIndex::new(0).expect("BAR0")).expect("registers");
        let memory = function.domain().allocate(RINGS, 4096).expect("memory");
        let mut queue = Queue { registers, memory, count: 0, defect, early: None };
        queue.restart();
        queue
    }

    fn restart(&mut self) {
        self.count = 0;
        self.memory.fill(0, RINGS, 0).expect("a fill");
        let iova = self.memory.iova().0;
        self.write_queue(queue::SUBMISSION_BASE_LO, iova as u32);
        self.write_queue(queue::SUBMISSION_BASE_HI, (iova >> 32) as u32);
        self.write_queue(queue::COMPLETION_BASE_LO, iova as u32 + COMPLETIONS as u32);
        self.write_queue(queue::COMPLETION_BASE_HI, (iova >> 32) as u32);
        self.write_queue(queue::DEPTH, DEPTH);
        self.write_queue(queue::ENABLE, 1);
        assert_eq!(self.read(queue::base(0) + queue::ENABLE), 1);
        self.write(sequencer::CONTROL, 1);
    }

    fn read(&self, register: u32) -> u32 {
        self.registers.read_u32(BLOCK + u64::from(register)).expect("a read")
    }

    fn write(&self, register: u32, value: u32) {
        self.registers.write_u32(BLOCK + u64::from(register), value).expect("a write");
    }

    fn write_queue(&self, register: u32, value: u32) {
        self.write(queue::base(0) + register, value);
    }

    fn submit(&mut self, instruction: Instruction) {
        let place = (self.count % DEPTH) as usize * instruction::BYTES;
        self.memory.write(place, &instruction.encode()).expect("room in the ring");
        self.count += 1;
        barrier::memory_before_mmio();
        self.write_queue(queue::SUBMISSION_TAIL, self.count);
    }

    fn load(&self) -> [u8; completion::BYTES] {
        let mut word = [0; completion::BYTES];
        let place = ((self.count - 1) % DEPTH) as usize * completion::BYTES;
        self.memory.read(COMPLETIONS + place, &mut word).expect("a read");
        word
    }

    /// Takes the completion of the last instruction, if it is there.
    fn poll(&mut self) -> Option<Completion> {
        let found = self.load();
        let early = *self.early.get_or_insert(found);
        let is_new = Completion::decode(&found).phase == ((self.count - 1) / DEPTH % 2 == 0);
        if !is_new && self.defect != Defect::PhaseCheck {
            return None;
        }
        if self.defect != Defect::Barrier {
            barrier::device_word_before_data();
        }
        let word = if self.defect == Defect::Barrier { early } else { self.load() };
        self.early = None;
        Some(Completion::decode(&word))
    }

    /// Runs no-ops one after another, over several passes of the ring. Says what is wrong.
    fn run(&mut self) -> Result<(), String> {
        for tag in 1..=3 * DEPTH as u16 {
            self.submit(Instruction::nop().with_tag(tag));
            let found = (0..POLLS).find_map(|_| {
                let found = self.poll();
                if found.is_none() {
                    // What the driver does after a sleep that brought no completion.
                    self.read(sequencer::STATUS);
                }
                found
            });
            match found {
                Some(Completion { tag: found, status: Status::Done, .. }) if found == tag => {}
                other => return Err(format!("tag {tag}: {other:?}")),
            }
            self.write_queue(queue::COMPLETION_HEAD, self.count);
        }
        Ok(())
    }

    /// Stops the queue, as the driver does for an abort.
    fn stop(&self) {
        let is_busy = || bits::Status::from_bits_retain(self.read(sequencer::STATUS)).contains(bits::Status::BUSY);
        self.write(sequencer::CONTROL, 0);
        self.write(sequencer::ABORT, sequencer::ABORT_VALUE);
        if self.defect != Defect::ReadBack {
            assert!((0..10_000).any(|_| !is_busy()), "it stops");
        }
        self.write_queue(queue::ENABLE, 0);
        if self.defect != Defect::ReadBack {
            assert!(!is_busy());
        }
    }

    /// Stops the queue while a barrier waits for the other card. The memory of the rings is the host's from then on. Says what is
    /// wrong.
    fn stop_amid_a_barrier(&mut self) -> Result<(), String> {
        self.submit(Instruction::barrier());
        assert_eq!(self.read(sequencer::CURRENT) >> 24, 1, "it runs");
        self.stop();
        let seen = || {
            let mut rings = vec![0; RINGS];
            self.memory.read(0, &mut rings).expect("a read");
            rings
        };
        let kept = seen();
        self.read(sequencer::SCRATCH);
        match seen() == kept {
            true => Ok(()),
            false => Err("the card wrote to host memory after it was stopped".to_owned()),
        }
    }
}

/// Runs all that shows a defect. Says what is wrong.
fn check(hardware: Hardware, defect: Defect) -> Result<(), String> {
    let mut queue = Queue::start(hardware, defect);
    queue.run()?;
    queue.stop_amid_a_barrier()?;
    queue.restart();
    queue.run()
}

#[test]
fn a_queue_without_defects_passes_on_every_card() {
    for hardware in [PLAIN, POSTED, SPLIT, ALL] {
        check(hardware, Defect::Nothing).unwrap_or_else(|why| panic!("{hardware:?}: {why}"));
    }
}

#[test]
fn a_plain_card_misses_every_defect() {
    for defect in [Defect::ReadBack, Defect::Barrier, Defect::PhaseCheck] {
        check(PLAIN, defect).unwrap_or_else(|why| panic!("{defect:?}: {why}"));
    }
}

#[test]
fn a_card_with_posted_writes_shows_every_defect() {
    for (defect, expected) in [
        (Defect::ReadBack, "wrote to host memory after it was stopped"),
        (Defect::Barrier, "tag 1:"),
        (Defect::PhaseCheck, "tag 1:"),
    ] {
        for hardware in [POSTED, ALL] {
            let found = check(hardware, defect).err().unwrap_or_default();
            assert!(found.contains(expected), "{defect:?} on {hardware:?}: {found:?}");
        }
    }
}

/// A card whose STATUS is answered on the way, so that the driver's read-back pushes nothing.
struct WithoutReadBack(Arc<dyn Endpoint>);

impl Interposer for WithoutReadBack {
    fn behind(&self) -> &dyn Endpoint {
        &*self.0
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        if bar.index() == 0 && offset == BLOCK + u64::from(sequencer::STATUS) {
            return data.copy_from_slice(&bits::Status::READY.bits().to_le_bytes());
        }
        self.behind().bar_read(bar, offset, data);
    }
}

/// Aborts what the driver itself has in flight, and goes on. Says what is wrong.
fn abort_and_go_on(hardware: Hardware, has_read_back: bool) -> Result<(), Error> {
    let fabric = Fabric::new(Profile { hardware, ..Profile::optweb(2) }).expect("a fabric");
    let card = fabric.endpoint(0);
    let card = if has_read_back { card } else { Arc::new(WithoutReadBack(card)) };
    let mut card = Card::open(attach(card))?;
    for _ in 0..3 {
        card.queue_mut().submit(Instruction::nop())?.abandon();
        card.abort()?;
        card.run([Instruction::nop(), Instruction::nop()], SOON)?;
    }
    Ok(())
}

#[test]
fn the_drivers_own_read_back_is_needed_and_there() {
    abort_and_go_on(PLAIN, false).expect("a plain card, which misses it");
    abort_and_go_on(POSTED, true).expect("a driver that reads back");
    abort_and_go_on(ALL, true).expect("a driver that reads back");
    // The aborted instruction's doorbell reaches the next ring.
    let lost = abort_and_go_on(POSTED, false).expect_err("a driver that does not read back");
    assert!(matches!(lost, Error::Timeout { .. } | Error::BadCompletion { .. } | Error::Failed { .. }), "{lost}");
}

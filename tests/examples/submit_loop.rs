//! Encodes and submits a known number of instructions in functions of their own, for a profiler that counts what they run. With an
//! argument, `published` or `traced`, the counters of the queue are published, or what goes through it is recorded.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use cmdseq::{Encoded, Instruction, Operand};
use fpga_driver::trace::Moment;
use fpga_driver::{Card, Cluster, Prepared, QueuePair, Result, Token};
use fpga_hal::endpoint::{Endpoint, Interposer};
use fpga_hal::{BarIndex, Domain, SharedMemory, Window, in_process};
use fpga_mock::{Fabric, Profile, Recorder};
use fpga_tests::relaunch::Recorded;

const COUNT: u32 = 512;
/// Launches in flight for which a prepared plan has room without allocating.
const FLIGHTS: u32 = 16;

#[inline(never)]
fn encode_all() {
    for _ in 0..COUNT {
        let source = Operand::card(0);
        black_box(Instruction::allgather(black_box(source), Operand::card(1 << 28).striped(), 4096).encode());
    }
}

#[inline(never)]
fn submit(queue: &mut QueuePair, instruction: &Instruction) -> Result<Token> {
    queue.submit(instruction)
}

/// Submits an instruction that was encoded before.
#[inline(never)]
fn submit_encoded(queue: &mut QueuePair, encoded: &Encoded) -> Result<Token> {
    queue.submit(encoded)
}

#[inline(never)]
fn poll_all(queue: &mut QueuePair) {
    while queue.in_flight() > 0 {
        queue.poll().expect("completions");
    }
}

/// Has the mock run what was submitted while its accesses were held back.
#[inline(never)]
fn run_all(recorder: &Recorder) {
    recorder.release();
}

/// Launches a plan of eight collectives on four cards.
#[inline(never)]
fn relaunch_all(cluster: &mut Cluster, prepared: &mut Prepared) {
    for _ in 0..FLIGHTS {
        cluster.launch(black_box(prepared)).expect("room");
    }
}

/// Writes a register of a mapped BAR.
#[inline(never)]
fn store(window: &Window, value: u32) {
    window.write_u32(8, value).expect("a register inside");
}

/// A card whose first BAR is mapped: memory that nobody looks at.
struct Mapped(Arc<dyn Endpoint>, Arc<SharedMemory>);

impl Interposer for Mapped {
    fn behind(&self) -> &dyn Endpoint {
        &*self.0
    }

    fn bar_memory(&self, bar: BarIndex) -> Option<Arc<SharedMemory>> {
        (bar.index() == 0).then(|| Arc::clone(&self.1))
    }
}

/// The first BAR of a card, mapped.
fn mapped_bar(card: Arc<dyn Endpoint>) -> Window {
    let bytes = card.layout().bars[0].expect("a first BAR").bytes;
    let memory = Arc::new(SharedMemory::new("bar", bytes).expect("memory"));
    let function = in_process::attach(Arc::new(Mapped(card, memory)), &Domain::in_process(), "mapped").expect("a card");
    let window = function.window(BarIndex::new(0).expect("six BARs")).expect("a first BAR");
    assert!(window.is_mapped());
    window
}

/// Runs as many no-ops as a queue has cells, twice its depth: each cell has a place for its completion then, which it gets at its
/// first use.
fn use_every_cell(card: &mut Card) {
    let count = 2 * card.queue().depth();
    card.run((0..count).map(|_| Instruction::nop()), Duration::from_secs(60)).expect("completions");
}

fn main() {
    let fabric = Fabric::new(Profile::optweb(2)).expect("a fabric");
    let recorder = Recorder::new(fabric.endpoint(0));
    let function = in_process::attach(recorder.clone(), &Domain::in_process(), "recorded").expect("a card");
    let card = Card::open(function).expect("a sequencer");
    let mut cluster = Cluster::of(vec![card]).expect("a cluster");
    let card = cluster.card_mut(0);
    use_every_cell(card);
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    match std::env::args().nth(1).as_deref() {
        Some("published") => drop(card.publish(directory.path()).expect("published counters")),
        Some("traced") => cluster.start_trace(Moment::now(), 4 * COUNT as usize).expect("an idle card"),
        _ => {}
    }
    let card = cluster.card_mut(0);
    recorder.hold();
    encode_all();
    (0..COUNT).for_each(|_| submit(card.queue_mut(), &Instruction::nop()).expect("room").abandon());
    run_all(&recorder);
    poll_all(card.queue_mut());
    recorder.hold();
    let encoded = Encoded::new(&Instruction::nop());
    (0..COUNT).for_each(|_| submit_encoded(card.queue_mut(), &encoded).expect("room").abandon());
    recorder.release();
    while card.queue().in_flight() > 0 {
        card.queue_mut().poll().expect("completions");
    }
    let bar = mapped_bar(fabric.endpoint(1));
    (0..COUNT).for_each(|value| store(&bar, value));
    let mut plan = Recorded::prepare();
    (0..plan.cluster.cards().len()).for_each(|index| use_every_cell(plan.cluster.card_mut(index)));
    for _ in 0..COUNT / FLIGHTS {
        plan.hold();
        relaunch_all(&mut plan.cluster, &mut plan.prepared);
        plan.release();
        while plan.prepared.in_flight() > 0 {
            plan.cluster.finish(&mut plan.prepared, Duration::from_secs(10)).expect("completions");
        }
    }
}

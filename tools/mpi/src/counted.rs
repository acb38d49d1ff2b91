//! What a call costs the host: its accesses to the card and its allocations, counted, with ranks as threads on mock cards.
//!
//! The work of the mock is not counted: it is that of a card.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cmdseq::plan::Collective;
use cmdseq::{Combine, Element, Reduction};
use fpga_driver::Card;
use fpga_hal::endpoint::{DmaFault, DmaTag, Endpoint, Interposer};
use fpga_hal::{BarIndex, Domain, in_process};
use fpga_mock::{Fabric, Profile};
use fpga_regs::sequencer::queue;
use fpga_tests::threads;

use crate::data::Apart;
use crate::engine::{Ends, Engine, Registered};
use crate::memory::Memory;
use crate::records::{Record, Records};
use crate::settings::Policy;
use crate::shape::{Reason, Shape};
use crate::statistics::{Call, Name, Statistics};
use crate::verdicts::Verdicts;

pub(crate) const RANKS: u32 = 2;
const WARM: usize = 3;

/// Accesses to a card's registers.
#[derive(Debug, Default)]
pub(crate) struct Accesses {
    reads: AtomicU64,
    doorbells: AtomicU64,
    /// Writes that arm the interrupt, before the host sleeps.
    armings: AtomicU64,
    /// Writes that tell the card which completions were taken.
    announcements: AtomicU64,
    others: AtomicU64,
}

impl Accesses {
    /// Doorbells so far.
    pub(crate) fn doorbells(&self) -> u64 {
        self.doorbells.load(Ordering::SeqCst)
    }

    /// The number of each: reads, doorbells, armings, announcements and others.
    fn all(&self) -> [u64; 5] {
        [&self.reads, &self.doorbells, &self.armings, &self.announcements, &self.others]
            .map(|count| count.load(Ordering::SeqCst))
    }
}

/// A mock card whose accesses are counted.
struct Watched {
    card: Arc<dyn Endpoint>,
    accesses: Arc<Accesses>,
}

impl Interposer for Watched {
    fn behind(&self) -> &dyn Endpoint {
        &*self.card
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        allocation_counter::opt_out(|| self.card.config_read(offset, data));
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        allocation_counter::opt_out(|| self.card.config_write(offset, data));
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        self.accesses.reads.fetch_add(1, Ordering::SeqCst);
        allocation_counter::opt_out(|| self.card.bar_read(bar, offset, data));
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        allocation_counter::opt_out(|| self.card.bar_write(bar, offset, data));
        // Queues have blocks of registers of this size.
        let count = match (offset % u64::from(queue::STRIDE)) as u32 {
            queue::SUBMISSION_TAIL => &self.accesses.doorbells,
            queue::INTERRUPT_ARM => &self.accesses.armings,
            queue::COMPLETION_HEAD => &self.accesses.announcements,
            _ => &self.accesses.others,
        };
        count.fetch_add(1, Ordering::SeqCst);
    }

    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        allocation_counter::opt_out(|| self.card.dma_complete(tag, result));
    }
}

fn watched(fabric: &Fabric, node: u32, accesses: &Arc<Accesses>) -> Card {
    let endpoint = Arc::new(Watched { card: fabric.endpoint(node), accesses: Arc::clone(accesses) });
    Card::open(in_process::attach(endpoint, &Domain::in_process(), "watched").unwrap()).unwrap()
}

pub(crate) fn shape(collective: Collective, bytes: u64) -> Shape {
    let combine = collective.reduces().then_some(Combine { reduction: Reduction::Sum, element: Element::U64 });
    Shape { collective, bytes, root: 0, combine, counts: Vec::new() }
}

/// One call of `rank`, from its input to its output.
pub(crate) fn call(engine: &mut Engine, registered: &Registered, shape: &Shape, input: &[u8], output: &mut [u8]) {
    engine.call(registered, shape, &Ends::default(), &mut Apart { input, output }, &|| {}).unwrap();
}

/// Runs `rank` on a thread for each rank, with its engine and a communicator of all.
pub(crate) fn ranks<T: Send>(
    accesses: &[Arc<Accesses>],
    clock: bool,
    rank: impl Fn(usize, &mut Engine, &mut Registered) -> T + Sync,
) -> Vec<T> {
    let fabric = Fabric::new(Profile::optweb(RANKS)).unwrap();
    let clock = clock.then(|| fabric.start_clock());
    let all = threads::ranks(RANKS, |peers| {
        let own = fpga_driver::Peers::rank(&peers);
        let card = watched(&fabric, own, &accesses[own as usize]);
        let mut engine = Engine::on(card, false, Some(Duration::from_secs(60))).unwrap();
        let mut registered = engine.register(Box::new(peers)).unwrap();
        rank(own as usize, &mut engine, &mut registered)
    });
    drop(clock);
    all
}

/// What one call has cost one rank.
struct Cost {
    what: String,
    is_last: bool,
    /// As [`Accesses::all`].
    accesses: [u64; 5],
    allocations: u64,
}

/// A call that every rank has made before is one doorbell, no register read and no allocation. The rank that comes last finds all
/// completions when its doorbell is rung, so that these are all its accesses; others sleep on the interrupt, which they arm.
#[test]
fn a_warm_call_is_one_doorbell_and_allocates_nothing() {
    let accesses: Vec<Arc<Accesses>> = (0..RANKS).map(|_| Arc::default()).collect();
    let meeting = std::sync::Barrier::new(RANKS as usize);
    let shapes = [
        shape(Collective::Barrier, 0),
        shape(Collective::Allreduce, 8),
        shape(Collective::Allreduce, 64 << 10),
        shape(Collective::Broadcast, 8),
        shape(Collective::Broadcast, 64 << 10),
    ];
    let costs = ranks(&accesses, false, |rank, engine, registered| {
        let (own, other) = (&accesses[rank], &accesses[1 - rank]);
        let (input, mut output) = (vec![1; 64 << 10], vec![0; 64 << 10]);
        let mut costs = Vec::new();
        for (shape, last) in shapes.iter().flat_map(|shape| [(shape, 0), (shape, 1)]) {
            assert!(engine.plan(registered, shape).unwrap());
            let (given, taken) = registered.bytes(shape);
            for _ in 0..WARM {
                call(engine, registered, shape, &input[..given], &mut output[..taken]);
            }
            meeting.wait();
            let (before, rung) = (own.all(), other.doorbells());
            meeting.wait();
            while rank == last && other.doorbells() == rung {
                std::thread::yield_now();
            }
            let counted = allocation_counter::measure(|| {
                call(engine, registered, shape, &input[..given], &mut output[..taken]);
            });
            let after = own.all();
            costs.push(Cost {
                what: format!("{} of {} B, rank {rank}, rank {last} last", shape.collective, shape.bytes),
                is_last: rank == last,
                accesses: std::array::from_fn(|index| after[index] - before[index]),
                allocations: counted.count_total,
            });
            meeting.wait();
        }
        costs
    });
    // Checked when all threads are done: none waits for one that has panicked.
    for Cost { what, is_last, accesses, allocations } in costs.iter().flatten() {
        let [reads, doorbells, armings, announcements, others] = *accesses;
        println!(
            "{what}: {doorbells} doorbell, {reads} reads, {armings} armings, {announcements} announcements, {allocations} allocations"
        );
        assert_eq!((doorbells, others, *allocations), (1, 0, 0), "{what}: doorbells, other writes, allocations");
        if *is_last {
            assert_eq!((reads, armings, announcements), (0, 0, 0), "{what}: reads, armings, announcements");
        }
    }
    // The count is of this thread: an allocation does show.
    assert_eq!(allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1)))).count_total, 1);
}

/// What the card reaches is not copied by the host, and the call still allocates nothing.
#[test]
fn memory_that_the_card_reaches_is_not_copied() {
    const BYTES: usize = 64 << 10;
    let accesses: Vec<Arc<Accesses>> = (0..RANKS).map(|_| Arc::default()).collect();
    let calls = ranks(&accesses, true, |rank, engine, registered| {
        let allreduce = shape(Collective::Allreduce, BYTES as u64);
        assert!(engine.plan(registered, &allreduce).unwrap());
        let memory = || Memory::of(engine.allocate(BYTES + 64).unwrap()).unwrap();
        let reached = |memory: &Memory, at| memory.reach(memory.address() + at, BYTES).unwrap();
        let (given, taken) = (memory(), memory());
        assert!(given.reach(given.address() + 65, BYTES).is_none() && given.reach(given.address() - 1, 1).is_none());
        let mut calls = Vec::new();
        // Where the input and the output begin in memory that the card reaches, if they are there.
        for (call, (input, output)) in [
            (None, None),
            (Some(0), None),
            (None, Some(0)),
            (Some(0), Some(64)),
            (Some(64), Some(64)),
            (Some(0), Some(0)),
        ]
        .into_iter()
        .enumerate()
        {
            let value = (1 + rank + 2 * call) as u64;
            let data = value.to_le_bytes().repeat(BYTES / 8);
            let ends =
                Ends { input: input.map(|at| reached(&given, at)), output: output.map(|at| reached(&taken, at)) };
            if let (Some(at), Some(end)) = (input, &ends.input) {
                end.buffer.write(at, &data).unwrap();
            }
            // Whatever is not in memory that the card reaches is here, and nothing else.
            let own = if input.is_none() { data } else { vec![0xff; BYTES] };
            let mut found = vec![0; BYTES];
            let mut finished = None;
            let counted = allocation_counter::measure(|| {
                let mut data = Apart { input: &own, output: &mut found };
                finished = Some(engine.call(registered, &allreduce, &ends, &mut data, &|| {}).unwrap());
            });
            if let (Some(at), Some(end)) = (output, &ends.output) {
                assert!(found.iter().all(|byte| *byte == 0), "the host has copied the output");
                end.buffer.read(at, &mut found).unwrap();
            }
            calls.push((call, input, output, finished.unwrap().copied, counted.count_total, found));
        }
        calls
    });
    for (call, input, output, copied, allocations, found) in calls.into_iter().flatten() {
        let sum: u64 = (0..u64::from(RANKS)).map(|rank| 1 + rank + 2 * call as u64).sum();
        assert!(found == sum.to_le_bytes().repeat(BYTES / 8), "call {call}");
        let expected = BYTES as u64 * (u64::from(input.is_none()) + u64::from(output.is_none()));
        assert_eq!(copied, expected, "call {call}: bytes copied");
        // The first call has the memory of this library allocated.
        assert!(call == 0 || allocations == 0, "call {call}: {allocations} allocations");
    }
}

#[test]
fn counting_a_call_allocates_nothing() {
    let (mut statistics, mut records) = (Statistics::new(true), Records::default());
    let name = Name::new("MPI_COMM_WORLD".to_owned(), 4);
    let (comm, policy, cards) = (crate::mpi::Comm(0), Policy::Always, Err(Reason::SingleRank));
    let verdicts = Verdicts::default();
    let record = Record { comm, rank: 0, size: 4, name, policy, verdicts, cards };
    let number = records.add(record);
    let mut count = || {
        let record = records.remove(number).unwrap();
        let call = Call { bytes: 16, copied: 16, host: Duration::from_micros(3), card_cycles: 300 };
        statistics.offloaded(&record.name, "allreduce", call);
        statistics.passed(&record.name, "allreduce", Reason::ZeroBytes);
        records.put(number, record);
    };
    count();
    let counted = allocation_counter::measure(|| (0..1000).for_each(|_| count()));
    assert_eq!(counted.count_total, 0);
}

/// Prints the time of an allreduce of 8 B, from the program's memory to the program's memory, and of the instruction that is a
/// barrier, in one run. docs/mpi.md names the command. No time is asserted.
#[test]
fn time_of_a_small_call_and_of_a_bare_barrier() {
    const CALLS: u32 = 300;
    let accesses: Vec<Arc<Accesses>> = (0..RANKS).map(|_| Arc::default()).collect();
    let times = ranks(&accesses, true, |rank, engine, registered| {
        let (barrier, small) = (shape(Collective::Barrier, 0), shape(Collective::Allreduce, 8));
        let mut best = [Duration::MAX; 2];
        for (index, shape) in [&barrier, &small, &barrier, &small, &barrier, &small].into_iter().enumerate() {
            assert!(engine.plan(registered, shape).unwrap());
            let (given, taken) = registered.bytes(shape);
            let (input, mut output) = (vec![rank as u8 + 1; given], vec![0; taken]);
            let began = Instant::now();
            for _ in 0..CALLS {
                call(engine, registered, shape, &input, &mut output);
            }
            best[index % 2] = best[index % 2].min(began.elapsed() / CALLS);
            assert!(output.iter().all(|byte| *byte == 3), "{output:?}");
        }
        assert_eq!(registered.instructions(&barrier), 1, "the bare barrier is one instruction");
        best
    });
    let [barrier, small] = times[0].map(|time| time.as_secs_f64() * 1e6);
    println!("barrier instruction {barrier:.1} us, allreduce of 8 B {small:.1} us: {:.2} times", small / barrier);
}

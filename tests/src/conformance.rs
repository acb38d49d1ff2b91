//! The conformance suite for every bus: in process, vfio-user sockets, and kernel VFIO.
//!
//! Each case opens four mock cards of one fabric, and panics on a failure. Cycle counts are compared with those of in-process
//! cards whose DMA completes at once: a bus must not change a card's time.

use std::io::{ErrorKind, Read as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cmdseq::instruction::{self, Rights};
use cmdseq::plan::{Plan, Request, candidates};
use cmdseq::{Combine, Completion, Element, Instruction, Operand, Reduction, Status};
use fpga_driver::{Bound, Card, Cluster, Error, Pipe, PipeReader, PipeWriter, Report, State};
use fpga_hal::{BarIndex, DmaBuffer, Function, InterruptKind, Window};
use fpga_mock::Profile;

use crate::oracle::{Case, Moving, OPERATIONS};
use crate::pattern;
use crate::reduction::{self, Reducing};
use crate::run::{self, plan_all};
use crate::sweep::{self, Data};

/// Cards of the fabric a bus reaches.
pub const CARDS: u32 = 4;
/// Time limit of every wait. Emulated machines are slow.
pub(crate) const LONG: Duration = Duration::from_secs(120);
/// The sequencer's block and some of its registers, retyped from docs/registers.md.
const BLOCK: u64 = 0x1000;
pub(crate) const SCRATCH: u64 = BLOCK + 0x114;
const STATUS: u64 = BLOCK + 0x104;
pub(crate) const QUEUE: u64 = BLOCK + 0x400;

/// A bus that reaches four cards.
pub struct Bus<'a> {
    /// Opens the cards of the fabric, in order of nodes. None is open when it is called.
    pub open: &'a dyn Fn() -> Vec<Function>,
    /// How far the cards' clocks are off at most, in millionths.
    pub drift_ppm: u32,
    /// What the functions are.
    pub seen: Seen,
}

/// What a bus sees of a function.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Vendor and device.
    pub ids: (u16, u16),
    /// Class code.
    pub class: u32,
    /// Bytes of BARs 0, 2 and 4, 0 for none; there are no others.
    pub bars: [u64; 3],
    /// Vectors of MSI-X.
    pub vectors: u16,
}

impl Seen {
    /// The mock's own, retyped from docs/registers.md.
    pub const MOCK: Seen = Seen { ids: (0x1234, 0xf9a0), class: 0x12_0000, bars: [0x1_0000, 0, 0x1000], vectors: 8 };
    /// An accelerator of a PAC D5005, retyped from OFS `pcie_ep_g3x16.ip`.
    pub const S10_DFL: Seen = Seen { ids: (0x8086, 0xbccf), class: 0x12_0000, bars: [0x4_0000, 0, 0x4000], vectors: 5 };
    /// A PAC D5005 without OFS, retyped from OFS `FME_CSR.xls`, "BAR Layout"; BAR 4 is the model's choice.
    pub const S10_PAC: Seen =
        Seen { ids: (0x8086, 0x0b2b), class: 0x12_0000, bars: [0x8_0000, 0x8_0000, 0x4000], vectors: 7 };
    /// An Alveo card with AMD's XDMA, retyped from PG195.
    pub const ALVEO_XDMA: Seen =
        Seen { ids: (0x10ee, 0x903f), class: 0x05_8000, bars: [0x10_0000, 0x1_0000, 0x400_0000], vectors: 32 };
}

/// A case and its name.
pub type Named = (&'static str, fn(&Bus<'_>));

/// All cases.
pub const CASES: &[Named] = &[
    ("identity", identity),
    ("configuration space is bounded", configuration_space),
    ("registers keep and ignore what they should", registers),
    ("every vector arrives", vectors),
    ("interrupts that cannot be had are refused", refused_vectors),
    ("DMA in every size", dma_sizes),
    ("DMA to what is not mapped is reported and goes nowhere", unmapped),
    ("a card that is not bus master reaches nothing", not_master),
    ("every operation, bit for bit, in the same cycles", operations),
    ("every reduction, bit for bit, in the same cycles", reductions),
    ("data is there when its signal is", signals),
    ("many instructions in flight", many),
    ("reset in the middle", reset),
    ("abort and go on", abort),
    ("a partner that does not come is a timeout", no_partner),
    ("what goes into a pipe comes out", pipes),
    ("opened again and again, nothing is left", again),
];

/// The cases for sequencers that reach host memory.
pub const OF_HOST_MEMORY: &[&str] = &["what goes into a pipe comes out"];

/// The cases that no card behind AMD's engine passes: they drive vectors and rings of the sequencer by hand, or expect to be told of
/// writes that were lost, which a channel posts.
pub const WITHOUT_ENGINE: &[&str] = &[
    "every vector arrives",
    "DMA to what is not mapped is reported and goes nowhere",
    "a card that is not bus master reaches nothing",
];

fn bar(index: u8) -> BarIndex {
    BarIndex::new(index).expect("a BAR's number")
}

fn one(bus: &Bus<'_>) -> Function {
    (bus.open)().swap_remove(1)
}

fn cluster(bus: &Bus<'_>) -> Cluster {
    let mut cluster = Cluster::open((bus.open)()).expect("cards that agree");
    cluster.set_timeout(LONG);
    cluster
}

fn card(bus: &Bus<'_>) -> Card {
    let mut card = Card::open(one(bus)).expect("a card");
    card.set_timeout(LONG);
    card
}

/// Returns the registers from the list of the accelerator on.
fn accelerator(function: &Function) -> Window {
    let (index, start) = if function.identity().device == 0x0b2b { (2, 0x4_0000) } else { (0, 0) };
    let window = function.window(bar(index)).expect("the accelerator's BAR");
    window.slice(start, window.len() - start).expect("the accelerator's registers")
}

fn identity(bus: &Bus<'_>) {
    for (node, function) in (bus.open)().iter().enumerate() {
        let identity = function.identity();
        assert_eq!(((identity.vendor, identity.device), identity.class), (bus.seen.ids, bus.seen.class));
        let bytes: Vec<u64> = (0..6).map(|index| function.bar(bar(index)).map_or(0, |layout| layout.bytes)).collect();
        let [first, second, third] = bus.seen.bars;
        assert_eq!(bytes, [first, 0, second, 0, third, 0]);
        let registers = accelerator(function);
        assert_eq!(registers.read_u32(BLOCK + 0x20).expect("a read"), u32::from_le_bytes(*b"FSEQ"));
        assert_eq!(registers.read_u32(BLOCK + 0x34).expect("a read"), node as u32);
        assert!(matches!(function.window(bar(1)), Err(fpga_hal::Error::NoBar { .. })));
        assert!(!function.is_removed());
    }
}

fn configuration_space(bus: &Bus<'_>) {
    let function = one(bus);
    let (vendor, device) = bus.seen.ids;
    assert_eq!(function.config_read_u32(0).expect("a read"), u32::from(device) << 16 | u32::from(vendor));
    let command = function.config_read_u16(4).expect("a read");
    assert_eq!(command & 0b110, 0b010, "memory on, bus master off");
    function.config_write_u32(0, 0).expect("a write that does nothing");
    assert_eq!(function.config_read_u16(2).expect("a read"), device);
    for offset in [0xffe, 0x1000, 0xffff, 2, 0x41] {
        assert!(function.config_read_u32(offset).is_err(), "{offset:#x}");
    }
    function.set_bus_master(true).expect("bus mastering");
    assert_eq!(function.config_read_u16(4).expect("a read") & 0b110, 0b110);
    function.set_bus_master(false).expect("bus mastering");
    assert_eq!(function.config_read_u16(4).expect("a read") & 0b110, 0b010);
}

fn registers(bus: &Bus<'_>) {
    let function = one(bus);
    let registers = accelerator(&function);
    for value in [0, 1, 0x1234_5678, 0xdead_beef, 0xffff_fffe] {
        registers.write_u32(SCRATCH, value).expect("a write");
        assert_eq!(registers.read_u32(SCRATCH).expect("a read"), value);
    }
    registers.write_u32(BLOCK + 0x20, 0).expect("a write to what is read-only");
    assert_eq!(registers.read_u32(BLOCK + 0x20).expect("a read"), u32::from_le_bytes(*b"FSEQ"));
    assert_eq!(registers.read_u64(BLOCK + 8).expect("a read of 64 bits"), {
        let half = |at| u64::from(registers.read_u32(at).expect("a read"));
        half(BLOCK + 8) | half(BLOCK + 12) << 32
    });
    assert!(registers.read_u32(bus.seen.bars[0]).is_err() && registers.write_u32(2, 0).is_err());
    let part = registers.slice(BLOCK, 0x200).expect("a part");
    assert_eq!(part.read_u32(0x114).expect("a read"), 0xffff_fffe);
    assert!(part.read_u32(0x200).is_err());
    // What is written is seen in order, however it travels.
    for value in 0..200 {
        registers.write_u32(SCRATCH, value).expect("a write");
    }
    assert_eq!(registers.read_u32(SCRATCH).expect("a read"), 199);
}

/// The registers of a card driven by hand, and the memory of its rings.
pub(crate) struct Raw {
    pub(crate) registers: Window,
    rings: Arc<DmaBuffer>,
    pub(crate) stored: u32,
}

impl Raw {
    pub(crate) fn open(function: &Function) -> Self {
        function.set_bus_master(true).expect("bus mastering");
        function.limit_dma_bits(48);
        let registers = accelerator(function);
        let rings = function.domain().allocate(8192, 4096).expect("memory");
        let raw = Raw { registers, rings, stored: 0 };
        let iova = raw.rings.iova().0;
        for (offset, value) in [
            (0x00, iova as u32),
            (0x04, (iova >> 32) as u32),
            (0x08, iova as u32 + 4096),
            (0x0c, (iova >> 32) as u32),
            (0x10, 16),
            (0x14, 1),
        ] {
            raw.write(QUEUE + offset, value);
        }
        raw.write(BLOCK + 0x100, 1);
        raw
    }

    pub(crate) fn write(&self, offset: u64, value: u32) {
        self.registers.write_u32(offset, value).expect("a write");
    }

    pub(crate) fn submit(&mut self, instruction: Instruction) {
        let word = instruction.with_tag(self.stored as u16).encode();
        self.rings.write((self.stored % 16) as usize * 64, &word).expect("room in the ring");
        self.stored += 1;
        self.write(QUEUE + 0x18, self.stored);
    }

    /// Waits for the completion of the last instruction.
    pub(crate) fn completion(&self, wait: Duration) -> Option<Completion> {
        let start = Instant::now();
        let mut word = [0; 32];
        loop {
            let last = self.stored - 1;
            self.rings.read(4096 + (last % 16) as usize * 32, &mut word).expect("a read");
            let completion = Completion::decode(&word);
            if completion.phase == (last / 16 % 2 == 0) {
                self.write(QUEUE + 0x1c, self.stored);
                return Some(completion);
            }
            if start.elapsed() > wait {
                return None;
            }
            std::thread::yield_now();
        }
    }
}

fn vectors(bus: &Bus<'_>) {
    let function = one(bus);
    let mut raw = Raw::open(&function);
    for count in [1, 3, bus.seen.vectors, 2] {
        let interrupts = function.enable_interrupts(count).expect("vectors");
        assert_eq!(interrupts.len(), usize::from(count));
        // What was raised while it was masked comes now; on some hosts a moment later.
        while interrupts.iter().any(|interrupt| interrupt.wait(Duration::from_millis(20)).expect("a wait")) {}
        for (vector, interrupt) in interrupts.iter().enumerate() {
            raw.write(QUEUE + 0x24, vector as u32);
            raw.write(QUEUE + 0x20, raw.stored);
            assert!(!interrupt.wait(Duration::ZERO).expect("a wait"));
            raw.submit(Instruction::nop());
            assert!(interrupt.wait(LONG).expect("a wait"), "vector {vector} of {count}");
            assert_eq!(raw.completion(LONG).map(|completion| completion.status), Some(Status::Done));
        }
        // A vector beyond those enabled is dropped, and no other comes instead.
        raw.write(QUEUE + 0x24, u32::from(count));
        raw.write(QUEUE + 0x20, raw.stored);
        raw.submit(Instruction::nop());
        assert!(raw.completion(LONG).is_some());
        for interrupt in &interrupts {
            assert!(!interrupt.wait(Duration::from_millis(2)).expect("a wait"));
        }
    }
}

fn refused_vectors(bus: &Bus<'_>) {
    let function = one(bus);
    let vectors = bus.seen.vectors;
    assert_eq!(function.vectors(InterruptKind::Msix).expect("a count"), vectors);
    let refused = function.enable_interrupts(vectors + 1);
    assert!(matches!(refused, Err(fpga_hal::Error::VectorCount { asked, available })
        if (asked, available) == (vectors + 1, vectors)));
    assert!(matches!(function.enable_interrupts(0), Err(fpga_hal::Error::VectorCount { .. })));
    assert!(matches!(
        function.enable_interrupts_of(InterruptKind::Msi, 1),
        Err(fpga_hal::Error::NoInterrupts { kind: Some(InterruptKind::Msi) })
    ));
    assert!(function.enable_interrupts(vectors).is_ok(), "and nothing is left over");
}

fn dma_sizes(bus: &Bus<'_>) {
    let mut card = card(bus);
    for (seed, (address, bytes)) in
        (1..).zip([(0, 1), (1, 63), (4093, 4096), (1 << 20, 4097), (3, 65_537), (2 << 20, 1 << 20), (5, (3 << 20) + 7)])
    {
        let mut data = vec![0; bytes];
        pattern::fill(seed, 0, 0, &mut data);
        card.write_memory(address, &data).expect("a write");
        let mut back = vec![0; bytes];
        card.read_memory(address, &mut back).expect("a read");
        assert!(data == back, "{bytes} bytes at {address:#x}");
    }
}

fn unmapped(bus: &Bus<'_>) {
    let mut card = card(bus);
    let neighbour = card.allocate(8192).expect("memory");
    neighbour.fill(0, 8192, 0x5a).expect("a fill");
    let gone = card.allocate(4096).expect("memory");
    let iova = gone.iova();
    drop(gone);
    for (instruction, status) in [
        (Instruction::copy(Operand::card(0), Operand::host(iova.0), 4096), Status::HostWriteFault),
        (Instruction::copy(Operand::host(iova.0), Operand::card(0), 4096), Status::HostReadFault),
        (Instruction::copy(Operand::card(0), Operand::host(1 << 46), 64), Status::HostWriteFault),
    ] {
        match card.run([Bound::dangerously_unowned(instruction)], LONG) {
            Err(Error::Failed { status: found, .. }) => assert_eq!(found, status),
            other => panic!("{other:?}"),
        }
    }
    let mut data = [0; 8192];
    neighbour.read(0, &mut data).expect("a read");
    assert!(data.iter().all(|byte| *byte == 0x5a), "memory beside it is as it was");
    // And the card goes on.
    card.write_memory(0, &[7; 100]).expect("a write");
}

fn not_master(bus: &Bus<'_>) {
    let function = one(bus);
    let mut raw = Raw::open(&function);
    raw.submit(Instruction::nop());
    assert!(raw.completion(LONG).is_some());
    function.set_bus_master(false).expect("bus mastering");
    raw.submit(Instruction::nop());
    assert!(raw.completion(Duration::from_millis(20)).is_none(), "it cannot write its completion");
    assert_ne!(raw.registers.read_u32(STATUS).expect("a read"), u32::MAX, "but it answers");
}

/// Checks that the cards counted what was `expected`, on clocks that are off: within that and the two readings of a count.
fn assert_counts(bus: &Bus<'_>, found: &[(u64, u64, u64)], expected: &[(u64, u64, u64)], what: &str) {
    let is_near = |found: u64, expected: u64| {
        let off = (expected * u64::from(bus.drift_ppm)).div_ceil(1_000_000);
        found.abs_diff(expected) <= off + u64::from(off > 0)
    };
    let are_near = |(found, expected): (&(u64, u64, u64), &(u64, u64, u64))| {
        is_near(found.0, expected.0) && is_near(found.1, expected.1) && is_near(found.2, expected.2)
    };
    let is_good = found.len() == expected.len() && found.iter().zip(expected).all(are_near);
    assert!(is_good, "{what}: {found:?}, expected {expected:?} within {} ppm", bus.drift_ppm);
}

fn times(report: &Report) -> Vec<(u64, u64, u64)> {
    let completions = report.ranks.iter().flat_map(|rank| rank.repetitions.iter().flatten());
    completions.map(|completion| (completion.t1, completion.t2, completion.arrival)).collect()
}

/// Runs a plan on all cards, checks every byte, and returns the cards' counts.
fn run_checked(cluster: &mut Cluster, plan: &Plan, data: &impl Data) -> Vec<(u64, u64, u64)> {
    times(&sweep::run(cluster, plan, data, false).unwrap_or_else(|why| panic!("{:?}: {why}", plan.request)))
}

/// As [`run_checked`], for an operation without a reduction.
fn move_checked(cluster: &mut Cluster, operation: &str, bytes: u64, seed: u64) -> Vec<(u64, u64, u64)> {
    let plan = plan_all(cluster, operation, bytes, None, None).expect("a plan");
    let case = Case { operation, ranks: CARDS, bytes, root: 0, peer: CARDS - 1 };
    run_checked(cluster, &plan, &Moving { case, seed })
}

fn operations(bus: &Bus<'_>) {
    let (_fabric, mut reference) = run::open(Profile::optweb(CARDS));
    let mut cluster = cluster(bus);
    let mut seed = 0;
    for operation in OPERATIONS {
        for bytes in [1, 64, 16_384, 100_001] {
            let bytes = if operation == "barrier" { 0 } else { bytes };
            seed += 1;
            let expected = move_checked(&mut reference, operation, bytes, seed);
            let found = move_checked(&mut cluster, operation, bytes, seed);
            assert_counts(bus, &found, &expected, &format!("{operation} of {bytes} bytes"));
            if operation == "barrier" {
                break;
            }
        }
    }
}

/// Every reduction by every algorithm that supports it.
fn reductions(bus: &Bus<'_>) {
    let (_fabric, mut reference) = run::open(Profile::optweb(CARDS));
    let mut cluster = cluster(bus);
    let group: Vec<u32> = (0..CARDS).collect();
    let (reduction, element, root) = ("sum", "f32", CARDS - 1);
    let mut seed = 0;
    for operation in reduction::OPERATIONS {
        for bytes in [4, 40_000] {
            let case = reduction::Case { operation, reduction, element, ranks: CARDS, bytes, root };
            let combine = Some(Combine::new(Reduction::Sum, Element::F32));
            let collective = operation.parse().expect("an operation");
            let request = Request { root, combine, ..Request::new(collective, group.clone(), bytes) };
            let ways = candidates(&request, cluster.capabilities()).into_iter().filter_map(|(_, plan)| plan.ok());
            for plan in ways {
                seed += 1;
                let data = Reducing::new(case, (1, CARDS), seed);
                let expected = run_checked(&mut reference, &plan, &data);
                let found = run_checked(&mut cluster, &plan, &data);
                let what = format!("{operation} of {bytes} bytes, {}", plan.algorithm);
                assert_counts(bus, &found, &expected, &what);
            }
        }
    }
    assert!(seed >= 2 * reduction::OPERATIONS.len() as u64, "{seed} plans");
}

/// Data put into another card's memory arrives before its signal.
fn signals(bus: &Bus<'_>) {
    const ROUNDS: u64 = 5;
    const BYTES: u64 = 3000;
    let mut cluster = cluster(bus);
    let source = |round: u64| Operand::card(round * BYTES);
    for round in 0..ROUNDS {
        cluster.card_mut(0).write_memory(round * BYTES, &[round as u8 + 1; BYTES as usize]).expect("a write");
    }
    let window = instruction::Window { slot: 1, key: 0x5eed };
    for (node, rights, bytes) in [(2, Rights::WRITE | Rights::SIGNAL, BYTES), (0, Rights::SIGNAL, 0)] {
        let open = Instruction::open(window, rights, Operand::card(4096), bytes);
        cluster.card_mut(node).run([open], LONG).expect("a window");
    }
    let tokens: Vec<_> = (0..ROUNDS)
        .flat_map(|round| {
            let put = Instruction::put_signal(2, source(round), Operand::card(4096), BYTES, 7, 1).through(window);
            let wait = Instruction::wait_signal(7, 1);
            let keep = Instruction::copy(Operand::card(4096), Operand::card(1 << 20 | round << 12), BYTES);
            let taken = Instruction::put_signal(0, Operand::card(0), Operand::card(0), 0, 9, 1).through(window);
            [(0, put), (0, Instruction::wait_signal(9, 1)), (2, wait), (2, keep), (2, taken)]
        })
        .map(|(card, instruction)| {
            (card, cluster.card_mut(card).queue_mut().submit(instruction).expect("a submission"))
        })
        .collect();
    for (card, token) in tokens {
        let completion = cluster.card_mut(card).queue_mut().wait(&token, LONG).expect("a completion");
        assert_eq!(completion.status, Status::Done, "card {card}");
    }
    for round in 0..ROUNDS {
        let mut data = [0; BYTES as usize];
        cluster.card_mut(2).read_memory(1 << 20 | round << 12, &mut data).expect("a read");
        assert!(data.iter().all(|byte| *byte == round as u8 + 1), "round {round}");
    }
}

fn many(bus: &Bus<'_>) {
    let mut card = card(bus);
    let count = 3 * card.queue().depth() as usize + 5;
    let instructions = vec![Instruction::nop(); count];
    let before = card.retired().expect("a count");
    let completions = card.run(&instructions, LONG).expect("no-ops");
    assert_eq!(completions.len(), count);
    assert!(completions.windows(2).all(|pair| pair[1].tag == pair[0].tag.wrapping_add(1)));
    assert_eq!(card.retired().expect("a count") - before, count as u64);
}

fn reset(bus: &Bus<'_>) {
    let mut cluster = cluster(bus);
    cluster.card_mut(1).write_memory(64, &[9; 64]).expect("a write");
    // It waits for partners that never come.
    let token = cluster.card_mut(1).queue_mut().submit(Instruction::barrier()).expect("a submission");
    token.abandon();
    cluster.card_mut(1).reset().expect("a reset");
    let mut data = [1; 64];
    cluster.card_mut(1).read_memory(64, &mut data).expect("a read");
    assert_eq!(data, [0; 64], "a reset forgets memory");
    move_checked(&mut cluster, "allgather", 5000, 3);
}

fn abort(bus: &Bus<'_>) {
    let mut cluster = cluster(bus);
    let card = cluster.card_mut(2);
    let token = card.queue_mut().submit(Instruction::barrier()).expect("a submission");
    card.abort().expect("an abort");
    let completion = card.queue_mut().wait(&token, LONG).expect("a completion");
    assert_eq!(completion.status, Status::Aborted);
    card.write_memory(0, &[3; 4096]).expect("a write");
}

fn no_partner(bus: &Bus<'_>) {
    // A bound may be over before a slow bus has brought the instruction to the card: then a longer one is tried.
    let seen = [50, 500, 5000].map(Duration::from_millis).into_iter().find_map(|bound| {
        let mut card = card(bus);
        let begin = Instant::now();
        let outcome = card.run([Instruction::barrier()], bound);
        assert!(begin.elapsed() >= bound && begin.elapsed() < bound + LONG);
        match outcome {
            Err(Error::Timeout { node: Some(1), last_seen, .. }) => {
                Some(last_seen).filter(|seen| seen.contains("barrier"))
            }
            other => panic!("{other:?}"),
        }
    });
    assert!(seen.is_some(), "the card never came to its barrier");
}

/// Between two cards that are not the first, until the writer ends, and until the reader does.
fn pipes(bus: &Bus<'_>) {
    let pipe = Pipe::new(3, 1);
    let mut data = vec![0; 300_000];
    pattern::fill(data.len() as u64, 3, 1, &mut data);
    for is_read in [true, false] {
        let mut cards: Vec<Card> =
            (bus.open)().into_iter().map(|function| Card::open(function).expect("a card")).collect();
        cards.iter_mut().for_each(|card| card.set_timeout(LONG));
        let (there, here) = (cards.swap_remove(3), cards.swap_remove(1));
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let mut writer = PipeWriter::open(there, pipe, LONG)?;
                // Without a reader it is written until the pipe breaks.
                let times = if is_read { 1 } else { usize::MAX };
                (0..times).try_for_each(|_| writer.write_all(&data))?;
                writer.close().map_err(std::io::Error::from)
            });
            let mut reader = PipeReader::open(here, pipe, LONG).expect("a reader");
            let mut came = Vec::new();
            if is_read {
                let _ = reader.read_to_end(&mut came).expect("all data");
                assert!(came == data);
            }
            // Open until the writer has ended: a card that is dropped is reset, which loses what is on its way to it.
            let here = reader.close().expect("closed");
            let written = writing.join().expect("no panic");
            drop(here);
            match written {
                Ok(card) => assert!(is_read && card.state() == State::Running),
                Err(error) => assert!(!is_read && error.kind() == ErrorKind::BrokenPipe, "{error}"),
            }
        });
    }
}

fn again(bus: &Bus<'_>) {
    for round in 0..5 {
        let mut cluster = cluster(bus);
        let mut data = [0xff; 256];
        cluster.card_mut(0).read_memory(512, &mut data).expect("a read");
        assert_eq!(data, [0; 256], "opening resets");
        cluster.card_mut(0).write_memory(512, &[round; 256]).expect("a write");
        move_checked(&mut cluster, "alltoall", 1000, u64::from(round));
    }
}

//! Cost of verifying: programs of 64 ranks with 1000 instructions each, by kind.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use cmdseq::plan::{Program, ProgramSet};
use cmdseq::table::Table;
use cmdseq::{Capabilities, Combine, Element, Instruction, Operand, Reduction, Tables, verify};
use criterion::{Criterion, criterion_group, criterion_main};
use fpga_mock::Profile;
use fpga_tests::run;

const RANKS: u16 = 64;
const INSTRUCTIONS: u64 = 1000;
/// What one set may take.
const MOST: Duration = Duration::from_millis(50);

/// An address far from the others.
const FAR: u64 = 1 << 30;

fn at(address: u64) -> Operand {
    Operand::card(address)
}

fn next(rank: u16) -> u16 {
    (rank + 1) % RANKS
}

/// Every kind of program that is long: by name, what rank and step give an instruction.
type Step = fn(u16, u64) -> Instruction;

const KINDS: &[(&str, Step)] = &[
    ("ring of sendrecv", |rank, step| {
        let (next, last) = ((rank + 1) % RANKS, (rank + RANKS - 1) % RANKS);
        Instruction::sendrecv(next, last, at(step * 4096), at((1 << 30) + step * 4096), 4096)
    }),
    ("ring of sendrecv_reduce", |rank, step| {
        let (next, last) = ((rank + 1) % RANKS, (rank + RANKS - 1) % RANKS);
        let sum = Combine::new(Reduction::Sum, Element::F32);
        let (source, own) = (at(step * 4096), at((1 << 30) + step * 4096));
        Instruction::sendrecv_reduce(sum, (next, last), source, own, own, 4096)
    }),
    ("alltoall", |_, step| Instruction::alltoall(at(step * 4096), at((1 << 30) + step * 4096), 64)),
    ("allreduce, striped", |_, step| {
        let sum = Combine::new(Reduction::Sum, Element::F32);
        let half = (8 << 30) / 128;
        Instruction::allreduce(sum, at(step * 4096).striped(), at(half + step * 4096).striped(), 4096)
    }),
    ("allgather in place", |rank, step| {
        let block = 4096 + 64 * (step % 8);
        Instruction::allgather(at(u64::from(rank) * block), at(0), block)
    }),
    ("barriers", |_, _| Instruction::barrier()),
    ("rdma_write to the next, and a barrier", |rank, step| match step % 2 {
        0 => Instruction::rdma_write((rank + 1) % RANKS, at(step * 4096), at((1 << 30) + step * 4096), 4096),
        _ => Instruction::barrier(),
    }),
    ("put_signal to the next, and a wait", |rank, step| match step % 2 {
        0 => {
            let to = at((1 << 30) + step * 4096);
            Instruction::put_signal((rank + 1) % RANKS, at(step * 4096), to, 4096, (step % 8) as u16, 1)
        }
        _ => Instruction::wait_signal(((step - 1) % 8) as u16, 1),
    }),
    ("allgather in place, at another place each time", |rank, step| {
        Instruction::allgather(at(step * 8192 + u64::from(rank) * 64), at(step * 8192), 64)
    }),
    ("gather in place, at another place each time", |rank, step| {
        let own = if rank == 0 { 0 } else { 64 };
        Instruction::gather(0, at(step * 8192 + own), at(step * 8192), 64)
    }),
    ("reduce_scatter in place, at another place each time", |rank, step| {
        let sum = Combine::new(Reduction::Sum, Element::F32);
        Instruction::reduce_scatter(sum, at(step * 8192), at(step * 8192 + u64::from(rank) * 64), 64)
    }),
    ("rdma_read of one card at scattered places", |rank, step| scattered_read(rank, step)),
    ("rdma_read at scattered places, a barrier, and rdma_write there", |rank, step| match (step, rank) {
        (500, _) => Instruction::barrier(),
        (_, 0) => Instruction::nop(),
        (0..500, _) => scattered_read(rank, step),
        _ => Instruction::rdma_write(0, at(FAR), at((step - 500) * 8192 + u64::from(rank) * 64), 64),
    }),
    ("rdma_write of small blocks, a barrier, and rdma_read of all", |rank, step| match (step, rank) {
        (500, _) => Instruction::barrier(),
        (_, 0) => Instruction::nop(),
        (0..500, _) => Instruction::rdma_write(0, at(FAR), at((step * 64 + u64::from(rank)) * 64), 64),
        _ => Instruction::rdma_read(0, at(0), at(FAR), 500 * 64 * 64),
    }),
    ("rdma_read of own columns, and rdma_write over them", |rank, step| {
        let column = at((step / 2 * 64 + u64::from(rank)) * 64);
        match (step % 2, rank) {
            (_, 0) => Instruction::nop(),
            (0, _) => Instruction::rdma_read(0, column, at(FAR), 64),
            _ => Instruction::rdma_write(0, at(FAR), column, 64),
        }
    }),
    ("put_signal of all to one, which waits", |rank, step| match rank {
        0 => Instruction::wait_signal(0, RANKS_BUT_ONE),
        _ => Instruction::put_signal(0, at(0), at(FAR + u64::from(rank) * (1 << 20) + step * 64), 64, 0, 1),
    }),
    ("allgather with extent, and rdma_write to the next", |rank, step| match step % 2 {
        0 => Instruction::rdma_write(next(rank), at(0), at(FAR), 64),
        _ => Instruction::allgather(at(u64::from(rank)), at(1 << 20), 64).dividing(64 * 63),
    }),
    ("allgatherv", |rank, step| {
        Instruction::allgatherv(at(step * 4096 + u64::from(rank)), at(FAR + step * 4096), 64, 0)
    }),
    ("alltoallv", |_, step| Instruction::alltoallv(at(step * 4096), at(FAR + step * 4096), 0, 0)),
    ("alltoallv, and rdma_write to the next", |rank, step| match step % 2 {
        0 => Instruction::rdma_write(next(rank), at(0), at(2 * FAR), 64),
        _ => Instruction::alltoallv(at(step * 4096), at(FAR + step * 4096), 0, 0),
    }),
    ("alltoallv with empty blocks, rdma_write to the next, and a barrier", |rank, step| match step % 3 {
        0 => Instruction::rdma_write(next(rank), at(0), at(2 * FAR), 64),
        1 => Instruction::alltoallv(at(step * 4096), at(FAR + step * 4096), 1, 1),
        _ => Instruction::barrier(),
    }),
    ("scatterv from each in turn", |_, step| {
        Instruction::scatterv((step % u64::from(RANKS)) as u16, at(step * 4096), at(FAR + step * 4096), 64, 0)
    }),
];

const RANKS_BUT_ONE: u32 = RANKS as u32 - 1;

fn scattered_read(rank: u16, step: u64) -> Instruction {
    match rank {
        0 => Instruction::nop(),
        _ => Instruction::rdma_read(0, at((step * 7919 + u64::from(rank) * 104_729) % (1 << 20)), at(FAR), 4096),
    }
}

/// The tables of each card: of full blocks, and of blocks of which every seventh is empty, the same ones at both ends.
fn tables(rank: u16) -> Tables {
    let is_empty = |other: u16| (other + rank) % 7 == 3;
    let full = Table::packed((0..RANKS).map(|_| 64), 64);
    let holes = Table::packed((0..RANKS).map(|other| if is_empty(other) { 0 } else { 64 }), 64);
    Tables::from([(0, full), (1, holes)])
}

fn programs(step: Step) -> ProgramSet {
    let of_rank = |rank| {
        let instructions = (0..INSTRUCTIONS).map(|number| step(rank, number)).collect();
        Program { instructions, tables: tables(rank), ..Program::default() }
    };
    ProgramSet::new((0..RANKS.into()).collect::<Vec<_>>(), (0..RANKS).map(of_rank))
}

fn capabilities() -> Capabilities {
    let (_fabric, cluster) = run::open(Profile::optweb(RANKS.into()));
    cluster.capabilities().clone()
}

fn verifying(c: &mut Criterion) {
    let capabilities = capabilities();
    let mut bench = c.benchmark_group("verify 64 ranks x 1000 instructions");
    bench.sample_size(20);
    for (name, step) in KINDS {
        let set = programs(*step);
        if set.instructions().any(|it| !capabilities.runs(it.operation)) {
            continue;
        }
        let verified = || verify(black_box(&set), &capabilities);
        if let Err(refusal) = verified() {
            panic!("{name}: {refusal}");
        }
        let best = (0..10)
            .map(|_| {
                let start = Instant::now();
                assert!(verified().is_ok());
                start.elapsed()
            })
            .min()
            .unwrap_or(MOST);
        let says = if best < MOST { "within" } else { "NOT within" };
        println!("{name}: {:.2} ms, {says} {} ms", best.as_secs_f64() * 1e3, MOST.as_millis());
        bench.bench_function(*name, |b| b.iter(verified));
    }
    bench.finish();
}

criterion_group!(benches, verifying);
criterion_main!(benches);

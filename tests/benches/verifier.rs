//! What verifying costs the host: programs of 64 ranks with 1000 instructions each, by kind.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use cmdseq::plan::Program;
use cmdseq::{Capabilities, Combine, Element, Instruction, Operand, Reduction, verify};
use criterion::{Criterion, criterion_group, criterion_main};
use fpga_mock::Profile;
use fpga_tests::run;

const RANKS: u16 = 64;
const INSTRUCTIONS: u64 = 1000;
/// What one set may take.
const MOST: Duration = Duration::from_millis(50);

fn at(address: u64) -> Operand {
    Operand::card(address)
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
];

fn programs(step: Step) -> Vec<Program> {
    let of_rank = |rank| {
        let instructions = (0..INSTRUCTIONS).map(|number| step(rank, number)).collect();
        Program { instructions, ..Program::default() }
    };
    (0..RANKS).map(of_rank).collect()
}

fn capabilities() -> Capabilities {
    let (_fabric, cluster) = run::open(Profile::optweb(RANKS.into()));
    cluster.capabilities().clone()
}

fn verifying(c: &mut Criterion) {
    let capabilities = capabilities();
    let group: Vec<u32> = (0..u32::from(RANKS)).collect();
    let mut bench = c.benchmark_group("verify 64 ranks x 1000 instructions");
    bench.sample_size(20);
    for (name, step) in KINDS {
        let programs = programs(*step);
        if programs.iter().flat_map(|one| &one.instructions).any(|it: &Instruction| !capabilities.runs(it.operation)) {
            continue;
        }
        let verified = || verify(black_box(&programs), &[], &group, &capabilities);
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

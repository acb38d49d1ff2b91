//! Cost of the mock: instructions per second through one queue, bytes per second of an alltoall beside memcpy, and growth with
//! the number of cards.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use cmdseq::Instruction;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fpga_driver::{Card, Execution};
use fpga_hal::{Domain, in_process};
use fpga_mock::{Fabric, Profile};
use fpga_tests::run::{open, plan_all};

const MIB: u64 = 1 << 20;

fn nops(c: &mut Criterion) {
    let fabric = Fabric::new(Profile::optweb(2)).expect("a fabric");
    let function = in_process::attach(fabric.endpoint(0), &Domain::in_process(), "0").expect("a card");
    let mut card = Card::open(function).expect("a sequencer");
    let mut group = c.benchmark_group("mock");
    let batch = 256;
    group.throughput(Throughput::Elements(batch));
    group.bench_function("no-op instructions through one queue", |b| {
        b.iter(|| {
            let queue = card.queue_mut();
            for _ in 0..batch {
                queue.push(Instruction::nop()).expect("room").abandon();
            }
            queue.ring().expect("a card");
            while queue.in_flight() > 0 {
                queue.poll().expect("completions");
            }
        });
    });
    group.finish();
}

fn bandwidth(c: &mut Criterion) {
    let block = 64 * MIB as usize;
    let mut group = c.benchmark_group("bytes");
    group.sample_size(10).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(5));
    group.throughput(Throughput::Bytes(16 * block as u64));
    let (_fabric, mut cluster) = open(Profile::optweb(4));
    let plan = plan_all(&cluster, "alltoall", block as u64, None, None).expect("a plan");
    for (rank, bytes) in (0..4).flat_map(|rank| (0..4 * block as u64).step_by(4 << 20).map(move |at| (rank, at))) {
        cluster.write_input(&plan.set, rank, bytes, &vec![rank as u8; 4 << 20]).expect("input");
    }
    group.bench_function("alltoall of 4 ranks, 64 MiB a pair", |b| {
        b.iter(|| cluster.execute(&plan.set, &Execution::default()).expect("a run"));
    });
    drop(cluster);
    let from: Vec<Vec<u8>> = (0..16).map(|block_number| vec![block_number; block]).collect();
    let mut to: Vec<Vec<u8>> = (0..16).map(|_| vec![0; block]).collect();
    group.bench_function("memcpy of the same 16 blocks", |b| {
        b.iter(|| {
            for (from, to) in from.iter().zip(&mut to) {
                black_box(to).copy_from_slice(black_box(from));
            }
        });
    });
    group.finish();
}

/// One run each: the fabric's own count of what it did, and the host's time.
fn scale(_c: &mut Criterion) {
    println!("{:<28} {:>9} {:>9} {:>12} {:>12}", "alltoall, 64 KiB a pair", "transfers", "events", "ms", "us/transfer");
    for cards in [8, 16, 32, 64] {
        let (fabric, mut cluster) = open(Profile::optweb(cards));
        let plan = plan_all(&cluster, "alltoall", 64 << 10, None, None).expect("a plan");
        report(&format!("{cards} cards"), &fabric, || {
            cluster.execute(&plan.set, &Execution::default()).expect("a run");
        });
    }
    let (fabric, mut cluster) = open(Profile::optweb_dragonfly(22, 44));
    let plan = plan_all(&cluster, "allgather", 1024, None, None).expect("a plan");
    report("968 cards, allgather 1 KiB", &fabric, || {
        cluster.execute(&plan.set, &Execution::default()).expect("a run");
    });
}

fn report(name: &str, fabric: &Fabric, mut run: impl FnMut()) {
    let before = fabric.statistics();
    let start = Instant::now();
    run();
    let took = start.elapsed().as_secs_f64();
    let after = fabric.statistics();
    let (transfers, events) = (after.transfers - before.transfers, after.events - before.events);
    let each = took * 1e6 / transfers as f64;
    println!("{name:<28} {transfers:>9} {events:>9} {:>12.2} {each:>12.3}", took * 1e3);
}

criterion_group!(benches, nops, bandwidth, scale);
criterion_main!(benches);

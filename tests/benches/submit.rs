//! Cost of an instruction on the host: encoding, decoding and submitting, on an endpoint that only records.
//!
//! Each is compared with an alternative: filling the same 64 bytes like a C structure, and one thread for each call, as a
//! well-known collective library of this field does.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cmdseq::{Instruction, Operand};
use criterion::{Criterion, criterion_group, criterion_main};
use fpga_driver::trace::{Moment, RECORDS};
use fpga_driver::{Card, Cluster};
use fpga_hal::{Domain, in_process};
use fpga_mock::{Fabric, Profile, Recorder};
use fpga_tests::relaunch::Recorded;

/// Submissions between two looks at the clock: a look costs about as much as a submission.
const PER_SAMPLE: u32 = 16;
const BATCH: u32 = 512;

fn recorded() -> (Fabric, Arc<Recorder>, Card) {
    let fabric = Fabric::new(Profile::optweb(2)).expect("a fabric");
    let recorder = Recorder::new(fabric.endpoint(0));
    let function = in_process::attach(recorder.clone(), &Domain::in_process(), "recorded").expect("a card");
    let card = Card::open(function).expect("a sequencer");
    (fabric, recorder, card)
}

/// Who is told of what goes through a queue.
#[derive(Clone, Copy)]
enum Observer {
    Nobody,
    /// Readers of published counters.
    Counters,
    Trace,
}

fn drain(recorder: &Recorder, card: &mut Card) {
    recorder.release();
    while card.queue_mut().in_flight() > 0 {
        card.queue_mut().poll().expect("completions");
    }
    recorder.hold();
}

fn instruction() -> Instruction {
    Instruction::allgather(Operand::card(0), Operand::card(1 << 28).striped(), 4096)
}

fn encoding(c: &mut Criterion) {
    let mut group = c.benchmark_group("instruction");
    group.bench_function("encode", |b| b.iter(|| black_box(instruction()).encode()));
    let word = instruction().encode();
    group.bench_function("decode", |b| b.iter(|| Instruction::decode(black_box(&word))));
    group.bench_function("plain stores of the same fields, no checksum", |b| {
        b.iter(|| {
            let it = black_box(instruction());
            let mut word = [0u8; 64];
            word[1] = it.operation as u8;
            word[16..24].copy_from_slice(&it.source.address.to_le_bytes());
            word[24..32].copy_from_slice(&it.destination.address.to_le_bytes());
            word[32..40].copy_from_slice(&it.bytes.to_le_bytes());
            word
        });
    });
    group.finish();
}

fn submitting(c: &mut Criterion) {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let observers =
        [(Observer::Nobody, ""), (Observer::Counters, ", counters published"), (Observer::Trace, ", with a trace")];
    for (observer, what) in observers {
        let (_fabric, recorder, card) = recorded();
        let mut cluster = Cluster::of(vec![card]).expect("a cluster");
        match observer {
            Observer::Nobody => {}
            Observer::Counters => drop(cluster.card_mut(0).publish(directory.path()).expect("published counters")),
            Observer::Trace => cluster.start_trace(Moment::now(), RECORDS).expect("an idle card"),
        }
        let card = cluster.card_mut(0);
        recorder.hold();
        c.bench_function(&format!("submit{what}"), |b| {
            b.iter_custom(|iterations| in_batches(iterations, &recorder, card).0);
        });
        c.bench_function(&format!("poll{what}"), |b| {
            b.iter_custom(|iterations| in_batches(iterations, &recorder, card).1);
        });
    }
    c.bench_function("a thread for each call", |b| b.iter(|| std::thread::spawn(|| black_box(1)).join()));
    percentiles();
}

/// Submits and polls instructions in batches, and returns the time of the submissions and that of the polls.
fn in_batches(iterations: u64, recorder: &Recorder, card: &mut Card) -> (Duration, Duration) {
    let (mut submitting, mut polling) = (Duration::ZERO, Duration::ZERO);
    let mut left = iterations;
    while left > 0 {
        let now = left.min(u64::from(BATCH));
        let start = Instant::now();
        for _ in 0..now {
            card.queue_mut().submit(black_box(&Instruction::nop())).expect("room").abandon();
        }
        submitting += start.elapsed();
        // The card completes them here, so that the polls find all of them.
        recorder.release();
        let start = Instant::now();
        while card.queue_mut().in_flight() > 0 {
            card.queue_mut().poll().expect("completions");
        }
        polling += start.elapsed();
        recorder.hold();
        left -= now;
    }
    (submitting, polling)
}

fn percentiles() {
    let (_fabric, recorder, mut card) = recorded();
    recorder.hold();
    let mut samples = Vec::with_capacity(100_000);
    while samples.len() < 100_000 {
        for _ in 0..BATCH / PER_SAMPLE {
            let start = Instant::now();
            for _ in 0..PER_SAMPLE {
                card.queue_mut().submit(black_box(&Instruction::nop())).expect("room").abandon();
            }
            samples.push(start.elapsed().as_nanos() as u64 / u64::from(PER_SAMPLE));
        }
        drain(&recorder, &mut card);
    }
    samples.sort_unstable();
    let at = |part: f64| samples[((samples.len() - 1) as f64 * part) as usize];
    println!("submit, ns per instruction: p50 {} p99 {} p99.9 {}", at(0.5), at(0.99), at(0.999));
}

fn relaunching(c: &mut Criterion) {
    let mut plan = Recorded::prepare();
    plan.hold();
    c.bench_function("relaunch a plan of 8 collectives on 4 cards", |b| {
        b.iter_custom(|iterations| {
            let mut total = Duration::ZERO;
            let mut left = iterations;
            while left > 0 {
                let now = left.min(u64::from(BATCH));
                let start = Instant::now();
                for _ in 0..now {
                    plan.cluster.launch(black_box(&mut plan.prepared)).expect("room");
                }
                total += start.elapsed();
                left -= now;
                plan.release();
                while plan.prepared.in_flight() > 0 {
                    plan.cluster.finish(&mut plan.prepared, Duration::from_secs(10)).expect("completions");
                }
                plan.hold();
            }
            total
        });
    });
}

criterion_group!(benches, encoding, submitting, relaunching);
criterion_main!(benches);

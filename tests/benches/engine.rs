//! Cost of an event in the mock's engine: taken from among many, and followed by a new one.
#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fpga_mock::engine::{Agenda, Time};

/// As large as an event of the fabric.
type What = [u64; 7];
const EVENTS: u64 = 100_000;

/// Distances of a fabric's events: most within a microsecond, some a transfer ahead.
struct Distances(u64);

impl Distances {
    fn next(&mut self) -> Time {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let random = self.0 >> 32;
        let cycles = if random % 16 == 0 { random % 40_000 } else { random % 200 };
        Time::from(cycles * 5_000)
    }
}

/// Events in the order of a heap, as the model in `tests/tests/fabric/agenda.rs`.
#[derive(Default)]
struct Heap {
    events: BinaryHeap<Reverse<(Time, u64, What)>>,
    added: u64,
}

impl Heap {
    fn add(&mut self, at: Time, what: What) {
        self.added += 1;
        self.events.push(Reverse((at, self.added, what)));
    }

    fn take(&mut self) -> Option<(Time, What)> {
        self.events.pop().map(|Reverse((at, _, what))| (at, what))
    }
}

fn hold(c: &mut Criterion) {
    let mut group = c.benchmark_group("events");
    group.throughput(Throughput::Elements(EVENTS));
    for pending in [10, 1_000, 100_000] {
        let mut distances = Distances(1);
        let mut agenda = Agenda::default();
        (0..pending).for_each(|_| agenda.add(distances.next(), What::default()));
        group.bench_function(BenchmarkId::new("calendar", pending), |b| {
            b.iter(|| {
                for _ in 0..EVENTS {
                    let (now, what) = agenda.take().expect("an event");
                    agenda.add(now + distances.next(), black_box(what));
                }
            });
        });
        let mut distances = Distances(1);
        let mut heap = Heap::default();
        (0..pending).for_each(|_| heap.add(distances.next(), What::default()));
        group.bench_function(BenchmarkId::new("binary heap", pending), |b| {
            b.iter(|| {
                for _ in 0..EVENTS {
                    let (now, what) = heap.take().expect("an event");
                    heap.add(now + distances.next(), black_box(what));
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, hold);
criterion_main!(benches);

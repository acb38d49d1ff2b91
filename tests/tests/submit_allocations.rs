//! Submitting an instruction allocates nothing and reads no register, with a trace and without: counted.
//!
//! Has its own test runner: the usual one allocates on its threads, and the whole process is counted.
#![forbid(unsafe_code)]

use cmdseq::Instruction;
use fpga_driver::trace::Moment;
use fpga_driver::{Card, Cluster};
use fpga_hal::{Domain, in_process};
use fpga_mock::{Accesses, Fabric, Profile, Recorder};

#[global_allocator]
static ALLOCATIONS: dhat::Alloc = dhat::Alloc;

const BATCH: u64 = 512;

fn main() {
    let _profiler = dhat::Profiler::builder().testing().build();
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let recorder = Recorder::new(fabric.endpoint(0));
    let domain = Domain::in_process();
    let card = Card::open(in_process::attach(recorder.clone(), &domain, "recorded").unwrap()).unwrap();
    let mut cluster = Cluster::of(vec![card]).unwrap();
    count(&recorder, cluster.card_mut(0));
    // With fewer records than instructions: the oldest are dropped meanwhile.
    cluster.start_trace(Moment::now(), BATCH as usize + 100).unwrap();
    count(&recorder, cluster.card_mut(0));
    assert_eq!(cluster.take_trace().unwrap().cards[0].instructions.len() as u64, BATCH + 100);
    // The count is of this program: an allocation does show.
    let before = dhat::HeapStats::get().total_blocks;
    std::hint::black_box(Box::new(1));
    assert_eq!(dhat::HeapStats::get().total_blocks - before, 1);
    println!("no allocation and no register read per instruction, recorded or not");
}

/// Submits and takes completions, and counts.
fn count(recorder: &Recorder, card: &mut Card) {
    let queue = card.queue_mut();
    for _ in 0..4 {
        recorder.hold();
        recorder.take();
        let before = dhat::HeapStats::get().total_blocks;
        for _ in 0..BATCH {
            queue.submit(Instruction::nop()).unwrap().abandon();
        }
        let after = dhat::HeapStats::get().total_blocks;
        let Accesses { reads, writes } = recorder.take();
        assert_eq!(after - before, 0, "allocations");
        assert_eq!(reads, 0, "register reads");
        // A doorbell each, and seldom one that tells the card what was taken.
        assert!((BATCH..=BATCH + 4).contains(&writes), "{writes} register writes");
        recorder.release();
        let before = dhat::HeapStats::get().total_blocks;
        while queue.in_flight() > 0 {
            queue.poll().unwrap();
        }
        assert_eq!(dhat::HeapStats::get().total_blocks - before, 0, "allocations of taking completions");
    }
}

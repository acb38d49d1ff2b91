//! A re-launch of a persistent plan of eight collectives costs one doorbell per card, no register read, no allocation and no
//! encoding: counted.
//!
//! Has its own test runner: the usual one allocates on its threads, and the whole process is counted.
#![forbid(unsafe_code)]

use std::time::Duration;

use fpga_mock::Accesses;
use fpga_tests::relaunch::{CARDS, COLLECTIVES, Recorded};

#[global_allocator]
static ALLOCATIONS: dhat::Alloc = dhat::Alloc;

const TIMEOUT: Duration = Duration::from_secs(10);

fn main() {
    let _profiler = dhat::Profiler::builder().testing().build();
    let mut recorded = Recorded::prepare();
    let allocated = || dhat::HeapStats::get().total_blocks;
    for launch in 0..32 {
        if launch == 16 {
            // One word per card is encoded, and nothing is told to the cards.
            recorded.take();
            recorded.prepared.rebind("in", 3 << 30).unwrap();
            assert!(recorded.take().iter().all(|one| *one == Accesses { reads: 0, writes: 0 }));
        }
        recorded.hold();
        recorded.take();
        let before = allocated();
        recorded.cluster.launch(&mut recorded.prepared).unwrap();
        let after = allocated();
        let accesses = recorded.take();
        assert_eq!(after - before, 0, "allocations of launch {launch}");
        assert_eq!(accesses.len(), CARDS as usize);
        for (card, one) in accesses.iter().enumerate() {
            assert_eq!(*one, Accesses { reads: 0, writes: 1 }, "card {card}, launch {launch}");
        }
        recorded.release();
        recorded.cluster.finish(&mut recorded.prepared, TIMEOUT).unwrap();
    }
    // The count is of this program: an allocation does show, and a card does more than it is told at once.
    let before = allocated();
    std::hint::black_box(Box::new(1));
    assert_eq!(allocated() - before, 1);
    let before = recorded.fabric.statistics().instructions;
    recorded.cluster.launch(&mut recorded.prepared).unwrap();
    recorded.cluster.finish(&mut recorded.prepared, TIMEOUT).unwrap();
    let ran = recorded.fabric.statistics().instructions - before;
    assert_eq!(ran, u64::from(CARDS) * COLLECTIVES as u64, "every card ran every collective");
    println!(
        "{COLLECTIVES} collectives on {CARDS} cards: one doorbell per card and launch, no register read, no allocation"
    );
}

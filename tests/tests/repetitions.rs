//! A million repetitions take a bounded amount of memory: counted. Discarded completions cannot be
//! searched again, so the work of a repetition does not grow either.
//!
//! Has its own test runner: the whole process is counted.
#![forbid(unsafe_code)]

use std::time::Duration;

use cmdseq::Instruction;
use cmdseq::plan::{Collective, Request, plan};
use fpga_driver::{COMPLETIONS_KEPT, Execution, REPETITIONS_KEPT};
use fpga_mock::Profile;
use fpga_tests::run::open;

#[global_allocator]
static ALLOCATIONS: dhat::Alloc = dhat::Alloc;

const REPEAT: u32 = 1_000_000;
/// Of which the report has 2 MiB of times, 1.3 MiB of completions and two summaries of 0.5 MiB.
const MOST: usize = 8 << 20;

fn main() {
    let (_fabric, mut cluster) = open(Profile::optweb(2));
    let mut plan = plan(&Request::new(Collective::Barrier, vec![0], 0), cluster.capabilities()).unwrap();
    plan.set.programs[0].instructions = vec![Instruction::nop()];
    let _profiler = dhat::Profiler::builder().testing().build();
    let execution = Execution { repeat: REPEAT, timeout: Duration::from_secs(3600), ..Execution::default() };
    let report = cluster.execute(&plan.set, &execution).unwrap();
    let peak = dhat::HeapStats::get().max_bytes;
    assert!(peak < MOST, "{peak} bytes");
    assert_eq!(report.t2_summary.count(), u64::from(REPEAT));
    assert_eq!(report.repetitions.len(), REPETITIONS_KEPT);
    assert_eq!(report.ranks[0].repetitions.len(), COMPLETIONS_KEPT);
    assert!(report.t2_summary.least() > 0 && report.t2_summary.least() <= report.t2_cycles);
    println!("{REPEAT} repetitions: {peak} bytes at most");
}

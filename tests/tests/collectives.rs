//! Every operation on every number of ranks and size, over rings, DMA and registers of mock cards, checked bit for bit
//! against an oracle that knows neither planner nor mock.
//!
//! The named subset runs always; `FPGA_TESTS_FULL=1` runs all of it (`tests/run --full`).
#![forbid(unsafe_code)]

use std::time::Duration;

use cmdseq::plan::{Algorithm, Collective, Plan, Request, plan};
use fpga_driver::{Cluster, Execution};
use fpga_tests::oracle::{Case, OPERATIONS};
use fpga_tests::pattern;

const CHUNK: usize = 4 << 20;
const MIB: u64 = 1 << 20;

fn is_full() -> bool {
    std::env::var_os("FPGA_TESTS_FULL").is_some_and(|value| value != "0")
}

fn open(selector: &str) -> Cluster {
    Cluster::open(fpga_select::select(selector).unwrap().functions).unwrap()
}

fn request(case: &Case<'_>, group: Vec<u32>, algorithm: Option<Algorithm>) -> Request {
    let collective: Collective = case.operation.parse().unwrap();
    let (root, peer) = (case.root, case.peer);
    Request { collective, group, bytes: case.bytes, root, peer, algorithm, eager_limit: None }
}

/// Puts in the inputs, runs, and compares the outputs. `spoil` flips one bit of what comes back.
fn run(cluster: &mut Cluster, case: &Case<'_>, plan: &Plan, seed: u64, spoil: bool) -> Result<(), String> {
    let mut chunk = vec![0; CHUNK];
    for rank in 0..case.ranks {
        let total = case.input_bytes(rank);
        for offset in (0..total).step_by(CHUNK) {
            let part = &mut chunk[..(total - offset).min(CHUNK as u64) as usize];
            pattern::fill(seed, rank, offset, part);
            cluster.write_input(plan, rank, offset, part).map_err(|error| error.to_string())?;
        }
    }
    let execution = Execution { timeout: Duration::from_secs(120), ..Execution::default() };
    cluster.execute(plan, &execution).map_err(|error| error.to_string())?;
    for rank in 0..case.ranks {
        let total: u64 = case.output(rank).iter().map(|copied| copied.bytes).sum();
        for offset in (0..total).step_by(CHUNK) {
            let part = &mut chunk[..(total - offset).min(CHUNK as u64) as usize];
            cluster.read_output(plan, rank, offset, part).map_err(|error| error.to_string())?;
            if spoil && offset == 0 {
                let middle = part.len() / 2;
                part[middle] ^= 1;
            }
            if let Some(at) = case.first_wrong(seed, rank, offset, part) {
                return Err(format!("rank {rank}, byte {at} of the output is wrong"));
            }
        }
    }
    Ok(())
}

struct Sweep {
    cluster: Cluster,
    seed: u64,
    cases: usize,
}

impl Sweep {
    fn new(selector: &str) -> Self {
        Sweep { cluster: open(selector), seed: 1, cases: 0 }
    }

    fn check(&mut self, case: &Case<'_>, group: Vec<u32>, algorithm: Option<Algorithm>) {
        // A new seed a case: what an earlier one left in memory cannot pass for the result.
        self.seed += 1;
        self.cases += 1;
        let plan = plan(&request(case, group, algorithm), self.cluster.capabilities())
            .unwrap_or_else(|refusal| panic!("{case:?}: {refusal}"));
        if let Err(why) = run(&mut self.cluster, case, &plan, self.seed, false) {
            panic!("{case:?} {algorithm:?}: {why}");
        }
    }
}

fn sizes(full: bool) -> Vec<u64> {
    if full { vec![0, 1, 63, 64, 4095, 16384, 16385, 65568, MIB + 3] } else { vec![0, 1, 63, 4095, 16384, 16385] }
}

fn roots(ranks: u32, full: bool) -> Vec<u32> {
    match full {
        true if ranks <= 16 => (0..ranks).collect(),
        _ => vec![0, ranks / 2, ranks - 1],
    }
}

fn takes_root(operation: &str) -> bool {
    ["send", "recv", "scatter", "gather", "broadcast"].contains(&operation)
}

#[test]
fn every_operation_on_every_number_of_ranks() {
    let full = is_full();
    let ranks: &[u32] = if full { &[2, 3, 4, 7, 8, 16, 32, 64] } else { &[2, 3, 4, 7, 16] };
    let mut cases = 0;
    for ranks in ranks.iter().copied() {
        let mut sweep = Sweep::new(&format!("mock:optweb:{ranks}"));
        let group: Vec<u32> = (0..ranks).collect();
        for operation in OPERATIONS {
            for bytes in sizes(full) {
                for root in if takes_root(operation) { roots(ranks, full) } else { vec![0] } {
                    let case = Case { operation, ranks, bytes, root, peer: (root + 1) % ranks };
                    sweep.check(&case, group.clone(), Some(Algorithm::Direct));
                    if ["send", "broadcast"].contains(&operation) {
                        sweep.check(&case, group.clone(), Some(Algorithm::Multipath));
                    }
                }
            }
        }
        cases += sweep.cases;
    }
    println!("{cases} cases");
    assert!(cases > 300);
}

#[test]
fn sixty_four_cards_run_every_operation() {
    let mut sweep = Sweep::new("mock:optweb:64");
    for operation in OPERATIONS {
        for bytes in [1, 4095, 16385] {
            let case = Case { operation, ranks: 64, bytes, root: 5, peer: 63 };
            sweep.check(&case, (0..64).collect(), None);
        }
    }
}

#[test]
fn subgroups_in_any_order() {
    let mut sweep = Sweep::new("mock:optweb:8");
    for group in [vec![5, 2], vec![7, 0, 3], vec![1, 2, 3, 4, 5], vec![6, 5, 4, 3, 2, 1, 0]] {
        let ranks = group.len() as u32;
        for operation in OPERATIONS {
            for bytes in [1, 4095, 65568] {
                let case = Case { operation, ranks, bytes, root: ranks - 1, peer: 0 };
                sweep.check(&case, group.clone(), None);
            }
        }
    }
}

#[test]
fn dragonfly_runs_every_operation() {
    for (selector, ranks) in [("mock:optweb:4x4", 16), ("mock:optweb:3x5", 15)] {
        let mut sweep = Sweep::new(selector);
        for operation in OPERATIONS {
            for bytes in [0, 1, 4095, 16385] {
                for root in [0, 7, ranks - 1] {
                    let case = Case { operation, ranks, bytes, root, peer: (root + 6) % ranks };
                    sweep.check(&case, (0..ranks).collect(), None);
                }
            }
        }
    }
}

#[test]
fn large_blocks() {
    let (ranks, bytes) = (4, if is_full() { 128 * MIB } else { 8 * MIB + 3 });
    let mut sweep = Sweep::new("mock:optweb:4");
    for operation in OPERATIONS {
        let case = Case { operation, ranks, bytes, root: 1, peer: 3 };
        sweep.check(&case, (0..ranks).collect(), None);
    }
    let peak = peak_kib();
    println!("peak memory {} MiB", peak / 1024);
    assert!(peak < 12 << 20, "peak memory {peak} KiB");
}

/// The largest resident set of this process so far, as the kernel counts it.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The comparison can fail: one bit flipped in what comes back is seen in every operation that gives anything.
#[test]
fn one_wrong_bit_is_seen() {
    let mut cluster = open("mock:optweb:4");
    for operation in OPERATIONS.iter().filter(|operation| **operation != "barrier") {
        let case = Case { operation, ranks: 4, bytes: 1000, root: 0, peer: 3 };
        let plan = plan(&request(&case, (0..4).collect(), None), cluster.capabilities()).unwrap();
        assert!(run(&mut cluster, &case, &plan, 3, true).is_err(), "{operation}");
        assert!(run(&mut cluster, &case, &plan, 3, false).is_ok(), "{operation}");
    }
}

//! Prints the planner's predictions beside the counts of mock cards, the worst first:
//! `cargo run --release -p fpga-tests --example prediction [RANKS,RANKS,..] [COLLECTIVE]`.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cmdseq::plan::Collective;
use fpga_mock::Profile;
use fpga_tests::prediction::{self, Case, SIZES, plans, request};
use fpga_tests::run;

/// Rows printed.
const WORST: usize = 40;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let all: Vec<u32> = match arguments.first() {
        Some(list) => list.split(',').map(|one| one.parse().expect("a number of ranks")).collect(),
        None => vec![2, 3, 4, 5, 8, 12, 16, 17, 24, 32, 48, 64],
    };
    let only = arguments.get(1).map(|name| name.parse::<Collective>().expect("a collective"));
    let mut cases: Vec<Case> = Vec::new();
    let mut wins: BTreeMap<_, usize> = BTreeMap::new();
    let mut slowest = (Duration::ZERO, String::new());
    for ranks in all {
        let (fabric, mut cluster) = run::open(Profile::optweb(ranks));
        fabric.hollow_out();
        for collective in Collective::ALL.iter().copied().filter(|one| only.is_none_or(|only| only == *one)) {
            for bytes in SIZES {
                if collective == Collective::Barrier && bytes != SIZES[0] {
                    continue;
                }
                for is_rendezvous in [false, true] {
                    let asked = request(ranks, collective, bytes, is_rendezvous);
                    let began = Instant::now();
                    let Ok((chosen, forced)) = plans(&asked, cluster.capabilities()) else { continue };
                    let took = began.elapsed() / 2;
                    if took > slowest.0 {
                        slowest = (took, format!("{collective} of {bytes} B on {ranks} ranks"));
                    }
                    *wins.entry((collective.name(), chosen.algorithm.name())).or_insert(0) += 1;
                    cases.extend(forced.iter().map(|plan| prediction::run(&mut cluster, plan)));
                }
            }
        }
    }
    cases.sort_by(|one, other| other.difference_percent().abs().total_cmp(&one.difference_percent().abs()));
    println!(
        "{:>15} {:>20} {:>5} {:>9} {:>10} {:>13} {:>13} {:>8}",
        "collective", "algorithm", "ranks", "bytes", "", "predicted us", "simulated us", "%"
    );
    for case in cases.iter().take(WORST) {
        println!(
            "{:>15} {:>20} {:>5} {:>9} {:>10} {:>13.3} {:>13.3} {:>+8.3}",
            case.collective.name(),
            case.algorithm.name(),
            case.ranks,
            case.bytes,
            if case.is_rendezvous { "rendezvous" } else { "" },
            case.predicted_ps as f64 / 1e6,
            case.simulated_ps as f64 / 1e6,
            case.difference_percent()
        );
    }
    println!("{} cases; the longest planning took {:.1} ms: {}", cases.len(), slowest.0.as_secs_f64() * 1e3, slowest.1);
    for ((collective, algorithm), count) in wins {
        println!("{collective:>15} by {algorithm:<20} {count:>4} times");
    }
}

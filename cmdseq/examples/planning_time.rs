//! Prints how long planning takes: `cargo run --release -p cmdseq --example planning_time [RANKS]`.
#![forbid(unsafe_code)]

use std::time::Instant;

use cmdseq::plan::{Algorithm, Collective, plan};

#[path = "../tests/cards/mod.rs"]
mod cards;

fn main() {
    let nodes = std::env::args().nth(1).map_or(64, |ranks| ranks.parse().expect("a number of ranks"));
    let capabilities = cards::connected(nodes);
    for collective in Collective::ALL {
        let mut line = format!("{:>15}", collective.name());
        for algorithm in std::iter::once(None).chain(Algorithm::ALL.iter().copied().map(Some)) {
            let request = cards::request(*collective, nodes, 16_392, algorithm);
            let began = Instant::now();
            if plan(&request, &capabilities).is_ok() {
                let name = algorithm.map_or("chosen", Algorithm::name);
                line += &format!("  {name} {:.2} ms", began.elapsed().as_secs_f64() * 1e3);
            }
        }
        println!("{line}");
    }
}

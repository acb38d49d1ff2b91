//! An all-to-all on a torus of 4 x 4 x 4 wormhole routers, as `tests/simgrid/alltoall.cpp` does it in SimGrid: every node sends
//! packets of eight flits to every other one, all at once. Prints flit-hops a second on one core.
#![forbid(unsafe_code)]

use std::time::Instant;

use cmdseq::routing::Torus3;
use fpga_mock::novog::wormhole::{Arbitration, Configuration, Pattern, Routing, WormholeNetwork, WormholeProfile};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds: u32 = std::env::args().nth(1).map_or(Ok(8), |text| text.parse())?;
    let torus = Torus3::new([4, 4, 4])?;
    let profile = WormholeProfile::published();
    let network = WormholeNetwork::new(profile, torus)?;
    let configuration = Configuration { routing: Routing::Dor, arbitration: Arbitration::Mix };
    // More flits a node and cycle than it can send: all packets are there from the begin on.
    let mut trace = Pattern::AllToAll.batch(torus, rounds, 8, 1e6, 1)?;
    let begin = Instant::now();
    let outcome = network.run(configuration, &mut trace, u64::MAX)?;
    let (seconds, millions) = (begin.elapsed().as_secs_f64(), outcome.flit_hops as f64 / 1e6);
    println!(
        "this tree: {rounds} rounds, {millions} million flit-hops in {seconds:.3} s: {:.1} million a second; simulated {:.1} us",
        millions / seconds,
        outcome.batch_cycles() as f64 / profile.hertz as f64 * 1e6,
    );
    Ok(())
}

//! Runs a trace on the wormhole routers of Novo-G#, as `tests/run simgrid` does: `torus_trace FILE`. The file has the format of
//! `fpgactl tune` (docs/novo-g.md), without comments.
#![forbid(unsafe_code)]

use std::error::Error;
use std::time::Instant;

use cmdseq::routing::Torus3;
use fpga_mock::novog::wormhole::{
    Arbitration, Configuration, Message, Routing, Trace, WormholeNetwork, WormholeProfile,
};

/// The clock of the routers, hertz.
const HERTZ: f64 = 142e6;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: torus_trace FILE")?;
    let text = std::fs::read_to_string(path)?;
    let mut lines = text.lines();
    let sides = lines.next().and_then(|line| line.strip_prefix("torus ")).ok_or("the first line has no torus")?;
    let sides = sides.split('x').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    let sides: [u32; 3] = sides.try_into().map_err(|_| "a torus has three sides")?;
    let torus = Torus3::new(sides)?;
    let mut messages = Vec::new();
    for line in lines {
        let numbers = line.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        let [cycle, from, to, flits] = numbers[..] else { return Err("a packet has four numbers".into()) };
        messages.push(Message { cycle, from: from as u32, to: to as u32, flits: flits as u16 });
    }
    let mut trace = Trace::new(torus, messages)?;
    let packets = trace.packets();
    let configuration = Configuration { routing: Routing::Dor, arbitration: Arbitration::Mix };
    let network = WormholeNetwork::new(WormholeProfile::published(), torus)?;
    let began = Instant::now();
    let outcome = network.run(configuration, &mut trace, u64::MAX)?;
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "fpga-mock: {packets} messages, {:.1} us simulated, {} flit-hops, {:.1} million a second",
        outcome.last as f64 / HERTZ * 1e6,
        outcome.flit_hops,
        outcome.flit_hops as f64 / seconds / 1e6
    );
    Ok(())
}

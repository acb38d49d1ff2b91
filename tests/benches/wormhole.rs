//! Flit-hops a second of the wormhole routers' simulator: what `fpgactl tune` waits for.
#![forbid(unsafe_code)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fpga_mock::novog::wormhole::{Arbitration, Configuration, Pattern, Routing, WormholeNetwork, WormholeProfile};

use cmdseq::routing::Torus3;

fn hops(c: &mut Criterion) {
    let torus = Torus3::new([4, 4, 4]).expect("a torus");
    let network = WormholeNetwork::new(WormholeProfile::published(), torus).expect("a network");
    let mut group = c.benchmark_group("flit-hops");
    for routing in [Routing::Dor, Routing::Ccar] {
        for load in [0.5, 3.0] {
            let configuration = Configuration { routing, arbitration: Arbitration::Mix };
            let trace = Pattern::AllToAll.batch(torus, 8, 8, load, 1).expect("a batch");
            let run = || network.run(configuration, &mut trace.clone(), u64::MAX).expect("no deadlock");
            group.throughput(Throughput::Elements(run().flit_hops));
            group.bench_function(BenchmarkId::new(configuration.name(), load), |b| b.iter(run));
        }
    }
    group.finish();
}

criterion_group!(benches, hops);
criterion_main!(benches);

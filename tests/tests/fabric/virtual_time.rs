//! Virtual time does not overflow, however much of it one card uses.

use std::time::Duration;

use cmdseq::plan::{Collective, Request, plan};
use cmdseq::{Combine, Element, Instruction, Reduction};
use fpga_driver::{Cluster, Execution, Times};
use fpga_mock::Profile;
use fpga_tests::run::open;

/// Collectives that take different paths: signals alone, receive buffers, rendezvous, folds, the multicast stream.
const COLLECTIVES: [(&str, u64); 6] = [
    ("barrier", 0),
    ("allgather", 100),
    ("alltoall", 100_000),
    ("allreduce", 4096),
    ("scan", 64),
    ("sendrecv", 1 << 20),
];

/// T1, T2 and arrival of each of [`COLLECTIVES`], in each of two repetitions, and the skew of the cards.
fn counted(cluster: &mut Cluster) -> Vec<(Vec<Times>, Vec<u64>)> {
    let run = |(operation, bytes): (&str, u64)| {
        let collective: Collective = operation.parse().unwrap();
        let reduces = matches!(operation, "allreduce" | "scan");
        let combine = reduces.then_some(Combine { reduction: Reduction::Sum, element: Element::F32 });
        let request = Request { combine, ..Request::new(collective, (0..4).collect(), bytes) };
        let plan = plan(&request, cluster.capabilities()).unwrap();
        let report = cluster.execute(&plan.set, &Execution { repeat: 2, ..Execution::default() }).unwrap();
        (report.repetitions, report.skew_cycles)
    };
    COLLECTIVES.into_iter().map(run).collect()
}

#[test]
fn collectives_after_1e20_picoseconds_take_as_long_as_at_time_zero() {
    let (fabric, mut cluster) = open(Profile::optweb(4));
    let before = counted(&mut cluster);
    // The longest delay there is, 344 s of the fabric's time.
    let delays = vec![Instruction::delay(1 << 36); 1000];
    while fabric.statistics().now_ps < 10u128.pow(20) {
        let done = cluster.card_mut(3).run(&delays, Duration::from_secs(60)).unwrap();
        assert!(done.iter().all(|completion| completion.t2 == 1 << 36));
    }
    assert_eq!(counted(&mut cluster), before);
}

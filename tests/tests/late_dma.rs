//! A card whose DMA is answered late, one request at a time, does the same as one whose DMA is over at once.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fpga_driver::{Cluster, Execution, Report};
use fpga_hal::{Domain, in_process};
use fpga_mock::{Fabric, Profile};
use fpga_tests::pattern;
use fpga_tests::recorder::LateCard;
use fpga_tests::run::{open, plan_all};

fn times(report: &Report) -> Vec<(u64, u64, u64)> {
    let completions = report.ranks.iter().flat_map(|rank| rank.repetitions.iter().flatten());
    completions.map(|completion| (completion.t1, completion.t2, completion.arrival)).collect()
}

#[test]
fn late_answers_change_nothing() {
    let fabric = Fabric::new(Profile::optweb(4)).unwrap();
    let late: Vec<Arc<LateCard>> = (0..4).map(|node| LateCard::new(fabric.endpoint(node))).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // From the last to the first, so that the order of the cards is not the order of the answers.
                if late.iter().rev().filter(|card| card.answer_one()).count() == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let domain = Domain::in_process();
        let attach = |(node, card): (usize, &Arc<LateCard>)| {
            in_process::attach(Arc::clone(card) as _, &domain, &format!("late {node}")).unwrap()
        };
        let mut cluster = Cluster::open(late.iter().enumerate().map(attach).collect()).unwrap();
        let (_fabric, mut prompt) = open(Profile::optweb(4));
        for (operation, bytes) in [("barrier", 0), ("alltoall", 100), ("allgather", 20_000), ("broadcast", 70_000)] {
            let plan = plan_all(&cluster, operation, bytes, None, None).unwrap();
            let mut reports = Vec::new();
            for cluster in [&mut cluster, &mut prompt] {
                for rank in 0..4 {
                    let mut input = vec![0; if operation == "alltoall" { 4 * bytes as usize } else { bytes as usize }];
                    pattern::fill(5, rank, 0, &mut input);
                    if operation != "broadcast" || rank == 0 {
                        cluster.write_input(&plan, rank, 0, &input).unwrap();
                    }
                }
                reports.push(times(&cluster.execute(&plan, &Execution::default()).unwrap()));
                if operation == "allgather" {
                    let mut output = vec![0; 4 * bytes as usize];
                    cluster.read_output(&plan, 2, 0, &mut output).unwrap();
                    for rank in 0..4 {
                        let block = &output[rank * bytes as usize..][..bytes as usize];
                        assert_eq!(pattern::first_difference(5, rank as u32, 0, block), None);
                    }
                }
            }
            assert_eq!(reports[0], reports[1], "{operation}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

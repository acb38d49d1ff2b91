//! Cards with routers: what a link that is down takes with it, and what it leaves.

use std::time::Duration;

use cmdseq::plan::{Collective, Plan, Request, plan};
use cmdseq::{Hop, Status, Topology};
use fpga_driver::{Cluster, Error, Execution};
use fpga_mock::{Fault, Moved, Profile, When};
use fpga_tests::run::open;

const ROWS: u32 = 3;
const COLUMNS: u32 = 4;
const NODES: u32 = ROWS * COLUMNS;
const BYTES: u64 = 20_000;

fn planned(cluster: &Cluster, collective: Collective, group: Vec<u32>) -> Plan {
    plan(&Request::new(collective, group, BYTES), cluster.capabilities()).expect("a plan")
}

/// Runs a plan of blocks that each have their own bytes. `Ok` only if every byte is right.
fn run(cluster: &mut Cluster, plan: &Plan) -> Result<(), Error> {
    let request = &plan.request;
    let data = |rank: u32| vec![rank as u8 + 1; request.input_bytes(rank) as usize];
    for rank in 0..request.ranks() {
        cluster.write_input(&plan.set, rank, 0, &data(rank))?;
    }
    cluster.execute(&plan.set, &Execution { timeout: Duration::from_secs(20), ..Execution::default() })?;
    for rank in 0..request.ranks() {
        let mut output = vec![0; request.output_bytes(rank) as usize];
        cluster.read_output(&plan.set, rank, 0, &mut output)?;
        let expected: Vec<u8> = match request.collective {
            Collective::Allgather => (0..request.ranks()).flat_map(data).collect(),
            _ => output.iter().map(|_| request.root as u8 + 1).collect(),
        };
        assert!(output == expected, "rank {rank} has wrong data, and nobody said so");
    }
    Ok(())
}

fn is_link_down(error: &Error) -> bool {
    matches!(error, Error::Failed { status: Status::LinkDown, .. })
}

/// The links of the ways from one card to another and back.
fn ways(a: u32, b: u32) -> Vec<Hop> {
    let topology = Topology::Torus { rows: ROWS };
    topology.way(a, b, NODES).chain(topology.way(b, a, NODES)).collect()
}

#[test]
fn a_cut_link_fails_what_leads_over_it_and_nothing_else() {
    // Between cards 0 and 1, in both directions.
    let cut = ways(0, 1);
    assert_eq!(cut.len(), 2);
    let mut failed = 0;
    for (a, b) in (0..NODES).flat_map(|a| (a + 1..NODES).map(move |b| (a, b))) {
        let (fabric, mut cluster) = open(Profile::circus(ROWS, COLUMNS));
        let plan = planned(&cluster, Collective::Send, vec![a, b]);
        fabric.plant(Fault::Cut { a: 0, b: 1, when: When::Now });
        let is_over = ways(a, b).iter().any(|hop| cut.contains(hop));
        match run(&mut cluster, &plan) {
            Ok(()) => assert!(!is_over, "from {a} to {b}"),
            Err(error) => assert!(is_over && is_link_down(&error), "from {a} to {b}: {error}"),
        }
        failed += u32::from(is_over);
    }
    // Of the row's ring of four: its two cards, and both of the next ones, to all rows.
    assert!((10..40).contains(&failed), "{failed}");
}

/// Cards 5 and 7 are two links apart, over card 4 of their row's ring: its link to 7 goes down in the middle of a transfer.
#[test]
fn a_way_is_there_again_once_its_last_link_is() {
    let (fabric, mut cluster) = open(Profile::circus(ROWS, COLUMNS));
    let plan = planned(&cluster, Collective::Send, vec![5, 7]);
    let others = planned(&cluster, Collective::Allgather, vec![0, 1]);
    assert_eq!(ways(5, 7).iter().map(|hop| hop.node).collect::<Vec<_>>(), [5, 4, 7, 6]);
    let when = When::Moved(Moved { node: 5, tag: None, transfer: 0, bytes: BYTES / 2 });
    fabric.plant(Fault::Flap { a: 4, b: 7, when, down_ps: 1_000_000, count: 1 });
    let error = run(&mut cluster, &plan).expect_err("the link was down");
    assert!(is_link_down(&error), "{error}");
    run(&mut cluster, &others).expect("the others do not use it");
    run(&mut cluster, &plan).expect("the way is there again");
}

//! Cards whose eager limits differ, because one was reset, are refused before they wait for each other.

use std::time::Duration;

use cmdseq::graph::Schedule;
use cmdseq::plan::{Collective, Plan, Request, plan};
use fpga_driver::{Cluster, Error, Execution};
use fpga_mock::{Fabric, Profile};
use fpga_tests::{run, threads};

fn alltoall(cluster: &Cluster) -> Plan {
    plan(&Request::new(Collective::Alltoall, vec![0, 1], 1024), cluster.capabilities()).unwrap()
}

fn execute(cluster: &mut Cluster, plan: &Plan) -> Result<(), Error> {
    cluster.execute(&plan.set, &Execution::default()).map(drop)
}

#[test]
fn a_reset_card_is_refused_until_its_limit_is_set_again() {
    let (_fabric, mut cluster) = run::open(Profile::optweb(2));
    let own = cluster.capabilities().eager_limit;
    cluster.set_eager_limit(0).unwrap();
    let plan = alltoall(&cluster);
    execute(&mut cluster, &plan).unwrap();
    cluster.card_mut(1).reset().unwrap();
    let error = execute(&mut cluster, &plan).unwrap_err();
    let limits = format!("0 and {own} bytes");
    assert!(matches!(&error, Error::Mismatch { node: 0, other: 1, what } if what.contains(&limits)), "{error}");
    cluster.set_eager_limit(0).unwrap();
    execute(&mut cluster, &plan).unwrap();
}

/// Stored programs were verified for one limit.
#[test]
fn a_prepared_schedule_is_launched_with_its_limit_only() {
    let (_fabric, mut cluster) = run::open(Profile::optweb(2));
    let own = cluster.capabilities().eager_limit;
    let plan = alltoall(&cluster);
    let mut prepared = cluster.prepare(&Schedule::of(&plan)).unwrap();
    for node in [0, 1] {
        cluster.card_mut(node).set_eager_limit(0).unwrap();
        let error = cluster.launch(&mut prepared).unwrap_err();
        assert!(matches!(error, Error::BadArgument { what: "eager limit", .. }), "{error}");
        cluster.card_mut(node).set_eager_limit(own).unwrap();
        cluster.launch(&mut prepared).unwrap();
        cluster.finish(&mut prepared, Duration::from_secs(60)).unwrap();
    }
}

#[test]
fn a_rank_whose_limit_differs_is_named_by_all() {
    let errors = threads::clusters(&Fabric::new(Profile::optweb(2)).unwrap(), |cluster, rank| {
        let plan = alltoall(cluster);
        if rank == 1 {
            cluster.set_eager_limit(0).unwrap();
        }
        let error = execute(cluster, &plan).unwrap_err();
        cluster.set_eager_limit(0).unwrap();
        execute(cluster, &plan).unwrap();
        error.to_string()
    });
    assert!(
        errors.iter().all(|error| error.starts_with("Rank 1: its eager_limit is 0, and that of rank 0")),
        "{errors:?}"
    );
}

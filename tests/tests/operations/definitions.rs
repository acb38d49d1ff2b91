//! Communicators that programs name by their own ids.

use std::time::Duration;

use cmdseq::Instruction;
use cmdseq::graph::Schedule;
use cmdseq::plan::{self, Collective, Request, plan};
use fpga_driver::{Bound, Error, Execution};
use fpga_mock::{Fabric, Profile};
use fpga_tests::run::open;
use fpga_tests::threads;

use crate::communicators::{ENTRIES, gathers};

#[test]
fn a_stored_plan_keeps_what_is_defined_for_it() {
    let (_fabric, mut cluster) = open(Profile::optweb(4));
    let group = vec![1, 0, 2];
    let named = |id, members: &[u32]| plan::Communicator { id, members: members.to_vec() };
    cluster.define(&named(12, &group)).unwrap();
    let plan = plan(&Request::new(Collective::Allgather, group.clone(), 64), cluster.capabilities()).unwrap();
    let mut prepared = cluster.prepare(&Schedule::of(&plan)).unwrap();
    for round in 0..3_u8 {
        let refused: [&[&[u32]]; 3] = [&[], &[&[2, 0, 1]], &[&[0, 1]]];
        for members in refused[usize::from(round)] {
            assert!(matches!(cluster.define(&named(12, members)), Err(Error::BadArgument { .. })), "{members:?}");
        }
        let value = |rank: u8| 16 * round + rank + 1;
        for rank in 0..3 {
            cluster.write_input(&plan.set, rank, 0, &[value(rank as u8); 64]).unwrap();
        }
        cluster.launch(&mut prepared).unwrap();
        cluster.finish(&mut prepared, Duration::from_secs(60)).unwrap();
        let expected: Vec<u8> = (0..3).flat_map(|rank| [value(rank); 64]).collect();
        for rank in 0..3 {
            let mut found = vec![0; expected.len()];
            cluster.read_output(&plan.set, rank, 0, &mut found).unwrap();
            assert_eq!(found, expected, "round {round}, rank {rank}");
        }
    }
    drop(prepared);
    cluster.define(&named(12, &[2, 0, 1])).unwrap();
    gathers(&mut cluster, 12, &[2, 0, 1], 5);
}

#[test]
fn what_a_plan_has_defined_stays_once_its_id_is_defined() {
    let (_fabric, mut cluster) = open(Profile::optweb(3));
    let group = vec![0, 1];
    let barrier = plan(&Request::new(Collective::Barrier, group.clone(), 0), cluster.capabilities()).unwrap();
    cluster.execute(&barrier.set, &Execution::default()).unwrap();
    cluster.define(&plan::Communicator { id: 1, members: group.clone() }).unwrap();
    let world = cluster.world();
    let others: Vec<_> = (2..ENTRIES).map(|_| cluster.duplicate(&world).unwrap()).collect();
    assert!(matches!(cluster.duplicate(&world), Err(Error::TableFull { .. })));
    gathers(&mut cluster, 1, &group, 6);
    others.iter().for_each(|one| gathers(&mut cluster, one.id(), &[0, 1, 2], one.id().into()));
}

/// All ranks know of a refusal before any of them replaces what is in the way.
#[test]
fn a_definition_that_one_rank_refuses_changes_nothing_on_any() {
    threads::clusters(&Fabric::new(Profile::optweb(3)).unwrap(), |cluster, rank| {
        let named = |members: &[u32]| plan::Communicator { id: 12, members: members.to_vec() };
        cluster.define(&named(&[1, 2])).unwrap();
        let members: &[u32] = if rank == 0 { &[0, 0] } else { &[0, 1] };
        cluster.define(&named(members)).unwrap_err();
        let barrier = || vec![Bound::from(Instruction::barrier().on(12))];
        cluster.run(&[1, 2], &[barrier(), barrier()], Duration::from_secs(60)).unwrap().result.unwrap();
    });
}

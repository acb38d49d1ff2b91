//! Launches of a prepared schedule: each takes its own completions, and none is lost by a wait in vain.

use std::sync::Arc;
use std::time::Duration;

use cmdseq::Operation;
use cmdseq::graph::{Buffer, Placed, Schedule};
use cmdseq::plan::{Collective, Request, plan};
use fpga_driver::{Cluster, Error, ErrorKind, Prepared, State};

use crate::cards::open_all;
use fpga_fake::{BLOCK, Fake, Reply};

const SHORT: Duration = Duration::from_millis(30);
const LONG: Duration = Duration::from_secs(60);

/// Two cards with a barrier of both stored on them.
fn open() -> (Vec<Arc<Fake>>, Cluster, Prepared) {
    let fakes: Vec<_> = (0..2).map(|node| Fake::node(node, 2, 64)).collect();
    let mut cluster = open_all(fakes.iter().map(Fake::function).collect()).unwrap();
    let plan = plan(&Request::new(Collective::Barrier, vec![0, 1], 0), cluster.capabilities()).unwrap();
    let prepared = cluster.prepare(&Schedule::of(&plan)).unwrap();
    assert!(fakes.iter().all(|fake| fake.state().ran == [Operation::Store]));
    (fakes, cluster, prepared)
}

#[test]
fn a_binding_that_is_invalid_is_refused() {
    let (_fakes, _cluster, mut prepared) = open();
    let error = prepared.rebind("none", 0).unwrap_err();
    assert!(matches!(error, Error::Unbound(_)), "{error}");
    assert_eq!(error.kind(), ErrorKind::Refused);
}

#[test]
fn a_launch_in_flight_does_not_take_the_completion_of_another() {
    let (fakes, mut cluster, mut prepared) = open();
    // The completion of the first launch comes twice.
    fakes[1].plant(1, Reply::Twice);
    cluster.launch(&mut prepared).unwrap();
    cluster.launch(&mut prepared).unwrap();
    // Both are there, so that it depends on the timing of nobody when the second one is found.
    let outcome = cluster.finish(&mut prepared, LONG).and_then(|_| cluster.finish(&mut prepared, LONG));
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::BadCompletion { expected: 2, found: 1, .. }), "{error}");
    assert_eq!(prepared.in_flight(), 0);
}

#[test]
fn each_launch_has_a_tag_of_its_own() {
    // More than the ring has; the fake asserts that tags count.
    let (fakes, mut cluster, mut prepared) = open();
    for _ in 0..200 {
        cluster.launch(&mut prepared).unwrap();
        cluster.launch(&mut prepared).unwrap();
        cluster.finish(&mut prepared, LONG).unwrap();
        cluster.finish(&mut prepared, LONG).unwrap();
    }
    assert_eq!(fakes[0].state().ran.len(), 401);
}

#[test]
fn a_wait_in_vain_consumes_and_aborts_nothing() {
    let (fakes, mut cluster, mut prepared) = open();
    fakes[0].plant(1, Reply::Hang);
    fakes[0].set(BLOCK + 0x124, u32::MAX);
    for in_flight in 1..3 {
        cluster.launch(&mut prepared).unwrap();
        for _ in 0..2 {
            let error = cluster.finish(&mut prepared, SHORT).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, Error::Timeout { node: Some(0), rank: Some(0), .. }), "{text}");
            assert!(text.contains("1 of 2 ranks") && text.contains("again"), "{text}");
            assert_eq!(prepared.in_flight(), in_flight);
        }
    }
    fakes[0].release();
    for left in [1, 0] {
        cluster.finish(&mut prepared, LONG).unwrap();
        assert_eq!((prepared.in_flight(), prepared.completions().count()), (left, 2));
    }
    assert!(matches!(cluster.finish(&mut prepared, SHORT), Err(Error::BadArgument { .. })));
    // Nothing was aborted, and the longest timeout there is does not overflow.
    cluster.launch(&mut prepared).unwrap();
    cluster.finish(&mut prepared, Duration::MAX).unwrap();
    assert_eq!(fakes[1].state().ran, [&[Operation::Store][..], &[Operation::Launch; 3]].concat());
}

#[test]
fn a_launch_that_is_given_up_is_aborted_on_all_cards() {
    let (fakes, mut cluster, mut prepared) = open();
    fakes[1].plant(1, Reply::Hang);
    cluster.launch(&mut prepared).unwrap();
    assert!(matches!(cluster.finish(&mut prepared, SHORT), Err(Error::Timeout { node: Some(1), .. })));
    cluster.give_up(&mut prepared).unwrap();
    assert_eq!(prepared.in_flight(), 0);
    fakes[1].state().script.clear();
    cluster.launch(&mut prepared).unwrap();
    cluster.finish(&mut prepared, LONG).unwrap();
}

#[test]
fn nothing_is_launched_if_a_card_does_not_run() {
    let (fakes, mut cluster, mut prepared) = open();
    fakes[1].plant(1, Reply::Deaf);
    cluster.launch(&mut prepared).unwrap();
    assert!(matches!(cluster.finish(&mut prepared, SHORT), Err(Error::Timeout { .. })));
    assert!(cluster.give_up(&mut prepared).is_err());
    assert_eq!([0, 1].map(|card| cluster.cards()[card].state()), [State::Running, State::Poisoned]);
    let before = fakes[0].state().ran.len();
    assert!(matches!(cluster.launch(&mut prepared), Err(Error::NotRunning { state: State::Poisoned, .. })));
    assert_eq!((fakes[0].state().ran.len(), prepared.in_flight()), (before, 0));
}

#[test]
fn what_was_merely_aborted_is_told_of_last() {
    let (fakes, mut cluster, mut prepared) = open();
    let mut outcome = |codes: [u8; 2]| {
        for (fake, code) in fakes.iter().zip(codes) {
            fake.state().script = (0..64).map(|count| (count, Reply::Code(code, 0))).collect();
        }
        cluster.launch(&mut prepared).unwrap();
        match cluster.finish(&mut prepared, LONG).unwrap_err() {
            Error::Failed { rank: Some(rank), status, .. } => (rank, status.code()),
            other => panic!("{other}"),
        }
    };
    assert_eq!(outcome([14, 13]), (1, 13));
    assert_eq!(outcome([13, 14]), (0, 13));
    assert_eq!(outcome([0, 14]), (1, 14));
    assert_eq!(outcome([14, 14]), (0, 14));
}

#[test]
fn programs_as_long_as_a_card_can_store_are_prepared() {
    let (_fakes, mut cluster, _prepared) = open();
    let plan = plan(&Request::new(Collective::Barrier, vec![0, 1], 0), cluster.capabilities()).unwrap();
    let longest = cluster.capabilities().resident_words as usize;
    for (length, fits) in [(longest - 1, true), (longest, true), (longest + 1, false)] {
        let mut schedule = Schedule::of(&plan);
        for program in &mut schedule.set.programs {
            program.instructions = vec![program.instructions[0]; length];
        }
        match cluster.prepare(&schedule) {
            Ok(_) => assert!(fits, "{length} instructions"),
            Err(Error::Refused(_)) => assert!(!fits, "{length} instructions"),
            Err(error) => panic!("{length} instructions: {error}"),
        }
    }
}

#[test]
fn the_buffers_of_another_cluster_are_not_touched() {
    let (_fakes, mut cluster, _) = open();
    let (fakes, mut other, _) = open();
    let plan = plan(&Request::new(Collective::Barrier, vec![0, 1], 0), cluster.capabilities()).unwrap();
    let mut schedule = Schedule::of(&plan);
    schedule.buffers.push(Placed { buffer: Buffer::new("a", 64), address: 4096, argument: None });
    let prepared = cluster.prepare(&schedule).unwrap();
    cluster.write_buffer(&prepared, 0, "a", 0, &[7; 64]).unwrap();
    let mut found = [0; 64];
    cluster.read_buffer(&prepared, 0, "a", 0, &mut found).unwrap();
    assert_eq!(found, [7; 64]);
    for error in [
        other.write_buffer(&prepared, 0, "a", 0, &[9; 64]).unwrap_err(),
        other.read_buffer(&prepared, 0, "a", 0, &mut found).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Stale { .. }), "{error}");
    }
    assert_eq!((found, fakes[0].state().memory[4096]), ([7; 64], 0));
}

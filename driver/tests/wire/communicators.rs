//! Communicators on cards that refuse, are silent, or know less.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cmdseq::graph::Schedule;
use cmdseq::{Instruction, Operation, Status, plan};
use fpga_driver::{Alone, Bound, Cluster, Error, Execution};

use crate::cards::open_all;
use fpga_fake::{BLOCK, Fake, Reply, Times};

const GROUP: Operation = Operation::Group;
const FREE: Operation = Operation::Free;

/// Cards that free communicators and tell 256 generations apart.
fn open(nodes: u32) -> (Vec<Arc<Fake>>, Cluster) {
    let fakes: Vec<_> = (0..nodes).map(|node| Fake::node(node, nodes, 64)).collect();
    for fake in &fakes {
        fake.set(BLOCK + 0x74, 0x117);
        fake.set(BLOCK + 0xbc, 256);
    }
    let cluster = open_all(fakes.iter().map(Fake::function).collect()).unwrap();
    (fakes, cluster)
}

fn ran(fake: &Fake) -> Vec<Operation> {
    fake.state().ran.clone()
}

#[test]
fn what_one_card_refuses_stays_on_none() {
    let (fakes, mut cluster) = open(3);
    let world = cluster.world();
    fakes[1].plant(0, Reply::Code(5, 0));
    let error = cluster.create(&world, &[0, 1, 2]).unwrap_err();
    assert!(matches!(error, Error::Failed { node: 1, status: Status::BadCommunicator, .. }), "{error}");
    assert_eq!([0, 1, 2].map(|node| ran(&fakes[node])), [vec![GROUP, FREE], vec![GROUP], vec![GROUP, FREE]]);
    // The id is not used again, though it has never been any.
    assert_eq!(cluster.create(&world, &[2, 1]).unwrap().id(), 2);
}

#[test]
fn plans_with_a_communicator_in_common_define_it_once() {
    let (fakes, mut cluster) = open(3);
    let one = |id, members: &[u32]| plan::Communicator { id, members: members.to_vec() };
    let contexts = cluster.contexts(&[one(1, &[0, 1]), one(1, &[0, 1]), one(1, &[2, 1]), one(2, &[0, 1])]).unwrap();
    assert_eq!([0, 1, 2].map(|node| ran(&fakes[node]).len()), [2, 3, 1]);
    assert_eq!([0, 2].map(|node| contexts.id(node, 1)), [1, 2]);
}

#[test]
fn a_card_that_does_not_say_what_it_has_is_told_to_free_it_first() {
    let (fakes, mut cluster) = open(2);
    let world = cluster.world();
    cluster.card_mut(1).set_timeout(Duration::from_millis(30));
    fakes[1].plant(0, Reply::Hang);
    let start = Instant::now();
    let error = cluster.create(&world, &[1, 0]).unwrap_err();
    assert!(matches!(error, Error::Timeout { node: Some(1), .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(ran(&fakes[0]), [GROUP, FREE]);
    fakes[1].release();
    cluster.card_mut(1).set_timeout(Duration::from_secs(10));
    // The order to free it was given and not waited for to its end; it is given once more.
    cluster.define(&plan::Communicator { id: 33, members: vec![1] }).unwrap();
    assert_eq!(ran(&fakes[1]), [GROUP, FREE, FREE, GROUP]);
    assert_eq!(ran(&fakes[0]), [GROUP, FREE]);
}

#[test]
fn a_handle_is_gone_though_its_card_does_not_forget() {
    let (fakes, mut cluster) = open(2);
    let world = cluster.world();
    let one = cluster.create(&world, &[0]).unwrap();
    fakes[0].plant(1, Reply::Code(14, 0));
    let error = cluster.free(&one).unwrap_err();
    assert!(matches!(error, Error::Failed { node: 0, operation: FREE, status: Status::Aborted, .. }), "{error}");
    assert!(matches!(cluster.free(&one), Err(Error::Stale { what: "communicator" })));
    cluster.define(&plan::Communicator { id: 33, members: vec![0] }).unwrap();
    assert_eq!(ran(&fakes[0]), [GROUP, FREE, FREE, GROUP]);
    // A card that has forgotten it already is content.
    let two = cluster.create(&world, &[1]).unwrap();
    fakes[1].plant(1, Reply::Code(5, 0));
    cluster.free(&two).unwrap();
}

#[test]
fn a_reset_card_is_told_again() {
    let (fakes, mut cluster) = open(2);
    let world = cluster.world();
    let both = cluster.create(&world, &[1, 0]).unwrap();
    cluster.restore(&both).unwrap();
    cluster.card_mut(0).reset().unwrap();
    cluster.restore(&both).unwrap();
    assert_eq!([0, 1].map(|node| ran(&fakes[node])), [vec![GROUP, GROUP], vec![GROUP]]);
    // What a reset has freed is not freed once more.
    cluster.card_mut(0).reset().unwrap();
    cluster.free(&both).unwrap();
    assert_eq!([0, 1].map(|node| ran(&fakes[node])), [vec![GROUP, GROUP], vec![GROUP, FREE]]);
}

#[test]
fn an_older_card_defines_over_what_is_there() {
    let fakes = [Fake::node(0, 2, 64), Fake::node(1, 2, 64)];
    let mut cluster = open_all(fakes.iter().map(Fake::function).collect()).unwrap();
    assert_eq!(cluster.capabilities().communicator_generations, 1);
    let world = cluster.world();
    // It knows only one id to an entry, so those come again when each was given.
    for id in (1..16).chain([1, 1]) {
        let one = cluster.create(&world, &[1]).unwrap();
        assert_eq!(one.id(), id);
        cluster.free(&one).unwrap();
    }
    assert_eq!(ran(&fakes[1]), [GROUP; 17]);
    // Its table is what it says.
    let all: Vec<_> = (1..16).map(|_| cluster.duplicate(&world).unwrap()).collect();
    let error = cluster.duplicate(&world).unwrap_err();
    assert!(matches!(error, Error::TableFull { cards: 2, limit: 16 }), "{error}");
    assert_eq!(all.len(), 15);
}

#[test]
fn what_a_lost_card_has_makes_room_for_the_others() {
    let fakes: Vec<_> = (0..3).map(|node| Fake::node(node, 3, 64)).collect();
    for fake in &fakes {
        fake.set(BLOCK + 0x74, 0x117);
        // One entry besides that of all cards.
        fake.set(BLOCK + 0x58, 2);
    }
    let mut cluster = open_all(fakes.iter().map(Fake::function).collect()).unwrap();
    let barrier = |cluster: &Cluster, group: &[u32]| {
        plan::plan(&plan::Request::new(plan::Collective::Barrier, group.to_vec(), 0), cluster.capabilities()).unwrap()
    };
    let execution = Execution::default();
    let (before, after) = (barrier(&cluster, &[1, 2]), barrier(&cluster, &[0, 1]));
    cluster.execute(&before.set, &execution).unwrap();
    fakes[2].state().is_gone = true;
    assert!(matches!(cluster.execute(&before.set, &execution), Err(Error::Removed { .. })));
    cluster.execute(&after.set, &execution).unwrap();
    assert!(ran(&fakes[1]).contains(&FREE), "the entry was taken from the card that was lost");
}

#[test]
fn an_id_is_defined_if_the_cards_have_its_entry_and_its_generation() {
    let fakes: Vec<_> = (0..2).map(|node| Fake::node(node, 2, 64)).collect();
    for fake in &fakes {
        fake.set(BLOCK + 0x74, 0x117);
        // 16 entries, of four generations each.
        fake.set(BLOCK + 0xbc, 4);
    }
    let mut cluster = open_all(fakes.iter().map(Fake::function).collect()).unwrap();
    let id = |entry: u16, generation: u16| entry + 32 * generation;
    for (entry, generation, is_there) in [
        (0, 0, false),
        (0, 1, false),
        (1, 0, true),
        (15, 0, true),
        (16, 0, false),
        (31, 1, false),
        (1, 3, true),
        (1, 4, false),
        (15, 3, true),
        (15, 255, false),
        (16, 4, false),
    ] {
        let outcome = cluster.define(&plan::Communicator { id: id(entry, generation), members: vec![1] });
        match outcome {
            Ok(()) => assert!(is_there, "entry {entry}, generation {generation}"),
            Err(error) => {
                assert!(!is_there && matches!(error, Error::BadArgument { .. }), "{entry}, {generation}: {error}");
            }
        }
    }
}

#[test]
fn an_id_is_the_same_communicator_only_of_the_same_members() {
    let (fakes, mut cluster) = open(3);
    let define = |id: u16, members: &[u32]| plan::Communicator { id, members: members.to_vec() };
    for (communicator, expected) in [
        (define(1, &[0, 1]), vec![GROUP]),
        (define(1, &[0, 1]), vec![]),
        // Another order, another id, and a later generation of the first, in whose place it is.
        (define(1, &[1, 0]), vec![FREE, GROUP]),
        (define(2, &[1, 0]), vec![GROUP]),
        (define(33, &[1, 0]), vec![FREE, GROUP]),
    ] {
        fakes.iter().for_each(|fake| fake.state().ran.clear());
        cluster.define(&communicator).unwrap();
        assert_eq!([0, 1, 2].map(|node| ran(&fakes[node])), [expected.clone(), expected, vec![]], "{communicator:?}");
    }
}

/// Freeing could not even be asked for; the card goes on after an abort, which frees nothing.
#[test]
fn what_a_card_still_has_is_freed_before_its_entry_is_used() {
    let fakes: Vec<_> = (0..2).map(|node| Fake::node(node, 2, 64)).collect();
    for fake in &fakes {
        fake.set(BLOCK + 0x74, 0x117);
        fake.set(BLOCK + 0xbc, 256);
        // One entry besides that of all cards.
        fake.set(BLOCK + 0x58, 2);
    }
    let mut cluster = open_all(fakes.iter().map(Fake::function).collect()).unwrap();
    let world = cluster.world();
    let one = cluster.create(&world, &[0]).unwrap();
    fakes[0].plant(1, Reply::Deaf);
    cluster.card_mut(0).queue_mut().submit(Instruction::nop()).unwrap().abandon();
    cluster.card_mut(0).abort().unwrap_err();
    assert!(matches!(cluster.free(&one).unwrap_err(), Error::NotRunning { .. }));
    fakes[0].state().script.clear();
    fakes[0].release();
    cluster.card_mut(0).abort().unwrap();
    let two = cluster.create(&world, &[0]).unwrap();
    assert_eq!((one.id(), two.id()), (1, 33));
    assert_eq!(ran(&fakes[0]), [GROUP, Operation::Nop, FREE, GROUP]);
}

#[test]
fn what_a_program_has_freed_is_defined_again_for_the_next() {
    let (fakes, mut cluster) = open(3);
    let request = plan::Request::new(plan::Collective::Barrier, vec![2, 0], 0);
    let barrier = plan::plan(&request, cluster.capabilities()).unwrap();
    let mut freeing = barrier.clone();
    let id = barrier.set.communicators[0].id;
    freeing.set.programs.iter_mut().for_each(|program| program.instructions.push(Instruction::free(id)));
    cluster.execute(&freeing.set, &Execution::default()).unwrap();
    assert_eq!(ran(&fakes[2]).last(), Some(&FREE));
    fakes.iter().for_each(|fake| fake.state().ran.clear());
    cluster.execute(&barrier.set, &Execution::default()).unwrap();
    for node in [0, 2] {
        assert_eq!(ran(&fakes[node])[..2], [FREE, GROUP], "node {node}");
    }
}

#[test]
fn what_the_programs_of_a_run_have_changed_is_defined_again() {
    let (fakes, mut cluster) = open(3);
    let barrier = barrier(&cluster, &[2, 0]);
    cluster.execute(&barrier.set, &Execution::default()).unwrap();
    let free = || vec![Instruction::free(1).into()];
    let run = |cluster: &mut Cluster, group: &[u32], programs: &[Vec<Bound>]| {
        cluster.run(group, programs, Duration::from_secs(60)).unwrap().result.unwrap();
    };
    run(&mut cluster, &[2, 0], &[free(), free()]);
    fakes.iter().for_each(|fake| fake.state().ran.clear());
    cluster.execute(&barrier.set, &Execution::default()).unwrap();
    for node in [0, 2] {
        assert_eq!(ran(&fakes[node])[..2], [FREE, GROUP], "node {node}");
    }
    // In an entry that the cluster has not used.
    let table = cluster.cards()[1].allocate(2).unwrap();
    table.write(0, &[1, 0]).unwrap();
    let group = Instruction::group(5, table.iova().0, 1);
    run(&mut cluster, &[1], &[vec![Bound::from(group).holding(table)]]);
    fakes[1].state().ran.clear();
    cluster.define(&named(5, &[1])).unwrap();
    assert_eq!(ran(&fakes[1]), [FREE, GROUP]);
}

/// As an id of its own, with an instruction of its own, which the cluster has not drawn.
fn grouped(cluster: &Cluster, id: u16) -> Bound {
    let table = cluster.cards()[0].allocate(2).unwrap();
    table.write(0, &[0, 0]).unwrap();
    Bound::from(Instruction::group(id, table.iova().0, 1)).holding(table)
}

#[test]
fn what_a_program_has_put_in_an_entry_is_freed_by_its_own_id() {
    let (fakes, mut cluster) = open(2);
    let ids: Arc<Mutex<Vec<(Operation, u16)>>> = Arc::default();
    let noted = Arc::clone(&ids);
    fakes[0].state().times = Box::new(move |one| {
        noted.lock().unwrap().push((one.operation, one.communicator));
        Times::default()
    });
    cluster.define(&named(1, &[0, 1])).unwrap();
    let programs = [vec![Instruction::free(1).into(), grouped(&cluster, 33)]];
    cluster.run(&[0], &programs, Duration::from_secs(60)).unwrap().result.unwrap();
    ids.lock().unwrap().clear();
    cluster.define(&named(65, &[0, 1])).unwrap();
    assert_eq!(*ids.lock().unwrap(), [(FREE, 33), (GROUP, 65)]);
}

#[test]
fn an_id_of_a_program_is_not_drawn_afterwards() {
    let (_fakes, mut cluster) = open(2);
    let world = cluster.world();
    let programs = [vec![grouped(&cluster, 5), Instruction::free(5).into()]];
    cluster.run(&[0], &programs, Duration::from_secs(60)).unwrap().result.unwrap();
    let ids: Vec<u16> = (0..8).map(|_| cluster.create(&world, &[0]).unwrap().id()).collect();
    assert!(!ids.contains(&5), "{ids:?}");
}

#[test]
fn an_id_that_has_come_back_by_a_reset_is_not_returned_once_more() {
    let fakes: Vec<_> = (0..2).map(|node| Fake::node(node, 2, 64)).collect();
    for fake in &fakes {
        fake.set(BLOCK + 0x74, 0x117);
        // One entry besides that of all cards, of two generations.
        fake.set(BLOCK + 0x58, 2);
        fake.set(BLOCK + 0xbc, 2);
    }
    let mut cluster = open_all(fakes.iter().map(Fake::function).collect()).unwrap();
    let world = cluster.world();
    let registered = cluster.register(Box::new(Alone), &[]).unwrap();
    assert_eq!(registered.id(), 1);
    cluster.free(&registered).unwrap();
    (0..2).for_each(|index| cluster.card_mut(index).reset().unwrap());
    for id in [1, 33] {
        let one = cluster.create(&world, &[0, 1]).unwrap();
        assert_eq!(one.id(), id);
        cluster.free(&one).unwrap();
    }
    assert!(matches!(cluster.create(&world, &[0, 1]), Err(Error::IdsSpent { cards: 2 })));
}

fn named(id: u16, members: &[u32]) -> plan::Communicator {
    plan::Communicator { id, members: members.to_vec() }
}

fn barrier(cluster: &Cluster, group: &[u32]) -> plan::Plan {
    plan::plan(&plan::Request::new(plan::Collective::Barrier, group.to_vec(), 0), cluster.capabilities()).unwrap()
}

#[test]
fn a_definition_does_not_replace_what_a_stored_plan_uses() {
    let (fakes, mut cluster) = open(3);
    cluster.define(&named(12, &[1, 0, 2])).unwrap();
    let prepared = cluster.prepare(&Schedule::of(&barrier(&cluster, &[1, 0, 2]))).unwrap();
    fakes.iter().for_each(|fake| fake.state().ran.clear());
    // In another order, on some of its cards, and by a later generation of its entry.
    for other in [named(12, &[2, 0, 1]), named(12, &[0]), named(44, &[1, 0, 2])] {
        let error = cluster.define(&other).unwrap_err();
        let is_refused = matches!(&error, Error::BadArgument { expected, .. } if expected.contains("stored plan"));
        assert!(is_refused, "{other:?}: {error}");
    }
    cluster.define(&named(12, &[1, 0, 2])).unwrap();
    assert!(fakes.iter().all(|fake| ran(fake).is_empty()));
    drop(prepared);
    cluster.define(&named(12, &[2, 0, 1])).unwrap();
    assert!(fakes.iter().all(|fake| ran(fake) == [FREE, GROUP]));
}

#[test]
fn what_a_plan_has_left_makes_no_room_once_it_is_defined() {
    let (_fakes, mut cluster) = open(2);
    cluster.execute(&barrier(&cluster, &[1, 0]).set, &Execution::default()).unwrap();
    cluster.define(&named(1, &[1, 0])).unwrap();
    let world = cluster.world();
    let others: Vec<_> = (2..16).map(|_| cluster.duplicate(&world).unwrap().id()).collect();
    assert!(others.iter().all(|id| id % 32 != 1), "{others:?}");
    let error = cluster.duplicate(&world).unwrap_err();
    assert!(matches!(error, Error::TableFull { .. }), "{error}");
    // Once it is replaced, its id is not given again.
    cluster.define(&named(33, &[1])).unwrap();
    assert_eq!(cluster.create(&world, &[0]).unwrap().id(), 33);
}

#[test]
fn what_a_handle_holds_is_not_defined() {
    let (fakes, mut cluster) = open(2);
    let world = cluster.world();
    let held = cluster.create(&world, &[0, 1]).unwrap();
    let error = cluster.define(&named(held.id(), &[0, 1])).unwrap_err();
    assert!(matches!(error, Error::BadArgument { what: "communicator", .. }), "{error}");
    cluster.restore(&held).unwrap();
    cluster.free(&held).unwrap();
    cluster.define(&named(held.id(), &[0, 1])).unwrap();
    assert!(fakes.iter().all(|fake| ran(fake) == [GROUP, FREE, GROUP]));
}

#[test]
fn a_definition_that_fails_frees_nothing_that_was_there() {
    let (fakes, mut cluster) = open(2);
    let one = named(1, &[0, 1]);
    cluster.define(&one).unwrap();
    cluster.card_mut(1).reset().unwrap();
    fakes[1].plant(0, Reply::Code(5, 0));
    let error = cluster.define(&one).unwrap_err();
    assert!(matches!(error, Error::Failed { node: 1, status: Status::BadCommunicator, .. }), "{error}");
    fakes[1].state().script.clear();
    cluster.define(&one).unwrap();
    assert_eq!([0, 1].map(|node| ran(&fakes[node])), [vec![GROUP], vec![GROUP; 3]]);
}

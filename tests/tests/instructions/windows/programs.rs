//! Programs that name no windows: the driver opens those of their own data, and closes them.

use cmdseq::graph::Schedule;
use cmdseq::instruction::{Rights, Window};
use cmdseq::plan::{Communicator, ProgramSet};
use cmdseq::{Instruction, Operand, Reason, Status};
use fpga_driver::{Bound, Cluster, Error};
use fpga_mock::Profile;
use fpga_tests::run;

use super::*;

fn bound(all: &[Vec<Instruction>]) -> Vec<Vec<Bound>> {
    all.iter().map(|program| program.iter().map(Bound::from).collect()).collect()
}

/// Makes sure that no window is open: each slot can be opened, and is closed again.
fn all_are_closed(cluster: &mut Cluster) {
    let windows = cluster.capabilities().windows as u16;
    for node in 0..cluster.cards().len() {
        for slot in 0..windows {
            let window = Window { slot, key: 1 };
            done(cluster.card_mut(node), Instruction::open(window, Rights::READ, card(0), 8));
            done(cluster.card_mut(node), Instruction::close(window));
        }
    }
}

fn filled(nodes: u32, windows: u32) -> (fpga_mock::Fabric, Cluster) {
    let (fabric, mut cluster) = run::open(Profile { windows, ..Profile::optweb(nodes) });
    for node in 0..nodes as usize {
        cluster.card_mut(node).write_memory(0, &[node as u8 + 1; 4096]).unwrap();
    }
    (fabric, cluster)
}

/// Every card writes to, reads from and signals every other.
fn everyone(ranks: u16, places: u64) -> Vec<Vec<Instruction>> {
    let place = |rank: u16, number: u64| card(AT + (u64::from(rank) * places + number) * 128);
    let each = |own: u16| {
        let others = (0..ranks).filter(move |other| *other != own);
        let mut program: Vec<Instruction> = others
            .flat_map(|other| {
                (0..places).map(move |number| match number % 2 {
                    0 => Instruction::rdma_write(other, card(0), place(own, number), 64),
                    _ => Instruction::put_signal(other, card(0), place(own, number), 64, 1, 1),
                })
            })
            .collect();
        let puts = u32::from(ranks - 1) * (places / 2) as u32;
        program.extend([Instruction::wait_signal(1, puts), Instruction::barrier()]);
        program.push(Instruction::rdma_read((own + 1) % ranks, card(8 * u64::from(own)), card(2 * AT), 8));
        program
    };
    (0..ranks).map(each).collect()
}

fn check_everyone(cluster: &mut Cluster, ranks: u16, places: u64) {
    for own in 0..ranks {
        for other in (0..ranks).filter(|other| *other != own) {
            for number in 0..places {
                let mut found = [0; 128];
                let at = AT + (u64::from(other) * places + number) * 128;
                cluster.card_mut(own.into()).read_memory(at, &mut found).unwrap();
                assert_eq!(found[..64], [other as u8 + 1; 64], "{own} from {other}");
                assert_eq!(found[64..], [0; 64], "{own} from {other}");
            }
        }
        let mut found = [0; 8];
        cluster.card_mut(own.into()).read_memory(2 * AT, &mut found).unwrap();
        assert_eq!(found, [((own + 1) % ranks) as u8 + 1; 8]);
    }
}

#[test]
fn programs_reach_each_other_and_leave_no_window_open() {
    // With few windows, several ranges share one.
    for (windows, places) in [(16, 2), (16, 20), (3, 4), (1024, 30)] {
        let (_fabric, mut cluster) = filled(4, windows);
        for _ in 0..2 {
            cluster.run(&[0, 1, 2, 3], &bound(&everyone(4, places)), LONG).unwrap().result.unwrap();
            check_everyone(&mut cluster, 4, places);
            all_are_closed(&mut cluster);
        }
    }
}

#[test]
fn too_few_windows_are_refused_before_anything_runs() {
    let (_fabric, mut cluster) = filled(3, 2);
    // Three kinds of rights.
    let error = cluster.run(&[0, 1, 2], &bound(&everyone(3, 4)), LONG).unwrap_err();
    let Error::Refused(refusal) = &error else { panic!("{error}") };
    assert_eq!((refusal.rank, refusal.reason), (Some(0), Reason::Window));
    assert!(refusal.cause.contains("need 3 windows") && refusal.cause.contains("only 2 are free"), "{refusal}");
    assert!((0..3).all(|node| cluster.cards()[node].retired().unwrap() < 10));
    all_are_closed(&mut cluster);
}

#[test]
fn windows_are_closed_after_a_failure() {
    let (_fabric, mut cluster) = filled(2, 16);
    let wrong = Instruction::rdma_write(1, card(0), card(AT), 8).through(WINDOW);
    let right = Instruction::rdma_write(1, card(0), card(AT), 8);
    let outcome = cluster.run(&[0, 1], &bound(&[vec![right, wrong], vec![]]), LONG).unwrap();
    let Err(Error::Failed { node: 0, instruction: 1, status, detail: 1, .. }) = outcome.result else {
        panic!("{outcome:?}")
    };
    assert_eq!(status, Status::BadWindow);
    all_are_closed(&mut cluster);
    // One that never comes: the cards are aborted.
    let waits = vec![Instruction::wait_signal(1, 1)];
    let outcome = cluster.run(&[0, 1], &bound(&[vec![right], waits]), Duration::from_millis(100)).unwrap();
    assert!(matches!(outcome.result, Err(Error::Timeout { rank: Some(1), .. })));
    all_are_closed(&mut cluster);
    cluster.card_mut(1).reset().unwrap();
    cluster.run(&[0, 1], &bound(&[vec![right], vec![]]), LONG).unwrap().result.unwrap();
    all_are_closed(&mut cluster);
}

#[test]
fn slots_that_programs_open_themselves_are_left_to_them() {
    let (_fabric, mut cluster) = filled(2, 4);
    let barrier = Instruction::barrier();
    for slot in 0..4 {
        let window = Window { slot, key: 77 };
        let reader = vec![
            Instruction::rdma_write(1, card(0), card(AT), 8),
            barrier,
            Instruction::rdma_read(1, card(64), card(2 * AT), 8).through(window),
            barrier,
        ];
        let owner =
            vec![Instruction::open(window, Rights::READ, card(64), 8), barrier, barrier, Instruction::close(window)];
        cluster.run(&[0, 1], &bound(&[reader, owner]), LONG).unwrap().result.unwrap();
        all_are_closed(&mut cluster);
    }
}

/// Only cards of the group are opened: who has no program is as closed to the others as a stranger's.
#[test]
fn cards_outside_of_the_group_are_not_opened() {
    let (_fabric, mut cluster) = filled(3, 16);
    let programs = [vec![Instruction::rdma_write(2, card(0), card(AT), 8)], vec![]];
    let outcome = cluster.run(&[0, 1], &bound(&programs), LONG).unwrap();
    let Err(Error::Failed { status: Status::BadWindow, detail: 2, .. }) = outcome.result else { panic!("{outcome:?}") };
}

#[test]
fn communicators_of_the_host_are_known() {
    let (_fabric, mut cluster) = filled(4, 16);
    cluster.define(&Communicator { id: 5, members: vec![3, 1] }).unwrap();
    let write = Instruction::rdma_write(0, card(0), card(AT), 8).on(5);
    cluster.run(&[1, 3], &bound(&[vec![write], vec![]]), LONG).unwrap().result.unwrap();
    let mut found = [0; 9];
    cluster.card_mut(3).read_memory(AT, &mut found).unwrap();
    assert_eq!(found, [2, 2, 2, 2, 2, 2, 2, 2, 0]);
    all_are_closed(&mut cluster);
}

/// Card 0 writes to card 1 in a loop, each round further on.
fn looping() -> Schedule {
    let barrier = Instruction::barrier();
    let step = Instruction { extent: 256, extent_argument: Some(1), ..Instruction::repeat(4, 1) };
    let write = Instruction::rdma_write(1, card(0), Operand::card(AT).plus_argument(1), 64);
    let writer = vec![barrier, step, write, barrier];
    ProgramSet::new([0, 1], [writer, vec![barrier, barrier]]).into()
}

#[test]
fn what_is_prepared_keeps_its_windows_until_it_is_dropped() {
    let (_fabric, mut cluster) = filled(2, 4);
    cluster.seed_window_keys(1);
    let mut all = [(); 2].map(|()| cluster.prepare(&looping()).unwrap());
    for round in 0..3 {
        for one in &mut all {
            cluster.card_mut(1).fill(AT, 1024, 0).unwrap();
            cluster.launch(one).unwrap();
            cluster.launch(one).unwrap();
            cluster.finish(one, LONG).unwrap();
            cluster.finish(one, LONG).unwrap();
            for place in 0..8 {
                let mut found = [0; 128];
                cluster.card_mut(1).read_memory(AT + place * 128, &mut found).unwrap();
                let written = if place % 2 == 0 { 1 } else { 0 };
                assert_eq!(found[..64], [written; 64], "round {round}");
                assert_eq!(found[64..], [0; 64], "round {round}");
            }
        }
    }
    drop(all);
    cluster.close_windows().unwrap();
    all_are_closed(&mut cluster);
}

#[test]
fn windows_of_what_was_dropped_in_flight_stay_until_it_has_ended() {
    let (_fabric, mut cluster) = filled(2, 4);
    for _ in 0..10 {
        let mut prepared = cluster.prepare(&looping()).unwrap();
        cluster.launch(&mut prepared).unwrap();
        drop(prepared);
        let mut found = [0; 64];
        cluster.card_mut(1).read_memory(AT + 3 * 256, &mut found).unwrap();
        assert_eq!(found, [1; 64]);
        cluster.card_mut(1).fill(AT, 1024, 0).unwrap();
    }
    cluster.close_windows().unwrap();
    all_are_closed(&mut cluster);
}

/// A schedule of collectives needs no windows.
#[test]
fn collectives_open_none() {
    let (_fabric, mut cluster) = filled(4, 16);
    let plan = run::plan_all(&cluster, "allgather", 4096, None, None).unwrap();
    let mut prepared = cluster.prepare(&Schedule::of(&plan)).unwrap();
    cluster.launch(&mut prepared).unwrap();
    cluster.finish(&mut prepared, LONG).unwrap();
    all_are_closed(&mut cluster);
}

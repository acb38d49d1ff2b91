//! Launches whose one-sided operations can reach a card that does not run the same launch: they have their cards for themselves, in one
//! process and in several, and their windows stay open until they have ended on all cards.

use std::time::Duration;

use cmdseq::plan::ProgramSet;
use cmdseq::{Instruction, Operand, Reason};
use fpga_driver::{Cluster, Error, ErrorKind, Execution, Prepared, Token};
use fpga_mock::{Fabric, Profile};
use fpga_tests::{run, threads};

const LONG: Duration = Duration::from_secs(60);
/// Where card 1 is written to.
const AT: u64 = 0x1_0000;

fn programs(nodes: &[u32], programs: &[&[Instruction]]) -> ProgramSet {
    ProgramSet::new(nodes, programs.iter().map(|program| program.to_vec()))
}

/// Card 0 writes to card 1, which runs nothing.
fn writing(cluster: &mut Cluster) -> Prepared {
    let write = Instruction::rdma_write(1, Operand::card(0), Operand::card(AT), 64);
    cluster.prepare(&programs(&[0, 1], &[&[write], &[]]).into()).unwrap()
}

/// A barrier of cards 1 and 2.
fn meeting() -> ProgramSet {
    let barrier = Instruction::barrier().on(1);
    let pair = cmdseq::plan::Communicator { id: 1, members: vec![1, 2] };
    programs(&[1, 2], &[&[barrier], &[barrier]]).with([pair])
}

/// Has card 1 wait for card 2.
fn hold(card: &mut fpga_driver::Card) -> Token {
    card.queue_mut().submit(Instruction::recv(2, Operand::card(0), 64)).unwrap()
}

/// Ends what [`hold`] began, from card 2.
fn release(card: &mut fpga_driver::Card) {
    card.run([Instruction::send(1, Operand::card(0), 64)], LONG).unwrap();
}

/// What was written to card 1.
fn written(card: &mut fpga_driver::Card) -> [u8; 64] {
    let mut found = [0; 64];
    card.read_memory(AT, &mut found).unwrap();
    found
}

#[track_caller]
fn is_refused<T>(outcome: Result<T, Error>, expected: &str) {
    match outcome.map(drop).unwrap_err() {
        Error::Refused(refusal) => {
            assert_eq!(refusal.reason, Reason::Race);
            let cause = refusal.to_string();
            assert!(cause.contains(expected), "{cause}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn nothing_is_launched_on_a_claimed_card() {
    let (_fabric, mut cluster) = run::open(Profile::optweb(4));
    let (mut alone, mut again) = (writing(&mut cluster), writing(&mut cluster));
    let mut beside = cluster.prepare(&meeting().into()).unwrap();
    cluster.launch(&mut alone).unwrap();
    let claimed = "a launch in flight needs node 1 for itself";
    is_refused(cluster.launch(&mut beside), claimed);
    is_refused(cluster.execute(&meeting(), &Execution::default()), claimed);
    is_refused(cluster.run(&[1], &[vec![Instruction::nop().into()]], LONG), claimed);
    is_refused(cluster.launch(&mut again), "rank 0, instruction 0");
    assert_eq!((beside.in_flight(), again.in_flight()), (0, 0));
    cluster.run(&[2, 3], &[vec![Instruction::nop().into()], Vec::new()], LONG).unwrap().result.unwrap();

    cluster.finish(&mut alone, LONG).unwrap();
    cluster.launch(&mut beside).unwrap();
    cluster.finish(&mut beside, LONG).unwrap();
    cluster.execute(&meeting(), &Execution::default()).unwrap();
    // One that was given up needs no card either.
    cluster.launch(&mut again).unwrap();
    cluster.give_up(&mut again).unwrap();
    cluster.launch(&mut beside).unwrap();
    cluster.finish(&mut beside, LONG).unwrap();
}

#[test]
fn a_launch_that_needs_its_cards_waits_for_none() {
    let (_fabric, mut cluster) = run::open(Profile::optweb(3));
    cluster.card_mut(0).fill(0, 64, 0x0101_0101_0101_0101).unwrap();
    let mut alone = writing(&mut cluster);
    // Card 1 is only written to, and busy.
    let token = hold(cluster.card_mut(1));
    is_refused(cluster.launch(&mut alone), "rank 0, instruction 0");
    release(cluster.card_mut(2));
    cluster.card_mut(1).wait(&token, LONG).unwrap();
    assert_eq!(written(cluster.card_mut(1)), [0; 64]);
    cluster.launch(&mut alone).unwrap();
    cluster.finish(&mut alone, LONG).unwrap();
    assert_eq!(written(cluster.card_mut(1)), [1; 64]);
}

#[test]
fn a_dropped_launch_claims_its_cards_until_they_are_idle() {
    let (_fabric, mut cluster) = run::open(Profile::optweb(3));
    let mut beside = cluster.prepare(&meeting().into()).unwrap();
    let mut alone = writing(&mut cluster);
    cluster.launch(&mut alone).unwrap();
    let token = hold(cluster.card_mut(1));
    drop(alone);
    is_refused(cluster.launch(&mut beside), "a launch in flight needs node 1 for itself");
    release(cluster.card_mut(2));
    cluster.card_mut(1).wait(&token, LONG).unwrap();
    // Its own card has ended too.
    cluster.card_mut(0).run([Instruction::nop()], LONG).unwrap();
    cluster.launch(&mut beside).unwrap();
    cluster.finish(&mut beside, LONG).unwrap();
}

#[test]
fn all_processes_refuse_a_launch_that_does_not_get_a_card() {
    let fabric = Fabric::new(Profile::optweb(3)).unwrap();
    threads::clusters(&fabric, |cluster, rank| {
        let mut alone = writing(cluster);
        let mut beside = cluster.prepare(&meeting().into()).unwrap();
        if rank == 0 {
            cluster.card_mut(0).fill(0, 64, 0x0101_0101_0101_0101).unwrap();
        }
        let token = (rank == 1).then(|| hold(cluster.card_mut(0)));
        cluster.agree(Ok(())).unwrap();
        match cluster.launch(&mut alone).unwrap_err() {
            Error::Refused(_) if rank == 1 => {}
            Error::Peer { rank: 1, kind: ErrorKind::Refused, message } if rank != 1 => {
                assert!(message.contains(": rank 0, instruction 0: rdma_write reaches rank 1"), "{message}");
            }
            other => panic!("rank {rank}: {other}"),
        }
        assert_eq!(alone.in_flight(), 0);
        cluster.agree(Ok(())).unwrap();
        if rank == 2 {
            release(cluster.card_mut(0));
        }
        if let Some(token) = token {
            cluster.card_mut(0).wait(&token, LONG).unwrap();
            assert_eq!(written(cluster.card_mut(0)), [0; 64]);
        }
        cluster.agree(Ok(())).unwrap();
        cluster.launch(&mut alone).unwrap();
        // Each knows of the launch, and all end with the refusal.
        cluster.launch(&mut beside).unwrap();
        let error = cluster.finish(&mut beside, LONG).unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "rank {rank}: {error}");
        cluster.give_up(&mut alone).unwrap();
        for prepared in [&mut alone, &mut beside] {
            cluster.launch(prepared).unwrap();
            cluster.finish(prepared, LONG).unwrap();
        }
        if rank == 1 {
            assert_eq!(written(cluster.card_mut(0)), [1; 64]);
        }
        // A launch that nobody will finish claims its cards until all ranks have found them idle.
        cluster.launch(&mut alone).unwrap();
        cluster.close_windows().unwrap();
        is_refused(cluster.execute(&meeting(), &Execution::default()), "node 1");
        drop(alone);
        is_refused(cluster.execute(&meeting(), &Execution::default()), "node 1");
        cluster.card_mut(0).run([Instruction::nop()], LONG).unwrap();
        cluster.agree(Ok(())).unwrap();
        cluster.close_windows().unwrap();
        cluster.execute(&meeting(), &Execution::default()).unwrap();
    });
}

/// The card that is written to runs nothing, and so would close its window at once.
#[test]
fn a_window_stays_open_while_a_card_of_another_process_goes_through_it() {
    const ROUNDS: u64 = 20_000;
    let fabric = Fabric::new(Profile { windows: 1, ..Profile::optweb(2) }).unwrap();
    threads::clusters(&fabric, |cluster, rank| {
        if rank == 0 {
            cluster.card_mut(0).fill(0, 64, 0x0101_0101_0101_0101).unwrap();
        }
        let step = Instruction { extent: 64, extent_argument: Some(1), ..Instruction::repeat(ROUNDS as u16, 1) };
        let write = Instruction::rdma_write(1, Operand::card(0), Operand::card(AT).plus_argument(1), 64);
        let set = programs(&[0, 1], &[&[step, write], &[]]);
        let mut prepared = cluster.prepare(&set.clone().into()).unwrap();
        cluster.launch(&mut prepared).unwrap();
        drop(prepared);
        cluster.close_windows().unwrap();
        if rank == 0 {
            // Behind the launch.
            cluster.card_mut(0).run([Instruction::nop()], LONG).unwrap();
        }
        cluster.agree(Ok(())).unwrap();
        if rank == 1 {
            let mut found = vec![0; 64 * ROUNDS as usize];
            cluster.card_mut(0).read_memory(AT, &mut found).unwrap();
            assert_eq!(found.iter().position(|byte| *byte != 1), None);
        }
        // Its slot is the only one: the window is closed now.
        let again = cluster.prepare(&set.clone().into()).unwrap();
        let refused = cluster.prepare(&set.into()).unwrap_err();
        assert!(matches!(refused, Error::Refused(_)), "{refused}");
        drop(again);
        cluster.close_windows().unwrap();
    });
}

/// Communicators of which only their members know: the windows of card 1 are for either of them.
#[test]
fn programs_go_through_windows_of_communicators_that_a_process_has_no_card_in() {
    const ASIDE: u64 = AT + 4096;
    let fabric = Fabric::new(Profile::optweb(3)).unwrap();
    threads::clusters(&fabric, |cluster, rank| {
        let world = cluster.world();
        let right = cluster.create(&world, &[1, 2]).unwrap();
        let left = cluster.create(&world, &[0, 1]).unwrap();
        assert!(right.id() < left.id(), "windows are in the order of ids");
        cluster.card_mut(0).fill(0, 64, 0x0101_0101_0101_0101 * (u64::from(rank) + 1)).unwrap();
        let to_left = Instruction::rdma_write(1, Operand::card(0), Operand::card(AT), 64).on(left.id());
        let to_right = Instruction::rdma_write(0, Operand::card(0), Operand::card(ASIDE), 64).on(right.id());
        let programs = [vec![to_left.into()], Vec::new(), vec![to_right.into()]];
        cluster.run(&[0, 1, 2], &programs, LONG).unwrap().result.unwrap();
        if rank == 1 {
            let mut found = [0; 64];
            cluster.card_mut(0).read_memory(ASIDE, &mut found).unwrap();
            assert_eq!((written(cluster.card_mut(0)), found), ([1; 64], [3; 64]));
        }
    });
}

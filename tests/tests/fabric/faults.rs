//! Faults are refused or reported by name, in bounded time.

use std::time::{Duration, Instant};

use cmdseq::instruction::{Rights, Window};
use cmdseq::plan::{Algorithm, Collective, Request, plan};
use cmdseq::{Flags, Instruction, Operand, Operation, Status};
use fpga_driver::{Bound, Card, Cluster, Error, Execution, State, Token, Unfinished};
use fpga_hal::in_process;
use fpga_mock::{Fabric, Fault, Moved, Profile, When};
use fpga_tests::run::{domain, open, plan_all};

const MIB: u64 = 1 << 20;

fn two_cards() -> (Fabric, Card, Card) {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let domain = domain();
    let card =
        |node| Card::open(in_process::attach(fabric.endpoint(node), &domain, &format!("{node}")).unwrap()).unwrap();
    let (first, second) = (card(0), card(1));
    (fabric, first, second)
}

/// The status with which a card refuses `instruction`.
fn refused(instruction: Instruction) -> (Status, u16) {
    let (_fabric, mut card, _other) = two_cards();
    let unowned = Bound::dangerously_unowned(instruction);
    match card.run([unowned], Duration::from_secs(5)).unwrap_err() {
        Error::Failed { status, detail, instruction: 0, .. } => (status, detail),
        other => panic!("{other}"),
    }
}

#[test]
fn a_fault_comes_when_the_cards_have_been_at_work_for_so_long() {
    let (fabric, mut first, _second) = two_cards();
    let second = 1_000_000_000_000;
    fabric.plant(Fault::Freeze { node: 0, when: When::After(second) });
    let seconds = Duration::from_secs(20);
    // A tenth of a second each, at 200 MHz.
    for _ in 0..9 {
        first.run([Instruction::delay(20_000_000)], seconds).unwrap();
    }
    assert!(fabric.statistics().now_ps < u128::from(second));
    let error = first.run([Instruction::delay(40_000_000)], Duration::from_millis(200)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

#[test]
fn cards_refuse_what_they_cannot_do() {
    let here = Operand::card(0);
    let there = Operand::card(512 * MIB);
    let last = Operand::card((8 << 30) - 10);
    let nowhere = Operand::host(0xdead_0000_0000);
    for (instruction, status) in [
        (Instruction::broadcast(0, last, there, 11), Status::OutOfRange),
        (Instruction::broadcast(0, Operand::card(u64::MAX - 3), there, 11), Status::OutOfRange),
        (Instruction::scatter(0, last.striped(), there, 11), Status::OutOfRange),
        (Instruction::scatter(0, here.striped(), there, 256 * MIB + 1), Status::OutOfRange),
        (Instruction::copy(here, Operand::card(10), 11), Status::Overlap),
        (Instruction::sendrecv(1, 1, here, Operand::card(63), 64), Status::Overlap),
        (Instruction::alltoall(here.striped(), here.striped(), 64), Status::Overlap),
        (Instruction::copy(nowhere, here, 64), Status::HostReadFault),
        (Instruction::copy(here, nowhere, 64), Status::HostWriteFault),
        (Instruction::barrier().on(3), Status::BadCommunicator),
        (Instruction::barrier().on(40_000), Status::BadCommunicator),
        (Instruction::broadcast(2, here, there, 64), Status::BadRank),
        (Instruction::send(9, here, 64), Status::BadRank),
        (Instruction::send(0, here, 64), Status::BadRank),
        (Instruction::send(1, here, 16385).with_flags(Flags::EAGER), Status::EagerOverrun),
        (Instruction::launch(3, [0; 3]), Status::BadProgram),
        (Instruction::launch(99, [0; 3]), Status::BadProgram),
        (Instruction::user(here, there, 64, 0), Status::NoUserLogic),
        (Instruction::delay(u64::MAX), Status::BadField),
        (Instruction::group(1, 0xdead_0000_0000, 2), Status::HostReadFault),
        (Instruction::group(0, 0, 2), Status::BadCommunicator),
        (Instruction { peer: 1, ..Instruction::barrier() }, Status::BadField),
    ] {
        assert_eq!(refused(instruction).0, status, "{instruction:?}");
    }
}

#[test]
fn in_place_is_allowed_where_it_means_something() {
    let (_fabric, mut cluster) = open(Profile::optweb(2));
    let mut plan = plan_all(&cluster, "allgather", 64, None, None).unwrap();
    let destination = plan.set.programs[0].instructions[0].destination;
    // Each rank's own block already lies where it belongs.
    let stripe = 2 * cluster.capabilities().stripe_half_bytes;
    for (rank, program) in plan.set.programs.iter_mut().enumerate() {
        let address = destination.address + stripe * rank as u64;
        program.instructions[0].source = Operand::card(address);
        program.input[0].address = address;
        cluster.card_mut(rank).write_memory(address, &[rank as u8 + 1; 64]).unwrap();
    }
    cluster.execute(&plan.set, &Execution::default()).unwrap();
    for rank in 0..2 {
        let mut output = [0; 128];
        cluster.read_output(&plan.set, rank, 0, &mut output).unwrap();
        assert_eq!(output[..64], [1; 64]);
        assert_eq!(output[64..], [2; 64]);
    }
}

#[test]
fn the_planner_refuses_and_names_what_is_wrong() {
    let (_fabric, cluster) = open(Profile::optweb(4));
    let request = |collective, group: &[u32], bytes, root, peer| Request {
        root,
        peer,
        ..Request::new(collective, group.to_vec(), bytes)
    };
    let world = [0, 1, 2, 3];
    for (request, word) in [
        (request(Collective::Alltoall, &world, 1 << 40, 0, 3), "stripe"),
        (
            Request { algorithm: Some(Algorithm::Direct), ..request(Collective::Alltoall, &world, 300 * MIB, 0, 3) },
            "stripe",
        ),
        (request(Collective::Broadcast, &world, 64, 4, 3), "root"),
        (request(Collective::Send, &world, 64, 0, 4), "peer"),
        (request(Collective::Allgather, &[0, 1, 9], 64, 0, 0), "9"),
        (request(Collective::Allgather, &[0, 1, 1], 64, 0, 0), "1"),
        (request(Collective::Allgather, &[], 64, 0, 0), "group"),
    ] {
        let refusal = plan(&request, cluster.capabilities()).unwrap_err().to_string();
        assert!(refusal.to_lowercase().contains(word), "{request:?}: {refusal}");
    }
}

fn stopped(fault: Fault, bytes: u64) -> (Error, Duration) {
    let (fabric, mut cluster) = open(Profile::optweb(4));
    let plan = plan_all(&cluster, "allgather", bytes, None, None).unwrap();
    fabric.plant(fault);
    let start = Instant::now();
    let execution = Execution { timeout: Duration::from_millis(300), ..Execution::default() };
    let error = cluster.execute(&plan.set, &execution).unwrap_err();
    (error, start.elapsed())
}

/// Once card `node` has moved `bytes` of the block to the destination with the number `transfer`.
fn moved(node: u32, transfer: u32, bytes: u64) -> When {
    When::Moved(Moved { node, tag: None, transfer, bytes })
}

#[test]
fn a_card_that_stops_in_the_barriers_before_ends_within_the_bound() {
    // Before the first cycle of a barrier is over.
    let (error, took) = stopped(Fault::Freeze { node: 2, when: When::After(1_000) }, 16 * MIB);
    assert!(took < Duration::from_secs(20), "{took:?}");
    let text = error.to_string();
    assert!(matches!(error, Error::Timeout { node: Some(2), rank: Some(2), instruction: Some(0), .. }), "{text}");
    for part in ["undefined", "before the program", "barrier", "ranks 0, 1, 3 wait for rank 2"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_card_that_stops_midway_ends_within_the_bound() {
    // An allgather sends one stream to all: each of its transfers is that.
    for (transfer, bytes) in [(0, 0), (2, 5 * MIB), (1, 16 * MIB)] {
        let (error, took) = stopped(Fault::Freeze { node: 2, when: moved(2, transfer, bytes) }, 16 * MIB);
        assert!(took < Duration::from_secs(20), "{took:?}");
        let text = error.to_string();
        assert!(matches!(error, Error::Timeout { node: Some(2), rank: Some(2), instruction: Some(0), .. }), "{text}");
        assert!(text.contains("program (instruction 0, allgather)"), "{text}");
    }
}

/// A fault that waits for more than is moved, or for another card, tag or transfer, does not strike.
#[test]
fn a_fault_waits_for_its_transfer() {
    let never = [
        Moved { node: 2, tag: None, transfer: 0, bytes: MIB + 1 },
        Moved { node: 2, tag: None, transfer: 3, bytes: 0 },
        Moved { node: 2, tag: Some(999), transfer: 0, bytes: 0 },
        Moved { node: 9, tag: None, transfer: 0, bytes: 0 },
    ];
    let (fabric, mut cluster) = open(Profile::optweb(4));
    let plan = plan_all(&cluster, "allgather", MIB, None, None).unwrap();
    let before = cluster.execute(&plan.set, &Execution::default()).unwrap();
    for moved in never {
        fabric.plant(Fault::Freeze { node: 2, when: When::Moved(moved) });
    }
    // One that strikes elsewhere does not change what the transfer takes.
    fabric.plant(Fault::Reset { node: 9, when: moved(1, 0, 100) });
    let after = cluster.execute(&plan.set, &Execution::default()).unwrap();
    assert_eq!((after.t1_cycles, after.arrival_cycles), (before.t1_cycles, before.arrival_cycles));
}

/// The card that has stopped is blamed, wherever it was, and no victim.
#[test]
fn the_card_that_stopped_is_named() {
    for (node, when) in
        [(0, When::After(0)), (1, When::After(500_000)), (2, moved(2, 0, 64)), (3, moved(3, 0, 9 * MIB))]
    {
        let (error, took) = stopped(Fault::Freeze { node, when }, 16 * MIB);
        assert!(took < Duration::from_secs(20), "{took:?}");
        assert!(matches!(error, Error::Timeout { rank: Some(rank), .. } if rank == node), "{node}: {error}");
    }
}

/// All are at work on 16 MiB when the clock of one stops, in the middle of its own.
#[test]
fn the_card_that_stops_in_the_middle_of_a_program_is_named() {
    for node in 0..4_u32 {
        let (fabric, mut cluster) = open(Profile::optweb(4));
        let plan = plan_all(&cluster, "allgather", 16 * MIB, None, None).unwrap();
        let allgather = |rank: usize| plan.set.programs[rank].instructions[0];
        let mut tokens: Vec<_> =
            (0..3).map(|rank| cluster.card_mut(rank).queue_mut().submit(allgather(rank)).unwrap()).collect();
        fabric.plant(Fault::Freeze { node, when: moved(node, 0, 5 * MIB) });
        tokens.push(cluster.card_mut(3).queue_mut().submit(allgather(3)).unwrap());
        let mut is_late = |rank: &usize| cluster.card_mut(*rank).queue_mut().test(&tokens[*rank]).unwrap().is_none();
        let late: Vec<usize> = (0..4).filter(|rank| is_late(rank)).collect();
        assert_eq!(late.len(), 4, "it stopped in the middle");
        let unfinished = |card: usize| Unfinished {
            rank: card as u32,
            card,
            phase: "program",
            instruction: Some(0),
            operation: Operation::Allgather,
            completed: 0,
        };
        let unfinished: Vec<_> = late.into_iter().map(unfinished).collect();
        let error = cluster.timeout(&[0, 1, 2, 3], &unfinished, Duration::from_millis(1));
        let text = error.to_string();
        assert!(matches!(error, Error::Timeout { rank: Some(rank), .. } if rank == node), "{node}: {text}");
        assert!(text.contains("program (instruction 0, allgather)"), "{text}");
        // The others can be used again.
        assert!(cluster.abort(0..4).is_err());
        for place in 0..4 {
            let expected = if place == node { State::Poisoned } else { State::Running };
            assert_eq!(cluster.cards()[place as usize].state(), expected, "{place}");
        }
        tokens.into_iter().for_each(Token::abandon);
    }
}

/// What is left of a group is a group.
#[test]
fn the_others_go_on_without_a_card_that_was_lost() {
    for (fault, bytes) in [
        (Fault::Freeze { node: 2, when: moved(2, 0, 5 * MIB) }, 16 * MIB),
        (Fault::Freeze { node: 2, when: When::Now }, 64),
        (Fault::Vanish { node: 2 }, 64),
    ] {
        let (fabric, mut cluster) = open(Profile::optweb(4));
        let all = plan_all(&cluster, "allgather", bytes, None, None).unwrap();
        // The lost card has a communicator with one of the others.
        let pair = plan(&Request::new(Collective::Allgather, vec![2, 1], 64), cluster.capabilities()).unwrap();
        cluster.execute(&pair.set, &Execution::default()).unwrap();
        fabric.plant(fault);
        let execution = Execution { timeout: Duration::from_millis(300), ..Execution::default() };
        cluster.execute(&all.set, &execution).unwrap_err();
        assert!([0, 1, 3].iter().all(|card| cluster.cards()[*card].state() == State::Running));
        let launched = [0, 1, 3].map(|card| cluster.cards()[card].retired().unwrap());
        if cluster.cards()[2].state() != State::Running {
            cluster.execute(&all.set, &execution).unwrap_err();
            assert_eq!([0, 1, 3].map(|card| cluster.cards()[card].retired().unwrap()), launched, "{fault:?}");
        }
        let group = vec![3, 0, 1];
        let others = plan(&Request::new(Collective::Allgather, group.clone(), 64), cluster.capabilities()).unwrap();
        for rank in 0..3 {
            cluster.write_input(&others.set, rank, 0, &[rank as u8 + 1; 64]).unwrap();
        }
        cluster.execute(&others.set, &Execution::default()).unwrap();
        let mut output = [0; 192];
        for rank in 0..3 {
            cluster.read_output(&others.set, rank, 0, &mut output).unwrap();
            assert!(output.chunks(64).zip(1..).all(|(block, value)| block == [value; 64]), "{fault:?}");
        }
    }
}

#[test]
fn a_link_that_fails_midway_ends_the_instruction() {
    for when in [When::After(1_000_000_000), moved(0, 2, 7 * MIB)] {
        let (error, _) = stopped(Fault::Cut { a: 0, b: 3, when }, 16 * MIB);
        let Error::Failed { status: Status::LinkDown, .. } = error else { panic!("{error}") };
    }
}

/// Card 0 sends a block to each of the others, the last over a link of half the rate. What is cut once the first block was
/// acknowledged is needed no more.
#[test]
fn a_link_that_fails_after_its_block_was_acknowledged_is_not_missed() {
    for (other, bytes, is_missed) in [(1, 900 << 10, false), (2, 900 << 10, true), (1, 100 << 10, true)] {
        let (fabric, mut cluster) = open(Profile::optweb(3));
        fabric.set_link_rate(0, 2, 22_500);
        let plan = plan_all(&cluster, "scatter", MIB, Some(Algorithm::Direct), None).unwrap();
        for rank in 0..3 {
            cluster.write_input(&plan.set, 0, rank * MIB, &[rank as u8 + 1; MIB as usize]).unwrap();
        }
        fabric.plant(Fault::Cut { a: 0, b: other, when: moved(0, 1, bytes) });
        match (cluster.execute(&plan.set, &Execution::default()), is_missed) {
            (Ok(_), false) => {}
            (Err(Error::Failed { status: Status::LinkDown, .. }), true) => continue,
            (other, _) => panic!("{other:?}"),
        }
        for rank in 0..3 {
            let mut output = vec![0; MIB as usize];
            cluster.read_output(&plan.set, rank, 0, &mut output).unwrap();
            assert!(output.iter().all(|byte| *byte == rank as u8 + 1), "rank {rank}");
        }
    }
}

/// Card 0 sends a block to 1 and, a little slower, one to 2, and is reset when all beats of both are out.
#[test]
fn a_block_in_flight_is_lost_when_its_source_is_reset() {
    const BYTES: u64 = 64 << 10;
    let (fabric, mut cluster) = open(Profile::optweb(3));
    let there = Operand::card(256 * MIB);
    for rank in 1..3 {
        cluster.card_mut(0).write_memory(rank * 512 * MIB, &[5; BYTES as usize]).unwrap();
    }
    cluster.card_mut(1).write_memory(there.address, &[7; BYTES as usize]).unwrap();
    // 64 KiB take 11.65 us at 45 Gb/s, and 0.13 us more at 44.5. The last beat is on its way for 0.39 us.
    fabric.set_link_rate(0, 2, 44_500);
    fabric.plant(Fault::Reset { node: 0, when: moved(0, 1, BYTES) });
    let scatter = Instruction::scatter(0, Operand::card(0).striped(), there, BYTES);
    let tokens = [2, 1, 0].map(|card| cluster.card_mut(card).queue_mut().submit(scatter).unwrap());
    assert_eq!(cluster.card_mut(1).queue_mut().test(&tokens[1]).unwrap(), None, "the block did not arrive");
    cluster.card_mut(1).abort().unwrap();
    let mut back = vec![0; BYTES as usize];
    cluster.card_mut(1).read_memory(there.address, &mut back).unwrap();
    assert!(back.iter().all(|byte| *byte == 7), "the destination is as it was");
    tokens.into_iter().for_each(Token::abandon);
}

#[test]
fn a_card_that_is_gone_is_removed() {
    let (error, took) = stopped(Fault::Vanish { node: 1 }, 64);
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert!(matches!(error, Error::Removed { .. }), "{error}");
}

#[test]
fn a_group_without_the_card_is_refused_by_it() {
    let (_fabric, mut card, _other) = two_cards();
    let table = card.function().domain().allocate(4096, 4096).unwrap();
    table.write(0, &1u16.to_le_bytes()).unwrap();
    let group = Instruction::group(1, table.iova().0, 1);
    let error = card.run([Bound::from(group).holding(table)], Duration::from_secs(5)).unwrap_err();
    assert!(matches!(error, Error::Failed { status: Status::NotMember, .. }), "{error}");
}

#[test]
fn a_card_can_be_used_after_it_was_stopped() {
    let (_fabric, mut cluster) = open(Profile::optweb(4));
    let plan = plan_all(&cluster, "allgather", 64, None, None).unwrap();
    // A barrier that nobody else joins.
    let alone = cluster.card_mut(1).run([Instruction::barrier()], Duration::from_millis(50)).unwrap_err();
    assert!(matches!(alone, Error::Timeout { .. }), "{alone}");
    (0..4).for_each(|place| cluster.card_mut(place).reset().unwrap());
    cluster.execute(&plan.set, &Execution::default()).unwrap();
}

#[test]
fn resident_programs_run_again_by_one_doorbell() {
    let (_fabric, mut card, _other) = two_cards();
    let copy = Instruction::copy(Operand::card(0).plus_argument(0), Operand::card(0).plus_argument(1), 16);
    let resident = card.store(2, [copy, Instruction::delay(5)]).unwrap();
    card.write_memory(1000, b"sixteen bytes...").unwrap();
    for to in [5000, 6000] {
        card.run_resident(&resident, [1000, to, 0]).unwrap();
        let mut back = [0; 16];
        card.read_memory(to, &mut back).unwrap();
        assert_eq!(&back, b"sixteen bytes...");
    }
}

#[test]
fn one_sided_transfers_leave_the_peer_alone() {
    let (_fabric, mut card, mut other) = two_cards();
    card.write_memory(0, &[7; 100]).unwrap();
    let (here, there) = (Operand::card(0), Operand::card(300 * MIB));
    let window = Window { slot: 0, key: 1 };
    other.run([Instruction::open(window, Rights::READ | Rights::WRITE, there, 100)], Duration::from_secs(5)).unwrap();
    card.run([Instruction::rdma_write(1, here, there, 100).through(window)], Duration::from_secs(5)).unwrap();
    let mut back = [0; 101];
    other.read_memory(300 * MIB, &mut back).unwrap();
    assert_eq!(back[..100], [7; 100]);
    assert_eq!(back[100], 0);
    other.write_memory(300 * MIB + 50, &[9; 50]).unwrap();
    let read = Instruction::rdma_read(1, there, Operand::card(400 * MIB), 100).through(window);
    card.run([read], Duration::from_secs(5)).unwrap();
    card.read_memory(400 * MIB, &mut back[..100]).unwrap();
    assert_eq!(back[..50], [7; 50]);
    assert_eq!(back[50..100], [9; 50]);
}

#[test]
fn a_card_is_open_once() {
    let (fabric, first, _second) = two_cards();
    let again = |fabric: &Fabric| in_process::attach(fabric.endpoint(0), &domain(), "again");
    for handle in [&fabric, &fabric.clone()] {
        assert!(matches!(again(handle), Err(fpga_hal::Error::InUse { name }) if name == "again"));
    }
    drop(first);
    again(&fabric).unwrap();
}

#[test]
fn cards_of_different_fabrics_are_no_cluster() {
    let domain = domain();
    let of = |cards, node, name: &str| {
        in_process::attach(Fabric::new(Profile::optweb(cards)).unwrap().endpoint(node), &domain, name).unwrap()
    };
    assert!(Cluster::open(vec![of(2, 0, "a"), of(3, 1, "b")]).is_err());
    assert!(Cluster::open(vec![of(2, 0, "c"), of(2, 0, "d")]).is_err());
}

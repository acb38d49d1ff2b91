//! The loop instruction, in programs stored on the cards.

use std::time::Duration;

use cmdseq::asm::{Options, assemble};
use cmdseq::{Flags, Instruction, Operand, Operation, Status};
use fpga_driver::{Cluster, Error};
use fpga_mock::Profile;
use fpga_tests::run::open;
use fpga_tests::sweep::is_full;
use proptest::prelude::*;

const SECONDS: Duration = Duration::from_secs(5);

fn refusal(cluster: &mut Cluster, program: &[Instruction]) -> (Status, u16) {
    match cluster.card_mut(0).store(0, program) {
        Err(Error::Failed { status, detail, operation: Operation::Store, .. }) => (status, detail),
        other => panic!("{other:?}"),
    }
}

/// What moves its argument by `step` each round.
fn moving(count: u16, body: u16, argument: u8, step: u64) -> Instruction {
    Instruction { extent: step, extent_argument: Some(argument), ..Instruction::repeat(count, body) }
}

#[test]
fn programs_that_would_not_end_are_not_stored() {
    let (_fabric, mut cluster) = open(Profile::optweb(2));
    let nop = Instruction::nop();
    let repeat = Instruction::repeat;
    assert!(cluster.capabilities().runs(Operation::Loop));
    for (program, place) in [
        (vec![nop, repeat(0, 1), nop], 1),
        (vec![nop, repeat(1, 0), nop], 1),
        (vec![nop, nop, repeat(2, 2), nop], 2),
        (vec![repeat(2, u16::MAX), nop], 0),
        (vec![nop, repeat(2, 1)], 1),
        (vec![repeat(2, 2), repeat(2, 1), nop], 1),
        (vec![repeat(2, 3), nop, repeat(2, 2), nop, nop], 2),
        (vec![repeat(2, 1), repeat(2, 1)], 1),
    ] {
        assert_eq!(refusal(&mut cluster, &program), (Status::BadProgram, place), "{program:?}");
    }
    for program in [vec![repeat(2, 1), nop, repeat(2, 1), nop], vec![repeat(u16::MAX, 2), nop, nop, nop]] {
        cluster.card_mut(0).store(0, &program).unwrap();
    }
    let error = cluster.card_mut(0).run([repeat(1, 1), nop], SECONDS).unwrap_err();
    assert!(matches!(error, Error::Failed { instruction: 0, status: Status::BadOperation, detail: 37, .. }), "{error}");
}

#[test]
fn a_round_takes_its_body_and_one_dispatch() {
    let (_fabric, mut cluster) = open(Profile::optweb(2));
    let timing = cluster.capabilities().timing;
    let (dispatch, handover) = (u64::from(timing.dispatch_cycles), u64::from(timing.handover_cycles));
    let card = cluster.card_mut(0);
    let mut cycles = |program: &[Instruction]| {
        let resident = card.store(0, program).unwrap();
        card.run_resident(&resident, [0; 3]).unwrap().t2
    };
    let plain = cycles(&[Instruction::delay(100), Instruction::delay(50)]);
    for count in [1, 2, 3, 1000, u16::MAX] {
        let looped = cycles(&[Instruction::repeat(count, 1), Instruction::delay(100), Instruction::delay(50)]);
        let rounds = u64::from(count);
        assert_eq!(looped, plain + dispatch + handover + (rounds - 1) * (100 + handover + dispatch), "{count} rounds");
    }
}

#[test]
fn a_loop_that_fails_says_where() {
    let (_fabric, mut cluster) = open(Profile::optweb(2));
    let memory = cluster.capabilities().memory_bytes;
    let card = cluster.card_mut(0);
    let fill = Instruction::fill(Operand::card(0).plus_argument(1), 64, 0x0101_0101_0101_0101);
    let program = [Instruction::nop(), moving(9, 2, 1, memory / 4), Instruction::nop(), fill, Instruction::nop()];
    let resident = card.store(3, program).unwrap();
    let error = card.run_resident(&resident, [0; 3]).unwrap_err();
    assert!(matches!(error, Error::Failed { status: Status::OutOfRange, detail: 3, .. }), "{error}");
    for (at, byte) in [(0, 1), (3 * memory / 4, 1), (memory - 64, 0)] {
        let mut found = [0; 64];
        card.read_memory(at, &mut found).unwrap();
        assert_eq!(found, [byte; 64], "at {at:#x}");
    }
    // The next launch begins anew.
    let error = card.run_resident(&resident, [0, memory - 64, 0]).unwrap_err();
    assert!(matches!(error, Error::Failed { status: Status::OutOfRange, detail: 3, .. }), "{error}");
    card.run_resident(&resident, [0, 0, 0]).unwrap_err();
    card.run([Instruction::nop()], SECONDS).unwrap();
}

/// Ranks exchange block after block in one launch, written as text.
#[test]
fn cards_go_through_their_rounds_together() {
    const RANKS: u32 = 4;
    const ROUNDS: u64 = 50;
    let text = "
        ranks 4
        repeat 50 step 64 argument 0
          allgather source 0x0 argument 0, destination 0x100_0000, bytes 64
          copy source 0x100_0000 + 64 * ((rank + 1) % ranks), destination 0x200_0000 argument 0, bytes 64
        end
        barrier last
    ";
    let mut none = |_: &str| Err("there are no files".to_owned());
    let programs = assemble("rounds.seq", text, &mut none, &Options::default()).unwrap().assembly.programs;
    let (_fabric, mut cluster) = open(Profile::optweb(RANKS));
    let data = |rank: u32| (0..64 * ROUNDS).map(|at| (at * 7 + u64::from(rank) * 13) as u8).collect::<Vec<_>>();
    let mut launches = Vec::new();
    for rank in 0..RANKS {
        let card = cluster.card_mut(rank as usize);
        card.write_memory(0, &data(rank)).unwrap();
        launches.push(card.store(5, &programs[rank as usize].instructions).unwrap());
    }
    let launch = |(place, resident)| cluster.card_mut(place).launch(resident, [0; 3]).unwrap();
    let tokens: Vec<_> = launches.iter().enumerate().map(launch).collect();
    for (place, token) in tokens.into_iter().enumerate() {
        cluster.card_mut(place).wait(&token, SECONDS).unwrap();
    }
    for rank in 0..RANKS {
        let card = cluster.card_mut(rank as usize);
        let mut found = vec![0; 64 * ROUNDS as usize];
        card.read_memory(0x200_0000, &mut found).unwrap();
        assert_eq!(found, data((rank + 1) % RANKS), "rank {rank}");
    }
}

/// A fill of `place` or of a place from argument `argument` on.
#[derive(Debug, Clone)]
struct Fill {
    place: u64,
    argument: Option<u8>,
    value: u8,
}

#[derive(Debug, Clone)]
enum Part {
    Once(Fill),
    Rounds { count: u16, step: Option<(u8, u64)>, body: Vec<Fill> },
}

const MEMORY: u64 = 4096;

fn fill() -> impl Strategy<Value = Fill> {
    (0..MEMORY, prop::option::of(0_u8..3), any::<u8>()).prop_map(|(place, argument, value)| Fill {
        place,
        argument,
        value,
    })
}

fn part() -> impl Strategy<Value = Part> {
    let step = prop::option::of((0_u8..3, 0..MEMORY));
    prop_oneof![
        fill().prop_map(Part::Once),
        (1_u16..20, step, prop::collection::vec(fill(), 1..4)).prop_map(|(count, step, body)| Part::Rounds {
            count,
            step,
            body
        }),
    ]
}

fn word(fill: &Fill) -> Instruction {
    let place = Operand::card(fill.place);
    let place = fill.argument.map_or(place, |argument| place.plus_argument(argument));
    Instruction::fill(place, 8, u64::from_le_bytes([fill.value; 8]))
}

/// What the card should do, in the plain sense of the words. Places wrap nowhere: arguments stay small.
fn interpret(parts: &[Part], mut arguments: [u64; 3], memory: &mut Vec<u8>) {
    let mut run = |fill: &Fill, arguments: &[u64; 3]| {
        let place = fill.place + fill.argument.map_or(0, |argument| arguments[usize::from(argument)]);
        let place = place as usize;
        if memory.len() < place + 8 {
            memory.resize(place + 8, 0);
        }
        memory[place..place + 8].fill(fill.value);
    };
    for part in parts {
        match part {
            Part::Once(fill) => run(fill, &arguments),
            Part::Rounds { count, step, body } => {
                for _ in 0..*count {
                    body.iter().for_each(|fill| run(fill, &arguments));
                    step.iter().for_each(|(argument, by)| arguments[usize::from(*argument)] += by);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if is_full() { 5_000 } else { 200 }))]

    #[test]
    fn any_program_with_loops_does_what_an_interpreter_does(
        parts in prop::collection::vec(part(), 1..6),
        arguments in prop::array::uniform3(0..MEMORY),
    ) {
        let mut program = Vec::new();
        for part in &parts {
            match part {
                Part::Once(fill) => program.push(word(fill)),
                Part::Rounds { count, step, body } => {
                    let head = Instruction::repeat(*count, body.len() as u16);
                    let step = step.unwrap_or_default();
                    let is_moving = matches!(part, Part::Rounds { step: Some(_), .. });
                    program.push(if is_moving { moving(*count, body.len() as u16, step.0, step.1) } else { head });
                    program.extend(body.iter().map(word));
                }
            }
        }
        prop_assert!(program.iter().all(|one| !one.flags.contains(Flags::LAST)));
        let mut expected = Vec::new();
        interpret(&parts, arguments, &mut expected);
        let (_fabric, mut cluster) = open(Profile::optweb(2));
        let card = cluster.card_mut(0);
        let resident = card.store(1, &program).unwrap();
        card.run_resident(&resident, arguments).unwrap();
        let mut found = vec![0; expected.len()];
        card.read_memory(0, &mut found).unwrap();
        prop_assert!(found == expected);
    }
}

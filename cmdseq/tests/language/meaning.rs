//! What plans mean is what was asked; what is no longer that is refused.

use super::cards::{combine, connected, counts, dragonfly, mpi_fpga};
use cmdseq::meaning::{expect, expect_resident};
use cmdseq::plan::{Algorithm, Collective, Communicator, Order, Piece, Plan, Program, ProgramSet, Request, plan};
use cmdseq::switch::Shape;
use cmdseq::{Capabilities, Combine, Element, Instruction, Operand, Operation, Reason, Reduction, Refusal};
use proptest::prelude::*;

fn expected(plan: &Plan, capabilities: &Capabilities, order: Order) -> Result<(), Refusal> {
    let request = Request { order, ..plan.request.clone() };
    expect(&plan.set, capabilities, &request)
}

/// Plans by every algorithm that does it, in every order, and how many there were.
fn check(request: &Request, capabilities: &Capabilities) -> usize {
    let mut plans = 0;
    let sum = request.combine.map(|_| Combine::new(Reduction::Sum, Element::F16)).filter(|_| request.bytes % 2 == 0);
    let combines: Vec<Option<Combine>> = [request.combine].into_iter().chain(sum.map(Some)).collect();
    let orders = Order::ALL.iter().flat_map(|order| combines.iter().map(move |combine| (*order, *combine)));
    let orders: Vec<(Order, Option<Combine>)> = orders.collect();
    let ways = Algorithm::ALL.iter().flat_map(|algorithm| orders.iter().map(move |way| (*algorithm, *way)));
    for (algorithm, (order, combine)) in ways {
        let request = Request { algorithm: Some(algorithm), order, combine, ..request.clone() };
        let Ok(plan) = plan(&request, capabilities) else { continue };
        if let Err(refusal) = expected(&plan, capabilities, request.order) {
            panic!("{request:?}: {refusal}\n{:?}", plan.set.programs);
        }
        plans += 1;
    }
    plans
}

fn request(collective: Collective, group: Vec<u32>, bytes: u64, root: u32, peer: u32) -> Request {
    let (combine, counts) = (combine(collective), counts(collective, group.len() as u32, bytes));
    Request { root, peer, combine, counts, ..Request::new(collective, group, bytes) }
}

#[test]
fn every_plan_means_what_was_asked() {
    let mut plans = 0;
    for nodes in (2..=9).chain([16]) {
        let capabilities = connected(nodes);
        for collective in Collective::ALL {
            for bytes in [1, 64, 1000, 40_000] {
                for root in [0, nodes - 1] {
                    let request = request(*collective, (0..nodes).collect(), bytes, root, nodes / 2);
                    let found = check(&request, &capabilities);
                    assert!(found > 0, "{request:?}");
                    plans += found;
                }
            }
        }
    }
    for (groups, size) in [(2, 2), (4, 4), (3, 2)] {
        let capabilities = dragonfly(groups, size);
        for collective in Collective::ALL {
            for bytes in [640, 100_000] {
                let request = request(*collective, (0..groups * size).collect(), bytes, 1, groups * size - 1);
                plans += check(&request, &capabilities);
            }
        }
    }
    println!("{plans} plans");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn every_plan_of_a_subgroup_means_what_was_asked(
        at in 0..Collective::ALL.len(),
        group in Just((0..12).collect::<Vec<u32>>()).prop_shuffle(),
        ranks in 1..12_usize,
        bytes in prop_oneof![0..200_u64, 0..100_000_u64],
        (root, peer) in (any::<u32>(), any::<u32>()),
    ) {
        let collective = Collective::ALL[at];
        let count = ranks as u32;
        let request = request(collective, group[..ranks].to_vec(), bytes, root % count, peer % count);
        check(&request, &connected(12));
    }
}

const VECTOR_FORMS: [Collective; 4] =
    [Collective::Scatterv, Collective::Gatherv, Collective::Allgatherv, Collective::Alltoallv];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn vector_forms_mean_the_lengths_that_were_asked(
        collective in prop::sample::select(&VECTOR_FORMS[..]),
        ranks in 1..9_u32,
        lengths in prop::collection::vec(prop_oneof![1 => Just(0_u64), 3 => 1..200_u64, 1 => 0..100_000_u64], 64),
        (root, limit) in (any::<u32>(), prop::option::of(0..16_384_u64)),
        places in any::<[prop::sample::Index; 2]>(),
    ) {
        let capabilities = connected(8);
        let number = if collective == Collective::Alltoallv { ranks * ranks } else { ranks };
        let counts = lengths[..number as usize].to_vec();
        let right = Request {
            root: root % ranks,
            counts,
            eager_limit: limit,
            ..Request::new(collective, (0..ranks).collect(), 0)
        };
        let plan = plan(&right, &capabilities).unwrap();
        let expected = |request: &Request| expect(&plan.set, &capabilities, request);
        prop_assert_eq!(expected(&right), Ok(()));
        // The same bytes in all, and two blocks of other lengths.
        let mut other = right.clone();
        let [one, two] = places.map(|place| place.index(number as usize));
        other.counts.swap(one, two);
        if other != right {
            prop_assert_eq!(expected(&other).map_err(|refusal| refusal.reason), Err(Reason::Expectation));
        }
        // Two blocks in one another's places.
        for rank in 0..ranks as usize {
            let mut set = plan.set.clone();
            let Some(table) = set.programs[rank].tables.values_mut().next_back() else { continue };
            let [one, two] = places.map(|place| place.index(table.entries.len()));
            let (first, second) = (table.entries[one], table.entries[two]);
            (table.entries[one].displacement, table.entries[two].displacement) =
                (second.displacement, first.displacement);
            let found = expect(&set, &capabilities, &right);
            match one == two || first.bytes + second.bytes == 0 {
                true => prop_assert_eq!(found, Ok(())),
                false => prop_assert!(found.is_err(), "{:?}", set.programs[rank]),
            }
        }
    }
}

fn planned(collective: Collective, algorithm: Algorithm, how: Combine) -> (Plan, Capabilities) {
    let capabilities = connected(4);
    let request =
        Request { combine: Some(how), algorithm: Some(algorithm), ..request(collective, (0..4).collect(), 4096, 0, 3) };
    (plan(&request, &capabilities).unwrap(), capabilities)
}

#[test]
fn another_collective_is_refused() {
    let sum = Combine::new(Reduction::Sum, Element::F32);
    let (right, capabilities) = planned(Collective::Allreduce, Algorithm::Direct, sum);
    expected(&right, &capabilities, Order::Rank).unwrap();
    let change = |change: &dyn Fn(&mut Plan)| {
        let mut plan = right.clone();
        change(&mut plan);
        let refusal = expected(&plan, &capabilities, Order::Any).unwrap_err();
        assert_eq!(refusal.reason, Reason::Expectation, "{refusal}");
        refusal
    };
    let all = |plan: &mut Plan, change: &dyn Fn(&mut Instruction)| {
        plan.set.programs.iter_mut().for_each(|program| change(&mut program.instructions[0]));
    };
    let refusal = change(&|plan| all(plan, &|one| one.reduction = Some(Reduction::Max)));
    assert!(refusal.cause.contains("must be the sum of f32 of byte 0"), "{refusal}");
    assert!(refusal.cause.contains("but is the max of f32 of 4 inputs"), "{refusal}");
    change(&|plan| all(plan, &|one| one.element = Some(Element::F64)));
    change(&|plan| all(plan, &|one| one.bytes -= 4));
    let refusal = change(&|plan| plan.set.programs[2].instructions[0].source.address += 4);
    assert_eq!(refusal.rank, Some(0), "{refusal}");
    let refusal = change(&|plan| plan.set.programs[2].instructions[0].destination.address += 4);
    assert_eq!(refusal.rank, Some(2), "{refusal}");
    let refusal = change(&|plan| {
        let at = plan.set.programs[1].output[0].address;
        plan.set.programs[1].instructions.push(Instruction::fill(Operand::card(at + 100), 1, 0));
    });
    assert!(
        refusal.cause.contains("byte 100 of the output") && refusal.cause.contains("pattern of a fill"),
        "{refusal}"
    );
    let refusal = change(&|plan| plan.set.programs[3].output.clear());
    assert!(refusal.cause.contains("incomplete output"), "{refusal}");
    // A contribution twice: the result is folded with one input again.
    let refusal = change(&|plan| {
        let (input, output) = (plan.set.programs[0].input[0].address, plan.set.programs[0].output[0].address);
        for (rank, program) in plan.set.programs.iter_mut().enumerate() {
            let (at, input) = (Operand::card(output), Operand::card(input));
            match rank {
                0 => program.instructions.push(Instruction::send(1, input, 4096)),
                1 => program.instructions.push(Instruction::recv_reduce(sum, 0, at, at, 4096)),
                _ => {}
            }
        }
    });
    assert!(refusal.rank == Some(1) && refusal.cause.contains("of 5 inputs"), "{refusal}");
}

/// The last partial result of an alltoall_scan is that of a reduce_scatter, and those before lack ranks. What a scan in two steps
/// sends to a wrong rank is refused.
#[test]
fn partial_results_are_folds_of_the_ranks_up_to_each() {
    let sum = Combine::new(Reduction::Sum, Element::F16);
    let (plan, capabilities) = planned(Collective::ReduceScatter, Algorithm::Direct, sum);
    let (from, to, bytes) = (plan.set.programs[0].instructions[0].source, 1 << 32, 4096);
    let result_of = |stage: u64| {
        let mut plan = plan.clone();
        for program in &mut plan.set.programs {
            program.instructions = vec![Instruction::alltoall_scan(sum, from, Operand::card(to), bytes)];
            program.output = vec![Piece { offset: 0, address: to + stage * bytes, bytes }];
        }
        expected(&plan, &capabilities, Order::Any)
    };
    result_of(3).unwrap();
    let refusal = result_of(2).unwrap_err();
    assert!(refusal.cause.contains("but is the sum of f16 of 3 inputs"), "{refusal}");
    let refusal = result_of(0).unwrap_err();
    assert!(refusal.cause.contains("but is byte 0 of the input of rank 0"), "{refusal}");
    for collective in [Collective::Scan, Collective::Exscan] {
        let (right, capabilities) = planned(collective, Algorithm::Multipath, sum);
        expected(&right, &capabilities, Order::Any).unwrap();
        // Rounded once, not at each rank.
        let refusal = expected(&right, &capabilities, Order::Rank).unwrap_err();
        assert!(refusal.cause.contains("in the order of ranks"), "{refusal}");
        let changes: [fn(&mut Instruction); 3] = [
            |alltoall| alltoall.communicator = 1 - alltoall.communicator,
            |alltoall| alltoall.source.address += 2,
            |alltoall| alltoall.bytes -= 2,
        ];
        for change in changes {
            let mut plan = right.clone();
            plan.set.communicators = vec![Communicator { id: 1, members: vec![1, 2, 3, 0] }];
            expected(&plan, &capabilities, Order::Any).unwrap();
            plan.set.programs.iter_mut().for_each(|program| change(&mut program.instructions[1]));
            assert_eq!(expected(&plan, &capabilities, Order::Any).unwrap_err().reason, Reason::Expectation);
        }
    }
}

/// Folds over other elements than those of the inputs carry and round over other bytes.
#[test]
fn folds_of_shifted_elements_are_refused() {
    let sum = Combine::new(Reduction::Sum, Element::U32);
    let at = Operand::card;
    let (input, output) = (0, 0x1000);
    let of_parts = |collective: Collective, bytes: u64, parts: &[(u64, u64)]| {
        let instructions: Vec<Instruction> = parts
            .iter()
            .map(|(from, bytes)| Instruction::allreduce(sum, at(from + input), at(output + from), *bytes))
            .collect();
        let piece = |address| vec![Piece { offset: 0, address, bytes }];
        let program = Program { instructions, input: piece(input), output: piece(output), ..Program::default() };
        let request = Request { combine: Some(sum), ..Request::new(collective, vec![0, 1], bytes) };
        expect(&ProgramSet::new([0, 1], vec![program; 2]), &connected(2), &request).map_err(|refusal| refusal.reason)
    };
    let (allreduce, refused) = (Collective::Allreduce, Err(Reason::Expectation));
    // Bytes 2 to 7 come out of elements that lie across those of the input.
    assert_eq!(of_parts(allreduce, 12, &[(0, 12), (2, 8), (8, 4)]), refused);
    assert_eq!(of_parts(allreduce, 12, &[(2, 8), (0, 4), (8, 4)]), refused);
    assert_eq!(of_parts(allreduce, 12, &[(0, 12), (4, 8), (4, 4)]), Ok(()));
    assert_eq!(of_parts(Collective::Scan, 12, &[(0, 12)]), refused, "rank 0 has a sum");
    // No vector of elements.
    assert_eq!(of_parts(allreduce, 10, &[(0, 8)]), refused);
    // What is folded is moved by parts of elements, and lies in the right place in the end: it is the same.
    let between = 0x2000;
    let moved = |shift: u64, folded_again: bool| {
        let mut instructions = vec![
            Instruction::allreduce(sum, at(input), at(between), 12),
            Instruction::copy(at(between), at(between + 0x102), 12),
            Instruction::copy(at(between + 0x102 + shift), at(output), 6),
            Instruction::copy(at(between + 0x102 + shift + 6), at(output + 6), 6),
        ];
        if folded_again {
            // Of two halves that lie across elements: each input is there once, and carries go astray.
            instructions = vec![
                Instruction::allreduce(sum, at(input + 2), at(between + 2), 8),
                Instruction::copy(at(between), at(output), 12),
                Instruction::allreduce(sum, at(input), at(output), 4),
                Instruction::allreduce(sum, at(input + 8), at(output + 8), 4),
            ];
        }
        let piece = |address| vec![Piece { offset: 0, address, bytes: 12 }];
        let program = Program { instructions, input: piece(input), output: piece(output), ..Program::default() };
        let request = Request { combine: Some(sum), ..Request::new(allreduce, vec![0, 1], 12) };
        expect(&ProgramSet::new([0, 1], vec![program; 2]), &connected(2), &request).map_err(|refusal| refusal.reason)
    };
    assert_eq!(moved(0, false), Ok(()));
    assert_eq!(moved(2, false), refused);
    assert_eq!(moved(0, true), refused);
}

/// Three ranks fold in two steps; the second step reads what the first has left at elements of its own.
#[test]
fn folds_of_folds_keep_to_the_elements_of_the_inputs() {
    let sum = Combine::new(Reduction::Sum, Element::U32);
    let at = Operand::card;
    let of_steps = |first: &[(u64, u64)]| {
        let mut programs = vec![Program::default(); 3];
        for (from, bytes) in first {
            programs[0].instructions.push(Instruction::send(1, at(*from), *bytes));
            let fold = Instruction::recv_reduce(sum, 0, at(*from), at(0x1000 + from), *bytes);
            programs[1].instructions.push(fold);
        }
        programs[1].instructions.push(Instruction::send(2, at(0x1000), 16));
        programs[2].instructions.push(Instruction::recv_reduce(sum, 1, at(0), at(0x1000), 16));
        for program in &mut programs {
            program.input = vec![Piece { offset: 0, address: 0, bytes: 16 }];
        }
        programs[2].output = vec![Piece { offset: 0, address: 0x1000, bytes: 16 }];
        let reduce = Request::new(Collective::Reduce, vec![0, 1, 2], 16);
        let request = Request { combine: Some(sum), root: 2, ..reduce };
        expect(&ProgramSet::new([0, 1, 2], programs), &connected(3), &request).map_err(|refusal| refusal.reason)
    };
    assert_eq!(of_steps(&[(0, 16)]), Ok(()));
    assert_eq!(of_steps(&[(0, 8), (8, 8)]), Ok(()));
    // Elements 0 and 3 are right; between, the second step takes halves of two of the first.
    assert_eq!(of_steps(&[(0, 16), (2, 12)]), Err(Reason::Expectation));
}

/// Rank 0 receives the input of rank 1 and folds it with its own: as it should, in place, and with wrong operands.
#[test]
fn a_fold_on_one_card_means_its_two_operands() {
    let sum = Combine::new(Reduction::Sum, Element::F32);
    let [input, came, output] = [0, 0x1000, 0x2000].map(Operand::card);
    let reduced = |fold: Instruction, order: Order| {
        let result = fold.destination.address;
        let first = Program {
            instructions: vec![Instruction::recv(1, came, 16), fold],
            input: vec![Piece { offset: 0, address: 0, bytes: 16 }],
            output: vec![Piece { offset: 0, address: result, bytes: 16 }],
            ..Program::default()
        };
        let second = Program {
            instructions: vec![Instruction::send(0, input, 16)],
            input: vec![Piece { offset: 0, address: 0, bytes: 16 }],
            ..Program::default()
        };
        let request = Request { combine: Some(sum), order, ..Request::new(Collective::Reduce, vec![0, 1], 16) };
        expect(&ProgramSet::new([0, 1], [first, second]), &connected(2), &request).map_err(|refusal| refusal.reason)
    };
    for order in [Order::Any, Order::Rank] {
        for destination in [input, came, output] {
            assert_eq!(reduced(Instruction::fold(sum, input, came, destination, 16), order), Ok(()));
        }
    }
    let product = Combine { reduction: Reduction::Prod, ..sum };
    for wrong in [
        Instruction::fold(sum, input, input, output, 16),
        Instruction::fold(sum, came, came, output, 16),
        Instruction::fold(product, input, came, output, 16),
        Instruction::fold(sum, input, Operand::card(0x1004), output, 16),
        Instruction::fold(sum, input, came, output, 12),
    ] {
        assert_eq!(reduced(wrong, Order::Any), Err(Reason::Expectation), "{wrong:?}");
    }
}

fn is_barrier(programs: &[Vec<Instruction>], capabilities: &Capabilities) -> Result<(), Refusal> {
    let group: Vec<u32> = (0..programs.len() as u32).collect();
    let request = Request::new(Collective::Barrier, group.clone(), 0);
    let set = ProgramSet::new(group, programs.to_vec()).with([Communicator { id: 1, members: vec![0, 1] }]);
    expect(&set, capabilities, &request)
}

#[test]
fn barriers_hold_every_rank_up_until_all_have_begun() {
    let capabilities = connected(3);
    let at = Operand::card;
    let refused = |programs: &[Vec<Instruction>], rank: u32, other: u32| {
        let refusal = is_barrier(programs, &capabilities).unwrap_err();
        assert_eq!((refusal.rank, refusal.reason), (Some(rank), Reason::Expectation), "{refusal}");
        assert!(refusal.cause.contains(&format!("may end before rank {other} has begun")), "{refusal}");
    };
    let accepted = |programs: &[Vec<Instruction>]| is_barrier(programs, &capabilities).unwrap();
    let barrier = Instruction::barrier;
    accepted(&[vec![barrier()], vec![barrier()], vec![barrier()]]);
    accepted(&[vec![Instruction::nop(), barrier()], vec![barrier(), Instruction::delay(9)], vec![barrier()]]);
    refused(&[vec![], vec![], vec![]], 0, 1);
    refused(&[vec![Instruction::nop()], vec![Instruction::delay(9)], vec![]], 0, 1);
    refused(&[vec![barrier().on(1)], vec![barrier().on(1)], vec![]], 0, 2);
    // Whoever sends to a rank that has begun knows it; the leaves of a broadcast know of the root alone.
    let whole = |it: Instruction| [vec![it], vec![it], vec![it]];
    refused(&whole(Instruction::broadcast(1, at(0), at(4096), 64)), 0, 2);
    refused(&whole(Instruction::alltoall(at(0), at(4096), 0)), 0, 1);
    accepted(&whole(Instruction::alltoall(at(0), at(4096), 8)));
    let token = |peer, bytes| (Instruction::send(peer, at(0), bytes), Instruction::recv(peer, at(4096), bytes));
    // Up a chain and back down; the last need not be told, for it has heard of all.
    for bytes in [8, 0] {
        let ((to_0, from_0), (to_1, from_1), (to_2, from_2)) = (token(0, bytes), token(1, bytes), token(2, bytes));
        let chain = [vec![to_1, from_1], vec![from_0, to_2, from_2, to_0], vec![from_1, to_1]];
        match bytes {
            // Nothing is sent of what has no bytes.
            0 => refused(&chain, 0, 1),
            _ => accepted(&chain),
        }
        let [mut first, second, third] = chain;
        if bytes > 0 {
            // Up only: the first two do not hear of the last before they end, but for the one that sends to it.
            refused(&[vec![to_1], vec![from_0, to_2], vec![from_1]], 0, 2);
        }
        first.push(Instruction::nop());
        assert_eq!(is_barrier(&[first, second, third], &capabilities).is_ok(), bytes > 0);
    }
}

/// What is learned on one lane is not known to an instruction of another that was issued before.
#[test]
fn barriers_of_several_lanes_are_refused() {
    let capabilities = Capabilities { lanes: 2, ..connected(2) };
    let at = Operand::card;
    let exchange =
        |peer, lane| vec![Instruction::barrier(), Instruction::sendrecv(peer, peer, at(0), at(4096), 64).in_lane(lane)];
    is_barrier(&[exchange(1, 0), exchange(0, 0)], &capabilities).unwrap();
    let refusal = is_barrier(&[exchange(1, 1), exchange(0, 1)], &capabilities).unwrap_err();
    assert_eq!((refusal.rank, refusal.reason), (Some(0), Reason::Expectation), "{refusal}");
}

/// Members that run backwards do not make it the order of ranks.
#[test]
fn switches_fold_in_an_order_of_their_own() {
    let sum = Combine::new(Reduction::Sum, Element::F32);
    for (shape, group, is_in_order) in [
        (Shape::Fat { processors: 3, radix: 16 }, vec![0, 1, 2], false),
        (Shape::Fat { processors: 3, radix: 16 }, vec![2, 1, 0], false),
        (Shape::Fat { processors: 2, radix: 16 }, vec![0, 1], true),
    ] {
        let capabilities = mpi_fpga(shape);
        let ranks = group.len() as u32;
        let request = Request {
            combine: Some(sum),
            algorithm: Some(Algorithm::Switch),
            ..Request::new(Collective::Allreduce, group, 64)
        };
        let mut plan = plan(&request, &capabilities).unwrap();
        let order = |plan: &Plan, order| expected(plan, &capabilities, order).map_err(|refusal| refusal.reason);
        assert_eq!(order(&plan, Order::Any), Ok(()));
        // The ranks are numbered the other way around than the communicator's members.
        for program in &mut plan.set.programs {
            for one in &mut program.instructions {
                *one = one.on(1);
            }
        }
        let members = plan.set.nodes.iter().rev().copied().collect();
        plan.set.communicators = vec![Communicator { id: 1, members }];
        assert_eq!(order(&plan, Order::Any), Ok(()), "{ranks} ranks");
        assert_eq!(order(&plan, Order::Rank).is_ok(), is_in_order, "{ranks} ranks");
    }
}

/// One after another, and each with a signal to every other.
#[test]
fn signals_make_barriers_too() {
    let capabilities = connected(3);
    let at = Operand::card;
    let signal = |rank: u16, values: [u32; 2]| {
        let mut program: Vec<Instruction> = (0..3_u16)
            .filter(|other| *other != rank)
            .zip(values)
            .map(|(other, value)| Instruction::put_signal(other, at(0), at(0), 0, 1, value))
            .collect();
        program.push(Instruction::wait_signal(1, 2));
        program
    };
    is_barrier(&[signal(0, [1, 1]), signal(1, [1, 1]), signal(2, [1, 1])], &capabilities).unwrap();
    // The wait is over before all have put: what it needs may come of one of them.
    let mut early = [signal(0, [1, 1]), signal(1, [1, 1]), signal(2, [1, 1])];
    let last = early[0].len() - 1;
    early[0][last].signal_value = 1;
    early[0].push(Instruction::wait_signal(1, 1));
    is_barrier(&early, &capabilities).unwrap();
    early[1][0].signal_value = 2;
    early[0].pop();
    early[0].push(Instruction::wait_signal(1, 2));
    is_barrier(&early, &capabilities).unwrap();
    // Rank 2 is not needed for what rank 0 waits for, and is heard of through rank 1 alone.
    let put = |to, value| Instruction::put_signal(to, at(0), at(0), 0, 1, value);
    let wait = |value| Instruction::wait_signal(1, value);
    let relay = [vec![put(1, 1), wait(1)], vec![wait(2), put(0, 1), put(2, 1)], vec![put(1, 1), wait(1)]];
    is_barrier(&relay, &capabilities).unwrap();
    // Only a second look tells that the first wait takes one put of each: the others come after it.
    let round = |signal: u16, to: u16| Instruction::put_signal(to, at(0), at(0), 0, signal, 1);
    let again = || vec![round(0, 2), wait(1), round(0, 2)];
    let center = vec![Instruction::wait_signal(0, 2), round(1, 0), round(1, 1), Instruction::wait_signal(0, 2)];
    is_barrier(&[again(), again(), center], &capabilities).unwrap();
    let hasty = [vec![put(1, 1), wait(1)], vec![wait(1), put(0, 1), put(2, 1), wait(1)], vec![put(1, 1), wait(1)]];
    let refusal = is_barrier(&hasty, &capabilities).unwrap_err();
    assert_eq!(refusal.reason, Reason::Expectation, "{refusal}");
}

#[test]
fn every_planned_barrier_is_one_and_with_less_is_none() {
    let mut plans = 0;
    let linked = (2..=17).chain([33, 64]).map(|nodes| (connected(nodes), nodes));
    let rows = [(2, 2), (4, 4), (3, 2), (5, 3)].map(|(groups, size)| (dragonfly(groups, size), groups * size));
    for (capabilities, nodes) in linked.chain(rows) {
        for algorithm in Algorithm::ALL {
            for eager_limit in [None, Some(0), Some(64)] {
                let request = Request {
                    algorithm: Some(*algorithm),
                    eager_limit,
                    ..Request::new(Collective::Barrier, (0..nodes).collect(), 0)
                };
                let Ok(plan) = plan(&request, &capabilities) else { continue };
                expected(&plan, &capabilities, Order::Any).unwrap();
                plans += 1;
                // Without one of its steps, or with tokens of no bytes.
                let leave_out = |change: &dyn Fn(&mut Vec<Instruction>)| {
                    let mut set = plan.set.clone();
                    set.programs.iter_mut().for_each(|program| change(&mut program.instructions));
                    let found = expect(&set, &capabilities, &request);
                    assert_eq!(found.map_err(|refusal| refusal.reason), Err(Reason::Expectation), "{request:?}");
                };
                if plan.set.programs[0].instructions[0].operation == Operation::Barrier {
                    (0..plan.set.programs[0].instructions.len()).for_each(|at| leave_out(&|all| _ = all.remove(at)));
                } else {
                    leave_out(&|all| all.iter_mut().for_each(|token| token.bytes = 0));
                }
            }
        }
    }
    assert!(plans > 100, "{plans}");
}

#[test]
fn resident_programs_are_expected_with_their_loops_unrolled() {
    let at = Operand::card;
    let capabilities = connected(2);
    let resident = |count: u16, argument: u64, bytes: u64| {
        let round = Instruction { extent: 64, extent_argument: Some(0), ..Instruction::repeat(count, 1) };
        let program = |rank: u16| {
            let (from, to) = (at(0).plus_argument(0), at(4096).plus_argument(0));
            Program {
                instructions: vec![round, Instruction::sendrecv(1 - rank, 1 - rank, from, to, 64)],
                input: vec![Piece { offset: 0, address: 0, bytes: 192 }],
                output: vec![Piece { offset: 0, address: 4096, bytes: 192 }],
                ..Program::default()
            }
        };
        let request = Request::new(Collective::Sendrecv, vec![0, 1], bytes);
        let programs = [program(0), program(1)];
        expect_resident(&ProgramSet::new([0, 1], programs), &[[argument, 0, 0]; 2], &capabilities, &request)
    };
    resident(3, 0, 192).unwrap();
    let refusal = resident(2, 0, 192).unwrap_err();
    assert!(refusal.cause.contains("byte 128 of the output"), "{refusal}");
    let refusal = resident(3, 64, 192).unwrap_err();
    assert!(refusal.cause.contains("byte 0 of the output"), "{refusal}");
    let refusal = resident(3, 8 << 30, 192).unwrap_err();
    assert_eq!((refusal.reason, refusal.instruction), (Reason::Memory, Some(1)), "{refusal}");
}

#[test]
fn the_order_of_ranks_is_told_from_others() {
    let at = Operand::card;
    for (element, at_once) in [(Element::F32, true), (Element::F16, false)] {
        let sum = Combine::new(Reduction::Sum, element);
        let (mut plan, capabilities) = planned(Collective::Reduce, Algorithm::Direct, sum);
        assert_eq!(expected(&plan, &capabilities, Order::Rank).is_ok(), at_once, "f16 is rounded once, behind all");
        let input = plan.set.programs.iter().map(|program| at(program.input[0].address)).collect::<Vec<_>>();
        let output = at(plan.set.programs[0].output[0].address);
        let between = at(1 << 32);
        // One after another, up the ranks and back to the root.
        plan.set.programs[0].instructions =
            vec![Instruction::send(1, input[0], 4096), Instruction::recv(3, output, 4096)];
        for rank in 1..4_u16 {
            let folds = Instruction::recv_reduce(sum, rank - 1, input[usize::from(rank)], between, 4096);
            let sends = Instruction::send((rank + 1) % 4, between, 4096);
            plan.set.programs[usize::from(rank)].instructions = vec![folds, sends];
        }
        expected(&plan, &capabilities, Order::Any).unwrap();
        expected(&plan, &capabilities, Order::Rank).unwrap();
        // The same, as a tree: (0, 1) and (2, 3).
        plan.set.programs[0].instructions = vec![
            Instruction::recv_reduce(sum, 1, input[0], between, 4096),
            Instruction::recv_reduce(sum, 2, between, output, 4096),
        ];
        plan.set.programs[1].instructions = vec![Instruction::send(0, input[1], 4096)];
        plan.set.programs[2].instructions =
            vec![Instruction::recv_reduce(sum, 3, input[2], between, 4096), Instruction::send(0, between, 4096)];
        plan.set.programs[3].instructions = vec![Instruction::send(2, input[3], 4096)];
        expected(&plan, &capabilities, Order::Any).unwrap();
        let refusal = expected(&plan, &capabilities, Order::Rank).unwrap_err();
        assert!(refusal.cause.contains("in the order of ranks"), "{refusal}");
    }
}

/// As deep as programs are long: nothing is walked or freed by recursion.
#[test]
fn long_chains_of_folds_are_bounded() {
    let sum = Combine::new(Reduction::Sum, Element::U8);
    let (mut plan, capabilities) = planned(Collective::Allreduce, Algorithm::Direct, sum);
    let at = |address| Operand::card(address);
    for _ in 0..100_000 {
        plan.set.programs[0].instructions.push(Instruction::send(1, at(0), 64));
        plan.set.programs[1].instructions.push(Instruction::recv_reduce(sum, 0, at(1 << 32), at(1 << 32), 64));
    }
    let output = plan.set.programs[1].output[0].address;
    let program = &mut plan.set.programs[1].instructions;
    program.insert(1, Instruction::copy(at(output), at(1 << 32), 64));
    program.push(Instruction::copy(at(1 << 32), at(output), 64));
    assert_eq!(expected(&plan, &capabilities, Order::Any).unwrap_err().reason, Reason::Expectation);
}

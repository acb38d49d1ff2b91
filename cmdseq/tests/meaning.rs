//! What plans mean is what was asked; what is no longer that is refused.
#![forbid(unsafe_code)]

mod cards;

use cards::{combine, connected, counts, dragonfly};
use cmdseq::meaning::expect;
use cmdseq::plan::{Algorithm, Collective, Order, Plan, Refusal, Request, plan};
use cmdseq::{Capabilities, Combine, Element, Instruction, Operand, Reason, Reduction};
use proptest::prelude::*;

fn expected(plan: &Plan, capabilities: &Capabilities, order: Order) -> Result<(), Refusal> {
    let request = Request { order, ..plan.request.clone() };
    expect(&plan.programs, &plan.communicators, &plan.request.group, capabilities, &request)
}

/// Plans by every algorithm that does it, in every order, and how many there were.
fn check(request: &Request, capabilities: &Capabilities) -> usize {
    let mut plans = 0;
    let sum = request.combine.map(|_| Combine::new(Reduction::Sum, Element::F16)).filter(|_| request.bytes % 2 == 0);
    let ways = Algorithm::ALL.iter().flat_map(|algorithm| Order::ALL.iter().map(move |order| (*algorithm, *order)));
    for (algorithm, order) in ways {
        let combine = if order == Order::Rank { sum.or(request.combine) } else { request.combine };
        let request = Request { algorithm: Some(algorithm), order, combine, ..request.clone() };
        let Ok(plan) = plan(&request, capabilities) else { continue };
        if let Err(refusal) = expected(&plan, capabilities, request.order) {
            panic!("{request:?}: {refusal}\n{:?}", plan.programs);
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
            let request = request(*collective, (0..groups * size).collect(), 640, 1, groups * size - 1);
            plans += check(&request, &capabilities);
        }
    }
    println!("{plans} plans");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

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
        let expected =
            |request: &Request| expect(&plan.programs, &plan.communicators, &right.group, &capabilities, request);
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
            let mut programs = plan.programs.clone();
            let Some(table) = programs[rank].tables.values_mut().next_back() else { continue };
            let [one, two] = places.map(|place| place.index(table.entries.len()));
            let (first, second) = (table.entries[one], table.entries[two]);
            (table.entries[one].displacement, table.entries[two].displacement) =
                (second.displacement, first.displacement);
            let found = expect(&programs, &plan.communicators, &right.group, &capabilities, &right);
            match one == two || first.bytes + second.bytes == 0 {
                true => prop_assert_eq!(found, Ok(())),
                false => prop_assert!(found.is_err(), "{:?}", programs[rank]),
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
        plan.programs.iter_mut().for_each(|program| change(&mut program.instructions[0]));
    };
    let refusal = change(&|plan| all(plan, &|one| one.reduction = Some(Reduction::Max)));
    assert!(refusal.cause.contains("has to be the sum of f32 of byte 0"), "{refusal}");
    assert!(refusal.cause.contains("it is the max of f32 of 4 inputs"), "{refusal}");
    change(&|plan| all(plan, &|one| one.element = Some(Element::F64)));
    change(&|plan| all(plan, &|one| one.bytes -= 4));
    let refusal = change(&|plan| plan.programs[2].instructions[0].source.address += 4);
    assert_eq!(refusal.rank, Some(0), "{refusal}");
    let refusal = change(&|plan| plan.programs[2].instructions[0].destination.address += 4);
    assert_eq!(refusal.rank, Some(2), "{refusal}");
    let refusal = change(&|plan| {
        let at = plan.programs[1].output[0].address;
        plan.programs[1].instructions.push(Instruction::fill(Operand::card(at + 100), 1, 0));
    });
    assert!(refusal.cause.contains("byte 100 of the output") && refusal.cause.contains("fill has left"), "{refusal}");
    let refusal = change(&|plan| plan.programs[3].output.clear());
    assert!(refusal.cause.contains("where the rest lies is not said"), "{refusal}");
    // A contribution twice: the result is folded with one input again.
    let refusal = change(&|plan| {
        let (input, output) = (plan.programs[0].input[0].address, plan.programs[0].output[0].address);
        for (rank, program) in plan.programs.iter_mut().enumerate() {
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

#[test]
fn the_order_of_ranks_is_told_from_others() {
    let at = Operand::card;
    for (element, at_once) in [(Element::F32, true), (Element::F16, false)] {
        let sum = Combine::new(Reduction::Sum, element);
        let (mut plan, capabilities) = planned(Collective::Reduce, Algorithm::Direct, sum);
        assert_eq!(expected(&plan, &capabilities, Order::Rank).is_ok(), at_once, "f16 is rounded once, behind all");
        let input = plan.programs.iter().map(|program| at(program.input[0].address)).collect::<Vec<_>>();
        let output = at(plan.programs[0].output[0].address);
        let between = at(1 << 32);
        // One after another, up the ranks and back to the root.
        plan.programs[0].instructions = vec![Instruction::send(1, input[0], 4096), Instruction::recv(3, output, 4096)];
        for rank in 1..4_u16 {
            let folds = Instruction::recv_reduce(sum, rank - 1, input[usize::from(rank)], between, 4096);
            let sends = Instruction::send((rank + 1) % 4, between, 4096);
            plan.programs[usize::from(rank)].instructions = vec![folds, sends];
        }
        expected(&plan, &capabilities, Order::Any).unwrap();
        expected(&plan, &capabilities, Order::Rank).unwrap();
        // The same, as a tree: (0, 1) and (2, 3).
        plan.programs[0].instructions = vec![
            Instruction::recv_reduce(sum, 1, input[0], between, 4096),
            Instruction::recv_reduce(sum, 2, between, output, 4096),
        ];
        plan.programs[1].instructions = vec![Instruction::send(0, input[1], 4096)];
        plan.programs[2].instructions =
            vec![Instruction::recv_reduce(sum, 3, input[2], between, 4096), Instruction::send(0, between, 4096)];
        plan.programs[3].instructions = vec![Instruction::send(2, input[3], 4096)];
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
        plan.programs[0].instructions.push(Instruction::send(1, at(0), 64));
        plan.programs[1].instructions.push(Instruction::recv_reduce(sum, 0, at(1 << 32), at(1 << 32), 64));
    }
    let output = plan.programs[1].output[0].address;
    let program = &mut plan.programs[1].instructions;
    program.insert(1, Instruction::copy(at(output), at(1 << 32), 64));
    program.push(Instruction::copy(at(1 << 32), at(output), 64));
    assert_eq!(expected(&plan, &capabilities, Order::Any).unwrap_err().reason, Reason::Expectation);
}

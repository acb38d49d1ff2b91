//! What the planner refuses, and why.

use cmdseq::plan::{Algorithm, Collective, Order, Placement, Request, plan};
use cmdseq::ranges::Range;
use cmdseq::{Capabilities, Combine, Element, Instruction, Operand, Operation, Reason, Reduction};

use crate::cards::{circus, connected, dragonfly, request};
use crate::verified;

fn cause(request: &Request, capabilities: &Capabilities) -> String {
    plan(request, capabilities).unwrap_err().to_string()
}

#[test]
fn refusals_say_what_is_wrong_and_what_would_be_right() {
    let capabilities = connected(4);
    let good = request(Collective::Scatter, 4, 64, None);
    for (wrong, part) in [
        (Request { group: vec![], ..good.clone() }, "at least one node"),
        (Request { group: vec![0, 1, 4], ..good.clone() }, "rank 2: no node 4 (the last is 3)"),
        (Request { group: vec![0, 1, 0], ..good.clone() }, "rank 2: duplicate node 0"),
        (Request { root: 4, ..good.clone() }, "root 4 is not a rank (the last is 3)"),
        (
            Request { bytes: (256 << 20) + 1, algorithm: Some(Algorithm::Direct), ..good.clone() },
            "striped blocks have at most 268435456 B",
        ),
        (Request { eager_limit: Some(16385), ..good.clone() }, "16384 B"),
        (Request { algorithm: Some(Algorithm::Multipath), ..good.clone() }, "not for scatter"),
        (Request { algorithm: Some(Algorithm::TwoLevel), ..good.clone() }, "fully connected"),
    ] {
        let cause = cause(&wrong, &capabilities);
        assert!(cause.contains(part), "{cause}");
    }
    let good = request(Collective::Allreduce, 4, 64, None);
    let how = |reduction, element| Request { combine: Some(Combine::new(reduction, element)), ..good.clone() };
    for (wrong, part) in [
        (Request { combine: None, ..good.clone() }, "allreduce needs a reduction"),
        (Request { collective: Collective::Alltoall, ..good.clone() }, "alltoall does not reduce"),
        (how(Reduction::Xor, Element::F32), "xor is not defined for f32 (available: i8, u8"),
        (how(Reduction::Minloc, Element::I32), "minloc is not defined for i32 (available: i16i32"),
        (Request { bytes: 12, ..how(Reduction::Sum, Element::F64) }, "12 B are not a whole number of f64 elements"),
    ] {
        let cause = cause(&wrong, &capabilities);
        assert!(cause.contains(part), "{cause}");
    }
    let sum = how(Reduction::Sum, Element::F32);
    let mut old = capabilities.clone();
    old.reductions = 0;
    assert!(cause(&sum, &old).contains("do not support sum of f32"));
    old = capabilities.clone();
    old.element_types &= !Element::F32.bit();
    assert!(cause(&sum, &old).contains("do not support sum of f32"));
    old = capabilities.clone();
    for operation in [Operation::Allreduce, Operation::ReduceScatter, Operation::RecvReduce, Operation::SendrecvReduce]
    {
        old.operations &= !(1 << operation as u8);
    }
    assert!(cause(&sum, &old).contains("does not support this operation"));
}

#[test]
fn ranks_without_a_path_are_refused_with_the_cards_that_would_make_one() {
    let grid = dragonfly(4, 4);
    let apart = |collective, relays: Option<Vec<u32>>| Request {
        relays,
        group: vec![0, 5, 10],
        ..request(collective, 3, 64, None)
    };
    for collective in Collective::ALL {
        let allowed = plan(&apart(*collective, None), &grid).unwrap();
        assert!(allowed.relays().iter().all(|node| ![0, 5, 10].contains(node)), "{collective}: {:?}", allowed.relays());
        // Node 4 links the first two ranks; node 10 is in row and column 2.
        let cause = cause(&apart(*collective, Some(vec![4, 15])), &grid);
        assert!(cause.contains("over the group and the cards that may relay; let node"), "{collective}: {cause}");
    }
    let pair = |relays| Request { relays: Some(relays), group: vec![0, 5], ..request(Collective::Barrier, 2, 0, None) };
    let none = cause(&pair(vec![]), &grid);
    assert!(
        none.contains("rank 1: no path from node 0 to node 5") && none.contains("let node 1 or node 4 relay"),
        "{none}"
    );
    assert_eq!(plan(&pair(vec![4]), &grid).unwrap().relays(), [4]);
    // Longer ways are found too, and no more cards than they need.
    assert_eq!(plan(&pair(vec![2, 3, 6, 15]), &grid).unwrap().relays(), [2, 6]);
    assert!(cause(&pair(vec![4, 16]), &grid).contains("relay: no node 16 (the last is 15)"));
    // What goes between linked ranks needs no path to others.
    let linked =
        Request { group: vec![0, 1, 10], peer: 1, relays: Some(vec![]), ..request(Collective::Send, 3, 64, None) };
    assert_eq!(plan(&linked, &grid).unwrap().relays(), []);
}

#[test]
fn relays_use_the_intermediate_memory_of_a_placement_alone() {
    let grid = dragonfly(4, 4);
    let placed = |bytes| {
        let between = Range { address: 3 << 20, bytes };
        let placement = Placement { input: Operand::card(0), output: Operand::card(1 << 20), between };
        let request = Request { placement: Some(placement), ..request(Collective::Allreduce, 2, 4096, None) };
        Request { group: vec![0, 5], ..request }
    };
    let plan = plan(&placed(1 << 20), &grid).unwrap();
    let of_relay = &plan.set.programs[2];
    assert!(of_relay.input.is_empty() && of_relay.output.is_empty() && !of_relay.instructions.is_empty());
    for instruction in &of_relay.instructions {
        let alone = [instruction.source, instruction.destination].map(|operand| operand.address);
        assert!(
            alone.into_iter().all(|address| address == 0 || (3 << 20..4 << 20).contains(&address)),
            "{instruction:?}"
        );
    }
    let cause = cause(&placed(4096), &grid);
    assert!(cause.contains("exceed the 4096 B of intermediate memory"), "{cause}");
}

#[test]
fn algorithms_that_do_not_fit_are_refused_with_the_reason() {
    let sum = |element| Some(Combine::new(Reduction::Sum, element));
    let forced = |algorithm, collective, ranks| request(collective, ranks, 64, Some(algorithm));
    let in_order = |algorithm, element| Request {
        order: Order::Rank,
        combine: sum(element),
        ..forced(algorithm, Collective::Allreduce, 4)
    };
    for (wrong, part) in [
        (forced(Algorithm::Binomial, Collective::Alltoall, 4), "binomial is not for alltoall: try direct"),
        (forced(Algorithm::Multipath, Collective::Scatter, 4), "not for scatter"),
        (forced(Algorithm::Multipath, Collective::ReduceScatter, 4), "no pseudo channel for the result: use direct"),
        (forced(Algorithm::Ring, Collective::Barrier, 4), "not for barrier"),
        (forced(Algorithm::Ring, Collective::Allgather, 1), "ring needs two ranks"),
        (forced(Algorithm::Ring, Collective::Gatherv, 4), "not for gatherv"),
        (Request { counts: vec![0; 4], ..forced(Algorithm::Ring, Collective::Allgatherv, 4) }, "nothing to send"),
        (Request { bytes: 0, ..forced(Algorithm::Binomial, Collective::Gather, 4) }, "has nothing to send"),
        (in_order(Algorithm::Binomial, Element::F32), "folds pairs of ranks first"),
        (in_order(Algorithm::Binomial, Element::F16), "ring keeps rank order"),
        (in_order(Algorithm::Direct, Element::Bf16), "rounds a sum of bf16 once"),
    ] {
        let cause = cause(&wrong, &connected(wrong.ranks().max(2)));
        assert!(cause.contains(part), "{cause}");
    }
    let ring = cause(&forced(Algorithm::TwoLevel, Collective::Gather, 7), &circus(1, 7));
    assert_eq!(ring, "two-level needs two rows and two columns or more: these cards are on one ring, so use direct");
    let row = Request { group: (4..8).collect(), ..forced(Algorithm::TwoLevel, Collective::Gather, 4) };
    assert!(cause(&row, &circus(4, 4)).contains("these cards are on one ring, so use direct"));
    assert!(cause(&row, &dragonfly(4, 4)).contains("these cards are fully connected, so use direct"));
    let no_grid = Request { group: vec![0, 1, 5, 7], ..forced(Algorithm::Multipath, Collective::Reduce, 4) };
    assert_eq!(
        cause(&no_grid, &dragonfly(3, 3)),
        "multipath needs a grid: row by row the same columns, in the same order"
    );
    let ring = cause(&forced(Algorithm::Ring, Collective::Allgather, 16), &dragonfly(4, 4));
    assert!(ring.contains("rank 3: no link from node 3 to node 4"), "{ring}");
    let folds = Request { group: (0..16).collect(), peer: 15, ..in_order(Algorithm::Multipath, Element::F64) };
    let folds = cause(&folds, &dragonfly(4, 4));
    assert!(folds.contains("multipath folds rows first"), "{folds}");
    let relay = cause(&forced(Algorithm::Relay, Collective::Alltoall, 16), &dragonfly(4, 4));
    assert!(relay.contains("relay is for ranks that are not linked"), "{relay}");
    let apart = Request { group: vec![0, 5, 10], ..forced(Algorithm::Relay, Collective::Allreduce, 3) };
    let apart = cause(&apart, &dragonfly(4, 4));
    assert_eq!(apart, "relay is not for allreduce: try direct, two-level, multipath, binomial, ring");
    let tree = cause(&forced(Algorithm::Binomial, Collective::Broadcast, 15), &dragonfly(3, 5));
    assert!(tree.contains("no link from node"), "{tree}");
    // What does not round can be in any order; two ranks have only one.
    for right in [
        Request { combine: sum(Element::I32), ..in_order(Algorithm::Binomial, Element::F32) },
        Request { group: vec![0, 1], peer: 1, ..in_order(Algorithm::Binomial, Element::F16) },
        in_order(Algorithm::Direct, Element::F32),
        in_order(Algorithm::Ring, Element::F16),
    ] {
        plan(&right, &connected(4)).unwrap();
    }
}

#[test]
fn programs_that_wait_for_each_other_are_refused() {
    let capabilities = connected(2);
    let mut plan = plan(&request(Collective::Send, 2, 64, Some(Algorithm::Direct)), &capabilities).unwrap();
    let there = Instruction::send(1, Operand::card(0), 64);
    let back = Instruction::send(0, Operand::card(0), 64);
    plan.set.programs[0].instructions = vec![there, Instruction::recv(1, Operand::card(4096), 64)];
    plan.set.programs[1].instructions = vec![back, Instruction::recv(0, Operand::card(4096), 64)];
    let refusal = verified(&plan, &capabilities).unwrap_err();
    assert!(refusal.cause.contains("waits for rank 1 instruction 0 (send to 0)"), "{refusal}");
    assert_eq!((refusal.rank, refusal.instruction, refusal.reason), (Some(0), Some(0), Reason::Deadlock));
    plan.set.programs[1].instructions.swap(0, 1);
    verified(&plan, &capabilities).unwrap();
}

#[test]
fn overlaps_are_refused_and_places_of_own_blocks_are_not() {
    let capabilities = connected(4);
    let programs = |instruction: Instruction| {
        let mut plan = plan(&request(Collective::Barrier, 4, 0, None), &capabilities).unwrap();
        plan.set.programs.iter_mut().for_each(|program| program.instructions = vec![instruction]);
        verified(&plan, &capabilities)
    };
    let at = Operand::card;
    let xor = Combine::new(Reduction::Xor, Element::U8);
    for fine in [
        Instruction::reduce(xor, 2, at(0), at(0), 64),
        Instruction::reduce_scatter(xor, at(0), at(256), 64),
        Instruction::alltoall_scan(xor, at(0), at(256), 64),
        Instruction::alltoall_scan(xor, at(0).striped(), at(64).striped(), 64),
        Instruction::broadcast(1, at(0), at(0), 64),
        Instruction::scatter(0, at(0), at(0), 64),
        Instruction::gather(0, at(0), at(0), 64),
    ] {
        programs(fine).unwrap();
    }
    for (wrong, part) in [
        (Instruction::allreduce(xor, at(0), at(0), 64), "overlap"),
        (Instruction::scan(xor, at(0), at(0), 64), "overlap"),
        (Instruction::exscan(xor, at(0), at(63), 64), "overlap"),
        (Instruction::reduce(xor, 0, at(0), at(1), 64), "overlap"),
        (Instruction::reduce_scatter(xor, at(0), at(0), 64), "overlap"),
        (Instruction::allreduce(Combine::new(Reduction::And, Element::F64), at(0), at(64), 64), "not defined for f64"),
        (Instruction::allreduce(Combine::new(Reduction::Sum, Element::F64), at(0), at(64), 63), "whole number of f64"),
        (Instruction::alltoall(at(0), at(0), 64), "overlap"),
        (Instruction::alltoall(at(0), at(255), 64), "overlap"),
        (Instruction::alltoall_scan(xor, at(0), at(0), 64), "overlap"),
        (
            Instruction::alltoall_scan(Combine::new(Reduction::Sum, Element::F32), at(0), at(256), 62),
            "whole number of f32",
        ),
        (Instruction::alltoall_scan(xor, at(0), at(255), 64), "overlap"),
        (Instruction::alltoall_scan(xor, at(0).striped(), at(512), (256 << 20) + 1), "half a stripe"),
        (Instruction::broadcast(1, at(0), at(32), 64), "overlap"),
        (Instruction::scatter(0, at(0), at(64), 64), "overlap"),
        (Instruction::allgather(at(0).striped(), at(0), (256 << 20) + 1), "half a stripe"),
        (Instruction::gather(0, at(0), at(64), 64).dividing(257), "at least 65 B"),
    ] {
        let cause = programs(wrong).unwrap_err().to_string();
        assert!(cause.contains(part) || cause.contains("in place"), "{wrong:?}: {cause}");
    }
}

//! Plans cover the data of every rank, do what was asked, and are refused once any rank's program is changed.

mod cards;

use std::collections::{BTreeMap, HashMap, VecDeque};

use cards::{connected, dragonfly, request};
use cmdseq::plan::{Algorithm, Collective, Piece, Plan, Refusal, Request, candidates, plan};
use cmdseq::ranges::card_ranges;
use cmdseq::{Capabilities, Flags, Instruction, Operand, Operation, Topology, transfers, verify};
use proptest::prelude::*;

fn verified(plan: &Plan, capabilities: &Capabilities) -> Result<(), Refusal> {
    verify(&plan.programs, &plan.communicators, &plan.request.group, capabilities)
}

fn assert_covers(pieces: &[Piece], bytes: u64, memory: u64) {
    let mut next = 0;
    let mut lies: Vec<(u64, u64)> = Vec::new();
    for piece in pieces {
        assert_eq!(piece.offset, next);
        assert_ne!(piece.bytes, 0);
        next += piece.bytes;
        lies.push((piece.address, piece.address + piece.bytes));
    }
    assert_eq!(next, bytes);
    lies.sort_unstable();
    assert!(lies.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    assert!(lies.last().is_none_or(|last| last.1 <= memory));
}

/// Memory of one card, byte by byte: what was never written reads as 0xee.
#[derive(Default)]
struct Memory(BTreeMap<u64, u8>);

impl Memory {
    fn read(&self, address: u64, bytes: u64) -> Vec<u8> {
        (address..address + bytes).map(|at| self.0.get(&at).copied().unwrap_or(0xee)).collect()
    }

    fn write(&mut self, address: u64, data: &[u8]) {
        self.0.extend((address..).zip(data.iter().copied()));
    }

    fn gather(&self, pieces: &[Piece]) -> Vec<u8> {
        pieces.iter().flat_map(|piece| self.read(piece.address, piece.bytes)).collect()
    }
}

/// Runs a plan on cards that do nothing but move blocks between queues, and gives the output of each rank.
fn run(plan: &Plan, capabilities: &Capabilities, input: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let group = &plan.request.group;
    let mut memory: Vec<Memory> = group.iter().map(|_| Memory::default()).collect();
    for ((card, program), data) in memory.iter_mut().zip(&plan.programs).zip(input) {
        for piece in &program.input {
            card.write(piece.address, &data[piece.offset as usize..][..piece.bytes as usize]);
        }
    }
    let mut links: HashMap<(u32, u32), VecDeque<Vec<u8>>> = HashMap::new();
    let mut next = vec![(0, false); group.len()];
    loop {
        let mut moved = false;
        for (rank, node) in group.iter().enumerate() {
            let (index, has_sent) = next[rank];
            let Some(instruction) = plan.programs[rank].instructions.get(index) else { continue };
            let members = members(plan, capabilities, *node, instruction.communicator);
            let own = members.iter().position(|member| member == node).unwrap() as u32;
            let stripe = 2 * capabilities.stripe_half_bytes;
            let blocks = transfers(instruction, own, members.len() as u32, stripe).unwrap();
            if !has_sent {
                for send in &blocks.sends {
                    let link = links.entry((*node, members[send.peer_rank as usize])).or_default();
                    link.push_back(memory[rank].read(send.address, send.bytes));
                }
                if let Some(own) = blocks.own {
                    let data = memory[rank].read(own.source, own.bytes);
                    memory[rank].write(own.destination, &data);
                }
                (next[rank].1, moved) = (true, true);
            }
            let link = |from: u32| (members[from as usize], *node);
            if blocks.receives.iter().all(|one| links.get(&link(one.peer_rank)).is_some_and(|link| !link.is_empty())) {
                for one in &blocks.receives {
                    let data = links.get_mut(&link(one.peer_rank)).unwrap().pop_front().unwrap();
                    assert_eq!(data.len() as u64, one.bytes);
                    memory[rank].write(one.address, &data);
                }
                (next[rank], moved) = ((index + 1, false), true);
            }
        }
        if !moved {
            break;
        }
    }
    assert!(links.values().all(VecDeque::is_empty), "blocks are left on links");
    for (next, program) in next.iter().zip(&plan.programs) {
        assert_eq!(next.0, program.instructions.len(), "a program did not end");
    }
    memory.iter().zip(&plan.programs).map(|(card, program)| card.gather(&program.output)).collect()
}

/// What the ranks should have after.
fn expected(request: &Request, input: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let ranks = input.len();
    let (root, peer) = (request.root as usize, request.peer as usize);
    let bytes = request.bytes as usize;
    let block = |rank: usize, number: usize| input[rank][number * bytes..][..bytes].to_vec();
    let all = || (0..ranks).flat_map(|from| input[from].clone()).collect::<Vec<u8>>();
    (0..ranks)
        .map(|rank| match request.collective {
            Collective::Barrier => Vec::new(),
            Collective::Send | Collective::Recv if rank == peer => input[root].clone(),
            Collective::Gather if rank == root => all(),
            Collective::Send | Collective::Recv | Collective::Gather => Vec::new(),
            Collective::Sendrecv => input[(rank + ranks - 1) % ranks].clone(),
            Collective::Scatter => block(root, rank),
            Collective::Broadcast => input[root].clone(),
            Collective::Alltoall => (0..ranks).flat_map(|from| block(from, rank)).collect(),
            Collective::Allgather => all(),
        })
        .collect()
}

fn data(request: &Request) -> Vec<Vec<u8>> {
    let byte = |rank: u32, at: u64| (u64::from(rank) * 97 + at * 31 + at / 251) as u8;
    (0..request.ranks()).map(|rank| (0..request.input_bytes(rank)).map(|at| byte(rank, at)).collect()).collect()
}

fn check(plan: &Plan, capabilities: &Capabilities) {
    for (rank, program) in (0..).zip(&plan.programs) {
        assert_covers(&program.input, plan.request.input_bytes(rank), capabilities.memory_bytes);
        assert_covers(&program.output, plan.request.output_bytes(rank), capabilities.memory_bytes);
    }
    verified(plan, capabilities).unwrap();
}

#[derive(Debug, Clone)]
struct Case {
    capabilities: Capabilities,
    request: Request,
}

fn cases() -> impl Strategy<Value = Case> {
    let fabrics = prop_oneof![
        (1_u32..10, any::<u64>()).prop_map(|(nodes, order)| (connected(nodes.max(2)), nodes, order)),
        (1_u32..5, 1_u32..5).prop_map(|(groups, size)| (dragonfly(groups, size), groups * size, 0)),
    ];
    let bytes = prop_oneof![Just(0_u64), 1_u64..200];
    let align = prop::sample::select(&[1_u32, 32][..]);
    let collective = prop::sample::select(Collective::ALL);
    (fabrics, collective, bytes, any::<[u32; 2]>(), align, prop::option::of(0_u64..20_000)).prop_map(
        |((mut capabilities, ranks, order), collective, bytes, [root, peer], align, limit)| {
            capabilities.address_align = align;
            let mut group: Vec<u32> = (0..capabilities.nodes).collect();
            // Some order of the nodes, so that ranks are not nodes.
            group.sort_by_key(|node| u64::from(*node).wrapping_mul(order | u64::from(order == 0)) % 13);
            if order == 0 {
                group.sort_unstable();
            }
            group.truncate(ranks as usize);
            let request = Request {
                collective,
                group,
                bytes,
                root: root % ranks,
                peer: peer % ranks,
                algorithm: None,
                eager_limit: limit.filter(|limit| *limit <= capabilities.eager_bytes),
            };
            Case { capabilities, request }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn every_plan_does_what_was_asked(Case { capabilities, request } in cases()) {
        let chosen = plan(&request, &capabilities).unwrap();
        let input = data(&request);
        for (algorithm, candidate) in candidates(&request, &capabilities) {
            let Ok(candidate) = candidate else { continue };
            check(&candidate, &capabilities);
            prop_assert_eq!(run(&candidate, &capabilities, &input), expected(&request, &input), "{}", algorithm);
            prop_assert!(chosen.predicted.arrival_ps <= candidate.predicted.arrival_ps);
        }
    }

    #[test]
    fn large_blocks_lie_inside_memory_or_are_refused(
        collective in prop::sample::select(Collective::ALL), nodes in 2_u32..17, bytes in 0_u64..1 << 34, is_any: bool,
    ) {
        let bytes = if is_any { bytes } else { bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15) };
        for capabilities in [connected(nodes), dragonfly(2, nodes)] {
            for (_, candidate) in candidates(&request(collective, capabilities.nodes, bytes, None), &capabilities) {
                match candidate {
                    Ok(plan) => check(&plan, &capabilities),
                    Err(refusal) => prop_assert!(!refusal.cause.is_empty()),
                }
            }
        }
    }

    #[test]
    fn a_change_of_one_program_is_refused(
        Case { capabilities, request } in cases(), rank: prop::sample::Index, at: prop::sample::Index, change in 0..6,
    ) {
        let plan = plan(&request, &capabilities).unwrap();
        let busy: Vec<usize> =
            (0..plan.programs.len()).filter(|rank| !plan.programs[*rank].instructions.is_empty()).collect();
        let rank = busy[rank.index(busy.len())];
        let mut changed = plan.clone();
        let index = at.index(changed.programs[rank].instructions.len());
        let instruction = &mut changed.programs[rank].instructions[index];
        let before = *instruction;
        let fields = before.operation.fields();
        let members = members(&plan, &capabilities, request.group[rank], before.communicator);
        let own = members.iter().position(|node| *node == request.group[rank]).unwrap() as u32;
        let touched =
            card_ranges(&before, own, members.len() as u32, 2 * capabilities.stripe_half_bytes).unwrap();
        // What a card does by itself, nobody can contradict.
        let is_alone = members.len() == 1 || (before.operation == Operation::Sendrecv && u32::from(before.peer) == own);
        match change {
            0 if fields.bytes && !is_alone => instruction.bytes += 32,
            1 if fields.root => instruction.root = if before.root == 0 { 1 } else { before.root - 1 },
            2 if !touched.reads.is_empty() => instruction.source.address = capabilities.memory_bytes,
            3 if !touched.writes.is_empty() => instruction.destination.address = u64::MAX - 31,
            4 if !is_alone => *instruction = Instruction::barrier().on(before.communicator),
            5 => instruction.flags = Flags::EAGER | Flags::RENDEZVOUS,
            _ => {}
        }
        if *instruction != before {
            let refusal = verified(&changed, &capabilities).unwrap_err();
            let named = refusal.rank.expect("a rank is named") as usize;
            // Two against one can be told only where all members are at the instruction together; in a plan of two levels
            // some of them may still be at another.
            let is_outvoted =
                fields.communicator && !fields.peer && members.len() > 2 && plan.algorithm != Algorithm::TwoLevel;
            if matches!(change, 2 | 3 | 5) || (matches!(change, 0 | 1) && is_outvoted) {
                prop_assert_eq!((named, refusal.instruction), (rank, Some(index)), "{}", refusal);
            } else {
                prop_assert!(members.contains(&request.group[named]), "{} is none of its partners", refusal);
            }
        }
    }
}

/// Nodes of the communicator with `id` that `node` is a member of.
fn members(plan: &Plan, capabilities: &Capabilities, node: u32, id: u16) -> Vec<u32> {
    let named = plan.communicators.iter().find(|one| one.id == id && one.members.contains(&node));
    named.map_or_else(|| (0..capabilities.nodes).collect(), |one| one.members.clone())
}

#[test]
fn addresses_follow_equation_1() {
    let capabilities = connected(4);
    let k: u64 = 256 << 20;
    let addresses = |pieces: &[Piece]| pieces.iter().map(|piece| piece.address).collect::<Vec<u64>>();
    let lower = [0, 2 * k, 4 * k, 6 * k];
    let upper = lower.map(|address| address + k);
    let direct = |collective| plan(&request(collective, 4, 4096, Some(Algorithm::Direct)), &capabilities).unwrap();
    let alltoall = direct(Collective::Alltoall);
    for program in &alltoall.programs {
        assert_eq!((addresses(&program.input), addresses(&program.output)), (lower.to_vec(), upper.to_vec()));
    }
    let scatter = direct(Collective::Scatter);
    assert_eq!(addresses(&scatter.programs[0].input), lower);
    assert!(scatter.programs.iter().all(|program| addresses(&program.output) == [k]));
    let gather = direct(Collective::Gather);
    assert_eq!(addresses(&gather.programs[0].output), upper);
    assert!(gather.programs.iter().all(|program| addresses(&program.input) == [0]));
}

#[test]
fn multipath_pieces_are_whole_beats_and_the_last_may_be_empty() {
    let multipath =
        |bytes| plan(&request(Collective::Send, 4, bytes, Some(Algorithm::Multipath)), &connected(4)).unwrap();
    let lengths = |plan: &Plan| plan.programs[3].output.iter().map(|piece| piece.bytes).collect::<Vec<u64>>();
    assert_eq!(lengths(&multipath(13_000)), [3264, 3264, 3264, 3208]);
    assert_eq!(lengths(&multipath(65)), [32, 32, 1]);
    assert_eq!(lengths(&multipath(1)), [1]);
    assert!(lengths(&multipath(0)).is_empty());
}

#[test]
fn names_come_back() {
    for collective in Collective::ALL {
        assert_eq!(collective.name().parse(), Ok(*collective));
    }
    for algorithm in Algorithm::ALL {
        assert_eq!(algorithm.to_string().parse(), Ok(*algorithm));
    }
    let unknown = "reduce-all".parse::<Collective>().unwrap_err().to_string();
    assert!(unknown.contains("\"reduce-all\"") && unknown.contains("allgather"), "{unknown}");
}

fn cause(request: &Request, capabilities: &Capabilities) -> String {
    plan(request, capabilities).unwrap_err().to_string()
}

#[test]
fn refusals_say_what_is_wrong_and_what_would_be_right() {
    let capabilities = connected(4);
    let good = request(Collective::Scatter, 4, 64, None);
    for (wrong, part) in [
        (Request { group: vec![], ..good.clone() }, "at least one node"),
        (Request { group: vec![0, 1, 4], ..good.clone() }, "rank 2: there is no node 4; the last is 3"),
        (Request { group: vec![0, 1, 0], ..good.clone() }, "rank 2: node 0 is rank 0 already"),
        (Request { root: 4, ..good.clone() }, "root 4 is not a rank; the last is 3"),
        (Request { bytes: (256 << 20) + 1, ..good.clone() }, "striped blocks have at most 268435456 B"),
        (Request { eager_limit: Some(16385), ..good.clone() }, "16384 B"),
        (Request { algorithm: Some(Algorithm::Multipath), ..good.clone() }, "not for scatter"),
        (Request { algorithm: Some(Algorithm::TwoLevel), ..good.clone() }, "every two cards have a link"),
    ] {
        let cause = cause(&wrong, &capabilities);
        assert!(cause.contains(part), "{cause}");
    }
    let group = Request { group: vec![0, 5], ..request(Collective::Barrier, 2, 0, None) };
    let cause = cause(&group, &dragonfly(4, 4));
    assert!(cause.contains("no link from node 0 to node 5") && cause.contains("takes all 16 cards"), "{cause}");
}

#[test]
fn the_eager_limit_of_a_request_becomes_flags() {
    let flags = |limit, bytes| {
        let mut capabilities = connected(4);
        capabilities.eager_limit = 1024;
        let request = Request { eager_limit: limit, ..request(Collective::Allgather, 4, bytes, None) };
        plan(&request, &capabilities).unwrap().programs[2].instructions[0].flags
    };
    assert_eq!(flags(None, 4096), Flags::empty());
    assert_eq!(flags(Some(0), 1), Flags::RENDEZVOUS);
    assert_eq!(flags(Some(0), 0), Flags::empty());
    assert_eq!(flags(Some(512), 512), Flags::empty());
    assert_eq!(flags(Some(512), 513), Flags::RENDEZVOUS);
    assert_eq!(flags(Some(4096), 4096), Flags::EAGER);
}

#[test]
fn programs_that_wait_for_each_other_are_refused() {
    let capabilities = connected(2);
    let mut plan = plan(&request(Collective::Send, 2, 64, Some(Algorithm::Direct)), &capabilities).unwrap();
    let there = Instruction::send(1, Operand::card(0), 64);
    let back = Instruction::send(0, Operand::card(0), 64);
    plan.programs[0].instructions = vec![there, Instruction::recv(1, Operand::card(4096), 64)];
    plan.programs[1].instructions = vec![back, Instruction::recv(0, Operand::card(4096), 64)];
    let refusal = verified(&plan, &capabilities).unwrap_err();
    assert!(refusal.cause.contains("finds no partner"), "{refusal}");
    plan.programs[1].instructions.swap(0, 1);
    verified(&plan, &capabilities).unwrap();
}

#[test]
fn overlaps_are_refused_and_places_of_own_blocks_are_not() {
    let capabilities = connected(4);
    let programs = |instruction: Instruction| {
        let mut plan = plan(&request(Collective::Barrier, 4, 0, None), &capabilities).unwrap();
        plan.programs.iter_mut().for_each(|program| program.instructions = vec![instruction]);
        verified(&plan, &capabilities)
    };
    let at = Operand::card;
    for fine in [
        Instruction::broadcast(1, at(0), at(0), 64),
        Instruction::scatter(0, at(0), at(0), 64),
        Instruction::gather(0, at(0), at(0), 64),
    ] {
        programs(fine).unwrap();
    }
    for (wrong, part) in [
        (Instruction::alltoall(at(0), at(0), 64), "overlap"),
        (Instruction::alltoall(at(0), at(255), 64), "overlap"),
        (Instruction::broadcast(1, at(0), at(32), 64), "overlap"),
        (Instruction::scatter(0, at(0), at(64), 64), "overlap"),
        (Instruction::allgather(at(0).striped(), at(0), (256 << 20) + 1), "half a stripe"),
        (Instruction::gather(0, at(0), at(64), 64).dividing(257), "at least 65 B"),
    ] {
        let cause = programs(wrong).unwrap_err().to_string();
        assert!(cause.contains(part) || cause.contains("exchange"), "{wrong:?}: {cause}");
    }
}

#[test]
fn the_largest_dragonfly_is_planned() {
    let capabilities = dragonfly(22, 44);
    assert_eq!((capabilities.nodes, capabilities.ports), (968, 64));
    assert_eq!(capabilities.topology, Topology::Dragonfly { groups: 22 });
    for collective in Collective::ALL {
        let plan = plan(&request(*collective, 968, 64, None), &capabilities).unwrap();
        check(&plan, &capabilities);
        assert_eq!(plan.algorithm, Algorithm::TwoLevel, "{collective}");
    }
}

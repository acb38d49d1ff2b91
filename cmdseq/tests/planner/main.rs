//! Plans cover the data of every rank, do what was asked, and are refused once any rank's program is changed.

mod alltoalls;
mod bounds;
mod calibration;
#[path = "../cards/mod.rs"]
mod cards;
mod lane_scans;
mod lanes;
mod prediction;
mod rank_to_rank;
mod refusals;
mod relays;
mod routed_collectives;
mod scans;
mod switches;

use std::collections::{BTreeMap, HashMap, VecDeque};

use cards::{circus, connected, dragonfly, request, request_of};
use cmdseq::plan::{Algorithm, Collective, Piece, Placement, Plan, Request, candidates, plan};
use cmdseq::ranges::{Context, Range, card_ranges};
use cmdseq::{
    Capabilities, Element, Flags, Instruction, Operand, Operation, Reduction, Refusal, Topology, transfers, verify,
};
use proptest::prelude::*;

fn verified(plan: &Plan, capabilities: &Capabilities) -> Result<(), Refusal> {
    verify(&plan.set, capabilities)
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
    let group = &plan.set.nodes;
    let mut memory: Vec<Memory> = group.iter().map(|_| Memory::default()).collect();
    for ((card, program), data) in memory.iter_mut().zip(&plan.set.programs).zip(input) {
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
            let Some(instruction) = plan.set.programs[rank].instructions.get(index) else { continue };
            let members = members(plan, capabilities, *node, instruction.communicator);
            let own = members.iter().position(|member| member == node).unwrap() as u32;
            let ranks = members.len() as u32;
            let stripe_bytes = capabilities.stripe_bytes();
            let tables = &plan.set.programs[rank].tables;
            let blocks = transfers(instruction, &Context { rank: own, ranks, stripe_bytes, tables }).unwrap();
            if !has_sent {
                for send in &blocks.sends {
                    let link = links.entry((*node, members[send.peer_rank as usize])).or_default();
                    link.push_back(memory[rank].read(send.address, send.bytes));
                }
                if let Some(own) = blocks.own {
                    let data = memory[rank].read(own.source, own.bytes);
                    memory[rank].write(own.destination, &data);
                }
                if instruction.operation == Operation::Copy {
                    let data = memory[rank].read(instruction.source.address, instruction.bytes);
                    memory[rank].write(instruction.destination.address, &data);
                }
                if instruction.operation == Operation::Fold {
                    let [mut folded, second] = [instruction.source.address, instruction.extent]
                        .map(|address| memory[rank].read(address, instruction.bytes));
                    folded.iter_mut().zip(second).for_each(|(one, other)| *one ^= other);
                    memory[rank].write(instruction.destination.address, &folded);
                }
                (next[rank].1, moved) = (true, true);
            }
            let link = |from: u32| (members[from as usize], *node);
            if blocks.receives.iter().all(|one| links.get(&link(one.peer_rank)).is_some_and(|link| !link.is_empty())) {
                let mut contributions: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
                if let Some((own_at, bytes)) = blocks.reduced.and_then(|reduced| Some((reduced.own?, reduced.bytes))) {
                    contributions.insert(own, memory[rank].read(own_at, bytes));
                }
                for one in &blocks.receives {
                    let data = links.get_mut(&link(one.peer_rank)).unwrap().pop_front().unwrap();
                    assert_eq!(data.len() as u64, one.bytes);
                    match blocks.reduced {
                        Some(_) => drop(contributions.insert(one.peer_rank, data)),
                        None => memory[rank].write(one.address, &data),
                    }
                }
                if let Some(reduced) = blocks.reduced {
                    let mut folded = vec![0; reduced.bytes as usize];
                    for (stage, contribution) in contributions {
                        folded.iter_mut().zip(contribution).for_each(|(one, other)| *one ^= other);
                        if let Some(partial) = blocks.partials.get(stage as usize) {
                            memory[rank].write(*partial, &folded);
                        }
                    }
                    if blocks.partials.is_empty() {
                        memory[rank].write(reduced.destination, &folded);
                    }
                }
                (next[rank], moved) = ((index + 1, false), true);
            }
        }
        if !moved {
            break;
        }
    }
    assert!(links.values().all(VecDeque::is_empty), "blocks are left on links");
    for (next, program) in next.iter().zip(&plan.set.programs) {
        assert_eq!(next.0, program.instructions.len(), "a program did not end");
    }
    memory.iter().zip(&plan.set.programs).map(|(card, program)| card.gather(&program.output)).collect()
}

/// What the ranks should have after.
fn expected(request: &Request, input: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let ranks = input.len();
    let (root, peer) = (request.root as usize, request.peer as usize);
    let bytes = request.bytes as usize;
    let block = |rank: usize, number: usize| input[rank][number * bytes..][..bytes].to_vec();
    let all = || (0..ranks).flat_map(|from| input[from].clone()).collect::<Vec<u8>>();
    // Block `number` of a rank's, whose lengths begin at `first` of the counts.
    let part = |rank: usize, first: usize, number: usize| {
        let counts = &request.counts[first..];
        let before: u64 = counts[..number].iter().sum();
        input[rank][before as usize..][..counts[number] as usize].to_vec()
    };
    let fold = |ranks: std::ops::Range<usize>, at: usize| -> Vec<u8> {
        (at..at + bytes).map(|at| ranks.clone().fold(0, |sum, from| sum ^ input[from][at])).collect()
    };
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
            Collective::Scatterv => part(root, 0, rank),
            Collective::Gatherv if rank != root => Vec::new(),
            Collective::Gatherv | Collective::Allgatherv => all(),
            Collective::Alltoallv => (0..ranks).flat_map(|from| part(from, from * ranks, rank)).collect(),
            Collective::Reduce if rank != root => Vec::new(),
            Collective::Reduce | Collective::Allreduce => fold(0..ranks, 0),
            Collective::ReduceScatter => fold(0..ranks, rank * bytes),
            Collective::Scan => fold(0..rank + 1, 0),
            Collective::Exscan if rank == 0 => Vec::new(),
            Collective::Exscan => fold(0..rank, 0),
        })
        .collect()
}

fn data(request: &Request) -> Vec<Vec<u8>> {
    let byte = |rank: u32, at: u64| (u64::from(rank) * 97 + at * 31 + at / 251) as u8;
    (0..request.ranks()).map(|rank| (0..request.input_bytes(rank)).map(|at| byte(rank, at)).collect()).collect()
}

fn check(plan: &Plan, capabilities: &Capabilities) {
    for (rank, program) in (0..plan.request.ranks()).zip(&plan.set.programs) {
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

/// Requests of up to 20000 bytes.
fn cases() -> impl Strategy<Value = Case> {
    cases_of(prop_oneof![1 => Just(0_u64), 6 => 1_u64..200, 1 => 4_000_u64..20_000])
}

/// Requests of so many bytes, on fully connected cards, on grids of a Dragonfly, and on tori.
fn cases_of(bytes: impl Strategy<Value = u64>) -> impl Strategy<Value = Case> {
    // Some order of the nodes, so that ranks are not nodes.
    let some = |nodes: u32, count: u32, order: u64| {
        let mut group: Vec<u32> = (0..nodes).collect();
        group.sort_by_key(|node| u64::from(*node).wrapping_mul(order | 1) % 13);
        group.truncate(count as usize);
        group
    };
    let grid = move |size: u32, rows: &[u32], columns: &[u32]| {
        rows.iter().flat_map(|row| columns.iter().map(move |column| row * size + column)).collect::<Vec<u32>>()
    };
    let line = || (1_u32..5, 0_u32..2, any::<u64>());
    let fabrics = prop_oneof![
        (1_u32..10, any::<u64>())
            .prop_map(move |(nodes, order)| (connected(nodes.max(2)), some(nodes.max(2), nodes, order))),
        (line(), line()).prop_map(move |((rows, spare_rows, row_order), (columns, spare_columns, column_order))| {
            let (groups, size) = (rows + spare_rows, columns + spare_columns);
            let group = grid(size, &some(groups, rows, row_order), &some(size, columns, column_order));
            (dragonfly(groups, size), group)
        }),
        (1_u32..4, 2_u32..5, 1_u32..12, any::<u64>()).prop_map(move |(rows, columns, count, order)| {
            let nodes = rows * columns;
            (circus(rows, columns), some(nodes, count.min(nodes), order))
        }),
    ];
    let align = (prop::sample::select(&[1_u32, 32][..]), prop::sample::select(&[1_u32, 2, 8][..]));
    let collective = prop::sample::select(Collective::ALL);
    (fabrics, collective, bytes, any::<[u32; 2]>(), align, prop::option::of(0_u64..20_000)).prop_map(
        |((mut capabilities, group), collective, bytes, ends, (align, lanes), limit)| {
            (capabilities.address_align, capabilities.lanes) = (align, lanes);
            if capabilities.topology.has_routers() {
                capabilities.lanes = 1;
            }
            let request = Request {
                eager_limit: limit.filter(|limit| *limit <= capabilities.eager_bytes),
                ..request_of(collective, group, bytes, ends)
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
            let bound = request.lower_bound(&capabilities).unwrap().total_ps();
            prop_assert!(bound <= candidate.predicted.arrival_ps, "{} of {:?}", bound, candidate.predicted);
            prop_assert!(chosen.predicted.arrival_ps <= candidate.predicted.arrival_ps);
        }
    }

    #[test]
    fn data_lies_where_it_is_to_lie(
        Case { capabilities, mut request } in cases_of(prop_oneof![Just(0_u64), 1_u64..200]),
        [input, output, between] in Just([10_240, 40_960, 99_968]).prop_shuffle(),
        [is_input_striped, is_output_striped]: [bool; 2],
    ) {
        let at = |address: u64, striped: bool| if striped { Operand::card(address).striped() } else { Operand::card(address) };
        let (input, output) = (at(input, is_input_striped), at(output, is_output_striped));
        let between = Range { address: between, bytes: 20_000 };
        request.placement = Some(Placement { input, output, between });
        let (align, stripe) = (u64::from(capabilities.address_align), 2 * capabilities.stripe_half_bytes);
        let data = data(&request);
        let lies = |operand: Operand, pieces: &[Piece]| {
            pieces.iter().all(|piece| {
                let (block, within) = (piece.offset / request.bytes, piece.offset % request.bytes);
                let striped = operand.address + block * stripe + within;
                let is_striped = operand.layout == cmdseq::Layout::Striped;
                piece.address == if is_striped { striped } else { operand.address + piece.offset }
            })
        };
        let mut any = false;
        for (algorithm, candidate) in candidates(&request, &capabilities) {
            let Ok(candidate) = candidate else { continue };
            check(&candidate, &capabilities);
            for program in &candidate.set.programs {
                prop_assert!(lies(input, &program.input) && lies(output, &program.output), "{}", algorithm);
            }
            prop_assert_eq!(run(&candidate, &capabilities, &data), expected(&request, &data), "{}", algorithm);
            any = true;
        }
        // Blocks one after another are always possible, if blocks may begin anywhere or are whole.
        let is_block = !is_input_striped && !is_output_striped;
        let is_aligned = request.bytes % align == 0 && (align == 1 || !request.collective.has_counts());
        prop_assert!(any || !is_block || !is_aligned, "{:?}", plan(&request, &capabilities));
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
        Case { capabilities, request } in cases(), rank: prop::sample::Index, at: prop::sample::Index, change in 0..9,
    ) {
        let plan = plan(&request, &capabilities).unwrap();
        let busy: Vec<usize> =
            (0..plan.set.programs.len()).filter(|rank| !plan.set.programs[*rank].instructions.is_empty()).collect();
        // A transfer of nothing to oneself has no instruction.
        prop_assume!(!busy.is_empty());
        let rank = busy[rank.index(busy.len())];
        let mut changed = plan.clone();
        let own_rank = |members: &[u32]| members.iter().position(|node| *node == request.group[rank]).unwrap() as u32;
        // Who contradicts a table are the partners of the instruction that reads it.
        let slot = plan.set.programs[rank].tables.keys().next().copied().filter(|_| change == 8);
        let reader = slot.map(|slot| {
            let reads = |one: &Instruction| {
                let members = members(&plan, &capabilities, request.group[rank], one.communicator);
                reads_table(one, own_rank(&members), slot)
            };
            plan.set.programs[rank].instructions.iter().position(reads).expect("every table of a plan is read")
        });
        let index = reader.unwrap_or_else(|| at.index(changed.set.programs[rank].instructions.len()));
        let instruction = &mut changed.set.programs[rank].instructions[index];
        let before = *instruction;
        let fields = before.operation.fields();
        let members = members(&plan, &capabilities, request.group[rank], before.communicator);
        let own = own_rank(&members);
        let (ranks, stripe_bytes) = (members.len() as u32, capabilities.stripe_bytes());
        let tables = &plan.set.programs[rank].tables;
        let touched = card_ranges(&before, &Context { rank: own, ranks, stripe_bytes, tables }).unwrap();
        // What a card does by itself, nobody can contradict.
        let is_alone = members.len() == 1
            || matches!(before.operation, Operation::Copy | Operation::Fold)
            || (before.operation == Operation::Sendrecv && u32::from(before.peer) == own);
        match change {
            0 if fields.bytes && !is_alone => instruction.bytes += 32,
            // What is empty is exchanged with nobody.
            1 if fields.root && (before.bytes > 0 || !fields.peer) => instruction.root = if before.root == 0 { 1 } else { before.root - 1 },
            2 if !touched.reads.is_empty() => instruction.source.address = capabilities.memory_bytes,
            3 if !touched.writes.is_empty() => instruction.destination.address = u64::MAX - 31,
            4 if !is_alone => *instruction = Instruction::barrier().on(before.communicator),
            5 => instruction.flags = Flags::EAGER | Flags::RENDEZVOUS,
            // How a card folds what it receives is its own business.
            6 if fields.combine && !fields.peer && !is_alone => instruction.reduction = Some(Reduction::Sum),
            7 if fields.combine && !fields.peer && !is_alone => instruction.element = Some(Element::I8),
            _ => {}
        }
        let gathers_from = before.operation == Operation::Gatherv && u32::from(before.root) != own;
        if let Some(table) = slot.and_then(|slot| changed.set.programs[rank].tables.get_mut(&slot)) {
            let entry = at.index(table.entries.len());
            table.entries[entry].bytes += 32;
        }
        if changed.set.programs != plan.set.programs {
            let refusal = verified(&changed, &capabilities).unwrap_err();
            let named = refusal.rank.expect("a rank is named") as usize;
            // Two against one can be told only where all members are at the instruction together; in a plan of rows and
            // columns some of them may still be at another.
            let is_outvoted =
                fields.communicator && !fields.peer && members.len() > 2 && plan.set.communicators.len() < 2;
            // Of the length of a block to gather, only the root says anything else.
            let is_outvoted = is_outvoted && !(change == 0 && gathers_from);
            if matches!(change, 2 | 3 | 5) || (matches!(change, 0 | 1 | 6 | 7) && is_outvoted) {
                prop_assert_eq!((named, refusal.instruction), (rank, Some(index)), "{}", refusal);
            } else {
                prop_assert!(members.contains(&request.group[named]), "{} is none of its partners", refusal);
            }
        }
    }
}

/// Whether `instruction`, of rank `own` of its communicator, goes by the table in `slot`.
fn reads_table(instruction: &Instruction, own: u32, slot: u16) -> bool {
    let slot = u64::from(slot);
    let is_root = u32::from(instruction.root) == own;
    match instruction.operation {
        Operation::Scatterv | Operation::Gatherv => is_root && instruction.extent == slot,
        Operation::Allgatherv => instruction.extent == slot,
        Operation::Alltoallv => [instruction.extent & 0xffff, instruction.extent >> 16].contains(&slot),
        _ => false,
    }
}

/// Nodes of the communicator with `id` that `node` is a member of.
fn members(plan: &Plan, capabilities: &Capabilities, node: u32, id: u16) -> Vec<u32> {
    let named = plan.set.communicators.iter().find(|one| one.id == id && one.members.contains(&node));
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
    for program in &alltoall.set.programs {
        assert_eq!((addresses(&program.input), addresses(&program.output)), (lower.to_vec(), upper.to_vec()));
    }
    let scatter = direct(Collective::Scatter);
    assert_eq!(addresses(&scatter.set.programs[0].input), lower);
    assert!(scatter.set.programs.iter().all(|program| addresses(&program.output) == [k]));
    let gather = direct(Collective::Gather);
    assert_eq!(addresses(&gather.set.programs[0].output), upper);
    assert!(gather.set.programs.iter().all(|program| addresses(&program.input) == [0]));
}

#[test]
fn multipath_pieces_are_whole_beats_and_the_last_may_be_empty() {
    let multipath =
        |bytes| plan(&request(Collective::Send, 4, bytes, Some(Algorithm::Multipath)), &connected(4)).unwrap();
    let lengths = |plan: &Plan| plan.set.programs[3].output.iter().map(|piece| piece.bytes).collect::<Vec<u64>>();
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

#[test]
fn the_eager_limit_of_a_request_becomes_flags() {
    let flags = |limit, bytes| {
        let mut capabilities = connected(4);
        capabilities.eager_limit = 1024;
        let direct = request(Collective::Allgather, 4, bytes, Some(Algorithm::Direct));
        let request = Request { eager_limit: limit, ..direct };
        plan(&request, &capabilities).unwrap().set.programs[2].instructions[0].flags
    };
    assert_eq!(flags(None, 4096), Flags::empty());
    assert_eq!(flags(Some(0), 1), Flags::RENDEZVOUS);
    assert_eq!(flags(Some(0), 0), Flags::empty());
    assert_eq!(flags(Some(512), 512), Flags::empty());
    assert_eq!(flags(Some(512), 513), Flags::RENDEZVOUS);
    assert_eq!(flags(Some(4096), 4096), Flags::EAGER);
}

#[test]
fn reductions_on_all_links_carry_the_least_there_is_to_carry() {
    let bytes = 64 << 20;
    let capabilities = connected(8);
    let of = |algorithm| plan(&request(Collective::Allreduce, 8, bytes, algorithm), &capabilities).unwrap();
    let chosen = of(None);
    assert_eq!(chosen.algorithm, Algorithm::Multipath);
    assert_eq!(chosen.busiest_link_bytes, 2 * bytes / 8);
    assert_eq!(of(Some(Algorithm::Direct)).busiest_link_bytes, bytes);
    assert!(chosen.notes.iter().any(|note| note.contains("extension")));
    let addresses = |pieces: &[Piece]| pieces.iter().map(|piece| piece.address).collect::<Vec<u64>>();
    let (input, output) = (addresses(&chosen.set.programs[3].input), addresses(&chosen.set.programs[3].output));
    assert!(input.iter().all(|address| !output.contains(address)), "the input stays");
}

#[test]
fn the_largest_dragonfly_is_planned() {
    let capabilities = dragonfly(22, 44);
    assert_eq!((capabilities.nodes, capabilities.ports), (968, 64));
    assert_eq!(capabilities.topology, Topology::Dragonfly { groups: 22 });
    // An alltoallv takes longer than a test should: it has a length for each of 968 x 968 pairs.
    let is_quick = |collective: &&Collective| !collective.reduces() && **collective != Collective::Alltoallv;
    for collective in Collective::ALL.iter().filter(is_quick) {
        let plan = plan(&request(*collective, 968, 64, None), &capabilities).unwrap();
        check(&plan, &capabilities);
        let is_transfer = matches!(collective, Collective::Send | Collective::Recv);
        let expected = if is_transfer { Algorithm::Relay } else { Algorithm::TwoLevel };
        assert_eq!(plan.algorithm, expected, "{collective}");
    }
}

/// An alltoallv has two tables for each row and two for the columns: rows for which the card has none go a block at a time.
#[test]
fn rows_beyond_the_tables_of_a_card_go_in_rounds() {
    let operations = |capabilities: &Capabilities| {
        let plan = plan(&request(Collective::Alltoallv, 6, 100, None), capabilities).unwrap();
        let input = data(&plan.request);
        assert_eq!(run(&plan, capabilities, &input), expected(&plan.request, &input));
        let instructions = plan.set.programs[4].instructions.iter();
        (plan.set.programs[4].tables.len(), instructions.filter(|one| one.operation == Operation::Alltoallv).count())
    };
    for (tables, listed) in [(16, 4), (8, 4), (7, 3), (6, 3), (4, 2), (2, 1)] {
        for align in [1, 32] {
            let capabilities = Capabilities { tables, address_align: align, ..dragonfly(3, 2) };
            assert_eq!(operations(&capabilities), (2 * listed, listed), "{tables} tables");
        }
    }
}

/// Bounds are asked of requests that nobody has checked.
#[test]
fn groups_that_name_a_card_often_have_a_bound() {
    let grid = dragonfly(8, 8);
    let request = Request::new(Collective::Broadcast, vec![0, 1, 9, 9, 9], 64);
    assert!(request.lower_bound(&grid).is_some());
    assert!(plan(&request, &grid).is_err());
}

/// 64 MiB, worked out by hand for links of 45 Gb/s: on 8 cards, 2 * 7/8 * 2^29 bits over 7 links are 2982.616 us; on 8x8, a
/// root sends 2^29 bits over 14 links in 852.176 us. A hop is 61 cycles of 5 ns and 390 ns.
#[test]
fn lower_bounds_by_hand() {
    let bound = |collective, capabilities: &Capabilities| {
        let request = Request::new(collective, (0..capabilities.nodes).collect(), 64 << 20);
        request.lower_bound(capabilities).unwrap()
    };
    let (eight, grid) = (connected(8), dragonfly(8, 8));
    assert_eq!(bound(Collective::Allreduce, &eight).link_ps / 1000, 2_982_616);
    assert_eq!(bound(Collective::Broadcast, &grid).link_ps / 1000, 852_176);
    assert_eq!(bound(Collective::Broadcast, &eight).latency_ps, 695_000);
    assert_eq!(bound(Collective::Broadcast, &grid).latency_ps, 2 * 695_000);
    // Each card has 14 linked others and 49 unlinked ones: 112 block-hops over 14 links.
    let alltoall = bound(Collective::Alltoall, &grid);
    assert_eq!(alltoall.link_ps / 1000, (8_u64 << 29) * 1_000_000 / 45_000_000);
    // The last of them may be for a linked card.
    assert_eq!(alltoall.total_ps(), 695_000 + alltoall.link_ps);
    // All channels together have 1638.4 Gb/s; an allgather of 64 cards writes 63 blocks and reads one.
    let many = bound(Collective::Allgather, &connected(64));
    assert_eq!(many.memory_ps / 1_000_000, 64 * (1 << 29) / 1_638_400);
    // Of 32 cards, each reads and writes 31 blocks of 2 KiB in 620 ns, which begin with its first read after 61 cycles of 5 ns,
    // and end 10 cycles and 30 ns before the arrival. The links take 364 ns besides a hop.
    let short = Request::new(Collective::Alltoall, (0..32).collect(), 2048).lower_bound(&connected(32)).unwrap();
    assert_eq!((short.access_ps, short.memory_ps), (305_000 + 80_000, 620_000));
    assert_eq!(short.total_ps(), 695_000 + 2048 * 8_000_000 / 45_000);
    assert_eq!(Request::new(Collective::Allreduce, vec![3], 64).lower_bound(&eight).unwrap().total_ps(), 0);
    let apart = Request::new(Collective::Send, vec![0, 9], 64);
    // Over node 1 or 8, and 14 links of each end.
    let over_others = apart.lower_bound(&grid).unwrap();
    assert_eq!((over_others.latency_ps, over_others.link_ps), (2 * 695_000, 64 * 8_000_000 / (14 * 45_000)));
    let alone = Request { relays: Some(vec![2, 3]), ..apart };
    assert_eq!(alone.lower_bound(&grid), None, "no path leads from one to the other");
}

//! Plans with one change in an instruction field or table block of one rank. The verifier refuses them, or they end on the
//! cards with the result that the definitions give for the changed programs. If that result is not the collective's, the
//! verifier refuses them with the collective as expectation.

use fpga_tests::sweep::is_full;
use std::collections::BTreeMap;

use cmdseq::meaning::expect;
use cmdseq::plan::{Algorithm, Collective, Communicator, Plan, Program, ProgramSet, Request, plan};
use cmdseq::table::Entry;
use cmdseq::{
    AddressSpace, Capabilities, Combine, Element, Flags, Instruction, Layout, Operand, Operation, Reason, Reduction,
    Table, verify,
};
use fpga_mock::Profile;
use fpga_tests::program_sets::Both;

/// An accepted set of programs, and the collective that it is, if it is one.
struct Base {
    name: String,
    set: ProgramSet,
    expectation: Option<Request>,
}

impl From<Plan> for Base {
    fn from(plan: Plan) -> Self {
        let name = format!("{} {} of {} B", plan.algorithm, plan.request.collective, plan.request.bytes);
        let expectation = Some(plan.request.clone());
        Base { name, set: plan.set, expectation }
    }
}

/// Lengths about `bytes` for a vector form, of some blocks 0: each rank's, or what each gives each.
fn counts(collective: Collective, ranks: u32, bytes: u64) -> Vec<u64> {
    let number = if collective == Collective::Alltoallv { ranks * ranks } else { ranks };
    let count = |number| bytes * (number * 7 % 4) / 2;
    if collective.has_counts() { (0..u64::from(number)).map(count).collect() } else { Vec::new() }
}

fn plans(capabilities: &Capabilities, sizes: &[u64], algorithms: &[Algorithm]) -> Vec<Base> {
    let mut all = Vec::new();
    for collective in Collective::ALL {
        for (number, bytes) in sizes.iter().enumerate() {
            for algorithm in algorithms {
                let request = Request {
                    root: number as u32 % capabilities.nodes,
                    peer: (number as u32 + 1) % capabilities.nodes,
                    combine: collective.reduces().then_some(Combine::new(Reduction::Sum, Element::U32)),
                    algorithm: Some(*algorithm),
                    counts: counts(*collective, capabilities.nodes, *bytes),
                    ..Request::new(*collective, (0..capabilities.nodes).collect(), *bytes)
                };
                all.extend(plan(&request, capabilities).map(Base::from));
            }
        }
    }
    all
}

fn on_one_communicator(ranks: u16, programs: impl Iterator<Item = impl Into<Program>>) -> ProgramSet {
    let nodes: Vec<u32> = (0..ranks.into()).collect();
    ProgramSet::new(nodes.clone(), programs).with([Communicator { id: 1, members: nodes }])
}

/// Sets that no collective gives: one-sided transfers, signals, copies and folds between two.
fn by_hand(ranks: u16) -> Base {
    let at = Operand::card;
    let sum = Combine::new(Reduction::Sum, Element::U32);
    let programs = (0..ranks).map(|rank| {
        let (next, last) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        vec![
            Instruction::fill(at(0x8000), 64, 0x0102_0304_0506_0708),
            Instruction::put_signal(next, at(0), at(0x1000), 256, 1, 2),
            Instruction::wait_signal(1, 2),
            Instruction::copy(at(0x1000), at(0x2000), 256),
            Instruction::barrier(),
            Instruction::rdma_write(last, at(0x2000), at(0x3000), 128),
            Instruction::barrier(),
            Instruction::rdma_read(next, at(0x3000), at(0x4000), 64),
            Instruction::sendrecv_reduce(sum, (next, last), at(0x3000), at(0x4000), at(0x5000), 64),
            Instruction::barrier().on(1),
            if rank % 2 == 0 {
                Instruction::send(rank ^ 1, at(0x5000), 64).on(1)
            } else {
                Instruction::recv_reduce(sum, rank ^ 1, at(0x5000), at(0x6000), 64).on(1)
            },
            Instruction::fold(sum, at(0x5000), at(0x3000), at(0x7000), 64),
            Instruction::fold(sum, at(0x7000), at(0x5000), at(0x7000), 64),
        ]
    });
    Base { name: "one-sided and in pairs".into(), set: on_one_communicator(ranks, programs), expectation: None }
}

/// Everything that `it` is not, a field at a time.
fn mutants(it: &Instruction, ranks: u16) -> Vec<Instruction> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Instruction)| {
        let mut mutant = *it;
        change(&mut mutant);
        if mutant != *it {
            all.push(mutant);
        }
    };
    Operation::ALL.iter().for_each(|operation| add(&|it| it.operation = *operation));
    [0, 1, 7].into_iter().for_each(|tag| add(&|it| it.tag = tag));
    [0, 1, 2, 3, 31, 33].into_iter().for_each(|id| add(&|it| it.communicator = id));
    (0..=ranks).for_each(|rank| add(&|it| it.root = rank));
    (0..=ranks).for_each(|rank| add(&|it| it.peer = rank));
    for flags in [Flags::EAGER, Flags::RENDEZVOUS, Flags::INTERRUPT, Flags::LAST, Flags::EAGER | Flags::RENDEZVOUS] {
        add(&|it| it.flags = flags);
    }
    let sides: [fn(&mut Instruction) -> &mut Operand; 2] = [|it| &mut it.source, |it| &mut it.destination];
    let addresses = [it.source.address, it.destination.address];
    for side in sides {
        for other in addresses {
            let near = [0, 1, 4, 64, it.bytes, it.bytes / 2].into_iter();
            near.for_each(|by| add(&|it| side(it).address = other.wrapping_add(by)));
            add(&|it| side(it).address = other.wrapping_sub(it.bytes.max(8)));
        }
        [0, 0x1004, 8 << 30, (8 << 30) - 16, u64::MAX].into_iter().for_each(|to| add(&|it| side(it).address = to));
        AddressSpace::ALL.iter().for_each(|space| add(&|it| side(it).space = *space));
        add(&|it| side(it).layout = Layout::Striped);
        add(&|it| side(it).layout = Layout::Block);
        add(&|it| side(it).argument = Some(1));
    }
    let bytes = [0, 1, it.bytes + 1, it.bytes + 4, it.bytes.saturating_sub(4), it.bytes * 2, it.bytes / 8 * 4, 16_385];
    bytes.into_iter().chain([1 << 40, u64::MAX]).for_each(|bytes| add(&|it| it.bytes = bytes));
    Element::ALL.iter().for_each(|element| add(&|it| it.element = Some(*element)));
    Reduction::ALL.iter().for_each(|reduction| add(&|it| it.reduction = Some(*reduction)));
    add(&|it| it.element = None);
    add(&|it| it.reduction = None);
    for extent in [0, 1, 4, it.bytes, it.bytes * 2, it.extent + 4, it.extent.wrapping_sub(4), 1 << 20, u64::MAX] {
        add(&|it| it.extent = extent);
    }
    add(&|it| it.extent_argument = Some(0));
    [0, 1, 2, 64].into_iter().for_each(|id| add(&|it| it.signal_id = id));
    [0, 1, 2, 3, u32::MAX].into_iter().for_each(|value| add(&|it| it.signal_value = value));
    [1, 255].into_iter().for_each(|lane| add(&|it| it.lane = lane));
    add(&|it| it.flags |= Flags::FENCE);
    add(&|it| it.loop_count = 1);
    add(&|it| it.loop_body = 1);
    all
}

/// One entry of a rank's tables changed, and in words which and how.
fn table_mutants(program: &Program) -> Vec<(Program, String)> {
    let mut all = Vec::new();
    for (slot, table) in &program.tables {
        for (rank, entry) in table.entries.iter().enumerate() {
            let Entry { displacement, bytes } = *entry;
            let longer = [0, 1, bytes + 4, bytes.wrapping_sub(4), bytes * 2, 16_385, u64::MAX];
            let lengths = longer.map(|bytes| Entry { displacement, bytes });
            let near =
                [displacement + 4, displacement.wrapping_sub(4), displacement + bytes, 0, 4096, 8 << 30, u64::MAX];
            let of_others = table.entries.iter().flat_map(|one| [one.displacement, one.displacement + one.bytes]);
            let places = near.into_iter().chain(of_others).map(|displacement| Entry { displacement, bytes });
            let changed = lengths.into_iter().chain(places).filter(|one| one != entry);
            for one in changed {
                let mut mutant = program.clone();
                mutant.tables.get_mut(slot).expect("it was there").entries[rank] = one;
                all.push((mutant, format!("table {slot}, entry {rank}\n{entry:?}\n{one:?}")));
            }
        }
        let mut short = program.clone();
        short.tables.get_mut(slot).expect("it was there").entries.pop();
        all.push((short, format!("table {slot} without its last entry")));
        let mut none = program.clone();
        none.tables.remove(slot);
        all.push((none, format!("no table {slot}")));
    }
    all
}

/// All mutants of the program of a rank, in words what was changed, and whether the verifier claims nothing of it.
fn changed(program: &Program, ranks: u16) -> Vec<(Program, String, bool)> {
    let mut all = Vec::new();
    for (index, original) in program.instructions.iter().enumerate() {
        for mutant in mutants(original, ranks) {
            let mut changed = program.clone();
            changed.instructions[index] = mutant;
            all.push((changed, format!("instruction {index}\n{original:?}\n{mutant:?}"), is_outside(&mutant)));
        }
    }
    all.extend(table_mutants(program).into_iter().map(|(program, how)| (program, how, false)));
    all
}

/// What the verifier claims nothing of: memory of the host, and programs and logic that it is not shown.
fn is_outside(it: &Instruction) -> bool {
    let is_host = |operand: &Operand| operand.space == AddressSpace::Host;
    is_host(&it.source) || is_host(&it.destination) || it.operation == Operation::User
}

#[derive(Debug, Default)]
struct Counts {
    mutants: usize,
    refused: BTreeMap<Reason, usize>,
    outside: usize,
    ran: usize,
    /// Of those that ran: with the collective expected.
    not_expected: usize,
    equivalent: usize,
    /// Refused by the expectation, though on these inputs nothing shows.
    unseen: usize,
    /// Mutants of barriers that were seen to let a rank end before another began.
    early: usize,
}

/// The memory that programs read or write, rank by rank, in pieces that are not long.
fn prepare(both: &mut Both, base: &Base) {
    for (rank, program) in base.set.programs.iter().enumerate() {
        for it in &program.instructions {
            for address in [it.source.address, it.destination.address] {
                both.prepare(rank, address.saturating_sub(64), 512.min(it.bytes + 128));
            }
        }
        program.input.iter().for_each(|piece| both.prepare(rank, piece.address, piece.bytes));
        program.output.iter().for_each(|piece| both.watch(piece.address, piece.bytes));
    }
}

/// Far more cycles than any barrier takes.
const LATE: u64 = 1_000_000;

/// Whether some rank was seen to end before another had begun. Every rank is late in one run: what does not wait for it is
/// over long before.
fn ends_early(both: &mut Both, set: &ProgramSet) -> Result<bool, String> {
    let ranks = set.programs.len();
    for late in 0..ranks {
        let delays: Vec<u64> = (0..ranks).map(|rank| if rank == late { LATE } else { 0 }).collect();
        let report = both.run(set, &delays)?;
        let ends = report.ranks.iter().map(|rank| {
            let last = rank.repetitions.last().and_then(|all| all.last());
            let start = rank.synchronised.expect("barriers before");
            last.map(|last| (last.issued + last.t2).wrapping_sub(start) % (1 << 48))
        });
        if ends.flatten().any(|end| end < LATE / 2) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Programs that no longer are a barrier, or are one in another way: a step of all ranks is another.
fn barrier_mutants(base: &Base, ranks: u16) -> Vec<(ProgramSet, String, bool)> {
    let mut all = Vec::new();
    let steps = base.set.programs.iter().map(|one| one.instructions.len()).min().unwrap_or(0);
    for index in 0..steps {
        let mut add = |how: &str, change: &dyn Fn(u16, &mut Instruction)| {
            let mut set = base.set.clone();
            for (rank, program) in (0..ranks).zip(&mut set.programs) {
                change(rank, &mut program.instructions[index]);
            }
            all.push((set, format!("instruction {index} of all ranks {how}"), false));
        };
        let at = Operand::card;
        add("is a nop", &|_, it| *it = Instruction::nop());
        for bytes in [0, 8] {
            add("has other bytes", &|_, it| it.bytes = if it.operation == Operation::Barrier { 0 } else { bytes });
            add("is an alltoall", &|_, it| *it = Instruction::alltoall(at(0), at(4096), bytes));
            add("is an allgather", &|_, it| *it = Instruction::allgather(at(0), at(4096), bytes).dividing(bytes));
            for root in 0..ranks {
                add("is a broadcast", &|_, it| *it = Instruction::broadcast(root, at(0), at(4096), bytes));
                add("is a gather", &|_, it| *it = Instruction::gather(root, at(0), at(4096), bytes));
                let other = |rank: u16| (rank + 1 + root) % ranks;
                let from = |rank: u16| (rank + 2 * ranks - 1 - root) % ranks;
                let shift = |rank| Instruction::sendrecv(other(rank), from(rank), at(0), at(4096), bytes);
                add("is a shift", &|rank, it| *it = shift(rank));
                add("is an exchange", &|rank, it| {
                    let other = rank ^ (root % 2 + 1);
                    *it = if other < ranks { Instruction::sendrecv(other, other, at(0), at(4096), bytes) } else { *it };
                });
            }
        }
    }
    all
}

/// What the ranks have to have after, by the original programs.
fn outputs(both: &Both, base: &Base) -> Vec<Vec<u8>> {
    let of_rank = |(rank, program): (usize, &Program)| {
        program.output.iter().flat_map(|piece| both.read(rank, piece.address, piece.bytes)).collect()
    };
    base.set.programs.iter().enumerate().map(of_rank).collect()
}

/// The inputs again as they are before: what one mutant leaves shall not help the next.
fn inputs(both: &Both, base: &Base) -> Vec<Vec<(u64, Vec<u8>)>> {
    let of_rank = |(rank, program): (usize, &Program)| {
        program.input.iter().map(|piece| (piece.address, both.read(rank, piece.address, piece.bytes))).collect()
    };
    base.set.programs.iter().enumerate().map(of_rank).collect()
}

fn try_mutants(both: &mut Both, base: &Base, every: usize, counts: &mut Counts) {
    let capabilities = both.capabilities().clone();
    let ranks = base.set.programs.len();
    verify(&base.set, &capabilities).unwrap_or_else(|refusal| panic!("{}: {refusal}", base.name));
    prepare(both, base);
    let before = inputs(both, base);
    both.run(&base.set, &[]).unwrap_or_else(|wrong| panic!("{}: {wrong}", base.name));
    let right = outputs(both, base);
    let with = |rank: usize, program: Program| {
        let mut set = base.set.clone();
        set.programs[rank] = program;
        set
    };
    let of_rank = |rank: usize| {
        let all = changed(&base.set.programs[rank], ranks as u16).into_iter();
        all.map(move |(program, how, is_outside)| (with(rank, program), format!("rank {rank}, {how}"), is_outside))
    };
    let is_barrier = base.expectation.as_ref().is_some_and(|it| it.collective == Collective::Barrier);
    let of_all = if is_barrier { barrier_mutants(base, ranks as u16) } else { Vec::new() };
    let sampled = (0..ranks).flat_map(of_rank).skip(every - 1).step_by(every);
    for (set, how, is_outside) in sampled.chain(of_all) {
        counts.mutants += 1;
        let expected = base.expectation.as_ref().map(|it| expect(&set, &capabilities, it));
        if let Err(refusal) = verify(&set, &capabilities) {
            *counts.refused.entry(refusal.reason).or_default() += 1;
            assert_ne!(expected, Some(Ok(())), "{}: refused, but as expected", base.name);
            continue;
        }
        if is_outside {
            counts.outside += 1;
            continue;
        }
        let name = || format!("{}, {how}", base.name);
        for (rank, pieces) in before.iter().enumerate() {
            pieces.iter().for_each(|(address, data)| both.put(rank, *address, data));
        }
        both.run(&set, &[]).unwrap_or_else(|wrong| panic!("{}\n{wrong}", name()));
        counts.ran += 1;
        let is_right = match is_barrier {
            true => {
                let early = ends_early(both, &set);
                !early.unwrap_or_else(|wrong| panic!("{}\n{wrong}", name()))
            }
            false => outputs(both, base) == right,
        };
        counts.early += usize::from(is_barrier && !is_right);
        match expected {
            Some(Ok(())) => {
                assert!(is_right, "{}\nis not the collective, and was expected", name());
                counts.equivalent += 1;
            }
            Some(Err(refusal)) => {
                assert_eq!(refusal.reason, Reason::Expectation, "{}\n{refusal}", name());
                counts.not_expected += 1;
                counts.unseen += usize::from(is_right);
            }
            None => {}
        }
    }
}

/// One in so many mutants always, all with `FPGA_TESTS_FULL=1`.
fn every() -> usize {
    if is_full() { 1 } else { 7 }
}

fn report(name: &str, counts: &Counts) {
    let refused: usize = counts.refused.values().sum();
    println!(
        "{name}: {} mutants, {refused} refused, {} outside of the claims, {} ran as the interpreter says; of these {} are no \
         longer the collective and refused if it is expected ({} of them only by chance the same bytes), {} still are",
        counts.mutants, counts.outside, counts.ran, counts.not_expected, counts.unseen, counts.equivalent
    );
    println!("  {:?}; {} barriers were seen to end early", counts.refused, counts.early);
    assert_eq!(counts.mutants, refused + counts.outside + counts.ran);
    assert!(counts.ran > 100 || counts.mutants < 5000, "{counts:?}");
}

#[test]
fn mutants_of_plans_on_linked_cards() {
    let capabilities = Both::new(Profile::optweb(4)).capabilities().clone();
    let mut counts = Counts::default();
    for base in plans(&capabilities, &[64, 6_000], Algorithm::ALL) {
        // Cards of its own: what it leaves alone is still empty.
        try_mutants(&mut Both::new(Profile::optweb(4)), &base, every(), &mut counts);
    }
    report("linked cards", &counts);
    assert!(counts.early > 0, "mutants that are no barrier are seen to be none: {counts:?}");
}

/// Blocks of a user's own: packed, in place, in another order, and in part the same bytes.
fn blocks_by_hand(ranks: u16) -> Base {
    let at = Operand::card;
    let table = |blocks: Vec<(u64, u64)>| Table {
        entries: blocks.into_iter().map(|(displacement, bytes)| Entry { displacement, bytes }).collect(),
    };
    let length = |rank: u16| 64 * (u64::from(rank) % 3);
    let programs = (0..ranks).map(|rank| {
        let every = 0..ranks;
        let back = table(every.clone().map(|other| (256 * u64::from(ranks - 1 - other), length(other))).collect());
        let own = at(0x2000 + 256 * u64::from(ranks - 1 - rank));
        let gathered = at(if rank == 2 { 0x5000 + 256 * u64::from(ranks - 1 - rank) } else { 0x4000 });
        let same = table(every.clone().map(|other| (16 * u64::from(other), 128)).collect());
        let sends = table(every.clone().map(|to| (96 * u64::from(to), 32 * u64::from(rank + to))).collect());
        let receives = table(every.map(|from| (512 * u64::from(from), 32 * u64::from(rank + from))).collect());
        let slot = |of: u16, slot: u16| if rank == of { slot } else { 0 };
        Program {
            instructions: vec![
                Instruction::allgatherv(own, at(0x2000), length(rank), 0),
                Instruction::scatterv(1, at(0x2000), at(0x4000), 128, slot(1, 1)),
                Instruction::gatherv(2, gathered, at(0x5000), length(rank), slot(2, 4)).on(1),
                Instruction::alltoallv(at(0x2000), at(0x6000), 2, 3),
            ],
            tables: [(0, back.clone()), (1, same), (2, sends), (3, receives), (4, back)].into(),
            ..Program::default()
        }
    });
    Base { name: "blocks by hand".into(), set: on_one_communicator(ranks, programs), expectation: None }
}

#[test]
fn mutants_of_blocks_by_hand() {
    let mut both = Both::new(Profile::optweb(4));
    let mut counts = Counts::default();
    try_mutants(&mut both, &blocks_by_hand(4), 1, &mut counts);
    report("blocks by hand", &counts);
}

#[test]
fn mutants_of_programs_by_hand() {
    let mut both = Both::new(Profile::optweb(4));
    let mut counts = Counts::default();
    try_mutants(&mut both, &by_hand(4), 1, &mut counts);
    report("one-sided and in pairs", &counts);
}

#[test]
fn mutants_of_two_levels() {
    let profile = || Profile::optweb_dragonfly(2, 2);
    let capabilities = Both::new(profile()).capabilities().clone();
    let mut counts = Counts::default();
    for base in plans(&capabilities, &[640], &[Algorithm::TwoLevel]) {
        try_mutants(&mut Both::new(profile()), &base, every(), &mut counts);
    }
    report("a Dragonfly", &counts);
    assert!(counts.early > 0, "mutants that are no barrier are seen to be none: {counts:?}");
}

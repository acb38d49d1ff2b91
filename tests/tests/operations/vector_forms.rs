//! Scatterv, gatherv, allgatherv and alltoallv on mock cards, bit for bit against an oracle independent of planner and
//! mock; and tables that do not match.
//!
//! A fixed set always runs; `FPGA_TESTS_FULL=1` runs more (`tests/run --full`).

use fpga_tests::sweep::is_full;
use std::cell::RefCell;
use std::time::Duration;

use cmdseq::plan::{Algorithm, Collective, Plan, Request, plan};
use cmdseq::table::{Entry, Table};
use cmdseq::{Flags, Instruction, Operand, Status};
use fpga_driver::{Bound, Cluster, Error, Execution, Report};
use fpga_mock::Profile;
use fpga_tests::oracle::{VECTOR_FORMS, VectorCase};
use fpga_tests::pattern;
use fpga_tests::prediction::plans;
use fpga_tests::run::{open, plan_all};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

fn request(case: &VectorCase, group: Vec<u32>, eager_limit: Option<u64>) -> Request {
    let collective = case.operation.parse().unwrap();
    Request { counts: case.counts(), root: case.root, eager_limit, ..Request::new(collective, group, 0) }
}

/// The plans of all algorithms that do `request`.
fn forced(cluster: &Cluster, request: &Request) -> Vec<Plan> {
    let (_, forced) = plans(request, cluster.capabilities()).unwrap_or_else(|refusal| panic!("{request:?}: {refusal}"));
    forced
}

fn planned(cluster: &Cluster, case: &VectorCase, group: Vec<u32>, eager_limit: Option<u64>) -> Plan {
    let plan = plan(&request(case, group, eager_limit), cluster.capabilities());
    plan.unwrap_or_else(|refusal| panic!("{case:?}: {refusal}"))
}

/// What lies behind an output and must stay.
const GUARD: [u8; 8] = [0xa5; 8];
/// Cards up to which guards are set: each takes an instruction.
const GUARDED: u32 = 6;

/// Puts in the inputs, runs, and compares the outputs and what lies behind them.
fn run(cluster: &mut Cluster, case: &VectorCase, plan: &Plan, seed: u64) -> Result<Report, String> {
    let fail = |error: Error| error.to_string();
    let mut guards = Vec::new();
    for rank in 0..case.ranks() {
        let mut input = vec![0; case.input_bytes(rank) as usize];
        if input.len() as u64 != plan.request.input_bytes(rank) {
            return Err(format!("rank {rank} has {} B to give, and the planner thinks not", input.len()));
        }
        pattern::fill(seed, rank, 0, &mut input);
        cluster.write_input(&plan.set, rank, 0, &input).map_err(fail)?;
        let node = plan.request.group[rank as usize] as usize;
        // In other ways, what a card hands on or keeps of its input lies there.
        let is_alone = matches!(plan.algorithm, Algorithm::Direct | Algorithm::TwoLevel);
        if is_alone && case.ranks() <= GUARDED {
            guards.extend(
                plan.set.programs[rank as usize].output.iter().map(|piece| (node, piece.address + piece.bytes)),
            );
        }
    }
    for (node, address) in &guards {
        cluster.card_mut(*node).write_memory(*address, &GUARD).map_err(fail)?;
    }
    let execution = Execution { timeout: Duration::from_secs(120), ..Execution::default() };
    let report = cluster.execute(&plan.set, &execution).map_err(fail)?;
    for rank in 0..case.ranks() {
        let bytes = case.output(rank).iter().map(|copied| copied.bytes).sum::<u64>();
        let mut output = vec![0; bytes as usize];
        cluster.read_output(&plan.set, rank, 0, &mut output).map_err(fail)?;
        if let Some(at) = case.first_wrong(seed, rank, 0, &output) {
            return Err(format!("rank {rank}, byte {at} of the output is wrong"));
        }
        if cluster.read_output(&plan.set, rank, bytes, &mut [0]).is_ok() {
            return Err(format!("rank {rank} has more than {bytes} B"));
        }
    }
    for (node, address) in &guards {
        let mut found = [0; GUARD.len()];
        cluster.card_mut(*node).read_memory(*address, &mut found).map_err(fail)?;
        if found != GUARD {
            return Err(format!("node {node} has written past an output, at {address:#x}"));
        }
    }
    Ok(report)
}

/// Lengths of many kinds: none, short, of whole beats and not, eager and not.
fn length(number: u64) -> u64 {
    let kinds = [0, 1, 31, 32, 33, 63, 64, 1000, 4095, 4096, 16383, 16384, 16385, 40_001];
    kinds[(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % kinds.len()]
}

fn lengths(ranks: u32, seed: u64) -> Vec<u64> {
    (0..u64::from(ranks)).map(|rank| length(seed * 1009 + rank)).collect()
}

#[test]
fn every_form_on_every_number_of_ranks() {
    let mut seed = 0;
    for ranks in (2..=17).chain([64]) {
        let (_fabric, mut cluster) = open(Profile::optweb(ranks));
        let all = is_full() || ranks <= 4;
        for operation in VECTOR_FORMS {
            let roots: Vec<u32> = match operation {
                "scatterv" | "gatherv" if all => (0..ranks).collect(),
                "scatterv" | "gatherv" => vec![0, ranks - 1],
                _ => vec![0],
            };
            for root in roots {
                seed += 1;
                let case = VectorCase::of_lengths(operation, &lengths(ranks, seed), root);
                let mut plans = forced(&cluster, &request(&case, (0..ranks).collect(), None));
                if ranks > 17 && !is_full() {
                    plans.truncate(1);
                }
                for plan in plans {
                    let way = plan.algorithm;
                    run(&mut cluster, &case, &plan, seed).unwrap_or_else(|why| panic!("{way}, {case:?}: {why}"));
                }
            }
        }
    }
}

/// Every form goes over the groups of a Dragonfly, from every root, with lengths of all kinds: all the same, most of them none,
/// one far longer than the others, the root's own alone, none at all.
#[test]
fn every_form_on_dragonflies() {
    // In eight and nine groups an alltoallv has fewer tables than it has rows.
    let shapes: &[(u32, u32)] = &[(2, 2), (2, 3), (3, 5), (4, 4), (8, 2), (9, 3)];
    let mut seed = 0;
    for (groups, size) in shapes {
        let ranks = groups * size;
        let (_fabric, mut cluster) = open(Profile::optweb_dragonfly(*groups, *size));
        for operation in VECTOR_FORMS {
            let roots = if matches!(operation, "scatterv" | "gatherv") { ranks } else { 1 };
            let step = if is_full() || ranks <= 6 { 1 } else { 5 };
            for root in (0..roots).step_by(step) {
                let mut few = vec![0; ranks as usize];
                few[(root as usize * 7 + 1) % ranks as usize] = 33;
                let mut one = vec![5; ranks as usize];
                one[(root as usize * 3 + 2) % ranks as usize] = 40_001;
                let mut own = vec![0; ranks as usize];
                own[root as usize] = 1000;
                let kinds = [lengths(ranks, seed), vec![4096; ranks as usize], few, one, own, vec![0; ranks as usize]];
                let (first, count) = if is_full() || ranks <= 6 { (0, kinds.len()) } else { (seed as usize, 2) };
                for kind in kinds.iter().cycle().skip(first % kinds.len()).take(count) {
                    seed += 1;
                    let case = VectorCase::of_lengths(operation, kind, root);
                    let limit = [None, Some(0), Some(100)][seed as usize % 3];
                    for plan in forced(&cluster, &request(&case, (0..ranks).collect(), limit)) {
                        let way = plan.algorithm;
                        run(&mut cluster, &case, &plan, seed).unwrap_or_else(|why| panic!("{way}, {case:?}: {why}"));
                    }
                }
            }
        }
    }
}

#[test]
fn any_lengths_in_any_group() {
    const CARDS: u32 = 17;
    let (_fabric, cluster) = open(Profile::optweb(CARDS));
    let cluster = RefCell::new(cluster);
    let lengths = prop_oneof![2 => Just(0_u64), 4 => 1_u64..200, 2 => 16_000_u64..17_000, 1 => 1_u64..100_000];
    let limit = prop_oneof![Just(None), Just(Some(0)), (0_u64..=16_384).prop_map(Some)];
    let group = Just((0..CARDS).collect::<Vec<u32>>()).prop_shuffle();
    let matrix = prop::collection::vec(lengths, (CARDS * CARDS) as usize);
    let cases = (prop::sample::select(&VECTOR_FORMS[..]), 1..=CARDS, any::<u32>(), group, matrix, limit, any::<u64>());
    let config = Config { cases: if is_full() { 2500 } else { 60 }, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&cases, |(operation, ranks, root, mut group, matrix, limit, seed)| {
        group.truncate(ranks as usize);
        let root = root % ranks;
        let gives = match operation {
            "alltoallv" => (0..ranks as usize).map(|rank| matrix[rank * 17..][..ranks as usize].to_vec()).collect(),
            _ => VectorCase::of_lengths(operation, &matrix[..ranks as usize], root).gives,
        };
        let case = VectorCase { operation, gives, root };
        let plans = forced(&cluster.borrow(), &request(&case, group, limit));
        let mut one = |plan: &Plan| {
            let ran = run(&mut cluster.borrow_mut(), &case, plan, seed);
            ran.map(drop).map_err(|why| TestCaseError::fail(format!("{}: {why}", plan.algorithm)))
        };
        plans.iter().try_for_each(&mut one)
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn blocks_longer_than_stripes_are_packed() {
    let (_fabric, mut cluster) = open(Profile::optweb(16));
    let half = cluster.capabilities().stripe_half_bytes;
    let mut lengths = vec![3_u64; 16];
    lengths[1] = half + 5;
    let case = VectorCase::of_lengths("gatherv", &lengths, 0);
    let plan = planned(&cluster, &case, (0..16).collect(), None);
    // 256 MiB are too much for a test; what lies where is enough.
    let table = &plan.set.programs[0].tables[&0];
    assert_eq!(table.longest(), half + 5);
    assert!(table.entries.windows(2).all(|pair| pair[0].displacement + pair[0].bytes <= pair[1].displacement));
    assert!(plan.set.programs[0].output.iter().all(|piece| piece.address + piece.bytes <= 8 << 30));
    lengths[1] = 5;
    let case = VectorCase::of_lengths("gatherv", &lengths, 0);
    let plan = planned(&cluster, &case, (0..16).collect(), None);
    run(&mut cluster, &case, &plan, 1).unwrap();
}

/// A block at a time is what a link carries, whoever says how long it is.
#[test]
fn equal_lengths_take_as_long_as_the_plain_forms() {
    let (_fabric, mut cluster) = open(Profile::optweb(4));
    for (vector, plain) in
        [("scatterv", "scatter"), ("gatherv", "gather"), ("allgatherv", "allgather"), ("alltoallv", "alltoall")]
    {
        for bytes in [0, 64, 16384, 16385, 1 << 20] {
            let case = VectorCase::of_lengths(vector, &[bytes; 4], 0);
            let of_vector = planned(&cluster, &case, (0..4).collect(), None);
            let of_plain = plan_all(&cluster, plain, bytes, None, None).unwrap();
            let times = |report: Report| (report.t1_cycles, report.t2_cycles, report.arrival_cycles);
            let ours = times(run(&mut cluster, &case, &of_vector, 3).unwrap());
            let theirs = times(cluster.execute(&of_plain.set, &Execution::default()).unwrap());
            assert_eq!(ours, theirs, "{vector} of {bytes} B");
        }
    }
}

#[test]
fn prediction_is_close_to_what_the_cards_count() {
    let (_fabric, mut cluster) = open(Profile::optweb(8));
    for operation in VECTOR_FORMS {
        for seed in 0..6 {
            let case = VectorCase::of_lengths(operation, &lengths(8, 100 + seed), 2);
            for plan in forced(&cluster, &request(&case, (0..8).collect(), None)) {
                let report = run(&mut cluster, &case, &plan, seed).unwrap();
                let (found, predicted) = (report.microseconds(report.t2_cycles), plan.predicted.t2_ps as f64 / 1e6);
                assert!((predicted / found - 1.0).abs() < 0.1, "{case:?}: {found} us, predicted {predicted} us");
            }
        }
    }
}

#[test]
fn tables_are_loaded_once() {
    let (_fabric, mut cluster) = open(Profile::optweb(3));
    let case = VectorCase::of_lengths("alltoallv", &[10, 20, 30], 0);
    let plan = planned(&cluster, &case, vec![0, 1, 2], None);
    let retired = |cluster: &mut Cluster| {
        let before = cluster.cards()[1].retired().unwrap();
        cluster.execute(&plan.set, &Execution::default()).unwrap();
        cluster.cards()[1].retired().unwrap() - before
    };
    // Two tables, two barriers, one exchange.
    assert_eq!(retired(&mut cluster), 5);
    assert_eq!(retired(&mut cluster), 3);
    // Another table in one of the slots; its sender is not the driver.
    let other = Table::packed([1, 2, 3], 1);
    let card = cluster.card_mut(1);
    let buffer = card.allocate(48).unwrap();
    buffer.write(0, &other.encode()).unwrap();
    let table = Bound::from(Instruction::table(1, buffer.iova().0, 3)).holding(buffer);
    card.run([table], Duration::from_secs(5)).unwrap();
    assert_eq!(retired(&mut cluster), 4);
    (0..cluster.cards().len()).for_each(|place| cluster.card_mut(place).reset().unwrap());
    assert_eq!(retired(&mut cluster), 5, "a reset clears the tables");
    run(&mut cluster, &case, &plan, 9).unwrap();
}

/// Blocks may lie in any order, in place, and be read twice; the planner does none of it.
#[test]
fn tables_of_a_user_s_own() {
    let (_fabric, mut cluster) = open(Profile::optweb(3));
    let mut plan = plan_all(&cluster, "barrier", 0, None, None).unwrap();
    let reversed = Table {
        entries: [(200, 10), (100, 20), (0, 30)].map(|(displacement, bytes)| Entry { displacement, bytes }).into(),
    };
    let same = Table { entries: vec![Entry { displacement: 4, bytes: 5 }; 3] };
    for (rank, program) in plan.set.programs.iter_mut().enumerate() {
        let own = reversed.entries[rank];
        program.tables.extend([(5, reversed.clone()), (15, same.clone())]);
        program.instructions = vec![
            // The own block lies where it belongs.
            Instruction::allgatherv(Operand::card(1000 + own.displacement), Operand::card(1000), own.bytes, 5),
            Instruction::scatterv(1, Operand::card(1000), Operand::card(5000), 5, 15),
        ];
        let data = vec![rank as u8 + 1; own.bytes as usize];
        cluster.card_mut(rank).write_memory(1000 + own.displacement, &data).unwrap();
    }
    cluster.execute(&plan.set, &Execution::default()).unwrap();
    for place in 0..cluster.cards().len() {
        let card = cluster.card_mut(place);
        let mut found = vec![0; 240];
        card.read_memory(1000, &mut found).unwrap();
        let mut expected = vec![0; 240];
        expected[200..210].fill(1);
        expected[100..120].fill(2);
        expected[..30].fill(3);
        assert_eq!(found, expected);
        card.read_memory(5000, &mut found[..6]).unwrap();
        assert_eq!(found[..6], [3, 3, 3, 3, 3, 0]);
    }
}

/// The status with which a card of two refuses `instruction`, with a table of 10 and 20 B in slot 2 and one of three
/// entries in slot 3.
fn refused(instruction: Instruction) -> (Status, u16) {
    let (_fabric, mut cluster) = open(Profile::optweb(2));
    let card = cluster.card_mut(0);
    card.load_table(2, &Table::packed([10, 20], 1)).unwrap();
    match card.run([Bound::dangerously_unowned(instruction)], Duration::from_secs(5)).unwrap_err() {
        Error::Failed { status, detail, .. } => (status, detail),
        other => panic!("{other}"),
    }
}

#[test]
fn cards_refuse_tables_that_do_not_fit() {
    let (low, high) = (Operand::card(0), Operand::card(4096));
    let last = Operand::card((8 << 30) - 25);
    let beyond = Instruction { extent: 1 << 40, ..Instruction::allgatherv(low, high, 10, 0) };
    for (instruction, status, detail) in [
        (Instruction::allgatherv(low, high, 10, 1), Status::BadTable, 1),
        (Instruction::allgatherv(low, high, 10, 16), Status::BadTable, 16),
        (Instruction::allgatherv(low, high, 11, 2), Status::BadTable, 2),
        (beyond, Status::BadTable, 0),
        (Instruction::alltoallv(low, high, 2, 7), Status::BadTable, 7),
        (Instruction::scatterv(0, low, high, 20, 2), Status::BadTable, 2),
        (Instruction::scatterv(0, last, low, 10, 2), Status::OutOfRange, 0),
        (Instruction::gatherv(0, low, Operand::card(u64::MAX - 5), 10, 2), Status::OutOfRange, 0),
        (Instruction::gatherv(0, low, Operand::card(5), 10, 2), Status::Overlap, 0),
        (Instruction::alltoallv(low, Operand::card(15), 2, 2), Status::Overlap, 0),
        (Instruction::gatherv(2, low, high, 10, 2), Status::BadRank, 2),
        (Instruction::table(16, 0, 2), Status::BadTable, 16),
        (Instruction::table(0, 0, 0), Status::BadField, 32),
        (Instruction::table(0, 0, 3), Status::BadField, 32),
        (Instruction { bytes: 17, ..Instruction::table(0, 0, 1) }, Status::BadField, 32),
        (Instruction::table(0, 0xdead_0000_0000, 2), Status::HostReadFault, 0),
        (Instruction::alltoallv(low.striped(), high, 2, 2), Status::BadField, 13),
    ] {
        assert_eq!(refused(instruction), (status, detail), "{instruction:?}");
    }
    let (_fabric, mut cluster) = open(Profile::optweb(2));
    let card = cluster.card_mut(0);
    assert!(matches!(card.load_table(16, &Table::packed([1], 1)), Err(Error::BadArgument { .. })));
    assert!(matches!(card.load_table(0, &Table::packed([1, 2, 3], 1)), Err(Error::BadArgument { .. })));
}

#[test]
fn a_table_of_another_communicator_does_not_fit() {
    let (_fabric, mut cluster) = open(Profile::optweb(3));
    let case = VectorCase::of_lengths("gatherv", &[1, 2], 1);
    let mut plan = planned(&cluster, &case, vec![0, 2], None);
    plan.set.programs[1].tables.insert(0, Table::packed([1, 2, 3], 1));
    let error = cluster.execute(&plan.set, &Execution::default()).unwrap_err();
    assert!(matches!(error, Error::Failed { status: Status::BadTable, rank: Some(1), .. }), "{error}");
}

/// Rank 2 of three thinks that its block is longer, shorter, too long to be eager, or empty.
#[test]
fn lengths_that_two_ranks_disagree_on_end_the_collective() {
    for (operation, bytes, limit) in [("scatterv", 100, None), ("gatherv", 100, Some(0)), ("allgatherv", 20_000, None)]
    {
        for wrong in [bytes + 1, bytes - 1, 0] {
            let (_fabric, mut cluster) = open(Profile::optweb(3));
            let case = VectorCase::of_lengths(operation, &[30, 40, bytes], 0);
            let mut plan = planned(&cluster, &case, vec![0, 1, 2], limit);
            let program = &mut plan.set.programs[2];
            program.instructions[0].bytes = wrong;
            program.tables.values_mut().for_each(|table| table.entries[2].bytes = wrong);
            let execution = Execution { timeout: Duration::from_millis(200), ..Execution::default() };
            match cluster.execute(&plan.set, &execution).unwrap_err() {
                Error::Failed { status: Status::Mismatch, .. } => assert_ne!(wrong, 0),
                Error::Timeout { .. } => assert_eq!(wrong, 0, "{operation}: an empty block is not waited for"),
                other => panic!("{operation}: {other}"),
            }
        }
    }
}

#[test]
fn blocks_that_no_receive_buffer_takes_are_not_eager() {
    let (_fabric, mut cluster) = open(Profile::optweb(3));
    let case = VectorCase::of_lengths("scatterv", &[10, 10, 16_385], 0);
    let mut plan = planned(&cluster, &case, vec![0, 1, 2], None);
    for program in &mut plan.set.programs {
        program.instructions[0].flags = Flags::EAGER;
    }
    let error = cluster.execute(&plan.set, &Execution::default()).unwrap_err();
    assert!(matches!(error, Error::Failed { status: Status::EagerOverrun, .. }), "{error}");
    let refusal = cmdseq::verify(&plan.set, cluster.capabilities()).unwrap_err();
    assert!(refusal.cause.contains("receive buffer"), "{refusal}");
}

#[test]
fn the_planner_says_what_is_wrong_with_counts() {
    let (_fabric, cluster) = open(Profile::optweb(3));
    let good = request(&VectorCase::of_lengths("gatherv", &[1, 2, 3], 0), vec![0, 1, 2], None);
    let refused = |request: &Request| plan(request, cluster.capabilities()).unwrap_err().to_string();
    for (request, sentence) in [
        (Request { counts: vec![1, 2], ..good.clone() }, "gatherv of 3 ranks needs 3 counts, but 2 were given"),
        (Request { collective: Collective::Alltoallv, ..good.clone() }, "needs 9 counts, but 3 were given"),
        (Request { collective: Collective::Gather, ..good.clone() }, "has no counts, but 3 were given"),
        (Request { counts: vec![1, u64::MAX, 1], ..good.clone() }, "exceed the"),
        (Request { counts: vec![1, 9 << 30, 1], ..good.clone() }, "exceed the"),
        (Request { root: 3, ..good.clone() }, "root 3 is not a rank"),
    ] {
        assert!(refused(&request).contains(sentence), "{}", refused(&request));
    }
    let (_fabric, dragonfly) = open(Profile::optweb_dragonfly(2, 2));
    let far = Request { group: vec![0, 3], counts: vec![1, 2], relays: Some(Vec::new()), ..good };
    let refusal = plan(&far, dragonfly.capabilities()).unwrap_err().to_string();
    assert!(refusal.contains("no path from node 0 to node 3"), "{refusal}");
}

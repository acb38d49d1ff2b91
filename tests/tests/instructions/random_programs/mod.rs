//! Random programs: programs that the verifier accepts end on the cards without fault, with the result that the definitions
//! give. Host memory is valid or invalid for the instructions that read it, and cards have user logic or not: where invalid
//! or missing, exactly that instruction fails, as `docs/verifier.md` states.
//!
//! A few hundred always run, 50 000 verified ones with `FPGA_TESTS_FULL=1`.

mod expected;
mod set;
mod stored;

use std::collections::{BTreeMap, BTreeSet};

use cmdseq::instruction::takes_tables;
use cmdseq::plan::Program;
use cmdseq::verify::{Stored, verify_launches};
use cmdseq::{Instruction, Operation, Reason};
use expected::{fails_as, meant};
use fpga_mock::Profile;
use fpga_tests::dice::{Dice, seed};
use fpga_tests::program_sets::{Both, HOST_BYTES};
use fpga_tests::sweep::is_full;
use set::{ARENA, DEFINED, RandomSet, random_set};
use stored::{encoded, has_logic, stored};

/// Cards of `ranks` ranks with data in their memory, programs in their slots and logic behind their switches.
fn cards(ranks: u32, lanes: u32) -> Both {
    let mut both = Both::new(Profile { lanes, ..Profile::optweb(ranks) });
    for rank in 0..ranks as usize {
        both.prepare(rank, 0, ARENA);
        for Stored { slot, instructions } in stored(rank, ranks) {
            both.put_host(rank, 0, &encoded(&instructions));
            let store = Instruction::store(slot, both.host(rank), instructions.len() as u64);
            both.run_before(rank, &[store]);
        }
        if has_logic(rank, ranks) {
            both.set_user_logic(rank);
        }
    }
    both
}

/// Communicators that a program defines and does not free.
fn left_defined(program: &Program) -> Vec<u16> {
    let mut left = Vec::new();
    for it in &program.instructions {
        match it.operation {
            Operation::Group => left.push(it.communicator),
            Operation::Free => left.retain(|id| *id != it.communicator),
            _ => {}
        }
    }
    left
}

/// Sets that were verified and ran, of these with some kinds of instructions, and why others did not.
#[derive(Debug, Default)]
struct Ran {
    verified: usize,
    one_sided: usize,
    /// With windows that they open themselves.
    windows: usize,
    vector: usize,
    folds: usize,
    /// With exchanges in several lanes.
    in_lanes: usize,
    /// With what reads host memory, changes communicators, or runs what is stored or the user's; by operation.
    outside: BTreeMap<&'static str, usize>,
    /// Failed, as what they were given was wrong; by status.
    failed: BTreeMap<String, usize>,
    refused: BTreeMap<Reason, usize>,
}

/// Runs sets until so many were verified and ran; counts why the others were refused.
fn run_sets((ranks, lanes): (u32, u32), first_seed: u64, wanted: usize) -> Ran {
    let mut both = cards(ranks, lanes);
    let capabilities = both.capabilities().clone();
    let stored: Vec<Vec<Stored>> = (0..ranks as usize).map(|rank| stored(rank, ranks)).collect();
    let mut ran = Ran::default();
    for seed in first_seed.. {
        let host: Vec<u64> = (0..ranks as usize).map(|rank| both.host(rank)).collect();
        let random = random_set(seed, &capabilities, &host);
        let RandomSet { set, contents } = &random;
        let programs = &set.programs;
        if let Err(refusal) = verify_launches(set, &stored, &capabilities) {
            *ran.refused.entry(refusal.reason).or_insert(0) += 1;
            continue;
        }
        let each =
            || programs.iter().enumerate().flat_map(|(rank, one)| one.instructions.iter().map(move |it| (rank, it)));
        let fails = |(rank, it): (usize, &Instruction)| fails_as(rank, it, &random, host[rank]);
        let Some(fails) = each().map(fails).collect::<Option<Vec<_>>>() else { continue };
        for (rank, content) in contents.iter().enumerate() {
            assert!(content.len() as u64 <= HOST_BYTES);
            both.put_host(rank, 0, content);
        }
        ran.verified += 1;
        let has = |what: &dyn Fn(&Instruction) -> bool| each().any(|(_, it)| what(it));
        for operation in
            [Operation::Group, Operation::Free, Operation::Store, Operation::Launch, Operation::Table, Operation::User]
        {
            *ran.outside.entry(operation.name()).or_default() += usize::from(has(&|it| it.operation == operation));
        }
        ran.one_sided += usize::from(has(&|it| {
            matches!(it.operation, Operation::RdmaRead | Operation::RdmaWrite | Operation::PutSignal)
        }));
        ran.windows += usize::from(has(&|it| it.operation == Operation::Open));
        ran.vector += usize::from(has(&|it| takes_tables(it.operation)));
        ran.folds += usize::from(has(&|it| it.operation == Operation::Fold && it.bytes > 0));
        ran.in_lanes += usize::from(has(&|it| it.lane != 0));
        let show = |wrong: &str| format!("seed {seed} of {ranks} ranks: {wrong}\n{set:#?}");
        if fails.iter().any(|statuses| !statuses.is_empty()) {
            let (rank, index, status) = both.fail(set).unwrap_or_else(|wrong| panic!("{}", show(&wrong)));
            let it = programs[rank].instructions.get(index);
            let expected = it.and_then(|it| fails_as(rank, it, &random, host[rank]));
            let is_expected = expected.is_some_and(|all| all.contains(&status));
            assert!(is_expected, "{}", show(&format!("rank {rank}, instruction {index}: {status}")));
            *ran.failed.entry(format!("{status:?}")).or_default() += 1;
            both = cards(ranks, lanes);
        } else {
            // Other ranks first, or much later: what is ordered comes out the same.
            let mut dice = Dice(!seed);
            let delays: Vec<u64> = (0..ranks).map(|_| dice.below(3) * dice.below(5000)).collect();
            if let Err(wrong) = both.run_as(set, &meant(set), &delays) {
                panic!("{}", show(&wrong));
            }
            for (rank, program) in programs.iter().enumerate() {
                left_defined(program).into_iter().for_each(|id| both.run_before(rank, &[Instruction::free(id)]));
            }
            match has(&|it| it.operation == Operation::Free && it.communicator < DEFINED) {
                // The host knows of no communicators that are gone.
                true => both = cards(ranks, lanes),
                // What was written shall differ from what is there.
                false => both.prepare(ran.verified % ranks as usize, 0, ARENA),
            }
        }
        if ran.verified == wanted {
            break;
        }
    }
    ran
}

#[test]
fn verified_programs_do_what_they_say() {
    let full = is_full();
    let wanted = if full { 50_000 } else { 600 };
    let mut windows = 0;
    let (mut outside, mut failed) = (BTreeMap::<&str, usize>::new(), BTreeSet::new());
    for (ranks, lanes, part) in [(2, 1, 5), (3, 1, 5), (4, 1, 5), (3, 2, 5), (4, 3, 5)] {
        let wanted = wanted / part;
        let ran = run_sets((ranks, lanes), seed() << 32, wanted);
        println!(
            "{ranks} ranks, {lanes} lanes: {} verified and run, {} with one-sided transfers, {} with own windows, {} with vector \
             forms, {} with folds, {} in several lanes, {:?}; failed, as they were given what is wrong: {:?}; refused: {:?}",
            ran.verified,
            ran.one_sided,
            ran.windows,
            ran.vector,
            ran.folds,
            ran.in_lanes,
            ran.outside,
            ran.failed,
            ran.refused
        );
        assert_eq!(ran.verified, wanted);
        assert!(lanes == 1 || ran.in_lanes * 4 > wanted, "{ran:?}");
        assert!(lanes > 1 || ran.one_sided * 10 > wanted, "{ran:?}");
        assert!(ran.vector * 20 > wanted, "{ran:?}");
        assert!(ran.folds * 10 > wanted, "{ran:?}");
        let most: usize = ran.refused.values().sum();
        assert!(most < 4 * wanted, "{most} refused");
        ran.outside.iter().for_each(|(name, count)| *outside.entry(*name).or_default() += count);
        failed.extend(ran.failed.into_keys());
        windows += ran.windows;
    }
    // Few of each set: of all together there are enough.
    assert!(windows * 50 > wanted, "{windows} with windows");
    assert!(outside.values().all(|count| count * 100 > wanted), "{outside:?}");
    assert!(failed.len() >= if full { 4 } else { 1 }, "{failed:?}");
}

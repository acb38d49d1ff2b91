//! Mock cards over vfio-user, as true PCI devices of this guest.

use std::time::Duration;

use fpga_tests::conformance::{CASES, Named};
use fpga_tests::{oracle, reduction};
use serde_json::Value;

use crate::command::{User, printed, run};
use crate::pci::{self, PciFunction};
use crate::{Guest, Test, kernel, tests};

const BOUND: Duration = Duration::from_secs(60);
/// How often the IOMMU may lose a fault.
const FAULT_ROUNDS: usize = 20;

tests! {
    ["cards", "private"] => [every_operation_takes_as_many_cycles_as_in_process],
    ["cards"] => [the_three_buses_side_by_side],
    ["private"] => [the_iommu_reports_what_a_card_may_not_reach],
}

/// The conformance suite, a test for each of its cases.
pub(crate) fn conformance() -> Vec<Test> {
    let slug = |name: &str| name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
    let test = |&(name, _): &Named| Test {
        name: format!("conformance_{}", slug(name)),
        scenarios: &["cards", "private"],
        run: Box::new(move |_| run_case(name)),
    };
    CASES.iter().map(test).collect()
}

/// The four cards in order of nodes, at the worker's disposal.
pub(crate) fn cards() -> Vec<PciFunction> {
    pci::cards("0x1234", "0xf9a0")
}

/// The selector of these cards.
pub(crate) fn selector(cards: &[PciFunction]) -> String {
    cards.iter().map(|card| format!("vfio:{}", card.address)).collect::<Vec<_>>().join(",")
}

/// Words of a command, then the addresses of all cards.
pub(crate) fn with_cards<'a>(words: &[&'a str], cards: &'a [PciFunction]) -> Vec<&'a str> {
    words.iter().copied().chain(cards.iter().map(|card| card.address.as_str())).collect()
}

/// What `fpgactl coll` says of one operation, as JSON.
fn collective(user: User, operation: &str, selector: &str) -> Value {
    let mut words = vec!["fpgactl", "coll", operation, "--cards", selector, "--json"];
    words.extend(match operation {
        // No option about data has an effect on a barrier, so each is refused.
        "barrier" => &[][..],
        "scatterv" | "gatherv" | "allgatherv" | "alltoallv" => &["--seed", "5", "--counts", "20000,0,1,4096"],
        _ if reduction::OPERATIONS.contains(&operation) => {
            &["--seed", "5", "--bytes", "20000", "--dtype", "f32", "--op", "sum"]
        }
        _ => &["--seed", "5", "--bytes", "20000"],
    });
    printed(user, &words, BOUND)
}

fn every_operation_takes_as_many_cycles_as_in_process(guest: &Guest) {
    let all = oracle::OPERATIONS.iter().chain(&oracle::VECTOR_FORMS).chain(&reduction::OPERATIONS);
    compare_with(guest, User::Worker, &cards(), "mock:optweb:4", all.copied());
}

/// Runs operations on cards and on mock cards of this process, and compares what the cards counted.
pub(crate) fn compare_with(
    guest: &Guest,
    user: User,
    cards: &[PciFunction],
    in_process: &str,
    operations: impl Iterator<Item = &'static str>,
) {
    let selector = selector(cards);
    for operation in operations {
        let (real, mock) = (collective(user, operation, &selector), collective(user, operation, in_process));
        assert_eq!(real["kind"], "vfio", "{real}");
        assert_eq!(real["verified"], true, "{real}");
        for field in ["t1_us", "t2_us", "arrival_us", "bytes"] {
            assert_eq!(real[field], mock[field], "{field} of {operation}: {real} and in process {mock}");
        }
        guest.log(format!("{operation}: T1 {} us, T2 {} us, as in process", real["t1_us"], real["t2_us"]));
    }
}

/// Nothing is asserted of a speed: an emulated machine says little of one.
fn the_three_buses_side_by_side(guest: &Guest) {
    let card = &cards()[0];
    let output = run(User::Worker, &["fpga-cards", "times", &card.address], BOUND).good();
    guest.log(&output.stdout);
    for bus in ["in process", "vfio-user", "vfio "] {
        assert!(output.stdout.lines().any(|line| line.starts_with(bus)), "{output}");
    }
}

/// With messages it is the guest's own IOMMU that judges each access of a card, and tells the guest's kernel. It has room for
/// one fault: what comes before the kernel has read that is stopped too, but not told. So this is tried until all was told.
fn the_iommu_reports_what_a_card_may_not_reach(guest: &Guest) {
    // The case has a card write to, and read from, memory that is no longer its own, and 2^46.
    let expected: [&[&str]; 2] = [&["DMA Write", "0x400000000000"], &["DMA Read"]];
    let before = kernel::dma_faults().len();
    for _ in 0..FAULT_ROUNDS {
        run_case("DMA to what is not mapped is reported and goes nowhere");
        let faults = kernel::dma_faults();
        let is_told =
            |words: &&[&str]| faults[before..].iter().any(|line| words.iter().all(|word| line.contains(word)));
        if expected.iter().all(is_told) {
            return guest.log(faults[before..].join("\n"));
        }
    }
    panic!("the IOMMU has told of {:#?} only", &kernel::dma_faults()[before..]);
}

pub(crate) fn run_case(name: &str) {
    run(User::Worker, &with_cards(&["fpga-cards", "case", name], &cards()), BOUND).good();
}

//! Kernel VFIO through `fpga-hal`, for any card: groups, limits, tokens, errors, release requests.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use fpga_hal::{BarIndex, Domain, Error, config, vfio};
use fpga_vm::Request;

use crate::command::{Output, Running, User, run, start};
use crate::pci::{PciFunction, give_to_worker, rescan};
use crate::{Guest, kernel, tests};

tests! {
    ["bus"] => [
        a_function_offers_what_it_has,
        huge_pages_are_mapped_where_there_are_some,
        two_functions_of_one_group_come_and_go,
        functions_of_several_groups_share_a_domain,
        a_group_in_other_hands_is_refused,
        memory_is_refused_before_the_limit_bites,
        mappings_are_refused_at_the_kernels_limit,
        a_bar_smaller_than_a_page_is_trapped,
        a_bar_that_is_gone_reads_all_ones,
        virtual_functions_need_the_token,
        an_error_is_reported,
        a_function_in_use_names_who_has_it,
        a_function_that_is_taken_back_is_given,
        a_function_that_is_pulled_is_given,
    ],
}

const BOUND: Duration = Duration::from_secs(100);
const TOKEN: &str = "00112233-4455-6677-8899-aabbccddeeff";

fn at(address: &str) -> PciFunction {
    PciFunction { address: address.to_owned() }
}

/// Gives functions to the user in the group `fpga`.
fn given<const N: usize>(functions: [PciFunction; N]) -> [PciFunction; N] {
    give_to_worker(&functions);
    functions
}

/// Two functions of a device, in one group.
fn pair() -> [PciFunction; 2] {
    let pair = given([at("0000:00:10.0"), at("0000:00:10.1")]);
    assert_eq!(pair[0].group(), pair[1].group());
    pair
}

/// A device with error reporting, behind a port of its own.
fn pullable() -> PciFunction {
    let found = PciFunction::all("0x1af4", "0x1044");
    assert_eq!(found.len(), 1, "devices that can be pulled");
    let [function] = given([found[0].clone()]);
    function
}

fn tried(words: &[&str]) -> Output {
    run(User::Worker, &[&["vfio"], words].concat(), BOUND)
}

/// Returns the error of a program that must be refused.
#[track_caller]
fn refusal(output: &Output) -> &str {
    assert_eq!(output.status.code(), Some(1), "{output}");
    &output.stderr
}

fn a_function_offers_what_it_has(guest: &Guest) {
    let [edu, _] = pair();
    for function in [edu, pullable()] {
        let output = tried(&["look", &function.address]).good();
        guest.log(&output.stdout);
        assert!(output.stdout.contains("on kernel VFIO") && output.stdout.contains("each raised once"), "{output}");
    }
    assert!(!kernel::log().contains("EBUSY"));
}

fn huge_pages_are_mapped_where_there_are_some(guest: &Guest) {
    let reserved = "/proc/sys/vm/nr_hugepages";
    fs::write(reserved, "16").expect("huge pages can be reserved");
    let output = tried(&["look", &pullable().address]);
    fs::write(reserved, "0").expect("huge pages can be given back");
    let output = output.good();
    let line = output.stdout.lines().find(|line| line.starts_with("buffer")).expect("it says what it got");
    guest.log(line);
    assert!(line.contains("The buffer is made of 2 MiB huge pages"), "{line}");
}

fn two_functions_of_one_group_come_and_go(_: &Guest) {
    let pair = pair();
    let output = tried(&["together", &pair[0].address, &pair[1].address]).good();
    assert_eq!(output.stderr, "");
}

fn functions_of_several_groups_share_a_domain(_: &Guest) {
    let (pair, other) = (pair(), pullable());
    assert_ne!(pair[0].group(), other.group());
    tried(&["together", &pair[0].address, &other.address, &pair[1].address]).good();
}

fn a_group_in_other_hands_is_refused(guest: &Guest) {
    let (ours, other) = (at("0000:00:11.0"), at("0000:00:11.1"));
    assert_eq!((other.driver().as_deref(), other.group()), (Some("nvme"), ours.group()));
    let [ours] = given([ours]);
    let output = tried(&["look", &ours.address]);
    guest.log(refusal(&output));
    assert!(output.stderr.contains("0000:00:11.1 (nvme)"), "{output}");
    // A function that is not bound at all.
    let output = tried(&["look", &other.address]);
    guest.log(refusal(&output));
    assert!(
        output.stderr.contains("is bound to nvme") && output.stderr.contains("fpgactl bind 0000:00:11.1"),
        "{output}"
    );
}

fn memory_is_refused_before_the_limit_bites(guest: &Guest) {
    let address = pullable().address;
    let limited = format!("ulimit -l 1024 && exec vfio fill {address}");
    let output = run(User::Worker, &["sh", "-c", &limited], BOUND).good();
    guest.log(&output.stdout);
    // 1 MiB in buffers of 64 KiB: the seventeenth is refused, with how much there is and what to do.
    for part in ["in 16 buffers", "1048576 are pinned or locked of 1048576", "RLIMIT_MEMLOCK", "ulimit -l"] {
        assert!(output.stdout.contains(part), "{part:?} in {output}");
    }
}

fn mappings_are_refused_at_the_kernels_limit(guest: &Guest) {
    let limit = Path::new("/sys/module/vfio_iommu_type1/parameters/dma_entry_limit");
    let before = fs::read_to_string(limit).expect("the kernel tells");
    let address = pullable().address;
    fs::write(limit, "20").expect("the kernel takes another");
    let output = tried(&["fill", &address]);
    fs::write(limit, before).expect("the kernel takes it back");
    guest.log(&output.stdout);
    assert!(output.stdout.contains("in 20 buffers: The domain already has 20 mappings"), "{output}");
    output.good();
}

/// A network controller's registers begin with its hardware address, which can be written.
fn a_bar_smaller_than_a_page_is_trapped(guest: &Guest) {
    let [device] = given([at("0000:00:14.0")]);
    let domain = Domain::vfio().expect("a domain");
    // Nothing is started on it, so that it need not have a reset.
    let options = vfio::Options { without_reset: true, ..vfio::Options::default() };
    let address = device.address.parse().expect("an address");
    let function = vfio::open_with(address, &domain, &options).expect("the function");
    let registers = function.window(BarIndex::new(1).expect("an index")).expect("its registers");
    assert!(registers.len() == 256 && !registers.is_mapped(), "{registers:?}");
    let read = || [0, 4].map(|at| registers.read_u32(at).expect("a read"));
    assert_eq!((read()[0], read()[1] & 0xffff), (0x1200_5452, 0x5634));
    registers.write_u32(0, 0xa1b2_c3d4).expect("a write");
    assert_eq!((read()[0], read()[1] & 0xffff), (0xa1b2_c3d4, 0x5634));
    // The kernel would make two of it.
    assert!(matches!(registers.read_u64(0), Err(Error::AccessWidth { bytes: 8, .. })));
    assert!(matches!(registers.write_u64(0, 0), Err(Error::AccessWidth { bytes: 8, .. })));
    assert!(matches!(registers.read_u32(256), Err(Error::OutOfBounds { .. })));
    assert!(matches!(function.config_read_u32(256), Err(Error::ConfigAccess { .. })), "conventional PCI has 256 bytes");
    // Where nobody decodes, a read is all-ones and a write is lost.
    function.config_write_u16(config::COMMAND, 0).expect("a write");
    registers.write_u32(0, 5).expect("a lost write");
    assert_eq!(registers.read_u32(0).expect("a read"), u32::MAX);
    assert!(!function.is_removed());
    function.config_write_u16(config::COMMAND, config::COMMAND_MEMORY).expect("a write");
    assert_eq!(read()[0], 0xa1b2_c3d4);
    guest.log(format!("{}: {registers:?}", function.identity()));
}

fn a_bar_that_is_gone_reads_all_ones(guest: &Guest) {
    let [function, _] = pair();
    guest.log(tried(&["decode", &function.address]).good().stdout);
}

fn virtual_functions_need_the_token(guest: &Guest) {
    let controllers = PciFunction::all("0x1b36", "0x0010");
    let able = controllers.iter().find(|function| function.attribute("sriov_totalvfs") == "2");
    let [physical] = given([able.expect("a controller that can have virtual functions").clone()]);
    fs::write("/sys/module/vfio_pci/parameters/enable_sriov", "1").expect("the driver takes it");
    let folder = format!("/sys/bus/pci/devices/{}", physical.address);
    fs::write(format!("{folder}/sriov_numvfs"), "2").expect("two virtual functions");
    let virtuals = ["virtfn0", "virtfn1"].map(|link| {
        let target = fs::read_link(format!("{folder}/{link}")).expect("a virtual function");
        at(target.file_name().and_then(|name| name.to_str()).expect("an address"))
    });
    // The kernel has bound them already; their nodes are given to the group when they are bound anew.
    for function in &virtuals {
        let unbind = format!("/sys/bus/pci/devices/{}/driver/unbind", function.address);
        fs::write(unbind, &function.address).expect("the driver lets go");
    }
    let [first, second] = given(virtuals);
    let with_token =
        |words: &str| run(User::Worker, &["sh", "-c", &format!("FPGA_VF_TOKEN={TOKEN} exec vfio {words}")], BOUND);
    let output = tried(&["look", &first.address]);
    guest.log(refusal(&output));
    assert!(output.stderr.contains("VF token"), "{output}");
    // Nobody has said yet what the token is.
    assert!(refusal(&with_token(&format!("look {}", first.address))).contains("VF token"));
    let all = format!("together {} {} {}", physical.address, first.address, second.address);
    guest.log(with_token(&all).good().stdout);
    with_token(&format!("together {}", second.address)).good();
    assert!(refusal(&tried(&["together", &second.address])).contains("VF token"));
    let output = with_token(&format!("look {}", pullable().address));
    assert!(refusal(&output).contains("has no VF token"), "{output}");
    fs::write(format!("{folder}/sriov_numvfs"), "0").expect("no virtual functions");
}

/// Starts a program that says when it is ready, and waits for that.
fn started(words: &[&str]) -> Running {
    let mut running = start(User::Worker, &[&["vfio"], words].concat());
    running.until_it_says("ready\n", BOUND);
    running
}

fn an_error_is_reported(guest: &Guest) {
    let running = started(&["error", &pullable().address]);
    guest.log(guest.ask(Request::ReportError { device: "rng".to_owned() }).expect("the host can"));
    guest.log(running.finish(BOUND).good().stdout);
}

fn a_function_in_use_names_who_has_it(guest: &Guest) {
    let function = pullable();
    let _running = started(&["leave", &function.address]);
    let output = tried(&["look", &function.address]);
    guest.log(refusal(&output));
    assert!(output.stderr.contains("(vfio)") && output.stderr.contains("is held by process "), "{output}");
}

fn a_function_that_is_taken_back_is_given(guest: &Guest) {
    let function = pullable();
    let running = started(&["leave", &function.address]);
    let begin = Instant::now();
    // Returns when the function was given.
    function.take_away();
    guest.log(format!("the kernel had it back after {} ms", begin.elapsed().as_millis()));
    guest.log(running.finish(BOUND).good().stdout);
    rescan();
    tried(&["look", &pullable().address]).good();
}

fn a_function_that_is_pulled_is_given(guest: &Guest) {
    let function = pullable();
    let running = started(&["leave", &function.address]);
    guest.log(guest.ask(Request::Unplug { device: "rng".to_owned() }).expect("the host can"));
    guest.log(running.finish(BOUND).good().stdout);
    let output = tried(&["look", &function.address]);
    assert!(refusal(&output).contains("There is no PCI function"), "{output}");
}

//! QEMU's own devices, driven by the examples of `fpga-hal`: cards that nobody here wrote.

use std::collections::BTreeMap;
use std::time::Duration;

use fpga_vm::Request;

use crate::command::{Output, User, run, start};
use crate::pci::{self, PciFunction};
use crate::{Guest, kernel, tests};

tests! {
    ["devices"] => [
        edu_answers_by_msi,
        edu_answers_by_intx,
        edu_moves_two_kilobytes_a_thousand_times,
        edu_cannot_reach_what_is_not_mapped,
        nvme_keeps_64_megabytes,
        the_kernel_saw_every_call_of_an_open,
    ],
}

/// Round trips of all `edu` devices together.
const ROUNDS: usize = 1000;
const BOUND: Duration = Duration::from_secs(100);

/// All `edu` devices, at the worker's disposal.
pub(crate) fn edu_devices() -> Vec<PciFunction> {
    let found = PciFunction::all("0x1234", "0x11e8");
    assert!(!found.is_empty(), "no edu device");
    pci::give_to_worker(&found);
    found
}

/// The NVMe controller with the medium that the host looks at, at the worker's disposal.
fn nvme_device() -> PciFunction {
    let device = PciFunction::at("0000:00:03.0");
    pci::give_to_worker(std::slice::from_ref(&device));
    device
}

/// The NVMe controller behind a port, at the worker's disposal.
pub(crate) fn pulled_device() -> PciFunction {
    let all = PciFunction::all("0x1b36", "0x0010").into_iter();
    let mut found: Vec<_> = all.filter(PciFunction::is_behind_a_port).collect();
    assert_eq!(found.len(), 1, "NVMe controllers behind ports");
    pci::give_to_worker(&found);
    found.remove(0)
}

fn edu(guest: &Guest, kind: &str, what: &str) -> Output {
    let device = &edu_devices()[0];
    let output = run(User::Worker, &["edu", &device.address, kind, what], BOUND).good();
    guest.log(&output.stdout);
    output
}

fn edu_answers_by_msi(guest: &Guest) {
    edu(guest, "msi", "3");
}

fn edu_answers_by_intx(guest: &Guest) {
    edu(guest, "intx", "3");
}

/// One transfer takes a tenth of a second by design, so all devices share the thousand: as many processes, each with a
/// container of its own.
fn edu_moves_two_kilobytes_a_thousand_times(guest: &Guest) {
    let devices = edu_devices();
    let rounds = ROUNDS.div_ceil(devices.len()).to_string();
    let running: Vec<_> = devices
        .iter()
        .enumerate()
        .map(|(index, device)| {
            let kind = if index % 2 == 0 { "msi" } else { "intx" };
            start(User::Worker, &["edu", &device.address, kind, &rounds])
        })
        .collect();
    for (device, running) in devices.iter().zip(running) {
        let output = running.finish(BOUND).good();
        let line = output.stdout.lines().find(|line| line.contains("bit for bit")).expect("it says what it did");
        assert!(line.ends_with(&format!(": {rounds} rounds")), "{line}");
        guest.log(format!("{}: {line}", device.address));
    }
    assert!(devices.len() * rounds.parse::<usize>().expect("a number") >= ROUNDS);
}

fn edu_cannot_reach_what_is_not_mapped(guest: &Guest) {
    let before = kernel::dma_faults();
    let output = edu(guest, "msi", "unmapped");
    let iova = output.stdout.split_once("DMA to ").and_then(|(_, rest)| rest.split_once(',')).expect("an address").0;
    let faults = kernel::dma_faults();
    let new = &faults[before.len()..];
    guest.log(new.join("\n"));
    assert!(new.iter().any(|line| line.contains(&format!("fault addr {iova}"))), "no fault at {iova} in {new:?}");
}

fn nvme_keeps_64_megabytes(guest: &Guest) {
    let device = nvme_device();
    let output = run(User::Worker, &["nvme", &device.address, "7"], BOUND).good();
    let mut bytes = 0;
    for line in output.stdout.lines() {
        let Some(block) = line.strip_prefix("block ") else {
            guest.log(line);
            continue;
        };
        let block = format!("medium {block}").parse().expect("a block's offset, length and hash");
        if let Request::Medium { bytes: length, .. } = block {
            bytes += length;
        }
        guest.ask(block).expect("the host takes note");
    }
    assert_eq!(bytes, 64 << 20);
}

/// What the kernel was asked for, counted by strace: proof that it was VFIO and nothing else.
fn the_kernel_saw_every_call_of_an_open(guest: &Guest) {
    let device = &edu_devices()[0];
    let trace = "/run/trace";
    // strace names some calls twice, because numbers are shared.
    let words = ["strace", "-f", "-u", "worker", "-e", "trace=openat,ioctl,mmap", "-o", trace];
    run(User::Root, &[&words[..], &["/host/edu", &device.address, "msi", "2"]].concat(), BOUND).good();
    let trace = std::fs::read_to_string(trace).expect("strace wrote");
    let mut calls = BTreeMap::<&str, usize>::new();
    for line in trace.lines() {
        let name = line.split_once("ioctl(").and_then(|(_, rest)| rest.split(", ").nth(1));
        if let Some(name) = name.map(|name| name.trim_end_matches(')')).filter(|name| name.contains("VFIO")) {
            *calls.entry(name).or_default() += 1;
        }
    }
    guest.log(format!("{} is bound to {}", device.address, device.driver().unwrap_or_default()));
    for (name, count) in &calls {
        guest.log(format!("{name}: {count}"));
    }
    for line in trace.lines().filter(|line| line.contains("MAP_DMA") || line.contains("/dev/vfio/")) {
        guest.log(line);
    }
    for name in ["VFIO_GROUP_GET_DEVICE_FD", "VFIO_IOMMU_MAP_DMA", "VFIO_DEVICE_SET_IRQS", "VFIO_IOMMU_UNMAP_DMA"] {
        assert!(calls.keys().any(|call| call.contains(name)), "no {name} in {calls:?}");
    }
}

//! Runs tests in a virtual machine, and prints their results like Rust's test runner.

mod disk;
mod machine;
mod qmp;
mod server;
mod session;

use std::error::Error;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use fpga_vm::{CARDS, FILTER, SCENARIO};

use crate::machine::{MEDIUM_BYTES, Machine, MachineError, Parts, SCRAP, Software, failed};
use crate::server::Server;
use crate::session::{Session, Tally};

/// How late host memory answers cards at the most, in the scenario `private`, in microseconds.
const LATE_US: u32 = 200;
/// Machines that run side by side.
const AT_A_TIME: usize = 3;

/// Runs tests in a virtual machine.
#[derive(Parser)]
struct Arguments {
    /// Folder made by tests/vm/prepare.
    #[arg(long)]
    vm: PathBuf,
    /// Folder with our programs.
    #[arg(long)]
    programs: PathBuf,
    /// Folder of rules to install in the guest.
    #[arg(long)]
    udev: PathBuf,
    /// Run only these scenarios.
    #[arg(long = "scenario", value_enum)]
    scenarios: Vec<Scenario>,
    /// Run only tests whose names have this part.
    #[arg(long)]
    filter: Option<String>,
    /// Keep the folder of logs.
    #[arg(long)]
    keep: bool,
}

/// A machine, and the tests that run in it. The longest first.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// Mock cards that map the guest's memory.
    Cards,
    /// Mock cards that reach the guest's memory by messages, each of them late by a time drawn at random.
    Private,
    /// Cards as a PAC D5005 is sold, each with one function.
    Pac,
    /// Cards with AMD's DMA engine.
    Alveo,
    /// The same, with sequencers that master the bus through it.
    Bypass,
    /// Cards with the identity of a PAC D5005.
    Stratix,
    /// Cards with CIRCUS channels.
    Channels,
    /// QEMU's own devices, and mock cards without MSI-X, which QEMU can pull.
    Devices,
    /// Devices of QEMU's in groups, with virtual functions, with error reporting.
    Bus,
    /// A page of program drives a card without a kernel.
    Small,
}

impl Scenario {
    fn name(self) -> &'static str {
        match self {
            Scenario::Small => "small",
            Scenario::Stratix => "stratix",
            Scenario::Alveo => "alveo",
            Scenario::Bypass => "bypass",
            Scenario::Pac => "pac",
            Scenario::Channels => "channels",
            Scenario::Devices => "devices",
            Scenario::Bus => "bus",
            Scenario::Cards => "cards",
            Scenario::Private => "private",
        }
    }
}

/// Devices of the scenario `bus`, where other machines have their cards: two functions in one IOMMU group, and two more
/// that the kernel has drivers for; a controller that can have virtual functions; a device with error reporting that can
/// be pulled; one whose BAR is smaller than a page.
const BUS_DEVICES: &[&str] = &[
    "edu,addr=0x10.0,multifunction=on",
    "edu,addr=0x10.1",
    "nvme,serial=group0,addr=0x11.0,multifunction=on",
    "nvme,serial=group1,addr=0x11.1",
    "pcie-root-port,id=port-sriov,chassis=0x12,slot=0x12,addr=0x12",
    "nvme-subsys,id=subsystem",
    "nvme,serial=sriov,subsys=subsystem,bus=port-sriov,sriov_max_vfs=2,sriov_vq_flexible=4,sriov_vi_flexible=2,\
     max_ioqpairs=6,msix_qsize=8",
    "pcie-root-port,id=port-rng,chassis=0x13,slot=0x13,addr=0x13",
    "virtio-rng-pci,id=rng,bus=port-rng,aer=on",
    "rtl8139,mac=52:54:00:12:34:56,addr=0x14",
];

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    // Programs are started in other folders.
    for path in [&mut arguments.vm, &mut arguments.programs, &mut arguments.udev] {
        match path.canonicalize() {
            Ok(absolute) => *path = absolute,
            Err(error) => {
                println!("error: {}: {error}", path.display());
                return ExitCode::FAILURE;
            }
        }
    }
    let arguments = arguments;
    let begin = Instant::now();
    let scenarios = if arguments.scenarios.is_empty() { Scenario::value_variants() } else { &arguments.scenarios };
    // A machine waits more than it works: for resets, and for cards that do not answer.
    let (queue, total) = (Mutex::new(scenarios.iter()), Mutex::new((0, 0, Vec::new())));
    let is_live = scenarios.len() == 1;
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                // The lock is held only for as long as this takes.
                let next = || lock(&queue).next().copied();
                while let Some(scenario) = next() {
                    let mut tally = run(&arguments, scenario, Tally::new(is_live));
                    let mut total = lock(&total);
                    tally.print();
                    total.0 += tally.passed;
                    total.1 += tally.failed;
                    total.2.append(&mut tally.failures);
                }
            });
        }
    });
    let (passed, failed, failures) = &*lock(&total);
    let (passed, failed) = (*passed, *failed);
    for failure in failures {
        println!("\n---- failure\n{}", failure.trim_end());
    }
    let good = failed == 0 && passed > 0;
    println!(
        "\ntest result: {}. {} passed; {} failed; 0 ignored; 0 measured; 0 filtered out; finished in {:.2}s",
        if good { "ok" } else { "FAILED" },
        passed,
        failed,
        begin.elapsed().as_secs_f64()
    );
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What was locked. Nobody leaves it half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a scenario. A scenario that does not end counts as a failed test.
fn run(arguments: &Arguments, scenario: Scenario, mut tally: Tally) -> Tally {
    tally.say(format_args!("\nscenario {}", scenario.name()));
    let begin = Instant::now();
    let folder = match tempfile::Builder::new().prefix("fpga-vm-").tempdir() {
        Ok(folder) => folder,
        Err(error) => {
            tally.say(format_args!("error: cannot make a folder: {error}"));
            tally.fail();
            return tally;
        }
    };
    let outcome = match start(arguments, scenario, folder.path()) {
        Ok((machine, server, medium, line)) => {
            let session = Session { scenario: scenario.name(), machine, server, medium, tally };
            let (told, outcome) = session.run(line);
            tally = told;
            outcome
        }
        Err(error) => Err(error),
    };
    let is_lost = outcome.is_err();
    if let Err(error) = outcome {
        tally.say(format_args!("error: scenario {}: {}", scenario.name(), chain(&error)));
        tally.fail();
    }
    if is_lost || tally.failed > 0 {
        for log in ["console.log", "qemu.log", "server.log"] {
            show(&mut tally, &folder.path().join(log));
        }
    }
    if arguments.keep {
        tally.say(format_args!("    logs are in {}", folder.keep().display()));
    }
    tally.say(format_args!("    scenario {} took {:.1} s", scenario.name(), begin.elapsed().as_secs_f64()));
    tally
}

/// A machine, the server of its cards, its medium, and the line to the guest.
type Started = (Machine, Option<Server>, PathBuf, UnixStream);

/// Starts what a scenario needs.
fn start(arguments: &Arguments, scenario: Scenario, folder: &Path) -> Result<Started, MachineError> {
    let (fpgactl, cards) = (arguments.programs.join("fpgactl"), arguments.programs.join("fpga-cards"));
    let others: &[&str] = if scenario == Scenario::Stratix { &["0.control", "0.he-lb"] } else { &[] };
    let serve =
        |selector| Server::start(&fpgactl, &["mock", "serve", selector, "--socket-dir"], folder, others).map(Some);
    let server = match scenario {
        Scenario::Bus => None,
        Scenario::Devices => Some(Server::start(&cards, &["serve"], folder, others)?),
        Scenario::Private => serve(&format!("mock:optweb:{CARDS}+late={LATE_US}"))?,
        Scenario::Stratix => serve(&format!("mock:s10-dfl:{CARDS}"))?,
        Scenario::Alveo => serve(&format!("mock:alveo-xdma:{CARDS}"))?,
        Scenario::Bypass => serve(&format!("mock:alveo-xdma:{CARDS}+bypass"))?,
        Scenario::Channels => {
            let words = ["mock", "serve", "--channels", "mock:circus:2x2", "--socket-dir"];
            Some(Server::start(&fpgactl, &words, folder, others)?)
        }
        Scenario::Pac => serve(&format!("mock:s10-pac:{CARDS}"))?,
        Scenario::Cards | Scenario::Small => serve(&format!("mock:optweb:{CARDS}"))?,
    };
    let mut cards = server.as_ref().map(Server::sockets).unwrap_or_default().to_vec();
    let (disk, medium) = (folder.join("disk.cpio"), folder.join("medium.raw"));
    let kernel = arguments.vm.join("small.elf");
    // Cards that map memory get large pages, and those that do not get small ones: both must work.
    let pages = if scenario == Scenario::Cards { "hugepages=128 " } else { "" };
    let mut parameters = format!("{pages}{SCENARIO}={}", scenario.name());
    if let Some(filter) = &arguments.filter {
        parameters.push_str(&format!(" {FILTER}={filter}"));
    }
    let software = if scenario == Scenario::Small {
        cards.truncate(1);
        Software::Small { kernel: &kernel }
    } else {
        disk::write(&arguments.vm, &arguments.programs, &arguments.udev, &disk, &folder.join("scratch"))?;
        for medium in [&medium, &folder.join(SCRAP)] {
            let file = File::create(medium).map_err(failed("make a medium"))?;
            file.set_len(MEDIUM_BYTES).map_err(failed("make a medium"))?;
        }
        let shared_memory = scenario != Scenario::Private;
        let devices = if scenario == Scenario::Bus { BUS_DEVICES } else { &[] };
        Software::Linux { disk: &disk, medium: &medium, shared_memory, parameters: &parameters, devices }
    };
    let (machine, line) = Machine::start(&Parts { vm: &arguments.vm, folder, cards: &cards, software })?;
    Ok((machine, server, medium, line))
}

/// Prints a log, what is not text made visible.
fn show(tally: &mut Tally, log: &Path) {
    let Ok(bytes) = fs::read(log) else { return };
    tally.say(format_args!("---- {}", log.file_name().unwrap_or_default().display()));
    for line in String::from_utf8_lossy(&bytes).lines() {
        tally.say(format_args!("  | {}", line.replace(char::is_control, " ").trim_end()));
    }
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

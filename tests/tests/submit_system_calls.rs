//! Submitting an instruction makes no system call: the submitting thread is forbidden to make one.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cmdseq::Instruction;
use fpga_driver::trace::Moment;
use fpga_driver::{Card, Cluster};
use fpga_hal::{Domain, in_process};
use fpga_mock::{Fabric, Profile, Recorder};
use seccompiler::{SeccompAction, SeccompFilter};

const ROLE: &str = "FPGA_TESTS_SUBMIT_ROLE";
/// The signal of a system call that is not allowed.
const SIGSYS: i32 = 31;

/// Runs only as a child of the test below: submits behind a filter that ends the process at the first system call.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let recorder = Recorder::new(fabric.endpoint(0));
    let domain = Domain::in_process();
    let card = Card::open(in_process::attach(recorder.clone(), &domain, "recorded").unwrap()).unwrap();
    let mut cluster = Cluster::of(vec![card]).unwrap();
    if role == "traced" {
        cluster.start_trace(Moment::now(), 600).unwrap();
    }
    recorder.hold();
    let done = Arc::new(AtomicBool::new(false));
    let is_done = Arc::clone(&done);
    std::thread::spawn(move || {
        let none: BTreeMap<i64, Vec<seccompiler::SeccompRule>> = BTreeMap::new();
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(none, SeccompAction::KillProcess, SeccompAction::Allow, arch).unwrap();
        let filter: seccompiler::BpfProgram = filter.try_into().unwrap();
        seccompiler::apply_filter(&filter).unwrap();
        for _ in 0..512 {
            cluster.card_mut(0).queue_mut().submit(Instruction::nop()).unwrap().abandon();
        }
        if role == "control" {
            std::thread::yield_now();
        }
        is_done.store(true, Ordering::Release);
        loop {
            // Even to end a thread takes a system call.
            std::hint::spin_loop();
        }
    });
    let start = Instant::now();
    while !done.load(Ordering::Acquire) {
        assert!(start.elapsed() < Duration::from_secs(60), "the submitting thread did not get through");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::process::exit(0);
}

fn run(role: &str) -> ExitStatus {
    let test = std::env::current_exe().unwrap();
    Command::new(test).args(["--exact", "child", "--nocapture"]).env(ROLE, role).status().unwrap()
}

#[test]
fn no_system_call_per_instruction() {
    assert!(run("submit").success());
    assert!(run("traced").success(), "the clock is read without a system call");
    assert_eq!(run("control").signal(), Some(SIGSYS), "the filter sees a system call when there is one");
}

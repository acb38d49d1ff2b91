//! Runs in the guest, as root: each test starts our programs as the user under test, and checks the kernel's state.
//!
//! A test is a function that panics when something is wrong, named in the table of its module.

mod binding;
mod cards;
mod channels;
mod command;
mod devices;
mod doctor;
mod host;
mod kernel;
mod loss;
mod pci;
mod permissions;
mod shells;
mod vfio;

use std::cell::RefCell;
use std::fmt;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::time::Instant;

use fpga_vm::{FILTER, FromGuest, Request, SCENARIO};

use crate::host::Host;

/// One test.
struct Test {
    name: String,
    /// Scenarios it belongs to.
    scenarios: &'static [&'static str],
    run: Box<dyn Fn(&Guest)>,
}

/// Makes a module's list of tests: those of some scenarios, in the order in which they run.
macro_rules! tests {
    ($($scenarios:expr => [$($function:ident),* $(,)?]),* $(,)?) => {
        pub(crate) fn tests() -> Vec<crate::Test> {
            vec![$($(crate::Test {
                name: stringify!($function).to_owned(), scenarios: &$scenarios, run: Box::new($function)
            }),*),*]
        }
    };
}
pub(crate) use tests;

/// All tests. What destroys a device comes last.
fn all() -> Vec<Test> {
    let suites = [
        kernel::tests(),
        binding::tests(),
        permissions::tests(),
        devices::tests(),
        vfio::tests(),
        cards::conformance(),
        cards::tests(),
        shells::tests(),
        channels::tests(),
        doctor::tests(),
        loss::tests(),
    ];
    suites.into_iter().flatten().collect()
}

/// Context of a test.
struct Guest {
    host: RefCell<Host>,
}

impl Guest {
    /// Prints an observation.
    fn log(&self, text: impl fmt::Display) {
        for line in text.to_string().lines().filter(|line| !line.trim().is_empty()) {
            self.host.borrow_mut().say(&FromGuest::Log(line.to_owned()));
        }
    }

    /// Sends a request to the host.
    fn ask(&self, request: Request) -> Result<String, String> {
        self.host.borrow_mut().ask(request)
    }
}

/// Message of the last panic.
static PANIC: Mutex<String> = Mutex::new(String::new());

fn main() {
    let scenario = kernel::parameter(SCENARIO).unwrap_or_default();
    let filter = kernel::parameter(FILTER).unwrap_or_default();
    let guest = Guest { host: RefCell::new(Host::open().expect("the second serial port is there")) };
    panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        if let Ok(mut last) = PANIC.lock() {
            *last = panic.to_string();
        }
    }));
    let (mut passed, mut failed) = (0, 0);
    for test in all() {
        if !test.scenarios.contains(&scenario.as_str()) || !test.name.contains(&filter) {
            continue;
        }
        let begin = Instant::now();
        guest.host.borrow_mut().say(&FromGuest::Begin(test.name.clone()));
        // In the kernel's log as well, so that what it says can be told apart.
        let _ = fs::write("/dev/kmsg", format!("<5>{}", kernel::mark(&test.name)));
        let good = panic::catch_unwind(AssertUnwindSafe(|| (test.run)(&guest))).is_ok();
        if !good {
            guest.log(PANIC.lock().map(|last| last.clone()).unwrap_or_default());
            guest.log(kernel::log_since(&test.name));
        }
        guest.log(format!("{}: {:.1} s", test.name, begin.elapsed().as_secs_f64()));
        guest.host.borrow_mut().say(&FromGuest::Test { name: test.name, passed: good });
        if good {
            passed += 1;
        } else {
            failed += 1;
        }
    }
    guest.host.borrow_mut().say(&FromGuest::Done { passed, failed });
}

//! The command as people and scripts use it.
#![forbid(unsafe_code)]

mod arrays;
mod boards;
mod calibrations;
mod contract;
mod definitions;
mod documented;
mod examples;
mod exits;
mod faults;
mod generated;
mod hardware;
mod images;
mod machine;
mod manuals;
mod memory;
mod pipes;
mod printed;
mod processes;
mod programs;
mod routes;
mod saved;
mod schemas;
mod selftest;
mod served;
mod serving;
mod signals;
mod sweeps;
mod switches;
mod top;
mod traces;
mod transforms;
#[path = "../../../hal/sysfs/tests/tree/mod.rs"]
mod tree;
mod tuning;
mod tutorial;
mod watching;

use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// All operations of `coll`.
const OPERATIONS: [&str; 18] = [
    "barrier",
    "send",
    "recv",
    "sendrecv",
    "scatter",
    "gather",
    "broadcast",
    "alltoall",
    "allgather",
    "scatterv",
    "gatherv",
    "allgatherv",
    "alltoallv",
    "reduce",
    "allreduce",
    "reduce_scatter",
    "scan",
    "exscan",
];

/// The command with these arguments, away from the settings of whoever runs the tests.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    for name in ["FPGACTL_CARDS", "FPGACTL_CALIBRATION", "COLUMNS", "RUST_LOG"] {
        command.env_remove(name);
    }
    // No cards of the machine that the tests run on.
    // No files in the machine's shared memory either.
    command.env("FPGACTL_STATS_DIR", "none");
    // No board files of the machine.
    command.env("FPGACTL_BOARDS", concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    command.env("FPGACTL_SYSFS_ROOT", "/nowhere").args(arguments).stdin(Stdio::null());
    command
}

/// The command, whose files must not exceed this many KiB, as on a disk that fills.
fn command_with_room(kib: u32, arguments: &[&str]) -> Command {
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("ulimit -f {kib}; exec \"$@\""), "bash"]);
    let inner = command(arguments);
    shell.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

fn run(arguments: &[&str]) -> Output {
    let output = command(arguments).output().unwrap();
    check_objects(&output.stdout);
    check_objects(&output.stderr);
    output
}

/// Checks what `--json` has printed against its schemas: one object, or one a line.
fn check_objects(printed: &[u8]) {
    for object in serde_json::Deserializer::from_slice(printed).into_iter::<Value>().map_while(Result::ok) {
        if object.get("schema").is_some() {
            schemas::check(&object);
        }
    }
}

/// Parses an object that `--json` has printed, and checks it against its schema.
fn parsed(printed: impl AsRef<[u8]>) -> Value {
    let object = serde_json::from_slice(printed.as_ref()).unwrap();
    schemas::check(&object);
    object
}

fn stdout(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    parsed(stdout(&[arguments, &["--json"]].concat()))
}

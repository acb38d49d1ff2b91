//! `fpgactl mock serve`: serves the cards of a mock fabric, each on its own vfio-user socket.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use fpga_hal::vfio_user::{Budget, Server};
use fpga_select::Selector;
use serde::Serialize;

use crate::cli::{Cli, Serve};
use crate::exit::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::output;

#[derive(Serialize)]
struct Printed<'a> {
    schema: &'static str,
    selector: &'a str,
    sockets: Vec<String>,
}

/// Serves until interrupted. Prints the selectors after creating all sockets.
pub(crate) fn run(cli: &Cli, arguments: &Serve) -> Result<()> {
    let interrupt = Interrupt::listen()?;
    let selector = Selector::parse(&arguments.fabric)?;
    let (fabric, cards) = selector.fabric()?;
    if let Some(bytes) = arguments.memory {
        fabric.limit_memory(bytes);
    }
    selector.plant_faults(&fabric);
    let _clock = fabric
        .start_clock()
        .ok_or_else(|| Failure::new(Exit::Failed, "cannot start the thread of the fabric's clock"))?;
    let directory = &arguments.socket_dir;
    prepare(directory)?;
    let budget = Budget::of_process();
    let mut sockets = Vec::new();
    let mut servers = Vec::new();
    for (node, card) in cards {
        let path = directory.join(format!("{node}.sock"));
        let server = Server::bind(&path, card).and_then(|server| server.with_budget(&budget).spawn());
        servers.push(server.map_err(|error| Failure::chain(Exit::Failed, &error))?);
        sockets.push(path);
    }
    announce(cli, &arguments.fabric, &sockets)?;
    while interrupt.check().is_ok() {
        if let Some(reason) = fabric.failure() {
            return Err(Failure::new(Exit::Failed, format!("the mock fabric failed, its cards are gone: {reason}")));
        }
        interrupt.sleep();
    }
    drop(servers);
    Err(Failure::new(Exit::Interrupted, "interrupted; the sockets are removed"))
}

/// Creates a missing directory for this user only. The server checks whether other users can replace files in an existing
/// one.
fn prepare(directory: &Path) -> Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(Failure::file(directory, &error)),
        _ => Ok(()),
    }
}

fn announce(cli: &Cli, selector: &str, sockets: &[PathBuf]) -> Result<()> {
    let sockets: Vec<String> = sockets.iter().map(|path| format!("vfio-user:{}", path.display())).collect();
    if cli.json {
        return output::json(&Printed { schema: "fpgactl.mock-serve/1", selector, sockets });
    }
    let mut text = sockets.join("\n");
    text += "\nserving until interrupted; select cards with --cards, separated by commas\n";
    output::write(text.as_bytes())
}

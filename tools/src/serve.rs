//! `fpgactl mock serve`: serves the cards of a mock fabric, each on its own vfio-user socket.

use std::cell::RefCell;
use std::fs;
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cmdseq::text::printable_lines;
use fpga_hal::Endpoint;
use fpga_hal::vfio_user::{Budget, Server};
use fpga_select::{Fabric, MockFunction, NodeEndpoint, Selector};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::{Cli, Serve};
use crate::exit::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::output;
use crate::served_command::{self, Forwarded};

/// Name of a socket, and the function behind it.
type Named = (String, Arc<dyn Endpoint>);

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed<'a> {
    schema: &'static str,
    selector: &'a str,
    sockets: Vec<String>,
}

/// Fails if the command is to end before it serves.
type Check<'w> = dyn Fn() -> Result<()> + 'w;

/// What a server does once all its sockets exist: it gets their paths, and what fails when the fabric does.
type Work<'w> = dyn FnOnce(&[PathBuf], &dyn Fn() -> Result<()>) -> Result<()> + 'w;

/// Serves until interrupted, and prints the selectors after creating all sockets; or serves one command, and ends with its
/// exit code.
pub(crate) fn run(cli: &Cli, arguments: &Serve) -> Result<()> {
    if let Some(directory) = &arguments.socket_dir {
        let interrupt = Interrupt::listen_until_ended()?;
        return serve_selected(
            arguments,
            directory,
            &|| interrupt.check().map_err(|_| interrupted()),
            Box::new(|sockets, health| {
                announce(cli, &arguments.fabric, sockets, &|| go_on(&interrupt, health))?;
                until_interrupted(&interrupt, health)
            }),
        );
    }
    // Before the folder is made, which nobody else would remove.
    let signals = RefCell::new(Forwarded::listen()?);
    let mut code = 0;
    let directory = tempfile::Builder::new().prefix("fpgactl-").permissions(Permissions::from_mode(0o700)).tempdir();
    let directory = directory.map_err(|error| Failure::file(&std::env::temp_dir(), &error))?;
    serve_selected(
        arguments,
        directory.path(),
        &|| signals.borrow_mut().check(),
        Box::new(|sockets, health| {
            let signals = &mut signals.borrow_mut();
            code = served_command::run(&arguments.command, &selector_of(sockets), signals, health)?;
            Ok(())
        }),
    )?;
    drop(directory);
    std::process::exit(code);
}

/// Refuses a directory whose sockets no selector can name: a comma separates selectors, which are UTF-8.
fn check_selectable(directory: &Path) -> Result<()> {
    let why = match directory.to_str() {
        Some(path) if !path.contains(',') => return Ok(()),
        Some(_) => "a comma separates selectors",
        None => "selectors are UTF-8",
    };
    let message = format!("no selector can name sockets in {}: {why}", directory.display());
    Err(Failure::new(Exit::Refused, message))
}

/// Serves the functions that `arguments` select while `work` runs.
fn serve_selected(arguments: &Serve, directory: &Path, check: &Check<'_>, work: Box<Work<'_>>) -> Result<()> {
    let selector = Selector::parse(&arguments.fabric)?;
    check_selectable(directory)?;
    let alone = if arguments.channels { Some(selector.channel_endpoints()?) } else { selector.cards_without_fabric() };
    if let Some(cards) = alone {
        if arguments.memory.is_some() {
            return Err(Failure::usage("--memory has no effect: it limits cards with a sequencer"));
        }
        prepare(directory)?;
        return serve(None, named(cards), directory, check, work);
    }
    let (fabric, functions) = selector.fabric_with_all_functions()?;
    if let Some(bytes) = arguments.memory {
        fabric.limit_memory(bytes);
    }
    selector.plant_faults(&fabric);
    prepare(directory)?;
    let name =
        |function: MockFunction| (format!("{}{}.sock", function.node, function.part.suffix()), function.endpoint);
    serve(Some(&fabric), functions.into_iter().map(name).collect(), directory, check, work)
}

/// Adds the names of their sockets to cards.
fn named(cards: Vec<NodeEndpoint>) -> Vec<Named> {
    cards.into_iter().map(|(node, card)| (format!("{node}.sock"), card)).collect()
}

/// Serves `functions`, of `fabric` if they have one, in `directory`, while `work` runs. The sockets are removed after it, or if
/// `check` fails before.
fn serve(
    fabric: Option<&Fabric>,
    functions: Vec<Named>,
    directory: &Path,
    check: &Check<'_>,
    work: Box<Work<'_>>,
) -> Result<()> {
    let no_thread = || Failure::new(Exit::Failed, "cannot start the thread of the fabric's clock");
    let _clock = fabric.map(|fabric| fabric.start_clock().ok_or_else(no_thread)).transpose()?;
    let budget = Budget::of_process();
    let mut sockets = Vec::new();
    let mut servers = Vec::new();
    for (name, function) in functions {
        check()?;
        let path = directory.join(name);
        let server = Server::bind(&path, function).and_then(|server| server.with_budget(&budget).spawn());
        let server = server.map_err(|error| Failure::chain(Exit::Failed, &error))?;
        // Absolute, for clients in other directories, if a selector can name it so.
        let is_selectable = check_selectable(server.path()).is_ok();
        sockets.push(if is_selectable { server.path().to_owned() } else { path });
        servers.push(server);
    }
    work(&sockets, &|| match fabric.and_then(Fabric::failure) {
        None => Ok(()),
        Some(reason) => {
            Err(Failure::new(Exit::Failed, format!("the mock fabric failed, its cards are gone: {reason}")))
        }
    })
}

/// Waits for an interrupt or a failure of the fabric, and returns it.
fn until_interrupted(interrupt: &Interrupt, health: &dyn Fn() -> Result<()>) -> Result<()> {
    loop {
        go_on(interrupt, health)?;
        interrupt.sleep();
    }
}

/// Fails after an interrupt, and after a failure of the fabric.
fn go_on(interrupt: &Interrupt, health: &dyn Fn() -> Result<()>) -> Result<()> {
    interrupt.check().map_err(|_| interrupted())?;
    health()
}

fn interrupted() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted; the sockets are removed")
}

/// Returns the selector of the cards on `sockets`, without the sockets of their other functions.
fn selector_of(sockets: &[PathBuf]) -> String {
    let is_card = |path: &&PathBuf| path.file_stem().is_some_and(|name| Path::new(name).extension().is_none());
    let cards: Vec<String> =
        sockets.iter().filter(is_card).map(|path| format!("vfio-user:{}", path.display())).collect();
    cards.join(",")
}

/// Creates a missing directory for this user only. The server checks whether other users can replace files in an existing
/// one.
fn prepare(directory: &Path) -> Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(Failure::file(directory, &error)),
        _ => Ok(()),
    }
}

/// Prints the sockets, unless `check` fails before they are read.
fn announce(cli: &Cli, selector: &str, sockets: &[PathBuf], check: &Check<'_>) -> Result<()> {
    let sockets: Vec<String> = sockets.iter().map(|path| format!("vfio-user:{}", path.display())).collect();
    let text = if cli.json {
        output::json_text(&Printed { schema: "fpgactl.mock-serve/1", selector, sockets })?
    } else {
        printable_lines(&sockets.join("\n"))
            + "\nserving until interrupted; select cards with --cards, separated by commas\n"
    };
    output::write_when_ready(text.as_bytes(), output::PIPE_BUF, check).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    use cmdseq::{Instruction, Operand, Status};
    use fpga_driver::{Card, Error};
    use fpga_hal::{Domain, vfio_user};
    use fpga_mock::{CardMemory, UserCall, UserLogic};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// User logic with a bug: the only part of a mock that a test can make panic.
    struct Buggy;

    impl UserLogic for Buggy {
        fn run(&mut self, _: &mut CardMemory, call: UserCall) -> std::result::Result<u64, Status> {
            panic!("no logic for {} bytes", call.bytes);
        }
    }

    /// Interrupts the server when it is dropped, so that a failed test ends.
    struct Ending(Arc<AtomicBool>);

    impl Drop for Ending {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_panic_of_the_mock_ends_the_server_and_takes_all_cards_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let (fabric, cards) = Selector::parse("mock:optweb:2").unwrap().fabric().unwrap();
        fabric.set_user_logic(0, Box::new(Buggy));
        let interrupt = Interrupt::default();
        let (announced, sockets) = mpsc::channel();
        let failure = thread::scope(|scope| {
            let served = scope.spawn(|| {
                let work = |sockets: &[PathBuf], health: &dyn Fn() -> Result<()>| {
                    announced.send(sockets.to_vec()).unwrap();
                    until_interrupted(&interrupt, health)
                };
                serve(Some(&fabric), named(cards), directory.path(), &|| Ok(()), Box::new(work))
            });
            let ending = Ending(interrupt.flag());
            let sockets = sockets.recv_timeout(TIMEOUT).unwrap();
            let domain = Domain::vfio_user();
            let open = |socket: &PathBuf| Card::open(vfio_user::connect(socket, &domain).unwrap()).unwrap();
            let mut cards: Vec<Card> = sockets.iter().map(open).collect();
            cards.iter_mut().for_each(|card| drop(card.run([Instruction::nop()], TIMEOUT).unwrap()));
            assert!(!served.is_finished());

            let user = Instruction::user(Operand::card(0), Operand::card(64), 77, 0);
            let lost = cards[0].run([user], TIMEOUT).unwrap_err();
            assert!(matches!(lost, Error::Removed { .. }), "{lost}");
            // The neighbour's card is gone as well, though its user did nothing.
            let lost = cards[1].cycles().unwrap_err();
            assert!(matches!(lost, Error::Removed { .. }), "{lost}");
            let begin = Instant::now();
            while !served.is_finished() && begin.elapsed() < TIMEOUT {
                thread::sleep(Duration::from_millis(1));
            }
            drop(ending);
            served.join().unwrap().unwrap_err()
        });
        assert_eq!(failure.exit().code(), 1);
        assert_eq!(failure.message(), "the mock fabric failed, its cards are gone: no logic for 77 bytes");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "a socket is left");
    }
}

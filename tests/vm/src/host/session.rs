//! One run of a machine: relays the guest's messages, and serves its requests.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fpga_vm::{Answer, FromGuest, Request, fnv1a};

use crate::machine::{Machine, MachineError, failed};
use crate::server::Server;

/// Time limits: between two messages of the guest, and for the whole run.
const SILENCE: Duration = Duration::from_secs(300);
const ALTOGETHER: Duration = Duration::from_secs(1200);

/// Results of tests, and the lines meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// What was said of each test that failed, to be said again where it is looked for: at the end.
    pub(crate) failures: Vec<String>,
    /// Lines since the last test was over.
    recent: String,
    /// Whether lines are printed as they come, and not when all is over.
    is_live: bool,
    text: String,
}

impl Tally {
    pub(crate) fn new(is_live: bool) -> Self {
        Tally { is_live, ..Tally::default() }
    }

    /// Counts a test, and says how it went as Rust's test runner does.
    pub(crate) fn test(&mut self, scenario: &str, name: &str, passed: bool) {
        self.say(format_args!("test {scenario}::{name} ... {}", if passed { "ok" } else { "FAILED" }));
        if passed {
            self.passed += 1;
            self.recent.clear();
        } else {
            self.fail();
        }
    }

    /// Counts a failure, of which the lines since the last test tell.
    pub(crate) fn fail(&mut self) {
        self.failed += 1;
        self.failures.push(std::mem::take(&mut self.recent));
    }

    /// Says a line.
    pub(crate) fn say(&mut self, line: impl fmt::Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.recent, "{line}");
        if self.is_live {
            println!("{line}");
        } else {
            let _ = writeln!(self.text, "{line}");
        }
    }

    /// Prints what was not printed yet.
    pub(crate) fn print(&mut self) {
        print!("{}", std::mem::take(&mut self.text));
    }
}

/// A block of the medium as the guest wrote it.
struct Block {
    offset: u64,
    bytes: u64,
    hash: u64,
}

/// The host's side of a run.
pub(crate) struct Session {
    pub(crate) scenario: &'static str,
    pub(crate) machine: Machine,
    pub(crate) server: Option<Server>,
    pub(crate) medium: PathBuf,
    pub(crate) tally: Tally,
}

impl Session {
    /// Runs until the guest is done, and switches it off. Fails if it hangs, dies or leaves without a word.
    pub(crate) fn run(mut self, line: UnixStream) -> (Tally, Result<(), MachineError>) {
        let outcome = self.relay(line).and_then(|blocks| {
            // The guest would take minutes to switch itself off if the kernel still waits for a dead card.
            self.machine.quit()?;
            drop(self.server.take());
            if !blocks.is_empty() {
                let holds = medium_holds(&mut self.tally, &self.medium, &blocks)?;
                self.tally.test(self.scenario, "the_medium_holds_what_the_guest_wrote", holds);
            }
            Ok(())
        });
        (self.tally, outcome)
    }

    /// Relays what the guest says until it is done; the blocks it wrote.
    fn relay(&mut self, line: UnixStream) -> Result<Vec<Block>, MachineError> {
        let begin = Instant::now();
        let mut answers = line.try_clone().map_err(failed("use the line to the guest"))?;
        line.set_read_timeout(Some(Duration::from_millis(200))).map_err(failed("use the line to the guest"))?;
        let mut reader = BufReader::new(line);
        let (mut text, mut heard) = (Vec::new(), Instant::now());
        let (mut running, mut blocks, mut names) = (None::<String>, Vec::new(), BTreeSet::new());
        loop {
            match reader.read_until(b'\n', &mut text) {
                Ok(0) => return Err(self.lost("hung up before its tests were over", running)),
                Ok(_) => heard = Instant::now(),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if let Some(status) = self.machine.ended()? {
                        return Err(self.lost(&format!("ended before its tests were over (QEMU: {status})"), running));
                    }
                    if heard.elapsed() > SILENCE || begin.elapsed() > ALTOGETHER {
                        return Err(self.lost("does not come to an end", running));
                    }
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed("hear the guest")(error)),
            }
            let line = String::from_utf8_lossy(&std::mem::take(&mut text)).trim_end_matches(['\r', '\n']).to_owned();
            match line.parse() {
                Ok(FromGuest::Log(text)) => self.tally.say(format_args!("    {text}")),
                Ok(FromGuest::Begin(name)) => running = Some(name),
                Ok(FromGuest::Test { name, passed }) => {
                    running = None;
                    self.tally.test(self.scenario, &name, passed);
                    if !names.insert(name.clone()) {
                        return Err(self.lost(&format!("says twice how {name} went"), None));
                    }
                }
                Ok(FromGuest::Ask { number, request }) => {
                    let answer = Answer { number, outcome: self.serve(request, &mut blocks) };
                    writeln!(answers, "{answer}").map_err(failed("answer the guest"))?;
                }
                Ok(FromGuest::Done { passed, failed }) => {
                    if (passed, failed) != (self.tally.passed, self.tally.failed) || names.is_empty() {
                        return Err(self.lost("counts other tests than it ran", None));
                    }
                    break;
                }
                Err(unknown) => self.tally.say(format_args!("    ? {}", unknown.0)),
            }
        }
        Ok(blocks)
    }

    fn lost(&self, what: &str, running: Option<String>) -> MachineError {
        let during = running.map(|name| format!(" (in {name})")).unwrap_or_default();
        MachineError::Guest { what: format!("{what}{during}") }
    }

    fn serve(&mut self, request: Request, blocks: &mut Vec<Block>) -> Result<String, String> {
        match request {
            Request::Unplug { device } => {
                let begin = Instant::now();
                self.machine.unplug(&device).map_err(|error| error.to_string())?;
                Ok(format!("{device} is gone after {} ms", begin.elapsed().as_millis()))
            }
            Request::KillServer => {
                let server = self.server.as_mut().ok_or("no cards are served")?;
                if !server.is_alive() {
                    return Err("the server was dead already".to_owned());
                }
                server.kill();
                Ok("the server is killed".to_owned())
            }
            Request::ReportError { device } => self.machine.report_error(&device).map_err(|error| error.to_string()),
            Request::Medium { offset, bytes, hash } => {
                blocks.push(Block { offset, bytes, hash });
                Ok(String::new())
            }
        }
    }
}

/// Compares the medium, which nobody has open any more, with what the guest said it wrote.
fn medium_holds(tally: &mut Tally, medium: &Path, blocks: &[Block]) -> Result<bool, MachineError> {
    let action = || failed(format!("read {}", medium.display()));
    let file = File::open(medium).map_err(action())?;
    let mut bytes = 0;
    for block in blocks {
        let length = usize::try_from(block.bytes).ok().filter(|&length| length <= 1 << 30);
        let mut data = vec![0; length.unwrap_or(0)];
        file.read_exact_at(&mut data, block.offset).map_err(action())?;
        if length.is_none() || fnv1a(&data) != block.hash {
            tally.say(format_args!("    {} bytes at {:#x} are not what the guest wrote", block.bytes, block.offset));
            return Ok(false);
        }
        bytes += block.bytes;
    }
    let (count, mib) = (blocks.len(), bytes >> 20);
    tally.say(format_args!("    the host finds {count} blocks of {mib} MiB in all as the guest wrote them"));
    Ok(true)
}

//! The process that serves the mock cards.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fpga_vm::CARDS;

use crate::machine::{MachineError, failed, stop};

const BOUND: Duration = Duration::from_secs(30);

/// A process that serves cards on sockets, killed when dropped.
pub(crate) struct Server {
    process: Child,
    sockets: Vec<PathBuf>,
}

impl Server {
    /// Has `program` with `words` and `folder` serve [`CARDS`] cards of one fabric there, and waits until all can be
    /// reached, with `others` of their functions.
    pub(crate) fn start(program: &Path, words: &[&str], folder: &Path, others: &[&str]) -> Result<Self, MachineError> {
        let said = File::create(folder.join("server.log")).map_err(failed("make a log"))?;
        let process = Command::new(program)
            .args(words)
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .map_err(failed(format!("start {}", program.display())))?;
        let cards = (0..CARDS).map(|index| format!("{index}.sock"));
        let names = cards.chain(others.iter().map(|name| format!("{name}.sock")));
        let sockets = names.map(|name| folder.join(name)).collect();
        let mut server = Server { process, sockets };
        let deadline = Instant::now() + BOUND;
        while !server.sockets.iter().all(|socket| socket.exists()) {
            let ended = server.process.try_wait().map_err(failed("look after the cards' server"))?;
            if ended.is_some() || Instant::now() > deadline {
                let said = std::fs::read_to_string(folder.join("server.log")).unwrap_or_default();
                return Err(MachineError::Server { said });
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// The sockets: those of all cards, and then those of other functions.
    pub(crate) fn sockets(&self) -> &[PathBuf] {
        &self.sockets
    }

    /// Kills it (SIGKILL).
    pub(crate) fn kill(&mut self) {
        stop(&mut self.process);
    }

    /// Returns whether it still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

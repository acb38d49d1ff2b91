//! Mock cards that `mock serve` serves to other processes.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use tempfile::TempDir;

use crate::command;

/// Cards on sockets, until this is dropped.
pub(crate) struct Served {
    server: Child,
    folder: PathBuf,
    _directory: TempDir,
}

impl Served {
    /// Runs `mock serve` with these arguments.
    pub(crate) fn new(arguments: &[&str]) -> Self {
        Self::in_folder("cards", arguments)
    }

    /// Runs `mock serve` with these arguments, and its sockets in a folder of this name.
    pub(crate) fn in_folder(name: &str, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join(name);
        let mut server = command(&[&["mock", "serve"], arguments, &["--socket-dir"]].concat());
        let mut server = server.arg(&folder).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        while !lines.next().unwrap().unwrap().starts_with("serving") {}
        Served { server, folder, _directory: directory }
    }

    /// The process that serves them.
    pub(crate) fn process(&self) -> u32 {
        self.server.id()
    }

    /// The selector of one card.
    pub(crate) fn card(&self, node: u32) -> String {
        format!("{}/{node}.sock", self.all())
    }

    /// The selector of the control function of one card.
    pub(crate) fn control(&self, node: u32) -> String {
        format!("{}/{node}.control.sock", self.all())
    }

    /// The selector of all cards.
    pub(crate) fn all(&self) -> String {
        format!("vfio-user:{}", self.folder.display())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// As in process: the client's own reset of the cards, when it opens them, does not start a stopped card.
#[test]
fn a_card_that_is_served_stopped_stays_stopped_for_its_first_client() {
    for cards in
        ["mock:optweb:3+stop=1", "mock:optweb:3+stop=1@0+reset=10", "mock:alveo-xdma:3+stop=1", "mock:s10-pac:3+stop=1"]
    {
        let served = Served::new(&[cards]);
        assert!(command(&["info", "--cards", &served.all()]).output().unwrap().status.success(), "{cards}");
        for selector in [served.all(), cards.to_owned()] {
            let coll = ["coll", "barrier", "--timeout", "1", "--cards", &selector];
            let output = command(&coll).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(5), "{selector}: {text}");
            assert!(text.contains("rank 1"), "{selector}: {text}");
        }
    }
}

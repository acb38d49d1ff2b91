//! A server of mock cards with little memory: what does not fit fails by name, in the command and in the server's log, and
//! the cards go on.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Output};

use super::fpgactl::fpgactl;

/// A server, ended when dropped.
struct Server(Child);

impl Server {
    /// Ends it; what it logged.
    fn end(mut self) -> String {
        let _ = self.0.kill();
        let mut logged = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut logged).unwrap();
        logged
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_does_not_fit_fails_and_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("cards");
    let words = ["mock", "serve", "mock:optweb:2", "--memory", "2MiB", "--socket-dir", directory.to_str().unwrap()];
    let mut server = Server(fpgactl(&words).spawn().unwrap());
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("serving")));
    let cards: Vec<_> = (0..2).map(|node| format!("vfio-user:{}/{node}.sock", directory.display())).collect();
    let coll = |bytes: &str| -> Output {
        fpgactl(&["coll", "broadcast", "--cards", &cards.join(","), "--bytes", bytes]).output().unwrap()
    };
    assert!(coll("64KiB").status.success());
    let failed = coll("8MiB");
    let said = String::from_utf8_lossy(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{said}");
    assert!(said.contains("an address range exceeds card memory") && said.contains("no memory left"), "{said}");
    assert!(coll("64KiB").status.success());
    let logged = server.end();
    assert!(logged.contains("card 0 fails instructions for lack of memory"), "{logged}");
    assert!(logged.contains("2097152"), "{logged}");
}

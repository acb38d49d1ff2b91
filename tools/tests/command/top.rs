//! `top`: cards in use by other processes, as text and on a pseudo-terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, Termios, tcgetattr};
use nix::unistd::Pid;

use crate::served::Served;
use crate::watching::{Owner, PATIENCE};
use crate::{command, parsed};

/// Prints one table, within a short interval.
const ONCE: [&str; 4] = ["top", "--once", "--interval", "0.2"];

fn text(owner: &Owner, arguments: &[&str]) -> String {
    let output = owner.run(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn cards_of_other_processes_are_seen_until_they_are_closed() {
    let served = Served::new(&["mock:optweb:2"]);
    for selector in ["mock:optweb:2".to_owned(), served.all()] {
        let mut owner = Owner::new(&selector);
        let table = text(&owner, &ONCE);
        assert!(table.starts_with("CARD") && table.matches("running").count() == 2, "{table}");
        owner.kill();
        let table = text(&owner, &ONCE);
        assert_eq!(table.matches("owner gone").count(), 2, "{table}");
        owner.run(&["stats", "--clean"]);
        assert_eq!(text(&owner, &ONCE), "no card in use\n");
    }
}

/// A sweep that is killed in the middle, on cards in its process and on sockets.
#[test]
fn a_running_sweep_is_seen_and_its_end_too() {
    let served = Served::new(&["mock:optweb:4"]);
    for selector in ["mock:optweb:4".to_owned(), served.all()] {
        let directory = tempfile::tempdir().unwrap();
        let sweep =
            ["bench", "coll", "allgather", "--cards", &selector, "--repeat", "65536", "-b", "1KiB", "-e", "1MiB"];
        let mut sweep = command(&sweep);
        let mut sweep = sweep.env("FPGACTL_STATS_DIR", directory.path()).stdout(Stdio::null()).spawn().unwrap();
        let top = || {
            let output = command(&ONCE).env("FPGACTL_STATS_DIR", directory.path()).output().unwrap();
            assert!(output.status.success());
            String::from_utf8(output.stdout).unwrap()
        };
        let operations = |table: &str| -> Vec<String> {
            let cell = |line: &str| line.split_whitespace().rev().nth(4).unwrap().to_owned();
            table.lines().skip(1).map(cell).filter(|cell| cell != "-" && cell != "0").collect()
        };
        let start = Instant::now();
        let mut table = top();
        while table.matches("running").count() != 4 || operations(&table).is_empty() {
            assert!(start.elapsed() < PATIENCE, "{table}");
            table = top();
        }
        sweep.kill().unwrap();
        sweep.wait().unwrap();
        let table = top();
        assert_eq!(table.matches("owner gone").count(), 4, "{table}");
    }
}

#[test]
fn mistakes_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("fpga-stats.1.1"), "foreign").unwrap();
    let output = command(&ONCE).env("FPGACTL_STATS_DIR", directory.path()).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.starts_with("no card in use\nnote: ") && printed.contains("fpga-stats.1.1"), "{printed}");
    for (arguments, stats_dir, code) in [
        (&["top", "--json"][..], "/tmp", 2),
        (&["top", "--cards", "mock:optweb:2"], "/tmp", 2),
        (&["top", "--interval", "0"], "/tmp", 2),
        (&["top", "--json", "--sort", "nothing"], "/tmp", 2),
        (&["top"], "none", 2),
        (&["top"], "/nowhere", 4),
    ] {
        let output = command(arguments).env("FPGACTL_STATS_DIR", stats_dir).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        if arguments.contains(&"--json") {
            parsed(&output.stderr);
        } else if arguments.contains(&"--interval") {
            assert!(String::from_utf8_lossy(&output.stderr).contains("invalid interval"), "{output:?}");
        }
    }
}

/// Gives `terminal` another size. The kernel tells its processes.
fn resize(terminal: &File, rows: u16, columns: u16) {
    let mut stty = Command::new("stty");
    stty.args(["rows", &rows.to_string(), "cols", &columns.to_string()]).stdin(terminal.try_clone().unwrap());
    assert!(stty.status().unwrap().success());
}

/// A pseudo-terminal: the side of the host, and that of the command. No child of other tests has them too.
fn terminal() -> (File, File) {
    let host = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
    grantpt(&host).unwrap();
    unlockpt(&host).unwrap();
    let path = ptsname_r(&host).unwrap();
    let terminal = File::options().read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits()).open(&path).unwrap();
    resize(&terminal, 24, 80);
    (File::from(OwnedFd::from(host)), terminal)
}

/// `top` on `terminal`, its controlling terminal. `hangup` is what `env` does with SIGHUP, whatever it is for the tests.
fn on(terminal: &File, owner: &Owner, hangup: &str) -> Command {
    let top = command(&["top", "--interval", "0.2"]);
    // Makes stdin the controlling terminal, then becomes the command.
    let mut setsid = Command::new("env");
    setsid.args([hangup, "setsid", "--ctty"]).arg(top.get_program()).args(top.get_args());
    setsid.env_remove("NO_COLOR").env("TERM", "xterm-256color").env("FPGACTL_STATS_DIR", owner.directory());
    let stream = || Stdio::from(terminal.try_clone().unwrap());
    setsid.stdin(stream()).stdout(stream()).stderr(stream());
    setsid
}

/// Waits for the end of `child`, and returns its exit status.
fn end_of(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(start.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `top` on a pseudo-terminal, which is its controlling terminal.
struct OnTerminal {
    child: Child,
    host: File,
    /// The terminal's other side, to look at its modes.
    terminal: File,
    before: Termios,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    fn new(owner: &Owner, no_color: bool) -> Self {
        let (host, terminal) = terminal();
        let mut top = on(&terminal, owner, "--default-signal=HUP");
        if no_color {
            top.env("NO_COLOR", "1");
        }
        Self::spawn(top, host, terminal)
    }

    /// Starts `top`, whose stdout is `terminal`.
    fn spawn(mut top: Command, host: File, terminal: File) -> Self {
        let before = tcgetattr(&terminal).unwrap();
        let child = top.spawn().unwrap();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, to) = (host.try_clone().unwrap(), Arc::clone(&shown));
        // Ends when both sides of the terminal are closed.
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut part) {
                to.lock().unwrap().extend_from_slice(&part[..count]);
            }
        });
        OnTerminal { child, host, terminal, before, shown }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// Waits until `text` has been shown since the last call, and forgets what was shown.
    fn shows(&self, text: &str) -> String {
        let start = Instant::now();
        while !self.text().contains(text) {
            assert!(start.elapsed() < PATIENCE, "{text:?} is not in {:?}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
        String::from_utf8_lossy(&std::mem::take(&mut *self.shown.lock().unwrap())).into_owned()
    }

    fn press(&mut self, keys: &str) {
        self.host.write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Waits for the end, and checks that the terminal is as before.
    fn ends(&mut self) {
        let status = end_of(&mut self.child);
        assert!(status.success(), "{status}: {}", self.text());
        // Leaves the alternate screen, then shows the cursor.
        let text = self.shows("\x1b[?25h");
        assert!(text.contains("\x1b[?1049l"), "{text:?}");
        let after = tcgetattr(&self.terminal).unwrap();
        assert_eq!(after, self.before, "the terminal's modes");
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn keys_and_signals_end_it_and_restore_the_terminal() {
    let owner = Owner::new("mock:optweb:2");
    for end in ["q", "\x03", "TERM", "INT"] {
        let mut top = OnTerminal::new(&owner, false);
        let text = top.shows("select");
        assert!(text.contains("\x1b[?1049h") && text.contains("running"), "{text:?}");
        let raw = tcgetattr(&top.terminal).unwrap();
        assert!(!raw.local_flags.intersects(LocalFlags::ECHO | LocalFlags::ICANON | LocalFlags::ISIG));
        match end {
            "TERM" => top.signal(Signal::SIGTERM),
            "INT" => top.signal(Signal::SIGINT),
            key => top.press(key),
        }
        top.ends();
    }
}

#[test]
fn it_follows_keys_sizes_and_owners() {
    let mut owner = Owner::new("mock:optweb:2");
    let mut top = OnTerminal::new(&owner, false);
    let text = top.shows("select");
    assert!(text.contains("\x1b[38;5;") || text.contains("\x1b[32m"), "no colour: {text:?}");
    top.press("?");
    top.shows("PgUp");
    top.press("\x1b");
    top.press("s");
    top.shows("pid");
    resize(&top.terminal, 40, 122);
    top.shows("COMPLETED");
    owner.kill();
    top.shows("owner gone");
    top.press("q");
    top.ends();
}

/// Of a terminal of any size, a part is drawn that fits into memory.
#[test]
fn the_largest_terminal_is_drawn() {
    let owner = Owner::new("mock:optweb:2");
    let (host, terminal) = terminal();
    resize(&terminal, 65535, 65535);
    let mut top = OnTerminal::spawn(on(&terminal, &owner, "--default-signal=HUP"), host, terminal);
    top.shows("COMPLETED");
    top.press("q");
    top.ends();
}

#[test]
fn without_colors_none_is_set() {
    let owner = Owner::new("mock:optweb:2");
    let mut top = OnTerminal::new(&owner, true);
    let text = top.shows("select");
    assert!(!text.contains("\x1b[38;") && !text.contains("\x1b[32m"), "{text:?}");
    top.press("q");
    top.ends();
}

#[test]
fn a_hangup_ends_it_and_restores_the_terminal() {
    let owner = Owner::new("mock:optweb:2");
    let top = OnTerminal::new(&owner, false);
    top.shows("select");
    top.signal(Signal::SIGHUP);
    let mut top = top;
    top.ends();
}

/// Keys are read from a terminal that is closed, and the other one is still there: also if nobody tells.
#[test]
fn it_ends_with_its_keyboard_and_restores_the_terminal() {
    let owner = Owner::new("mock:optweb:2");
    for hangup in ["--default-signal=HUP", "--ignore-signal=HUP"] {
        let (keyboard_host, keyboard) = terminal();
        let (host, terminal) = terminal();
        let mut top = on(&keyboard, &owner, hangup);
        top.stdout(terminal.try_clone().unwrap()).stderr(terminal.try_clone().unwrap());
        // The command has its own copies.
        drop(keyboard);
        let mut top = OnTerminal::spawn(top, host, terminal);
        top.shows("select");
        drop(keyboard_host);
        top.ends();
    }
}

/// A terminal that is closed, as of a connection that is lost: also if nobody tells, as under `nohup`, and with no other stderr.
#[test]
fn it_ends_with_its_terminal() {
    let owner = Owner::new("mock:optweb:2");
    for hangup in ["--default-signal=HUP", "--ignore-signal=HUP"] {
        let (mut host, terminal) = terminal();
        let mut top = on(&terminal, &owner, hangup);
        drop(terminal);
        let mut child = top.spawn().unwrap();
        // Its own copies of the terminal.
        drop(top);
        let mut shown = Vec::new();
        let start = Instant::now();
        while !String::from_utf8_lossy(&shown).contains("select") {
            assert!(start.elapsed() < PATIENCE, "{:?}", String::from_utf8_lossy(&shown));
            let mut part = [0; 4096];
            // Fails if the command ends.
            let count = host.read(&mut part).unwrap();
            shown.extend_from_slice(&part[..count]);
        }
        drop(host);
        let status = end_of(&mut child);
        assert_eq!(status.code(), Some(0), "{hangup}: {status}");
    }
}

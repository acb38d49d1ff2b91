//! Starts programs as a given user, each with a time limit.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// User of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    Root,
    /// In the group `fpga`.
    Worker,
    /// In no group but its own.
    Stranger,
}

/// Result of a program.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) line: String,
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    /// Returns itself if the program succeeded. Panics otherwise.
    #[track_caller]
    pub(crate) fn good(self) -> Self {
        assert!(self.status.success(), "{self}");
        self
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The end of what it said tells why it ended.
        let lines: Vec<&str> = self.stdout.lines().collect();
        let said = lines[lines.len().saturating_sub(20)..].join("\n");
        write!(f, "`{}`: {}\n{said}\n{}", self.line, self.status, self.stderr)
    }
}

/// A running program; killed on drop.
pub(crate) struct Running {
    child: Child,
    line: String,
    files: [String; 2],
}

/// Starts `words` (program and arguments) as `user`.
#[track_caller]
pub(crate) fn start(user: User, words: &[&str]) -> Running {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let files = ["out", "err"].map(|kind| format!("/run/{kind}.{number}"));
    let [out, err] = files.each_ref().map(|file| File::create(file).expect("/run takes files"));
    let mut command = match user {
        User::Root => {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]);
            command
        }
        User::Worker | User::Stranger => {
            let mut command = Command::new("sh");
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            let (name, inner) = (user.name(), format!("exec {}", words.join(" ")));
            // Shells are replaced by the program, so that what is killed is the program.
            let line = format!("ulimit -l {} && exec su -s /bin/sh {name} -c {}", user.memlock_kib(), quoted(&inner));
            command.args(["-c", &line]);
            command
        }
    };
    let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
    let line = words.join(" ");
    Running { child: child.unwrap_or_else(|error| panic!("cannot start `{line}`: {error}")), line, files }
}

/// Runs a program that prints JSON, and returns what it printed.
pub(crate) fn printed(user: User, words: &[&str], bound: Duration) -> Value {
    let output = run(user, words, bound).good();
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output}"))
}

/// Runs `words` as `user` to its end, at most for `bound`.
#[track_caller]
pub(crate) fn run(user: User, words: &[&str], bound: Duration) -> Output {
    start(user, words).finish(bound)
}

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

impl User {
    /// What the user may lock of memory: enough for what it does here, or what the kernel gives.
    fn memlock_kib(self) -> u64 {
        match self {
            User::Worker => 256 << 10,
            User::Root | User::Stranger => 8 << 10,
        }
    }

    fn name(self) -> &'static str {
        match self {
            User::Root => "root",
            User::Worker => "worker",
            User::Stranger => "stranger",
        }
    }
}

impl Running {
    /// Waits for its end. Panics if that takes longer than `bound`.
    #[track_caller]
    pub(crate) fn finish(mut self, bound: Duration) -> Output {
        let deadline = Instant::now() + bound;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("the child is ours") {
                break status;
            }
            if Instant::now() > deadline {
                let threads = threads(self.child.id());
                let _ = self.child.kill();
                let [stdout, stderr] = self.said();
                panic!("`{}` is not over after {bound:?}\n{stdout}{stderr}{threads}", self.line);
            }
            thread::sleep(Duration::from_millis(5));
        };
        let [stdout, stderr] = self.said();
        Output { line: self.line.clone(), status, stdout, stderr }
    }

    /// Waits until its standard output has `text`. Panics if it ends before, or that takes longer than `bound`.
    #[track_caller]
    pub(crate) fn until_it_says(&mut self, text: &str, bound: Duration) {
        let deadline = Instant::now() + bound;
        loop {
            let ended = self.child.try_wait().expect("the child is ours");
            let [stdout, stderr] = self.said();
            if stdout.contains(text) {
                return;
            }
            assert!(ended.is_none(), "`{}` ended without saying {text:?}\n{stdout}{stderr}", self.line);
            assert!(Instant::now() < deadline, "`{}` does not say {text:?}\n{stdout}{stderr}", self.line);
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills it (SIGKILL), and waits until all its resources are released.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("the child is ours");
    }

    /// Stops or continues it.
    pub(crate) fn pause(&self, is_paused: bool) {
        let signal = if is_paused { "STOP" } else { "CONT" };
        let line = format!("kill -{signal} {}", self.child.id());
        run(User::Root, &["sh", "-c", &line], Duration::from_secs(20)).good();
    }

    /// Returns whether it still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the child is ours").is_none()
    }

    /// Opens the memory files that it holds: its DMA memory, as a parent might hold it.
    pub(crate) fn memory(&self) -> Vec<File> {
        let folder = format!("/proc/{}/fd", self.child.id());
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_memory = |path: &PathBuf| {
            std::fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with("/memfd:"))
        };
        entries.filter(is_memory).filter_map(|path| File::open(path).ok()).collect()
    }

    /// Returns its output so far.
    pub(crate) fn said(&self) -> [String; 2] {
        self.files.each_ref().map(|file| {
            std::fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // A process whose card is dead ends only when the kernel has given the card up, which takes minutes.
        let deadline = Instant::now() + Duration::from_secs(2);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Name, place in the kernel and system call of each thread of a process.
fn threads(process: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let part = |task: &Path, name| fs::read_to_string(task.join(name)).unwrap_or_default().trim().to_owned();
    let line = |task: fs::DirEntry| {
        let [comm, wchan, syscall] = ["comm", "wchan", "syscall"].map(|name| part(&task.path(), name));
        format!("thread {comm}: {wchan}, system call {syscall}\n")
    };
    tasks.map(line).collect()
}

//! Runs tests of one binary, within bounds of time and memory.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::Result;

/// A changed loop may allocate without end.
const MEMORY_MAX: u64 = 6 << 30;

/// Where the tests of one of several workers keep their files.
pub struct Desk(PathBuf);

/// A test binary, and the folder that its tests start in.
#[derive(Clone, PartialEq)]
pub struct Binary {
    pub path: String,
    pub folder: String,
}

#[derive(Clone, Copy)]
pub enum Switched {
    /// None; the ids that are reached are added to the desk's list.
    Record,
    On(u32),
    /// The build has no switches.
    Absent,
}

pub enum Outcome {
    /// In this time: see [`Clock`].
    Passed(Duration),
    /// With the line that names a failed test.
    Failed(String),
    Stopped,
}

impl Desk {
    /// Short, because the tests put sockets there.
    pub fn new(worker: usize) -> Self {
        Self(std::env::temp_dir().join(format!("mutants-{}-{worker}", std::process::id())))
    }

    /// The ids that the last test reached.
    pub fn reached(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.0.join("reached")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Runs the named tests for at most `limit` by the [`Clock`], and ends what they leave running.
    pub fn run(&self, binary: &Binary, names: &[&str], switched: Switched, limit: Duration) -> Result<Outcome> {
        let _ = fs::remove_dir_all(&self.0);
        fs::create_dir_all(self.0.join("t"))?;
        let output = self.0.join("output");
        let log = File::create(&output)?;
        let mut command = Command::new(&binary.path);
        command.args(["--exact", &format!("--test-threads={THREADS}")]).args(names).current_dir(&binary.folder);
        command.env("CARGO_MANIFEST_DIR", &binary.folder).env("TMPDIR", self.0.join("t"));
        command
            .env("PROPTEST_RNG_SEED", "1")
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
            .env("PROPTEST_MAX_SHRINK_ITERS", "0");
        match switched {
            Switched::Record => command.env("FPGA_MUTANTS_REACHED", self.0.join("reached")),
            Switched::On(id) => command.env("FPGA_MUTANT", id.to_string()),
            Switched::Absent => &mut command,
        };
        // A group of its own, so that servers the tests started end too.
        let mut child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0).spawn()?;
        let ended = wait(&mut child, limit)?;
        let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
        child.wait()?;
        Ok(match ended {
            Some((true, time)) => Outcome::Passed(time),
            Some((false, _)) => {
                let output = String::from_utf8_lossy(&fs::read(&output)?).into_owned();
                let failed = output.lines().rev().find(|line| line.starts_with("test ") && line.ends_with("FAILED"));
                let process = || format!("the process {}: {}", binary.path, output.lines().last().unwrap_or_default());
                Outcome::Failed(failed.map_or_else(process, str::to_owned))
            }
            None => Outcome::Stopped,
        })
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether the tests passed, and in which time; `None` if they reached a bound.
fn wait(child: &mut Child, limit: Duration) -> Result<Option<(bool, Duration)>> {
    let mut clock =
        Clock { begin: Instant::now(), waited: Duration::ZERO, ran: Duration::ZERO, threads: HashMap::new() };
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some((status.success(), clock.time())));
        }
        if clock.begin.elapsed() < Duration::from_millis(200) {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        clock.look(child.id());
        if clock.time() > limit || resident(child.id()) > MEMORY_MAX {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Threads of a test binary.
const THREADS: u32 = 2;
/// USER_HZ, which is 100 on every architecture of today.
const TICKS_PER_SECOND: u64 = 100;

/// Counts the time in which a process runs or sleeps, and not that in which it waits for a core: on a busy machine a test takes long,
/// which does not mean that it does not end.
struct Clock {
    begin: Instant,
    waited: Duration,
    /// Time on cores, of all threads.
    ran: Duration,
    /// What each thread has waited for a core, when last looked at.
    threads: HashMap<String, Duration>,
}

impl Clock {
    fn time(&self) -> Duration {
        // Threads that wait in turn have always one that waits; what they ran, on as many cores as a test has threads, counts.
        self.begin.elapsed().saturating_sub(self.waited).max(self.ran / THREADS)
    }

    /// Adds what the thread that waited longest has waited since the last look.
    fn look(&mut self, process: u32) {
        let now: HashMap<String, Duration> = fs::read_dir(format!("/proc/{process}/task"))
            .into_iter()
            .flatten()
            .filter_map(|thread| {
                let thread = thread.ok()?;
                // Time on a core, time waiting for one, and how often it ran (Documentation/scheduler/sched-stats.rst).
                let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
                let waited = Duration::from_nanos(text.split(' ').nth(1)?.parse().ok()?);
                Some((thread.file_name().into_string().ok()?, waited))
            })
            .collect();
        let before = |thread: &String| self.threads.get(thread).copied().unwrap_or_default();
        let longest = now.iter().map(|(thread, waited)| waited.saturating_sub(before(thread))).max();
        self.waited += longest.unwrap_or_default();
        self.threads = now;
        self.ran = time_on_cores(process).unwrap_or(self.ran);
    }
}

/// Time on cores of all threads of a process, those that have ended included.
fn time_on_cores(process: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Behind the name, which may have spaces: the state is the third field, utime and stime are the 14th and 15th (proc(5)).
    let mut fields = text.rsplit_once(") ")?.1.split(' ').skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

/// Bytes of memory that a process has in use.
fn resident(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}

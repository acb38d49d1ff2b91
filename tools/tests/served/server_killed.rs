//! The server of mock cards is killed while its clients are at work: each call of each of them ends within its bound with
//! the one error that says so, nothing dies of a signal, and the next server is used as if nothing had been.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::fpgactl::fpgactl;

use cmdseq::instruction::{Rights, Window};
use cmdseq::plan::{Request, plan};
use cmdseq::{Instruction, Operand};
use fpga_driver::{Card, Cluster, Error, Execution};
use fpga_hal::vfio_user::{self, Options};
use fpga_hal::{Domain, Ending, Function, InterruptKind};

const ROUNDS: u64 = 30;
/// The bound of each call; a card that is gone is noticed long before.
const CALL: Duration = Duration::from_secs(60);
/// The most that is waited for a process to do what it must.
const BOUND: Duration = Duration::from_secs(100);
/// Clients are killed at any moment of so long after the first of their transfers.
const MOMENTS: Duration = Duration::from_millis(40);
/// Directory of the sockets, for this test as a process of its own that is a client.
const CLIENT: &str = "FPGA_TESTS_CLIENT";
/// Exit code of a process whose card is gone (docs/cli.md).
const GONE: i32 = 6;
/// Bytes that one card gives another.
const BYTES: u64 = 64 << 10;

fn socket(directory: &Path, node: usize) -> PathBuf {
    directory.join(format!("{node}.sock"))
}

/// As `--cards` takes them.
fn selector(directory: &Path, nodes: std::ops::Range<usize>) -> String {
    let card = |node| format!("vfio-user:{}", socket(directory, node).display());
    nodes.map(card).collect::<Vec<_>>().join(",")
}

/// A process, ended when dropped.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Self {
        Process(command.spawn().unwrap())
    }

    /// Kills it without a word.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Waits until it prints `text`.
    fn until_it_says(&mut self, text: &str) {
        let (said, hear) = channel();
        let stdout = self.0.stdout.take().unwrap();
        thread::spawn(move || {
            let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
            // Nobody may want to know any more. All is read, or it could not go on writing.
            lines.by_ref().try_for_each(|line| said.send(line)).unwrap_or(());
            lines.for_each(drop);
        });
        loop {
            match hear.recv_timeout(BOUND) {
                Ok(line) if line.contains(text) => return,
                Ok(_) => {}
                Err(error) => panic!("it does not say {text:?} ({error}): {:?}", self.end()),
            }
        }
    }

    /// Waits until it has memory for DMA: the sockets of all its cards are connected then.
    fn until_it_has_memory(&mut self) {
        let begin = Instant::now();
        let folder = format!("/proc/{}/fd", self.0.id());
        let is_memory = |path: PathBuf| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:"));
        while !fs::read_dir(&folder).into_iter().flatten().flatten().any(|entry| is_memory(entry.path())) {
            let is_over = begin.elapsed() > BOUND || self.0.try_wait().unwrap().is_some();
            assert!(!is_over, "it opens no cards: {:?}", self.end());
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// How it ended, and what it said of that.
    fn end(&mut self) -> (ExitStatus, String) {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > BOUND {
                self.kill();
                panic!("it does not end");
            }
            thread::sleep(Duration::from_millis(1));
        };
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (status, said)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes a call until it fails, and says why it did, after how long.
fn fails<T>(mut call: impl FnMut() -> Result<T, Error>) -> (Error, Duration) {
    loop {
        let begin = Instant::now();
        if let Err(error) = call() {
            return (error, begin.elapsed());
        }
    }
}

fn is_gone(error: &Error) -> bool {
    let (Error::Removed { source, .. } | Error::Bus(fpga_hal::Error::Removed { source })) = error else { return false };
    *source == Some(Ending::ServerClosed)
}

#[track_caller]
fn assert_gone((error, took): (Error, Duration)) {
    assert!(is_gone(&error), "{error:?}");
    assert!(took < CALL, "{took:?}");
}

/// Whatever else is asked of a card that is gone has the same answer.
fn assert_stays_gone(card: &mut Card) {
    assert!(card.function().is_removed());
    let mut data = [0; 8192];
    let once = |outcome: Result<(), Error>| (outcome.expect_err("the card is gone"), Duration::ZERO);
    assert_gone(once(card.write_memory(0, &data)));
    assert_gone(once(card.read_memory(0, &mut data)));
    assert_gone(once(card.fill(0, 8192, 0)));
    assert_gone(once(card.run([Instruction::nop()], CALL).map(drop)));
    assert_gone(once(card.cycles().map(drop)));
    assert_gone(once(card.sequencer_state().map(drop)));
    assert_gone(once(card.abort()));
    assert_gone(once(card.reset()));
    let function = card.function().clone();
    assert!(matches!(function.reset(), Err(fpga_hal::Error::Removed { .. })));
    assert!(matches!(function.vectors(InterruptKind::Msix), Err(fpga_hal::Error::Removed { .. })));
    assert!(matches!(function.enable_interrupts(1), Err(fpga_hal::Error::Removed { .. })));
}

fn data(node: u32, round: u64) -> Vec<u8> {
    (0..BYTES).map(|at| (at ^ (at >> 8) ^ (round * 31) ^ (u64::from(node) << 6)) as u8).collect()
}

fn open(path: &Path, options: &Options) -> Card {
    let mut card = Card::open(vfio_user::connect_with(path, &Domain::vfio_user(), options).unwrap()).unwrap();
    card.set_timeout(CALL);
    card
}

/// What partners have open for each other.
const WINDOW: Window = Window { slot: 0, key: 1 };

/// One card, and its partner in another thread's hands: they exchange data and compare it, for ever.
fn exchange(mut card: Card, at_work: &Sender<()>) {
    let (node, peer) = (card.node(), card.node() ^ 1);
    let other = u16::try_from(peer).unwrap();
    let mut back = vec![0; BYTES as usize];
    let mut round = 0;
    let (mine, theirs) = (Operand::card(0), Operand::card(BYTES));
    let lost = fails(|| {
        card.write_memory(0, &data(node, round))?;
        let give = Instruction::put_signal(other, mine, theirs, BYTES, 7, 1).through(WINDOW);
        card.run([give, Instruction::wait_signal(7, 1)], CALL)?;
        card.read_memory(BYTES, &mut back)?;
        assert!(back == data(peer, round), "node {node}, round {round}");
        let taken = Instruction::put_signal(other, mine, mine, 0, 9, 1).through(WINDOW);
        card.run([taken, Instruction::wait_signal(9, 1)], CALL)?;
        if round == 0 {
            at_work.send(()).expect("the test waits for it");
        }
        round += 1;
        Ok(())
    });
    assert_gone(lost);
    assert_stays_gone(&mut card);
}

/// Two cards in one pair of hands: allgathers, compared, for ever. In a process of its own.
fn gather(directory: &Path) -> ! {
    let domain = Domain::vfio_user();
    let open = |node| vfio_user::connect(&socket(directory, node), &domain);
    let functions = (0..2).map(open).collect::<Result<Vec<Function>, _>>().unwrap();
    let mut cluster = Cluster::open(functions).unwrap();
    cluster.set_timeout(CALL);
    let request = Request::new("allgather".parse().unwrap(), vec![0, 1], BYTES);
    let plan = plan(&request, cluster.capabilities()).unwrap();
    let execution = Execution { timeout: CALL, ..Execution::default() };
    let mut back = vec![0; BYTES as usize];
    let mut round = 0;
    let lost = fails(|| {
        for rank in 0..2 {
            cluster.write_input(&plan.set, rank, 0, &data(rank, round))?;
        }
        cluster.execute(&plan.set, &execution)?;
        for (rank, from) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
            cluster.read_output(&plan.set, rank, u64::from(from) * BYTES, &mut back)?;
            assert!(back == data(from, round), "rank {rank}, of {from}, round {round}");
        }
        if round == 0 {
            println!("at work");
        }
        round += 1;
        Ok(())
    });
    let code = if is_gone(&lost.0) { GONE } else { 1 };
    eprintln!("after {:?} in round {round}: {:?}", lost.1, lost.0);
    assert_gone(lost);
    (0..2).for_each(|place| assert_stays_gone(cluster.card_mut(place)));
    drop(cluster);
    std::process::exit(code)
}

/// What the process beside the test holds, and by what.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// Cards 0 and 1, by `fpgactl coll`.
    Two,
    /// All, by `fpgactl run`.
    Four,
    /// Cards 0 and 1, by the driver.
    TwoByHand,
}

/// A process that holds some cards, once it is at work or about to be.
fn holder(holds: Holds, directory: &Path, saved: &Path) -> Process {
    let nodes = if holds == Holds::Four { 4 } else { 2 };
    let (cards, saved) = (selector(directory, 0..nodes), saved.display().to_string());
    let command = |words: &[&str]| {
        let mut process =
            Process::start(&mut fpgactl(&[words, &["--cards", &cards, "--timeout", "60", "--json"]].concat()));
        process.until_it_has_memory();
        process
    };
    match holds {
        Holds::Two => command(&["coll", "allgather", "--bytes", "64KiB", "--repeat", "200000"]),
        Holds::Four => command(&["run", &saved, "--persistent", "--repeat", "1000000"]),
        Holds::TwoByHand => {
            let mut client = Command::new(std::env::current_exe().unwrap());
            client.args(["--exact", "server_killed::every_call_ends", "--nocapture"]).env(CLIENT, directory);
            let mut process = Process::start(client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
            process.until_it_says("at work");
            process
        }
    }
}

#[test]
fn every_call_ends() {
    if let Some(directory) = std::env::var_os(CLIENT) {
        gather(directory.as_ref());
    }
    let folder = tempfile::tempdir().unwrap();
    let (directory, saved) = (folder.path().join("cards"), folder.path().join("saved.seqb"));
    let words = ["plan", "allgather", "--cards", "mock:optweb:4", "--bytes", "64KiB", "--save"];
    let made = fpgactl(&[&words[..], &[saved.to_str().unwrap()]].concat()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let moments = RandomState::new();
    for round in 0..ROUNDS {
        // In the same directory each time, where the one before has left its sockets.
        let words = ["mock", "serve", "mock:optweb:4", "--socket-dir", directory.to_str().unwrap()];
        let mut server = Process::start(&mut fpgactl(&words));
        server.until_it_says("serving");
        let holds = [Holds::Two, Holds::Four, Holds::TwoByHand][round as usize % 3];
        // One card is given memory to map, the other has to ask for its bytes. Both are open before either works: opening
        // resets, and what a partner had sent would be lost.
        let mut asking = Options::default();
        (asking.share_memory, asking.map_bars) = (false, false);
        let pair = [(2, Options::default()), (3, asking)].into_iter().filter(|_| holds != Holds::Four);
        let mut pair: Vec<_> = pair.map(|(node, options)| open(&socket(&directory, node), &options)).collect();
        let window = Instruction::open(WINDOW, Rights::WRITE | Rights::SIGNAL, Operand::card(BYTES), BYTES);
        pair.iter_mut().for_each(|card| drop(card.run([window], CALL).unwrap()));
        let (began, at_work) = channel();
        let exchange = |card| {
            let began = began.clone();
            thread::spawn(move || exchange(card, &began))
        };
        let exchanges: Vec<_> = pair.into_iter().map(exchange).collect();
        let mut holder = holder(holds, &directory, &saved);
        for _ in &exchanges {
            at_work.recv_timeout(BOUND).expect("cards that exchange data");
        }
        let moment = Duration::from_nanos(moments.hash_one(round) % MOMENTS.as_nanos() as u64);
        thread::sleep(moment);
        server.kill();
        let killed = Instant::now();
        let (status, said) = holder.end();
        println!("round {round}, after {moment:?}: {status}, {}", said.trim());
        assert_eq!(status.code(), Some(GONE), "round {round}, after {moment:?}: {status} {said}");
        for exchange in exchanges {
            while !exchange.is_finished() {
                assert!(killed.elapsed() < BOUND, "round {round}, after {moment:?}: a thread does not end");
                thread::sleep(Duration::from_millis(1));
            }
            exchange.join().unwrap();
        }
    }
    let mut server = Process::start(&mut fpgactl(&["mock", "serve", "--socket-dir", directory.to_str().unwrap()]));
    server.until_it_says("serving");
    let cards = selector(&directory, 0..4);
    let (status, said) = Process::start(&mut fpgactl(&["coll", "allgather", "--cards", &cards])).end();
    assert!(status.success(), "{said}");
}

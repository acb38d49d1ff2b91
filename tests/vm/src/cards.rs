//! Runs in the guest, as the user under test: mock cards through the guest's kernel VFIO. On the host it serves mock cards.
//!
//! ```text
//! fpga-cards serve FOLDER             serves mock cards without MSI-X on sockets in a folder, until it is killed
//! fpga-cards case NAME ADDRESS...     one case of the conformance suite; the cards in order of nodes
//! fpga-cards times ADDRESS            times of each bus: in process, vfio-user, the kernel's VFIO
//! fpga-cards copy ADDRESS             copies to one card and back until something goes wrong
//! fpga-cards gather ADDRESS...        allgathers on all cards until something goes wrong
//! fpga-cards queue COUNT ADDRESS      queues so many transfers of 8 MiB to one card, and then a signal that never comes
//! fpga-cards channels ADDRESS...      words from each card to each, by CIRCUS channels
//! fpga-cards stream ADDRESS           words from a card to itself until something goes wrong
//! fpga-cards hold ADDRESS             opens a card and lets it master the bus, until it is killed
//! ```
//!
//! `copy`, `gather`, `queue`, `stream` and `hold` print `at work` once started; all but `stream`, then the error and the duration of
//! the call that returned it. They end with status 6 if the card is gone, as `fpgactl` does.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use cmdseq::{Instruction, Operand};
use fpga_driver::channel::{self, Losses, Network, Settings};
use fpga_driver::{Bound, Card, Cluster, Execution, Token};
use fpga_hal::vfio_user::{self, Server};
use fpga_hal::{Domain, Function, PciAddress, in_process, vfio};
use fpga_mock::{Fabric, Profile};
use fpga_tests::bus_times;
use fpga_tests::conformance::{Bus, CASES, Seen};
use fpga_tests::run::plan_all;
use fpga_tests::without_msix::WithoutMsix;
use fpga_vm::CARDS;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Status of a process that has lost its card.
const GONE: u8 = 6;
/// Bytes of a transfer that is queued, again and again.
const QUEUED: usize = 8 << 20;
/// Time between progress lines of a wait for transfers.
const SLICE: Duration = Duration::from_millis(100);
/// Long enough for a reader to fall asleep.
const PAUSE: Duration = Duration::from_millis(2);
/// Measurements of each kind.
const RUNS: usize = 200;
/// Time limit of each call.
const BOUND: Duration = Duration::from_secs(10);

/// Makes a call. On an error prints it and the duration at once: closing a dead card may take the kernel minutes.
fn timed<T>(call: impl FnOnce() -> Result<T, fpga_driver::Error>) -> Result<T, fpga_driver::Error> {
    let begin = Instant::now();
    let outcome = call();
    if let Err(error) = &outcome {
        let what = if is_gone(error) { "the card is gone" } else { "a call failed" };
        println!("{what} after {} ms: {error}", begin.elapsed().as_millis());
    }
    outcome
}

fn open(addresses: &[PciAddress]) -> fpga_hal::Result<Vec<Function>> {
    let domain = Domain::vfio()?;
    addresses.iter().map(|&address| vfio::open(address, &domain)).collect()
}

fn case(name: &str, addresses: &[PciAddress]) -> Outcome<()> {
    let (_, case) = CASES.iter().find(|(case, _)| *case == name).ok_or("no such case")?;
    case(&Bus { open: &|| open(addresses).expect("the cards open"), drift_ppm: 0, seen: Seen::MOCK });
    Ok(())
}

/// The three buses on one machine, side by side.
fn times(addresses: &[PciAddress]) -> Outcome<()> {
    let print = |bus: &str, function: &Function| println!("{bus:<12}{}", bus_times::measure(function, RUNS));
    println!("{}", bus_times::heading());
    let fabric = Fabric::new(Profile::optweb(2))?;
    print("in process", &in_process::attach(fabric.endpoint(0), &Domain::in_process(), "mock")?);

    let _clock = fabric.start_clock();
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("0.sock");
    let _server = Server::bind(&socket, fabric.endpoint(0))?.spawn()?;
    // An emulated processor beside other machines may be slow.
    let mut options = vfio_user::Options::default();
    options.patience = Duration::from_secs(30);
    print("vfio-user", &vfio_user::connect_with(&socket, &Domain::vfio_user(), &options)?);

    print("vfio", &open(addresses)?.pop().ok_or("no card")?);
    Ok(())
}

fn copy(addresses: &[PciAddress]) -> Outcome<()> {
    let function = open(addresses)?.pop().ok_or("no card")?;
    let mut card = Card::open(function)?;
    card.set_timeout(BOUND);
    let (mut data, mut back) = (vec![0; 256 << 10], vec![0; 256 << 10]);
    for round in 0u64.. {
        data.iter_mut().zip(round..).for_each(|(byte, value)| *byte = (value ^ value >> 8) as u8);
        timed(|| card.write_memory(4096, &data))?;
        timed(|| card.read_memory(4096, &mut back))?;
        if data != back {
            return Err(format!("round {round} came back as something else").into());
        }
        if round == 0 {
            println!("at work");
        }
    }
    Ok(())
}

fn gather(addresses: &[PciAddress]) -> Outcome<()> {
    let mut cluster = Cluster::open(open(addresses)?)?;
    cluster.set_timeout(BOUND);
    let plan = plan_all(&cluster, "allgather", 64 << 10, None, None)?;
    let execution = Execution { timeout: BOUND, ..Execution::default() };
    for round in 0u64.. {
        timed(|| cluster.execute(&plan.set, &execution))?;
        if round == 0 {
            println!("at work");
        }
    }
    Ok(())
}

fn queue(count: usize, addresses: &[PciAddress]) -> Outcome<()> {
    let mut card = Card::open(open(addresses)?.pop().ok_or("no card")?)?;
    let buffer = card.allocate(QUEUED)?;
    let transfer = Instruction::copy(Operand::host(buffer.iova().0), Operand::card(0), QUEUED as u64);
    // Half a terabyte each, so that no machine is done with them before its server is killed.
    let transfer = Bound::from(transfer).holding(buffer);
    let program = card.store(0, [Instruction::repeat(u16::MAX, 1).into(), transfer])?;
    let launch = Instruction::launch(program.slot().into(), [0; 3]);
    let queue = card.queue_mut();
    let mut tokens = (0..count).map(|_| queue.push(launch)).collect::<Result<Vec<_>, _>>()?;
    tokens.push(queue.push(Instruction::wait_signal(1, 1))?);
    queue.ring()?;
    println!("at work");
    while queue.in_flight() > 0 {
        if let Err(error) = timed(|| queue.wait_progress(SLICE)) {
            println!("launches cut off: {}", queue.in_flight() - 1);
            tokens.into_iter().for_each(Token::abandon);
            return Err(error.into());
        }
    }
    Err("a signal came that nobody sent".into())
}

/// Words of a ring, of 4 bytes each.
const RING_WORDS: u32 = 1024;
/// Bytes that fit a ring, and how many of them each card sends to each.
const PART: usize = 2 << 10;
const PARTS: usize = 16;

fn channels(addresses: &[PciAddress]) -> Outcome<()> {
    let mut network = Network::open(open(addresses)?)?;
    network.load()?;
    let nodes: Vec<u32> = network.nodes().collect();
    for (id, (from, to)) in (0..).zip(nodes.iter().flat_map(|from| nodes.iter().map(move |to| (*from, *to)))) {
        let settings = Settings { id, word_bytes: 4, depth: RING_WORDS };
        let mut reader = network.reader(to, settings)?;
        let mut writer = network.writer(from, to, settings)?;
        let part = |number: usize| (0..PART).map(move |at| (at ^ at >> 8 ^ number ^ usize::from(id)) as u8);
        // Links without credits lose what no ring has room for: a part is sent once the last one was read.
        let (read, is_read) = mpsc::channel();
        std::thread::scope(|scope| -> Outcome<()> {
            // It sleeps until the writer has waited, so each part brings an interrupt.
            let reading = scope.spawn(move || {
                let mut received = vec![0; PART];
                for number in 0..PARTS {
                    reader.read_exact(&mut received, BOUND).map_err(|error| error.to_string())?;
                    let is_right = received.iter().copied().eq(part(number));
                    read.send(()).map_err(|_| "the writer has failed")?;
                    if !is_right {
                        return Err(format!("part {number} from card {from} to card {to} came as another"));
                    }
                }
                Ok(())
            });
            for number in 0..PARTS {
                std::thread::sleep(PAUSE);
                writer.write(&part(number).collect::<Vec<_>>(), BOUND)?;
                is_read.recv_timeout(BOUND)?;
            }
            writer.close(BOUND)?;
            Ok(reading.join().map_err(|_| "the reader panicked")??)
        })?;
        println!("{} bytes from card {from} to card {to}", PARTS * PART);
    }
    for node in nodes {
        let lost = network.losses(node)?;
        if lost != Losses::default() {
            return Err(format!("card {node} lost packets: {lost:?}").into());
        }
    }
    Ok(())
}

fn stream(addresses: &[PciAddress]) -> Outcome<()> {
    let mut network = Network::open(open(addresses)?)?;
    network.load()?;
    let node = network.nodes().next().ok_or("no card")?;
    let settings = Settings { id: 0, word_bytes: 4, depth: RING_WORDS };
    let (mut reader, mut writer) = (network.reader(node, settings)?, network.writer(node, node, settings)?);
    for round in 0u32.. {
        let mut word = [0; 4];
        writer.write(&round.to_le_bytes(), BOUND)?;
        reader.read_exact(&mut word, BOUND)?;
        if u32::from_le_bytes(word) != round {
            return Err(format!("word {round} came back as {word:?}").into());
        }
        if round == 0 {
            println!("at work");
        }
    }
    Ok(())
}

fn hold(addresses: &[PciAddress]) -> Outcome<()> {
    let function = open(addresses)?.pop().ok_or("no card")?;
    function.set_bus_master(true)?;
    println!("at work");
    while !function.is_removed() {
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("the card is gone");
    Err(fpga_hal::Error::Removed { source: function.ending() }.into())
}

fn serve(folder: &Path) -> Outcome<()> {
    let fabric = Fabric::new(Profile::optweb(u32::try_from(CARDS)?))?;
    let _clock = fabric.start_clock().ok_or("no thread for the fabric's clock")?;
    let serve = |(node, name)| Server::bind(folder.join(name), Arc::new(WithoutMsix(fabric.endpoint(node))))?.spawn();
    let names = (0..CARDS).map(|node| format!("{node}.sock"));
    let _serving = (0..).zip(names).map(serve).collect::<Result<Vec<_>, _>>()?;
    loop {
        std::thread::park();
    }
}

fn run() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let parse = |addresses: &[&str]| addresses.iter().map(|address| address.parse()).collect::<Result<Vec<_>, _>>();
    match words.as_slice() {
        ["serve", folder] => serve(folder.as_ref()),
        ["case", name, addresses @ ..] => case(name, &parse(addresses)?),
        ["copy", address] => copy(&parse(&[*address])?),
        ["times", address] => times(&parse(&[*address])?),
        ["queue", count, address] => queue(count.parse()?, &parse(&[*address])?),
        ["channels", addresses @ ..] => channels(&parse(addresses)?),
        ["stream", address] => stream(&parse(&[*address])?),
        ["hold", address] => hold(&parse(&[*address])?),
        ["gather", addresses @ ..] => gather(&parse(addresses)?),
        _ => Err(
            "usage: fpga-cards serve FOLDER | case NAME ADDRESS... | times ADDRESS | copy ADDRESS | gather ADDRESS... | \
             queue COUNT ADDRESS | channels ADDRESS... | stream ADDRESS | hold ADDRESS"
                .into(),
        ),
    }
}

/// Returns whether an error, or one of its causes, means that a card is gone.
fn is_gone(error: &(dyn Error + 'static)) -> bool {
    let removed = matches!(error.downcast_ref(), Some(fpga_driver::Error::Removed { .. }))
        || matches!(error.downcast_ref(), Some(channel::Error::Card(fpga_driver::Error::Removed { .. })))
        || matches!(error.downcast_ref(), Some(fpga_hal::Error::Removed { .. }));
    removed || error.source().is_some_and(is_gone)
}

fn main() -> ExitCode {
    let Err(error) = run() else { return ExitCode::SUCCESS };
    eprint!("fpga-cards: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprint!(": {error}");
        cause = error.source();
    }
    eprintln!();
    if is_gone(error.as_ref()) { ExitCode::from(GONE) } else { ExitCode::FAILURE }
}

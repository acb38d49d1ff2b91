//! What any function on kernel VFIO offers, whatever it is: nothing is written to its registers.
//!
//! ```text
//! cargo run -p fpga-hal --example vfio -- look ADDRESS             interrupts, reset, DMA memory; closed and opened again
//! cargo run -p fpga-hal --example vfio -- together ADDRESS…        several functions in one domain
//! cargo run -p fpga-hal --example vfio -- fill ADDRESS             allocates until it is refused, and says why
//! cargo run -p fpga-hal --example vfio -- decode ADDRESS           reads a window whose memory decoding is turned off
//! cargo run -p fpga-hal --example vfio -- error ADDRESS            waits until the function reports an error
//! cargo run -p fpga-hal --example vfio -- leave ADDRESS            waits until the function is taken back, and gives it
//! ```
//!
//! `FPGA_VF_TOKEN` in the environment is the token of a function that needs one.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use fpga_hal::{BarIndex, Domain, Function, InterruptKind, PciAddress, config, vfio};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The longest that something outside is waited for.
const BOUND: Duration = Duration::from_secs(60);
const BUFFER: usize = 64 << 10;
/// Buffers that are enough to meet a limit that was set low.
const MANY: usize = 500;

fn open(address: &str, domain: &Domain) -> Outcome<Function> {
    let address: PciAddress = address.parse()?;
    // Nothing is started on it, and some of QEMU's devices have no reset.
    let mut options = vfio::Options { without_reset: true, ..vfio::Options::default() };
    if let Ok(token) = std::env::var("FPGA_VF_TOKEN") {
        options.vf_token = Some(token.parse()?);
    }
    Ok(vfio::open_with(address, domain, &options)?)
}

/// BARs that are there.
fn bars(function: &Function) -> impl Iterator<Item = BarIndex> + '_ {
    (0..BarIndex::COUNT as u8).filter_map(BarIndex::new).filter(|&bar| function.bar(bar).is_some())
}

fn look(address: &str) -> Outcome<()> {
    let domain = Domain::vfio()?;
    expect(domain.allocate(BUFFER, 1).is_err(), "a domain without a function should have no memory")?;
    let function = open(address, &domain)?;
    println!("{} {}", function.identity(), function.bus());
    for bar in bars(&function) {
        let window = function.window(bar)?;
        println!(
            "{bar}: {} bytes, {}",
            window.len(),
            if window.is_mapped() { "mapped" } else { "not mapped as a whole" }
        );
    }
    println!("addresses: {:x?}; mappings: {}", domain.ranges(), domain.entry_limit());
    expect(!domain.ranges().is_empty(), "the domain should have addresses")?;
    for kind in InterruptKind::ALL {
        let count = function.vectors(kind)?;
        if count > 0 {
            let begin = Instant::now();
            expect(
                function.enable_interrupts_of(kind, count)?.len() == usize::from(count),
                "all vectors should be there",
            )?;
            println!("{kind}: {count} vectors, each raised once, in {:.1} ms", begin.elapsed().as_secs_f64() * 1e3);
            expect(function.enable_interrupts_of(kind, count + 1).is_err(), "one vector more should be refused")?;
        }
    }
    function.set_bus_master(true)?;
    let buffer = domain.allocate(8 << 20, 1)?;
    println!("buffer at {}: {}", buffer.iova(), buffer.backing());
    match function.reset() {
        Ok(_) => expect(
            function.config_read_u16(config::COMMAND)? & config::COMMAND_MASTER == 0,
            "a reset should end bus mastering",
        )?,
        Err(fpga_hal::Error::NoReset) => println!("it has no reset"),
        Err(error) => return Err(error.into()),
    }
    expect(open(address, &domain).is_err(), "a second open should be refused")?;
    expect(open(address, &Domain::vfio()?).is_err(), "an open in another domain should be refused")?;
    drop(function);
    let function = open(address, &domain)?;
    expect(domain.mappings() == 1, "the buffer should have stayed mapped")?;
    drop((function, buffer));
    expect(domain.mappings() == 0, "nothing should be mapped any more")?;
    // The domain has let go of the group.
    drop(open(address, &Domain::vfio()?)?);
    Ok(())
}

fn together(addresses: &[String]) -> Outcome<()> {
    let domain = Domain::vfio()?;
    let mut functions = addresses.iter().map(|address| open(address, &domain)).collect::<Outcome<Vec<_>>>()?;
    let buffer = domain.allocate(BUFFER, 1)?;
    for function in &functions {
        println!("{}", function.identity());
        if InterruptKind::ALL.iter().any(|&kind| function.vectors(kind).is_ok_and(|count| count > 0)) {
            function.enable_interrupts(1)?;
        }
    }
    // Each is closed and opened while the others stay.
    for (index, address) in addresses.iter().enumerate() {
        drop(functions.remove(index));
        expect(functions.iter().all(|function| !function.is_removed()), "the others should stay")?;
        functions.insert(index, open(address, &domain)?);
    }
    drop(functions);
    drop(buffer);
    expect(domain.mappings() == 0, "nothing should be mapped any more")
}

fn fill(address: &str) -> Outcome<()> {
    let domain = Domain::vfio()?;
    let _function = open(address, &domain)?;
    let mut buffers = Vec::new();
    let refusal = loop {
        match domain.allocate(BUFFER, 1) {
            Ok(buffer) => buffers.push(buffer),
            Err(error) => break error,
        }
        expect(buffers.len() < MANY, "there should be a limit")?;
    };
    println!("after {} KiB in {} buffers: {refusal}", buffers.len() * BUFFER / 1024, buffers.len());
    buffers.pop();
    drop(domain.allocate(BUFFER, 1)?);
    Ok(())
}

fn decode(address: &str) -> Outcome<()> {
    let domain = Domain::vfio()?;
    let function = open(address, &domain)?;
    for bar in bars(&function) {
        let window = function.window(bar)?;
        if window.is_mapped() {
            let before = window.read_u32(0)?;
            function.config_write_u16(config::COMMAND, 0)?;
            let after = window.read_u32(0)?;
            println!("{bar} reads {before:#x}, and {after:#x} without memory decoding");
            expect(
                after == u32::MAX && function.check_alive(after).is_err(),
                "it should read all-ones and count as gone",
            )?;
            return Ok(());
        }
    }
    Err("it has no BAR that is mapped".into())
}

fn error(address: &str) -> Outcome<()> {
    let domain = Domain::vfio()?;
    let function = open(address, &domain)?;
    expect(!function.take_error(), "there should be no error yet")?;
    ready()?;
    let begin = Instant::now();
    while !function.take_error() {
        expect(begin.elapsed() < BOUND, "an error should have been reported")?;
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("an error was reported");
    expect(!function.take_error(), "an error should be reported once")
}

fn leave(address: &str) -> Outcome<()> {
    let domain = Domain::vfio()?;
    let function = open(address, &domain)?;
    let buffer = domain.allocate(BUFFER, 1)?;
    let interrupts = function.enable_interrupts(1)?;
    ready()?;
    match interrupts[0].wait(BOUND) {
        Err(fpga_hal::Error::Removed { .. }) => println!("the wait says that it is gone"),
        other => return Err(format!("the wait ended with {other:?}").into()),
    }
    expect(function.is_removed(), "it should be gone")?;
    expect(matches!(function.reset(), Err(fpga_hal::Error::Removed { .. })), "a reset should say that it is gone")?;
    let begin = Instant::now();
    drop((interrupts, function));
    println!("closed in {} ms", begin.elapsed().as_millis());
    // The memory outlives it, and goes without a word.
    drop(buffer);
    expect(domain.mappings() == 0, "nothing should be mapped any more")
}

/// Says that the rest of the world may begin.
fn ready() -> Outcome<()> {
    println!("ready");
    Ok(std::io::stdout().flush()?)
}

fn expect(holds: bool, what: &str) -> Outcome<()> {
    if holds { Ok(()) } else { Err(what.into()) }
}

fn run() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["look", address] => look(address),
        ["together", ..] if arguments.len() > 1 => together(&arguments[1..]),
        ["fill", address] => fill(address),
        ["decode", address] => decode(address),
        ["error", address] => error(address),
        ["leave", address] => leave(address),
        _ => Err("usage: vfio look|together|fill|decode|error|leave ADDRESS…".into()),
    }
}

fn main() -> ExitCode {
    let Err(error) = run() else { return ExitCode::SUCCESS };
    eprint!("vfio: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprint!(": {error}");
        cause = error.source();
    }
    eprintln!();
    ExitCode::FAILURE
}

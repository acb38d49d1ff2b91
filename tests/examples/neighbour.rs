//! Prints how long a register read of one card takes while the host of another card, of the same fabric, keeps that card busy: all
//! cards of a fabric share its lock.
#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cmdseq::instruction::{Rights, Window};
use cmdseq::{Instruction, Operand, Status};
use fpga_mock::{Fabric, Profile};
use fpga_regs::sequencer;
use fpga_tests::raw_host::RawHost;

const GIB: u64 = 1 << 30;
/// Host memory of each card, bytes.
const HOST: u64 = 16 << 20;
const PATTERN: u64 = 0x0807_0605_0403_0201;
const WINDOW: Window = Window { slot: 0, key: 1 };
/// Of each kind of work.
const TIME: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "{:<24}{:>8}{:>12}{:>12}{:>12}{:>16}",
        "NEIGHBOUR", "READS", "MEDIAN us", "P99 us", "WORST us", "MOST HELD KiB"
    );
    measure("idle", |_| Vec::new())?;
    measure("no-ops", |_| vec![Instruction::nop(); 15])?;
    measure("fill of 1 GiB", |_| vec![Instruction::fill(card(0), GIB, PATTERN)])?;
    measure("copy of 1 GiB", |_| {
        vec![Instruction::fill(card(0), GIB, PATTERN), Instruction::copy(card(0), card(GIB), GIB)]
    })?;
    measure("from host memory", |host| vec![Instruction::copy(Operand::host(host), card(0), HOST); 8])?;
    measure("to host memory", |host| vec![Instruction::copy(card(0), Operand::host(host), HOST); 8])?;
    measure("rdma_write of 4 GiB", |_| {
        vec![
            Instruction::fill(card(0), 4 * GIB, PATTERN),
            Instruction::rdma_write(1, card(0), card(0), 4 * GIB).through(WINDOW),
        ]
    })?;
    Ok(())
}

/// An address of card memory.
fn card(address: u64) -> Operand {
    Operand::card(address)
}

fn measure(name: &str, work: impl Fn(u64) -> Vec<Instruction> + Send + 'static) -> Result<(), Box<dyn Error>> {
    let fabric = Fabric::new(Profile::optweb(3))?;
    let _clock = fabric.start_clock().ok_or("no clock")?;
    let [mut busy, mut peer, quiet] = [0, 1, 2].map(|node| RawHost::attach(fabric.endpoint(node), HOST as usize));
    peer.run(&Instruction::open(WINDOW, Rights::all(), card(0), 8 * GIB));
    let stop = Arc::new(AtomicBool::new(false));
    let worker = thread::spawn({
        let stop = stop.clone();
        move || {
            let work = work(busy.address());
            while !stop.load(Ordering::Relaxed) && !work.is_empty() {
                busy.push_all(&work);
                for instruction in &work {
                    let done = busy.wait();
                    assert_eq!(done.status, Status::Done, "{instruction:?}");
                }
            }
        }
    });
    let mut times = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < TIME {
        let one = Instant::now();
        quiet.read(sequencer::MAGIC);
        times.push(one.elapsed());
        // A host that looks now and then, not one that holds the lock itself.
        thread::sleep(Duration::from_micros(50));
    }
    stop.store(true, Ordering::Relaxed);
    worker.join().map_err(|_| "the neighbour's host failed")?;
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    let held = fabric.statistics().most_held_bytes / 1024;
    println!("{name:<24}{:>8}{:>12.1}{:>12.1}{:>12.1}{held:>16}", times.len(), at(0.5), at(0.99), at(1.0));
    Ok(())
}

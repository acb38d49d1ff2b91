//! Processes that use a card, and are killed.
#![allow(dead_code, unreachable_pub, reason = "shared with other tests, and this test uses only part")]

#[path = "vfio_user/card.rs"]
mod card;
#[path = "vfio_user/setting.rs"]
mod setting;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use fpga_hal::vfio_user::connect;
use fpga_hal::{BarIndex, Domain};
use setting::Served;

const VICTIM: &str = "FPGA_TESTS_VICTIM";

/// The victim: copies for ever.
fn use_forever(path: &str) -> ! {
    let domain = Domain::vfio_user();
    let function = connect(path.as_ref(), &domain).unwrap();
    let registers = function.window(BarIndex::new(0).unwrap()).unwrap();
    let buffer = domain.allocate(1 << 20, 1).unwrap();
    function.set_bus_master(true).unwrap();
    let interrupts = function.enable_interrupts(1).unwrap();
    println!("victim ready");
    loop {
        registers.write_u64(card::SOURCE, buffer.iova().0).unwrap();
        registers.write_u64(card::TARGET, buffer.iova().0 + (1 << 19)).unwrap();
        registers.write_u32(card::BYTES, 1 << 19).unwrap();
        registers.write_u32(card::DOORBELL, 0).unwrap();
        assert!(interrupts[0].wait(Duration::from_secs(30)).unwrap());
    }
}

#[test]
fn the_next_open_works() {
    if let Ok(path) = std::env::var(VICTIM) {
        use_forever(&path);
    }
    let served = Served::new();
    for round in 0..30u64 {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_next_open_works", "--nocapture"])
            .env(VICTIM, served.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("victim ready")), "the victim did not start");
        thread::sleep(Duration::from_micros(round * 211));
        victim.kill().unwrap();
        victim.wait().unwrap();
        // At the first attempt.
        let function = connect(served.path(), &Domain::vfio_user()).unwrap();
        let registers = function.window(BarIndex::new(0).unwrap()).unwrap();
        assert_eq!(registers.read_u32(card::DONE).unwrap(), 0, "the card was reset");
        assert!(served.card.owners_lost.load(Ordering::Relaxed) > round);
        drop((registers, function));
        served.wait_for_end(2 * (round + 1));
    }
}

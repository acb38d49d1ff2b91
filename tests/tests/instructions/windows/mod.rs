//! Windows: one-sided operations reach what the peer has opened for them, and nothing else. Whatever is refused writes nothing,
//! adds to no signal, and its issuer is told who refused it.

mod any_request;
mod checks;
mod clients;
mod closing;
mod programs;

use std::time::Duration;

use cmdseq::instruction::{Rights, Window};
use cmdseq::{Instruction, Operand, Status};
use fpga_driver::{Bound, Card, Error};

/// Far above any time that a test takes.
const LONG: Duration = Duration::from_secs(60);
/// Where a window begins, and its bytes.
const AT: u64 = 0x1_0000;
const BYTES: u64 = 256;
const WINDOW: Window = Window { slot: 2, key: 0xdead_beef };

fn card(address: u64) -> Operand {
    Operand::card(address)
}

/// Opens [`WINDOW`] over [`BYTES`] at [`AT`].
fn open(rights: Rights) -> Instruction {
    Instruction::open(WINDOW, rights, card(AT), BYTES)
}

/// Runs one instruction: status and detail of its completion.
fn status(card: &mut Card, instruction: impl Into<Bound>) -> (Status, u16) {
    match card.run([instruction], LONG) {
        Ok(_) => (Status::Done, 0),
        Err(Error::Failed { status, detail, .. }) => (status, detail),
        Err(other) => panic!("{other}"),
    }
}

fn done(card: &mut Card, instruction: impl Into<Bound>) {
    assert_eq!(status(card, instruction), (Status::Done, 0));
}

/// Memory around the window, and some far from it.
fn memory(card: &mut Card) -> Vec<u8> {
    let mut all = vec![0; 4096];
    card.read_memory(AT - 1024, &mut all[..3072]).unwrap();
    card.read_memory(0, &mut all[3072..]).unwrap();
    all
}

/// Fills the memory that [`memory`] returns with `byte`.
fn fill(card: &mut Card, byte: u8) {
    card.write_memory(AT - 1024, &[byte; 3072]).unwrap();
    card.write_memory(0, &[byte; 1024]).unwrap();
}

/// Returns what a signal of `card` is, and makes it zero.
fn take_signal(card: &mut Card, signal: u16) -> u32 {
    let is_there = |card: &mut Card| {
        let token = card.queue_mut().submit(Instruction::wait_signal(signal, 1)).unwrap();
        let came = card.queue_mut().wait(&token, Duration::from_millis(20)).is_ok();
        token.abandon();
        came
    };
    let mut count = 0;
    while is_there(card) {
        count += 1;
    }
    card.abort().unwrap();
    count
}

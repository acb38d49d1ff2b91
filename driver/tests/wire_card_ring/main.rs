//! The tests of `wire`, with rings in card memory that a BAR shows, and what only such rings do.
#![forbid(unsafe_code)]

#[path = "../wire/calibration.rs"]
mod calibration;
#[path = "../wire/card.rs"]
mod card;
mod card_ring;
#[path = "../wire/cards.rs"]
mod cards;
#[path = "../wire/cluster.rs"]
mod cluster;
#[path = "../wire/communicators.rs"]
mod communicators;
#[path = "../wire/discovery.rs"]
mod discovery;
#[path = "../wire/errors.rs"]
mod errors;
#[path = "../wire/launches.rs"]
mod launches;
#[path = "../wire/lifetime.rs"]
mod lifetime;
#[path = "../wire/logged.rs"]
mod logged;
#[path = "../wire/memory.rs"]
mod memory;
#[path = "../wire/programs.rs"]
mod programs;
#[path = "../wire/queue.rs"]
mod queue;
#[path = "../wire/windows.rs"]
mod windows;

use fpga_driver::board::{Board, BoardFunction};
use fpga_driver::{Card, Result};
use fpga_fake::{RING_ADDRESS, RING_BAR};
use fpga_hal::Function;

/// Bytes of the BAR with the rings.
pub(crate) const RING_BYTES: u64 = 128 << 10;

/// A board whose rings have `bytes` bytes at `offset` of the fake's memory.
pub(crate) fn board(offset: u64, bytes: u64) -> BoardFunction {
    let text = format!(
        "name = \"fake\"
        about = \"a fake with rings in its memory\"
        [[function]]
        role = \"card\"
        ids = []
        bars = [{{ bar = 0, bytes = 0x1000 }}, {{ bar = {RING_BAR}, bytes = {RING_BYTES} }}]
        [[function.block]]
        kind = \"feature-list\"
        bar = 0
        offset = 0
        basis = \"choice\"
        source = \"fpga-fake\"
        [[function.block]]
        kind = \"ring-memory\"
        bar = {RING_BAR}
        offset = {offset}
        bytes = {bytes}
        sequencer = {}
        basis = \"choice\"
        source = \"fpga-fake\"
        ",
        RING_ADDRESS + offset
    );
    Board::parse("fake.toml", &text).expect("a board").functions.remove(0)
}

pub(crate) fn open_card(function: Function) -> Result<Card> {
    Card::open_on_board(function, &board(0, RING_BYTES))
}

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

use fpga_driver::{Card, Result, RingWindow};
use fpga_fake::{RING_ADDRESS, RING_BAR};
use fpga_hal::{BarIndex, Function};

pub(crate) fn open_card(function: Function) -> Result<Card> {
    let bar = BarIndex::new(RING_BAR).expect("a BAR");
    Card::open_with_card_ring(function, RingWindow { bar, offset: 0, address: RING_ADDRESS })
}

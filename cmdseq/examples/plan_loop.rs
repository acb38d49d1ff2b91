//! Plans in functions of their own, for a profiler that counts what they run.
#![forbid(unsafe_code)]

use std::hint::black_box;

use cmdseq::Capabilities;
use cmdseq::plan::{Collective, plan};

#[path = "../tests/cards/mod.rs"]
mod cards;

fn broadcast(capabilities: Capabilities, lanes: u32) {
    let capabilities = Capabilities { lanes, ..capabilities };
    let request = cards::request(Collective::Broadcast, capabilities.nodes, 64 << 20, None);
    black_box(plan(black_box(&request), black_box(&capabilities)).expect("a plan"));
}

#[inline(never)]
fn plan_16_cards() {
    broadcast(cards::connected(16), 2);
}

#[inline(never)]
fn plan_8x8_cards() {
    broadcast(cards::dragonfly(8, 8), 6);
}

fn main() {
    plan_16_cards();
    plan_8x8_cards();
}

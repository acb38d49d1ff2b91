//! The rows of the BlueLink paper, with their published values and tolerances. Only this module and [`area`](super::area)
//! contain published numbers.

use super::super::comparison::{Accept, Row};
use super::ethernet::Stack;
use super::measure::{Lab, PULLS, Width, acceptance_cycles, added_cycles, idle_ns};
use crate::exit::Result;

/// The measured quantity of a row. Payloads are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    Efficiency(Width, u64),
    Framing(Stack, u64),
    Crossing(Width, Stack),
    AddedCycles,
    Acceptance,
    Idle(u64),
    Loaded(u64),
    Meanwhile,
    Afterwards,
    Wrong,
}

/// Payloads of figure 3, in bits.
pub(super) const PAYLOADS: [u64; 6] = [32, 64, 128, 256, 512, 1024];
/// Payload of the latency rows, in bytes: a flit.
const FLIT: u64 = 8;
impl Quantity {
    pub(super) fn measure(self, lab: &mut Lab) -> Result<f64> {
        match self {
            Quantity::Efficiency(width, payload) => lab.efficiency(width, payload),
            Quantity::Framing(stack, payload) => Ok(100.0 * (payload * 8) as f64 / stack.line_bits(payload)),
            Quantity::Crossing(width, stack) => lab.crossing(width, stack),
            Quantity::AddedCycles => added_cycles(),
            Quantity::Acceptance => acceptance_cycles(),
            Quantity::Idle(payload) => idle_ns(payload),
            Quantity::Loaded(payload) => lab.loaded_ns(payload),
            Quantity::Meanwhile => Ok(lab.pull()?.meanwhile as f64),
            Quantity::Afterwards => Ok(lab.pull()?.afterwards as f64),
            Quantity::Wrong => Ok(lab.pull()?.wrong as f64),
        }
    }
}

/// One fact: the paper gives only the crossing of both.
const FRAMING: &str = "bits on the line, of flits and of Ethernet frames";
const CABLE: &str = "what a pulled cable does";

/// Returns all rows, in the order of output.
pub(super) fn all() -> Vec<Row<Quantity>> {
    let mut rows = efficiency();
    rows.extend(crossings());
    rows.extend(latency());
    rows.extend(cable());
    rows
}

/// Figure 3, whose points are lost in the text of the paper.
fn efficiency() -> Vec<Row<Quantity>> {
    let of = |name: &str, title: &str, bits: u64, quantity| {
        let what = format!("{title}, {bits} bits of payload, payload per bit on the line");
        Row::new(format!("efficiency/{name}/{bits}"), what, "%", None, Accept::Anything, quantity)
    };
    let ours = Width::ALL.into_iter().flat_map(|width| {
        PAYLOADS
            .map(|bits| of(width.name(), width.title(), bits, Quantity::Efficiency(width, bits / 8)).predicted(FRAMING))
    });
    let others = Stack::ALL.into_iter().flat_map(|stack| {
        PAYLOADS
            .map(|bits| of(stack.name(), stack.title(), bits, Quantity::Framing(stack, bits / 8)).predicted(FRAMING))
    });
    ours.chain(others).collect()
}

fn crossings() -> Vec<Row<Quantity>> {
    let of = |width: Width, stack: Stack, published, accept| {
        let id = format!("crossing/{}-{}", width.name(), stack.name());
        let what = format!("{}, fewer bits on the line than {} up to", width.title(), stack.title());
        Row::new(id, what, "bits", published, accept, Quantity::Crossing(width, stack)).predicted(FRAMING)
    };
    // Section VIII: higher throughput up to 256 bits. A flit has 64.
    let mut rows = vec![of(Width::Bits64, Stack::Ethernet, Some(256.0), Accept::Between(256.0 - 64.0, 256.0 + 64.0))];
    for (width, stack) in [
        (Width::Bits64, Stack::Ip),
        (Width::Bits64, Stack::Tcp),
        (Width::Bits128, Stack::Ethernet),
        (Width::Bits128, Stack::Tcp),
    ] {
        rows.push(of(width, stack, None, Accept::Anything));
    }
    rows
}

fn latency() -> Vec<Row<Quantity>> {
    let fifo = "a flit on an idle link, cycles more than through a FIFO on the chip (published: 10 to 20)";
    let accepted = "cycles in which an idle link accepts a flit (published: 1; Altera's Ethernet core takes 9)";
    vec![
        Row::new("latency/fifo", fifo, "cycles", None, Accept::Between(10.0, 20.0), Quantity::AddedCycles).fitted(),
        Row::new("latency/acceptance", accepted, "cycles", Some(1.0), Accept::Between(1.0, 1.0), Quantity::Acceptance)
            .predicted("acceptance in one cycle"),
        Row::new("latency/idle", "a flit on an idle link", "ns", None, Accept::Anything, Quantity::Idle(FLIT)),
        Row::new(
            "latency/loaded",
            "a flit on a fully loaded link",
            "ns",
            None,
            Accept::Anything,
            Quantity::Loaded(FLIT),
        ),
    ]
}

fn cable() -> Vec<Row<Quantity>> {
    let exactly = |value: f64| Accept::Between(value, value);
    let of = |id: &str, what: &str, published: f64, quantity| {
        let what = format!("cable out for 1 s, {PULLS} times, {what}");
        Row::new(format!("unplugged/{id}"), what, "flits", Some(published), exactly(published), quantity)
            .predicted(CABLE)
    };
    vec![
        of("meanwhile", "blocked reads that return while it is out", 0.0, Quantity::Meanwhile),
        of("afterwards", "blocked reads that return when it is back", PULLS as f64, Quantity::Afterwards),
        of("wrong", "flits lost, doubled, reordered or wrong", 0.0, Quantity::Wrong),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::comparison::{Claim, assert_ids_are_different};
    use super::*;

    #[test]
    fn ids_are_different() {
        assert_ids_are_different(&all());
    }

    #[test]
    fn only_the_latency_is_fitted() {
        let is_fitted = |row: &Row<Quantity>| row.claim == Claim::Fitted;
        let fitted: Vec<String> = all().into_iter().filter(is_fitted).map(|row| row.id).collect();
        assert_eq!(fitted, ["latency/fifo"]);
    }
}

//! Places the cards' instructions on the host's clock.

use cmdseq::Completion;
use fpga_driver::trace::{CardTrace, Counter, InstructionRecord, Interval, Piece, Trace, correlate};

use crate::network::Network;

/// An instruction on the host's clock.
#[derive(Clone, Copy)]
pub(crate) struct Placed {
    /// Index of the card, and of its record.
    pub(crate) card: usize,
    pub(crate) index: usize,
    /// Index of the piece of the clock.
    pub(crate) piece: usize,
    pub(crate) interval: Interval,
}

/// Instructions of one clock, and its pieces.
pub(crate) struct Clock {
    pub(crate) pieces: Vec<Piece>,
    /// By the beginning of their intervals.
    pub(crate) instructions: Vec<Placed>,
}

/// Whether the card has said anything of an instruction. It has not if the host stopped it.
pub(crate) fn has_cycles(record: &InstructionRecord) -> bool {
    let completion = &record.completion;
    completion.issued != 0 || completion.t2 != 0
}

fn interval(record: &InstructionRecord, begin: u64, end: u64) -> Interval {
    Interval { begin, end, after_ns: record.rung_ns, before_ns: record.seen_ns }
}

/// The clocks of the cards: each its own, or the fabric's for all.
pub(crate) fn place(trace: &Trace, network: Option<&Network<'_>>) -> Vec<Clock> {
    let cards = || trace.cards.iter().enumerate();
    match network {
        Some(network) => {
            let mut all: Vec<Placed> = cards().flat_map(|(index, card)| in_time(index, card, network)).collect();
            all.sort_by_key(|one| (one.interval.begin, one.card, one.index));
            vec![clock(Counter::FABRIC, all)]
        }
        None => cards()
            .map(|(index, card)| clock(Counter::cycles(card.clock_khz, card.is_mock), in_cycles(index, card)))
            .collect(),
    }
}

fn clock(counter: Counter, mut instructions: Vec<Placed>) -> Clock {
    let intervals: Vec<Interval> = instructions.iter().map(|one| one.interval).collect();
    let pieces = correlate(counter, &intervals);
    for (number, piece) in pieces.iter().enumerate() {
        for one in &mut instructions[piece.first..piece.first + piece.count] {
            one.piece = number;
        }
    }
    Clock { pieces, instructions }
}

/// The instructions of a card in its own cycles.
fn in_cycles(card: usize, of: &CardTrace) -> Vec<Placed> {
    let each = |(index, record): (usize, &InstructionRecord)| {
        let begin = record.completion.issued;
        let end = begin.wrapping_add(record.completion.t2) & Completion::CYCLES_MASK;
        Placed { card, index, piece: 0, interval: interval(record, begin, end) }
    };
    of.instructions.iter().enumerate().filter(|(_, record)| has_cycles(record)).map(each).collect()
}

/// The instructions of a card in the time of the network.
fn in_time(card: usize, of: &CardTrace, network: &Network<'_>) -> Vec<Placed> {
    let each = |(index, record): (usize, &InstructionRecord)| {
        let begin = (network.time_of)(of.node, record.completion.issued)?;
        let end = (network.time_of)(of.node, record.completion.issued.wrapping_add(record.completion.t2))?;
        Some(Placed { card, index, piece: 0, interval: interval(record, begin, end.max(begin)) })
    };
    of.instructions.iter().enumerate().filter(|(_, record)| has_cycles(record)).filter_map(each).collect()
}

//! What is on the cards before a set runs.

use cmdseq::verify::Stored;
use cmdseq::{Flags, Instruction, Operand};

/// The last rank's card has no user logic.
pub(crate) fn has_logic(rank: usize, ranks: u32) -> bool {
    rank + 1 < ranks as usize
}

/// What is stored on the cards before any set: in slot 0 what works alone, in slot 1 what all have to run together.
pub(crate) fn stored(rank: usize, ranks: u32) -> Vec<Stored> {
    let (ranks, own) = (ranks as u16, rank as u16);
    let at = |argument| Operand::card(0).plus_argument(argument);
    let last = |it: Instruction| it.with_flags(Flags::LAST);
    let alone = vec![Instruction::fill(at(1), 64, 0x1122_3344_5566_7788), last(Instruction::copy(at(0), at(1), 32))];
    let shift = Instruction::sendrecv((own + 1) % ranks, (own + ranks - 1) % ranks, at(0), at(1), 64);
    let together = vec![Instruction::delay(20), shift, last(Instruction::barrier())];
    vec![Stored { slot: 0, instructions: alone }, Stored { slot: 1, instructions: together }]
}

pub(crate) fn encoded(program: &[Instruction]) -> Vec<u8> {
    program.iter().flat_map(|it| it.encode()).collect()
}

//! Pairwise exchange: in each round, every rank gives its block for one other rank for that rank's.
//!
//! The rounds are those of a tournament in which everybody meets everybody once (the circle method). With an odd number of
//! ranks, each sits out one round.

use crate::{Capabilities, Instruction, Operand};

/// Address and bytes of a block.
pub(super) type Block = (u64, u64);

/// What rank `own` of `ranks` runs to give each other rank what `sends` says and get what `receives` says. Blocks have room up
/// to the alignment.
pub(super) fn exchanges(
    own: u32,
    ranks: u32,
    capabilities: &Capabilities,
    sends: impl Fn(u32) -> Block,
    receives: impl Fn(u32) -> Block,
) -> impl Iterator<Item = Instruction> {
    let align = u64::from(capabilities.address_align.max(1));
    let rounds = if ranks.is_multiple_of(2) { ranks.saturating_sub(1) } else { ranks };
    let partners = (0..rounds).filter_map(move |round| partner(own, round, ranks));
    partners.flat_map(move |other| exchange(other as u16, sends(other), receives(other), align)).flatten()
}

/// What rank `own` meets in round `round`, if it does not sit out.
fn partner(own: u32, round: u32, ranks: u32) -> Option<u32> {
    // All but the last of an even number are in a circle, where those at equal distances from `round` / 2 meet. Who would meet
    // himself meets the last.
    let circle = ranks - u32::from(ranks.is_multiple_of(2));
    if own == circle {
        let half = circle.div_ceil(2);
        return Some((u64::from(round) * u64::from(half) % u64::from(circle)) as u32);
    }
    let other = (round + circle - own) % circle;
    match other == own {
        true => (circle < ranks).then_some(circle),
        false => Some(other),
    }
}

/// As much as both have at once, and then the rest of the longer.
fn exchange(other: u16, (source, send): Block, (destination, receive): Block, align: u64) -> [Option<Instruction>; 2] {
    let shorter = send.min(receive);
    // The rest begins where blocks may.
    let both = shorter.checked_next_multiple_of(align).unwrap_or(shorter).min(send.max(receive));
    let both = if shorter == 0 { 0 } else { both };
    let (from, to) = (Operand::card(source), Operand::card(destination));
    let at_once = (both != 0).then(|| Instruction::sendrecv(other, other, from, to, both));
    let rest = if send > both {
        Some(Instruction::send(other, Operand::card(source + both), send - both))
    } else if receive > both {
        Some(Instruction::recv(other, Operand::card(destination + both), receive - both))
    } else {
        None
    };
    [at_once, rest]
}

/// Puts a rank's own block where it is to be.
pub(super) fn own((source, bytes): Block, (destination, _): Block) -> Option<Instruction> {
    (bytes != 0).then(|| Instruction::copy(Operand::card(source), Operand::card(destination), bytes))
}

#[cfg(test)]
mod tests {
    use super::partner;

    #[test]
    fn everybody_meets_everybody_once() {
        for ranks in 2..40 {
            let rounds = if ranks % 2 == 0 { ranks - 1 } else { ranks };
            for own in 0..ranks {
                let mut met: Vec<u32> = (0..rounds).filter_map(|round| partner(own, round, ranks)).collect();
                for round in 0..rounds {
                    let Some(other) = partner(own, round, ranks) else { continue };
                    assert_eq!(partner(other, round, ranks), Some(own), "round {round} of {ranks}");
                }
                met.sort_unstable();
                assert!(met.into_iter().eq((0..ranks).filter(|other| *other != own)), "rank {own} of {ranks}");
            }
        }
    }
}

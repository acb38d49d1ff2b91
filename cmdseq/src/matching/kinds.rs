//! Kinds of operations by what they need from other cards.

use crate::instruction::takes_tables;
use crate::{Capabilities, Flags, Instruction, Operation};

/// Whether the operation needs instructions of other cards.
pub(crate) const fn takes_partners(operation: Operation) -> bool {
    operation.fields().communicator && operation.fields().lane
}

/// Whether the operation meets an instruction of one other card, or of two.
pub(crate) const fn is_paired(operation: Operation) -> bool {
    operation.fields().peer && operation.fields().lane
}

/// Whether the operation accesses memory of a card that runs no instruction for it.
pub(crate) const fn is_one_sided(operation: Operation) -> bool {
    operation.fields().peer && operation.fields().window
}

/// Whether the card runs `instruction` by rendezvous.
pub(crate) fn is_rendezvous(instruction: &Instruction, capabilities: &Capabilities) -> bool {
    if instruction.form().is_some() {
        return true;
    }
    !instruction.flags.contains(Flags::EAGER)
        && (instruction.flags.contains(Flags::RENDEZVOUS)
            || takes_tables(instruction.operation)
            || instruction.bytes > capabilities.eager_limit)
}

/// The direction of a transfer, seen from one of the two cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    Out,
    In,
}

impl Direction {
    /// The direction seen from the other card.
    pub(super) fn back(self) -> Self {
        match self {
            Direction::Out => Direction::In,
            Direction::In => Direction::Out,
        }
    }
}

/// Returns the transfers of a paired instruction: direction, and rank of the partner in the communicator. Empty transfers and
/// those with the own rank meet no partner.
pub(crate) fn directions(instruction: &Instruction, own: u32) -> [Option<(Direction, u32)>; 2] {
    let (root, peer) = (u32::from(instruction.root), u32::from(instruction.peer));
    let directions = match instruction.operation {
        Operation::Send => [Some((Direction::Out, peer)), None],
        Operation::Recv | Operation::RecvReduce => [Some((Direction::In, peer)), None],
        Operation::Sendrecv | Operation::SendrecvReduce => [Some((Direction::Out, peer)), Some((Direction::In, root))],
        _ => [None, None],
    };
    directions.map(|direction| direction.filter(|(_, partner)| instruction.bytes > 0 && *partner != own))
}

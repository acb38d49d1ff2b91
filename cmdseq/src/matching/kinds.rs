//! What kinds of operations need of other cards.

use crate::instruction::{is_collective, takes_tables};
use crate::{Capabilities, Flags, Instruction, Operation};

/// Whether the operation needs instructions of other cards.
pub(crate) const fn takes_partners(operation: Operation) -> bool {
    is_collective(operation) || is_paired(operation)
}

/// Whether the operation meets one instruction of one other card, or one of each of two.
pub(crate) const fn is_paired(operation: Operation) -> bool {
    use Operation::{Recv, RecvReduce, Send, Sendrecv, SendrecvReduce};
    matches!(operation, Send | Recv | Sendrecv | RecvReduce | SendrecvReduce)
}

/// Whether the operation works on the memory of a card that runs nothing for it.
pub(crate) const fn is_one_sided(operation: Operation) -> bool {
    matches!(operation, Operation::RdmaRead | Operation::RdmaWrite | Operation::PutSignal)
}

/// Whether the card runs `instruction` as rendezvous: decided once, by its largest piece.
pub(crate) fn is_rendezvous(instruction: &Instruction, capabilities: &Capabilities) -> bool {
    !instruction.flags.contains(Flags::EAGER)
        && (instruction.flags.contains(Flags::RENDEZVOUS)
            || takes_tables(instruction.operation)
            || instruction.bytes > capabilities.eager_limit)
}

/// The direction of what a pair exchanges, from one of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    Out,
    In,
}

impl Direction {
    /// The same, from the other of the two.
    pub(super) fn back(self) -> Self {
        match self {
            Direction::Out => Direction::In,
            Direction::In => Direction::Out,
        }
    }
}

/// Where a paired instruction sends to and receives from, by rank of the communicator; nothing of what it does alone. What is
/// empty is neither sent nor waited for.
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

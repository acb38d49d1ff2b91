//! The collectives as cards run them, described once: who sends to whom, and how many blocks each side has.

use crate::{Instruction, Operation};

/// Which ranks send to which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pattern {
    FromRoot,
    ToRoot,
    ToAll,
    /// Each rank to itself and all later ones.
    ToSelfAndLater,
    ToLater,
}

/// The blocks on one side of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocks {
    /// One block, the same for all partners.
    One,
    /// One block for each rank.
    Each,
    /// One block for each rank, placed by the table in this slot.
    Listed(u64),
}

/// A collective that moves data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exchange {
    pattern: Pattern,
    root: u32,
    source: Blocks,
    destination: Blocks,
    /// Whether blocks that arrive are folded.
    pub(crate) folds: bool,
}

impl Exchange {
    /// Describes `instruction`; `None` if it is not a collective that moves data.
    pub(crate) fn of(instruction: &Instruction) -> Option<Self> {
        use Blocks::{Each, Listed, One};
        use Pattern::{FromRoot, ToAll, ToLater, ToRoot, ToSelfAndLater};
        let slot = instruction.extent;
        let (pattern, source, destination) = match instruction.operation {
            Operation::Scatter => (FromRoot, Each, One),
            Operation::Gather => (ToRoot, One, Each),
            Operation::Broadcast => (FromRoot, One, One),
            Operation::Alltoall => (ToAll, Each, Each),
            Operation::Allgather => (ToAll, One, Each),
            Operation::Reduce => (ToRoot, One, One),
            Operation::Allreduce => (ToAll, One, One),
            Operation::ReduceScatter => (ToAll, Each, One),
            Operation::Scan => (ToSelfAndLater, One, One),
            Operation::Exscan => (ToLater, One, One),
            Operation::AlltoallScan => (ToAll, Each, Each),
            Operation::Scatterv => (FromRoot, Listed(slot), One),
            Operation::Gatherv => (ToRoot, One, Listed(slot)),
            Operation::Allgatherv => (ToAll, One, Listed(slot)),
            Operation::Alltoallv => {
                let (sends, receives) = alltoallv_slots(slot);
                (ToAll, Listed(sends), Listed(receives))
            }
            _ => return None,
        };
        let folds = instruction.operation.fields().combine;
        Some(Exchange { pattern, root: instruction.root.into(), source, destination, folds })
    }

    /// Whether rank `from` sends to rank `to`; to itself, whether it keeps a block.
    pub(super) fn goes(&self, from: u32, to: u32) -> bool {
        match self.pattern {
            Pattern::FromRoot => from == self.root,
            Pattern::ToRoot => to == self.root,
            Pattern::ToAll => true,
            Pattern::ToSelfAndLater => from <= to,
            Pattern::ToLater => from < to,
        }
    }

    /// The blocks that `rank` reads; `None` if it sends nothing.
    pub(crate) fn source(&self, rank: u32) -> Option<Blocks> {
        (self.pattern != Pattern::FromRoot || rank == self.root).then_some(self.source)
    }

    /// The blocks that `rank` writes; `None` if it receives nothing.
    pub(crate) fn destination(&self, rank: u32) -> Option<Blocks> {
        (self.pattern != Pattern::ToRoot || rank == self.root).then_some(self.destination)
    }

    /// The one partner of every rank, if there is one.
    pub(super) fn hub(&self) -> Option<u32> {
        matches!(self.pattern, Pattern::FromRoot | Pattern::ToRoot).then_some(self.root)
    }

    /// Whether the folds of the first contributions are kept too: a block for each rank.
    pub(super) fn keeps_partials(&self) -> bool {
        self.folds && self.destination == Blocks::Each
    }

    /// Whether a rank sends copies of one block to several.
    pub(super) fn is_multicast(&self) -> bool {
        self.source == Blocks::One && self.pattern != Pattern::ToRoot
    }
}

/// The blocks that `rank` reads at the source and writes at the destination of an instruction on a communicator; `None` for other
/// operations.
pub(crate) fn blocks_of(instruction: &Instruction, rank: u32) -> Option<[Option<Blocks>; 2]> {
    use Operation::{Barrier, PutSignal, RdmaRead, RdmaWrite, Recv, RecvReduce, Send, Sendrecv, SendrecvReduce};
    if let Some(exchange) = Exchange::of(instruction) {
        return Some([exchange.source(rank), exchange.destination(rank)]);
    }
    let one = Some(Blocks::One);
    match instruction.operation {
        Barrier => Some([None, None]),
        Send | RdmaWrite | PutSignal => Some([one, None]),
        Recv | RdmaRead => Some([None, one]),
        Sendrecv | RecvReduce | SendrecvReduce => Some([one, one]),
        _ => None,
    }
}

/// The table slots in the extent of an alltoallv: of its source, and of its destination.
pub(crate) const fn alltoallv_slots(extent: u64) -> (u64, u64) {
    // Invalid high bits stay in the second, so that no table is found.
    (extent & 0xffff, extent >> 16)
}

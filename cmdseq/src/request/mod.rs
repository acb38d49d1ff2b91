//! Requests to the planner, and the size of each rank's input and output.

mod collective;
mod order;
mod placement;

use crate::Combine;

pub use collective::{Algorithm, Collective, UnknownAlgorithm, UnknownCollective};
pub use order::{Order, UnknownOrder};
pub use placement::Placement;

/// A request to the planner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The collective.
    pub collective: Collective,
    /// Nodes by rank.
    pub group: Vec<u32>,
    /// Bytes as `--bytes` counts them: see [`Collective`].
    pub bytes: u64,
    /// Bytes of the blocks of a vector form, which ignores `bytes`: one count for each rank; for an alltoallv row by row, row r with
    /// the blocks that rank r sends. Empty for all others.
    pub counts: Vec<u64>,
    /// Root, or sender; a rank of `group`.
    pub root: u32,
    /// Receiver of a send; a rank of `group`.
    pub peer: u32,
    /// Reduction and element type; `None` for all others.
    pub combine: Option<Combine>,
    /// The required order of a reduction.
    pub order: Order,
    /// The algorithm; `None` lets the planner choose.
    pub algorithm: Option<Algorithm>,
    /// Largest piece sent eagerly, instead of the card's limit; 0 forces rendezvous.
    pub eager_limit: Option<u64>,
    /// Nodes outside of the group whose cards may relay between ranks that are not linked; `None` allows all of the fabric, where
    /// ranks have no path without them. Nodes that are named may also complete the group to a grid if that is faster.
    pub relays: Option<Vec<u32>>,
    /// Where the data is; `None` lets the planner choose. Algorithms that do not support the placement are refused.
    pub placement: Option<Placement>,
    /// Cards store the programs, as [resident ones](crate::graph): algorithms and variants that need tables, or more instructions than a
    /// card stores, are out.
    pub resident: bool,
}

impl Request {
    /// Returns a request for `collective` on `group`, with root 0, the last rank as peer, and all options left to the planner.
    pub fn new(collective: Collective, group: Vec<u32>, bytes: u64) -> Self {
        let peer = u32::try_from(group.len()).unwrap_or(u32::MAX).saturating_sub(1);
        Request {
            collective,
            group,
            bytes,
            root: 0,
            peer,
            combine: None,
            order: Order::default(),
            algorithm: None,
            eager_limit: None,
            relays: None,
            placement: None,
            resident: false,
            counts: Vec::new(),
        }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        u32::try_from(self.group.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of [`counts`](Request::counts) that the collective needs.
    pub fn counts_needed(&self) -> u64 {
        let ranks = u64::from(self.ranks());
        match self.collective {
            Collective::Alltoallv => ranks * ranks,
            one if one.has_counts() => ranks,
            _ => 0,
        }
    }

    /// Returns the bytes that rank `from` sends to rank `to` in a vector form; 0 in others.
    pub fn given(&self, from: u32, to: u32) -> u64 {
        let (ranks, root) = (u64::from(self.ranks()), self.root);
        let (from_place, to_place) = (u64::from(from), u64::from(to));
        let place = match self.collective {
            Collective::Scatterv if from == root => to_place,
            Collective::Gatherv if to == root => from_place,
            Collective::Allgatherv => from_place,
            Collective::Alltoallv => from_place * ranks + to_place,
            _ => return 0,
        };
        self.counts.get(place as usize).copied().unwrap_or(0)
    }

    /// Returns the bytes of the block from rank `from` to rank `to`, in collectives with a block for each pair, or for each rank.
    pub(crate) fn block_between(&self, from: u32, to: u32) -> u64 {
        if self.collective.has_counts() { self.given(from, to) } else { self.bytes }
    }

    /// Returns the bytes of rank `rank`'s block, in collectives with one block for each rank.
    pub(crate) fn block(&self, rank: u32) -> u64 {
        if self.collective.has_counts() { self.counts.get(rank as usize).copied().unwrap_or(0) } else { self.bytes }
    }

    /// Returns the sum of `one` over all ranks. Saturates.
    fn together(&self, one: impl Fn(u32) -> u64) -> u64 {
        (0..self.ranks()).fold(0, |sum, rank| sum.saturating_add(one(rank)))
    }

    /// Returns the bytes of `rank`'s input. Saturates.
    pub fn input_bytes(&self, rank: u32) -> u64 {
        let all = self.bytes.saturating_mul(u64::from(self.ranks()));
        match self.collective {
            Collective::Barrier => 0,
            Collective::Send | Collective::Recv | Collective::Broadcast if rank == self.root => self.bytes,
            Collective::Scatter if rank == self.root => all,
            Collective::Send | Collective::Recv | Collective::Broadcast | Collective::Scatter => 0,
            Collective::Sendrecv | Collective::Gather | Collective::Allgather => self.bytes,
            Collective::Reduce | Collective::Allreduce | Collective::Scan | Collective::Exscan => self.bytes,
            Collective::Alltoall | Collective::ReduceScatter => all,
            Collective::Scatterv | Collective::Alltoallv => self.together(|to| self.given(rank, to)),
            Collective::Gatherv => self.given(rank, self.root),
            Collective::Allgatherv => self.given(rank, rank),
        }
    }

    /// Returns the bytes of `rank`'s output. Saturates.
    pub fn output_bytes(&self, rank: u32) -> u64 {
        let all = self.bytes.saturating_mul(u64::from(self.ranks()));
        match self.collective {
            Collective::Barrier => 0,
            Collective::Send | Collective::Recv if rank == self.peer => self.bytes,
            Collective::Gather if rank == self.root => all,
            Collective::Reduce if rank == self.root => self.bytes,
            Collective::Send | Collective::Recv | Collective::Gather | Collective::Reduce => 0,
            Collective::Exscan if rank == 0 => 0,
            Collective::Sendrecv | Collective::Scatter | Collective::Broadcast => self.bytes,
            Collective::Allreduce | Collective::ReduceScatter | Collective::Scan | Collective::Exscan => self.bytes,
            Collective::Alltoall | Collective::Allgather => all,
            Collective::Scatterv => self.given(self.root, rank),
            Collective::Gatherv | Collective::Allgatherv | Collective::Alltoallv => {
                self.together(|from| self.given(from, rank))
            }
        }
    }

    /// Returns the bytes that must leave `rank` at least once.
    pub(crate) fn leaving(&self, rank: u32) -> u64 {
        use Collective::{Exscan, Gather, Gatherv, Recv, Reduce, Scan, Send};
        match self.collective {
            Scan | Exscan if rank + 1 == self.ranks() => 0,
            Gather | Gatherv | Reduce if rank == self.root => 0,
            Send | Recv if rank == self.peer => 0,
            _ if self.ranks() < 2 => 0,
            one if one.takes_blocks() => self.of_others(rank, self.input_bytes(rank)),
            _ => self.input_bytes(rank),
        }
    }

    /// Returns the bytes that must reach `rank`.
    pub(crate) fn arriving(&self, rank: u32) -> u64 {
        use Collective::{Broadcast, Recv, Scan, Scatter, Scatterv, Send};
        match self.collective {
            Scan if rank == 0 => 0,
            Broadcast | Scatter | Scatterv | Send | Recv if rank == self.root => 0,
            _ if self.ranks() < 2 => 0,
            one if one.gives_blocks() => self.of_others(rank, self.output_bytes(rank)),
            _ => self.output_bytes(rank),
        }
    }

    /// Of `all` bytes of blocks, those of other ranks than `rank`.
    fn of_others(&self, rank: u32, all: u64) -> u64 {
        match self.collective.has_counts() || all == 0 {
            true => all.saturating_sub(self.block_between(rank, rank)),
            // Saturated where all blocks are.
            false => self.bytes.saturating_mul(u64::from(self.ranks()) - 1),
        }
    }

    /// Whether `rank` sends to another or receives from another.
    pub(crate) fn takes_part(&self, rank: u32) -> bool {
        self.collective == Collective::Barrier || self.leaving(rank) > 0 || self.arriving(rank) > 0
    }

    /// Whether contributions must be folded in rank order, because another order could change the bits.
    pub(crate) fn needs_rank_order(&self) -> bool {
        let is_seen = self.ranks() > 2 && self.bytes > 0;
        self.order == Order::Rank && is_seen && self.combine.is_some_and(Combine::depends_on_order)
    }
}

//! What is asked of the planner, and how much data each rank has before and after.

mod collective;
mod order;
mod placement;

use crate::Combine;

pub use collective::{Algorithm, Collective, UnknownAlgorithm, UnknownCollective};
pub use order::{Order, UnknownOrder};
pub use placement::Placement;

/// What is asked of the planner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub collective: Collective,
    /// Nodes that take part, by rank.
    pub group: Vec<u32>,
    /// Bytes as `--bytes` counts them: see [`Collective`].
    pub bytes: u64,
    /// Bytes of the blocks of a vector form, of which `bytes` says nothing: one for each rank; of an alltoallv row by row, in
    /// row r what rank r gives each rank. Empty for all else.
    pub counts: Vec<u64>,
    /// Root, or sender; a rank of `group`.
    pub root: u32,
    /// Receiver of a send; a rank of `group`.
    pub peer: u32,
    /// What a reduction does with elements of which type; `None` for all else.
    pub combine: Option<Combine>,
    /// The order of ranks that a reduction must keep.
    pub order: Order,
    /// A way that must be taken; `None` lets the planner choose.
    pub algorithm: Option<Algorithm>,
    /// Largest piece sent eagerly instead of the card's own limit; 0 forces rendezvous.
    pub eager_limit: Option<u64>,
    /// Where the data lies; `None` lets the planner choose. An algorithm that cannot have it there is refused.
    pub placement: Option<Placement>,
}

impl Request {
    /// `collective` of the nodes of `group`, from rank 0 and to the last rank, with everything else left to the planner.
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
            placement: None,
            counts: Vec::new(),
        }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        u32::try_from(self.group.len()).unwrap_or(u32::MAX)
    }

    /// Of a vector form, how many [`counts`](Request::counts) there must be.
    pub fn counts_needed(&self) -> u64 {
        let ranks = u64::from(self.ranks());
        match self.collective {
            Collective::Alltoallv => ranks * ranks,
            one if one.has_counts() => ranks,
            _ => 0,
        }
    }

    /// Bytes that rank `from` gives rank `to` in a vector form; 0 in others.
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

    /// Bytes of the block of rank `rank`, where each rank gives or gets one.
    pub(crate) fn block(&self, rank: u32) -> u64 {
        if self.collective.has_counts() { self.counts.get(rank as usize).copied().unwrap_or(0) } else { self.bytes }
    }

    /// The lengths of several blocks together. Saturates.
    fn together(&self, one: impl Fn(u32) -> u64) -> u64 {
        (0..self.ranks()).fold(0, |sum, rank| sum.saturating_add(one(rank)))
    }

    /// Bytes that `rank` has before. Saturates, as do all sizes no memory can hold.
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

    /// Bytes that `rank` has after. Saturates.
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

    /// Whether the contributions must be folded one after another in the order of ranks, because any other order could give
    /// other bits.
    pub(crate) fn needs_rank_order(&self) -> bool {
        self.order == Order::Rank && self.ranks() > 2 && self.combine.is_some_and(Combine::depends_on_order)
    }
}

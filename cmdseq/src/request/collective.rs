//! The collectives and the algorithms, by name.

use crate::named::{named, parsed};

named! {
    /// A collective or point-to-point operation of the planner.
    ///
    /// Inputs and outputs with N ranks and B = [`Request::bytes`](super::Request::bytes):
    ///
    /// | name | input | output |
    /// |---|---|---|
    /// | barrier | none | none |
    /// | send, recv | root: B | peer: B |
    /// | sendrecv | each rank: B, for the next rank | each rank: B, from the rank before |
    /// | scatter | root: N B, block i for rank i | each rank: B |
    /// | gather | each rank: B | root: N B, block i from rank i |
    /// | broadcast | root: B | each rank, the root too: B |
    /// | alltoall | each rank: N B, block i for rank i | each rank: N B, block i from rank i |
    /// | allgather | each rank: B | each rank: N B, block i from rank i |
    /// | scatterv | root: C_0 + C_1 + ..., block i for rank i | rank r: C_r |
    /// | gatherv | rank r: C_r | root: C_0 + C_1 + ..., block i from rank i |
    /// | allgatherv | rank r: C_r | each rank: C_0 + C_1 + ..., block i from rank i |
    /// | alltoallv | rank r: C_r0 + C_r1 + ..., block i for rank i | rank r: C_0r + C_1r + ..., block i from rank i |
    /// | reduce | each rank: B | root: B |
    /// | allreduce | each rank: B | each rank: B |
    /// | reduce_scatter | each rank: N B, block i for rank i | each rank: B |
    /// | scan | each rank: B | each rank: B, of the ranks up to it |
    /// | exscan | each rank: B | each rank but the first: B, of the ranks before it |
    ///
    /// C is [`Request::counts`](super::Request::counts), which only the vector forms have.
    ///
    /// send and recv are the same transfer: the root sends and the peer receives.
    Collective {
        /// No rank continues before all have arrived.
        Barrier, "barrier";
        /// From the root to the peer.
        Send, "send";
        /// The same transfer as [`Collective::Send`].
        Recv, "recv";
        /// The shift by one: rank r sends to r + 1 and receives from r - 1, modulo N.
        Sendrecv, "sendrecv";
        /// The root sends a block to each rank.
        Scatter, "scatter";
        /// The root receives a block from each rank.
        Gather, "gather";
        /// The root sends the same data to all ranks.
        Broadcast, "broadcast";
        /// Every rank sends a block to each rank.
        Alltoall, "alltoall";
        /// Every rank receives a block from each rank.
        Allgather, "allgather";
        /// The root sends a block to each rank, of different lengths.
        Scatterv, "scatterv";
        /// The root receives a block from each rank, of different lengths.
        Gatherv, "gatherv";
        /// Every rank receives a block from each rank, of different lengths.
        Allgatherv, "allgatherv";
        /// Every rank sends a block to each rank, of different lengths.
        Alltoallv, "alltoallv";
        /// The root receives the fold of all ranks.
        Reduce, "reduce";
        /// Every rank receives the fold of all ranks.
        Allreduce, "allreduce";
        /// Every rank receives the fold of one block of all ranks.
        ReduceScatter, "reduce_scatter";
        /// Every rank receives the fold of the ranks up to it.
        Scan, "scan";
        /// Every rank receives the fold of the ranks before it.
        Exscan, "exscan";
    }
}

named! {
    /// An algorithm for collectives.
    Algorithm {
        /// One instruction, one hop.
        Direct, "direct";
        /// Over all links: the data is distributed over all ranks, then collected (OPTWEB paper, section 3.4).
        Multipath, "multipath";
        /// Within the groups of a Dragonfly, then across them, or the reverse.
        TwoLevel, "two-level";
        /// Over all links at once, by exchanges in several lanes of a card.
        Lanes, "lanes";
        /// A binomial tree.
        Binomial, "binomial";
        /// From each rank to the next.
        Ring, "ring";
        /// In the switches of the network: one packet of each rank, combined and multiplied on the way (MPI-FPGA).
        Switch, "switch";
        /// From rank to rank, over other cards where there is no link.
        Relay, "relay";
    }
}

parsed! { Collective("collective", UnknownCollective) }

parsed! { Algorithm("algorithm", UnknownAlgorithm) }

impl Algorithm {
    /// Whether the algorithm can run `one`, on cards that have what it needs.
    pub(crate) fn does(self, one: Collective) -> bool {
        use Collective::{Allgather, Allgatherv, Allreduce, Alltoall, Alltoallv, Barrier, Broadcast};
        use Collective::{Gather, Gatherv, Scatter, Scatterv, Sendrecv};
        match self {
            Algorithm::Direct | Algorithm::Switch => true,
            Algorithm::TwoLevel => !one.has_peer(),
            Algorithm::Lanes => !one.has_counts() && !matches!(one, Barrier | Sendrecv),
            Algorithm::Multipath => one.has_peer() || one == Broadcast || one.reduces(),
            Algorithm::Binomial => one.has_root() && !one.has_peer() || matches!(one, Barrier | Allreduce),
            Algorithm::Ring => one.reduces() || matches!(one, Allgather | Allgatherv | Broadcast),
            Algorithm::Relay => {
                let has_blocks = matches!(one, Scatter | Scatterv | Gather | Gatherv | Alltoall | Alltoallv);
                one.has_peer() || one == Sendrecv || has_blocks
            }
        }
    }
}

impl Collective {
    /// Whether the collective uses [`Request::root`](super::Request::root).
    pub const fn has_root(self) -> bool {
        use Collective::{Broadcast, Gather, Gatherv, Recv, Reduce, Scatter, Scatterv, Send};
        matches!(self, Send | Recv | Scatter | Gather | Scatterv | Gatherv | Broadcast | Reduce)
    }

    /// Whether the collective is a vector form, which uses [`Request::counts`](super::Request::counts).
    pub const fn has_counts(self) -> bool {
        use Collective::{Allgatherv, Alltoallv, Gatherv, Scatterv};
        matches!(self, Scatterv | Gatherv | Allgatherv | Alltoallv)
    }

    /// Whether the collective is a reduction, which uses [`Request::combine`](super::Request::combine).
    pub const fn reduces(self) -> bool {
        use Collective::{Allreduce, Exscan, Reduce, ReduceScatter, Scan};
        matches!(self, Reduce | Allreduce | ReduceScatter | Scan | Exscan)
    }

    /// Whether an input has a block for each rank.
    pub(crate) const fn takes_blocks(self) -> bool {
        use Collective::{Alltoall, Alltoallv, ReduceScatter, Scatter, Scatterv};
        matches!(self, Scatter | Alltoall | ReduceScatter | Scatterv | Alltoallv)
    }

    /// Whether an output has a block from each rank.
    pub(crate) const fn gives_blocks(self) -> bool {
        use Collective::{Allgather, Allgatherv, Alltoall, Alltoallv, Gather, Gatherv};
        matches!(self, Gather | Alltoall | Allgather | Gatherv | Alltoallv | Allgatherv)
    }

    /// Whether the collective uses [`Request::peer`](super::Request::peer).
    pub(crate) const fn has_peer(self) -> bool {
        matches!(self, Collective::Send | Collective::Recv)
    }
}

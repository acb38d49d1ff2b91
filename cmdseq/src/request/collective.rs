//! The collectives and the algorithms, by name.

use crate::named::by_name;

macro_rules! named {
    ($(#[$doc:meta])* $name:ident($what:literal, $error:ident) { $($(#[$item_doc:meta])* $item:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$item_doc])* $item,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$item,)*];

            /// Name on the command line and in messages.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$item => $text,)*
                }
            }
        }

        by_name! { $name($what, $error) { $($text),* } }
    };
}

named! {
    /// The collectives and point to point operations that can be planned.
    ///
    /// With N ranks and B = [`Request::bytes`](super::Request::bytes), what one pair exchanges in one direction:
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
    /// send and recv are the same transfer: the root sends and the peer receives, whichever of them one asks for.
    Collective("collective", UnknownCollective) {
        /// Nobody goes on before all are here.
        Barrier = "barrier",
        /// From the root to the peer.
        Send = "send",
        /// The same transfer as [`Collective::Send`].
        Recv = "recv",
        /// The shift by one: rank r sends to r + 1 and receives from r - 1, modulo N.
        Sendrecv = "sendrecv",
        /// The root gives each rank a block.
        Scatter = "scatter",
        /// The root gets a block of each rank.
        Gather = "gather",
        /// The root gives all the same.
        Broadcast = "broadcast",
        /// Every rank gives each rank a block.
        Alltoall = "alltoall",
        /// Every rank gets a block of each rank.
        Allgather = "allgather",
        /// The root gives each rank a block of a length of its own.
        Scatterv = "scatterv",
        /// The root gets a block of each rank, of lengths of their own.
        Gatherv = "gatherv",
        /// Every rank gets a block of each rank, of lengths of their own.
        Allgatherv = "allgatherv",
        /// Every rank gives each rank a block, of lengths of their own.
        Alltoallv = "alltoallv",
        /// The root gets the fold of all.
        Reduce = "reduce",
        /// Every rank gets the fold of all.
        Allreduce = "allreduce",
        /// Every rank gets the fold of one block of all.
        ReduceScatter = "reduce_scatter",
        /// Every rank gets the fold of all up to it.
        Scan = "scan",
        /// Every rank gets the fold of all before it.
        Exscan = "exscan",
    }
}

named! {
    /// Ways to run a collective.
    Algorithm("algorithm", UnknownAlgorithm) {
        /// One instruction, one hop.
        Direct = "direct",
        /// Over all links and two hops: scatter then gather, or scatter then allgather (OPTWEB paper, section 3.4); of a
        /// reduction, reduce_scatter then gather or allgather.
        Multipath = "multipath",
        /// Within the groups of a Dragonfly and across them, in turn.
        TwoLevel = "two-level",
        /// Half of the ranks hand on what they have, then half of the others, and so on: a tree of two at a time.
        Binomial = "binomial",
        /// With partners at distance 1, 2, 4 and so on.
        RecursiveDoubling = "recursive-doubling",
        /// Halves of the vector with partners from the farthest to the nearest, and back again.
        HalvingDoubling = "halving-doubling",
        /// From each rank to the next.
        Ring = "ring",
        /// Two ranks at a time exchange what they have for each other, until everybody has met everybody.
        Pairwise = "pairwise",
    }
}

impl Collective {
    /// Whether [`Request::root`](super::Request::root) matters.
    pub const fn has_root(self) -> bool {
        use Collective::{Broadcast, Gather, Gatherv, Recv, Reduce, Scatter, Scatterv, Send};
        matches!(self, Send | Recv | Scatter | Gather | Scatterv | Gatherv | Broadcast | Reduce)
    }

    /// Whether each block has a length of its own, and [`Request::counts`](super::Request::counts) says which.
    pub const fn has_counts(self) -> bool {
        use Collective::{Allgatherv, Alltoallv, Gatherv, Scatterv};
        matches!(self, Scatterv | Gatherv | Allgatherv | Alltoallv)
    }

    /// Whether elements are folded, and [`Request::combine`](super::Request::combine) says how.
    pub const fn reduces(self) -> bool {
        use Collective::{Allreduce, Exscan, Reduce, ReduceScatter, Scan};
        matches!(self, Reduce | Allreduce | ReduceScatter | Scan | Exscan)
    }

    /// Whether the input of a rank that has one is a block for each rank.
    pub const fn takes_blocks(self) -> bool {
        use Collective::{Alltoall, Alltoallv, ReduceScatter, Scatter, Scatterv};
        matches!(self, Scatter | Alltoall | ReduceScatter | Scatterv | Alltoallv)
    }

    /// Whether the output of a rank that has one is a block of each rank.
    pub const fn gives_blocks(self) -> bool {
        use Collective::{Allgather, Allgatherv, Alltoall, Alltoallv, Gather, Gatherv};
        matches!(self, Gather | Alltoall | Allgather | Gatherv | Alltoallv | Allgatherv)
    }

    /// Whether [`Request::peer`](super::Request::peer) matters.
    pub const fn has_peer(self) -> bool {
        matches!(self, Collective::Send | Collective::Recv)
    }
}

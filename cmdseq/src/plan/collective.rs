//! Names of what can be planned, and how much data each rank has and gets.

use super::{Order, Request};
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
    /// With N ranks and B = [`Request::bytes`], what one pair exchanges in one direction:
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
    /// C is [`Request::counts`], which only the vector forms have.
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
    /// Whether [`Request::root`] matters.
    pub const fn has_root(self) -> bool {
        use Collective::{Broadcast, Gather, Gatherv, Recv, Reduce, Scatter, Scatterv, Send};
        matches!(self, Send | Recv | Scatter | Gather | Scatterv | Gatherv | Broadcast | Reduce)
    }

    /// Whether each block has a length of its own, and [`Request::counts`] says which.
    pub const fn has_counts(self) -> bool {
        use Collective::{Allgatherv, Alltoallv, Gatherv, Scatterv};
        matches!(self, Scatterv | Gatherv | Allgatherv | Alltoallv)
    }

    /// Whether elements are folded, and [`Request::combine`] says how.
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

    /// Whether [`Request::peer`] matters.
    pub const fn has_peer(self) -> bool {
        matches!(self, Collective::Send | Collective::Recv)
    }
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
    pub(super) fn block(&self, rank: u32) -> u64 {
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
}

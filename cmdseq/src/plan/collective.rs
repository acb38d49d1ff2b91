//! Names of what can be planned, and how much data each rank has and gets.

use std::fmt;
use std::str::FromStr;

use super::Request;

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

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $name {
            type Err = $error;

            fn from_str(name: &str) -> Result<Self, $error> {
                $name::ALL.iter().copied().find(|one| one.name() == name).ok_or_else(|| $error(name.into()))
            }
        }

        #[doc = concat!("There is no ", $what, " of this name.")]
        #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
        #[error("there is no {what} {name:?}; there are {names}", what = $what, name = .0, names = [$($text),*].join(", "))]
        pub struct $error(pub String);
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
    }
}

named! {
    /// Ways to run a collective.
    Algorithm("algorithm", UnknownAlgorithm) {
        /// One instruction, one hop.
        Direct = "direct",
        /// Over all links and two hops: scatter then gather, or scatter then allgather (OPTWEB paper, section 3.4).
        Multipath = "multipath",
        /// Within the groups of a Dragonfly and across them, in turn.
        TwoLevel = "two-level",
    }
}

impl Collective {
    /// Whether [`Request::root`] matters.
    pub const fn has_root(self) -> bool {
        use Collective::{Broadcast, Gather, Recv, Scatter, Send};
        matches!(self, Send | Recv | Scatter | Gather | Broadcast)
    }

    /// Whether [`Request::peer`] matters.
    pub const fn has_peer(self) -> bool {
        matches!(self, Collective::Send | Collective::Recv)
    }
}

impl Request {
    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        u32::try_from(self.group.len()).unwrap_or(u32::MAX)
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
            Collective::Alltoall => all,
        }
    }

    /// Bytes that `rank` has after. Saturates.
    pub fn output_bytes(&self, rank: u32) -> u64 {
        let all = self.bytes.saturating_mul(u64::from(self.ranks()));
        match self.collective {
            Collective::Barrier => 0,
            Collective::Send | Collective::Recv if rank == self.peer => self.bytes,
            Collective::Gather if rank == self.root => all,
            Collective::Send | Collective::Recv | Collective::Gather => 0,
            Collective::Sendrecv | Collective::Scatter | Collective::Broadcast => self.bytes,
            Collective::Alltoall | Collective::Allgather => all,
        }
    }
}

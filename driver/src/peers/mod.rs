//! The other processes of a job: what a cluster needs of whatever connects them. No I/O.

pub(crate) mod message;

use std::fmt;
use std::time::Duration;

/// Connects the ranks of a job, each a process with cards of its own. A [`Cluster`](crate::Cluster) agrees with the others through
/// this trait alone: over MPI, over sockets, or over threads in tests.
///
/// All ranks call [`allgather`](Peers::allgather) in the same order. After an error of `allgather`, each later call fails too.
pub trait Peers: fmt::Debug + Send {
    /// This process's rank: 0 to [`size`](Peers::size) - 1.
    fn rank(&self) -> u32;

    /// Number of ranks.
    fn size(&self) -> u32;

    /// Sends `data` to all ranks and returns what each rank has sent, by rank, the own data included.
    ///
    /// # Errors
    /// [`PeersError`], which names the rank if one is known: after `timeout`, or as soon as a rank is known to be gone.
    fn allgather(&mut self, data: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, PeersError>;

    /// Tells the other ranks that this one gives up what the cards run, without waiting. Without it the others give up when their
    /// own time is over.
    fn raise(&mut self) {}

    /// Returns a rank that has [raised](Peers::raise) since the last [`allgather`](Peers::allgather), or is gone. Does not wait. Called
    /// every few milliseconds while the cards work.
    fn raised(&mut self) -> Option<u32> {
        None
    }
}

/// A process that holds all cards: the only rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Alone;

impl Peers for Alone {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn allgather(&mut self, data: &[u8], _: Duration) -> Result<Vec<Vec<u8>>, PeersError> {
        Ok(vec![data.to_vec()])
    }
}

/// Why ranks could not exchange data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeersError {
    /// A rank has ended, or its connection has failed.
    #[error("Rank {rank} is gone: {why}")]
    Gone {
        /// The rank.
        rank: u32,
        /// What is known about its end.
        why: String,
    },
    /// A rank did not take part in time.
    #[error("Rank {rank} did not answer within {waited:.1?}")]
    Late {
        /// The rank.
        rank: u32,
        /// How long.
        waited: Duration,
    },
    /// A rank sent data that is invalid here.
    #[error("Rank {rank} sent invalid data: {what}")]
    Malformed {
        /// The rank.
        rank: u32,
        /// What is invalid.
        what: String,
    },
    /// What connects the ranks has failed.
    #[error("The connection of the ranks failed")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_rank_gathers_its_own_data() {
        let mut alone = Alone;
        assert_eq!((alone.rank(), alone.size(), alone.raised()), (0, 1, None));
        alone.raise();
        assert_eq!(alone.allgather(b"own", Duration::ZERO).unwrap(), [b"own"]);
    }
}

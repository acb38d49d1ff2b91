//! This process's part in a meeting, and why ranks did not meet.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fpga_driver::PeersError;

use crate::meeting::address::Address;

/// Most ranks.
pub(crate) const RANKS_MAX: u32 = 256;

/// This process's part in a meeting.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) rank: u32,
    pub(crate) of: u32,
    pub(crate) address: Address,
    /// Time limit until all ranks have come.
    pub(crate) timeout: Duration,
    /// Set by a signal that ends the command.
    pub(crate) stop: Arc<AtomicBool>,
}

/// Why ranks did not meet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MeetError {
    #[error("rank 0 cannot listen at {address}")]
    Listen {
        address: Address,
        #[source]
        source: io::Error,
    },
    #[error("rank 0 was not met at {address} within {waited:.1?}")]
    Connect {
        address: Address,
        waited: Duration,
        #[source]
        source: io::Error,
    },
    #[error("rank {rank}: {why}")]
    Refused { rank: u32, why: String },
    /// In the words of rank 0, on all ranks.
    #[error("rank {rank} {why}")]
    Missing { rank: u32, why: String },
    #[error("the ranks did not meet")]
    Peers(#[source] PeersError),
    #[error("interrupted before all ranks met")]
    Interrupted,
}

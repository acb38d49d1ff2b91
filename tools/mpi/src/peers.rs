//! Agreement of the ranks of a communicator, over MPI itself.

use std::sync::Arc;
use std::time::Duration;

use fpga_driver::{Peers, PeersError};

use crate::abi::Constants;
use crate::mpi::{self, Comm};
use crate::rounds::Rounds;

/// The members of a communicator. Collective calls of it are those of the communicator, in the order of the program's.
#[derive(Debug)]
pub(crate) struct MpiPeers {
    comm: Comm,
    rank: u32,
    size: u32,
    constants: Arc<Constants>,
    timeout: Option<Duration>,
}

impl MpiPeers {
    pub(crate) fn new(
        comm: Comm,
        (rank, size): (u32, u32),
        constants: Arc<Constants>,
        timeout: Option<Duration>,
    ) -> Self {
        MpiPeers { comm, rank, size, constants, timeout }
    }
}

impl Peers for MpiPeers {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    /// Without `FPGA_MPI_TIMEOUT`, waits as long as MPI does: a rank may be late by any time, and the launcher ends a job whose rank is
    /// gone.
    fn allgather(&mut self, data: &[u8], _: Duration) -> Result<Vec<Vec<u8>>, PeersError> {
        let rounds = Rounds { comm: self.comm, constants: &self.constants, timeout: self.timeout };
        rounds.allgather(data).map_err(|code| PeersError::Transport(mpi::text(code).into()))
    }
}

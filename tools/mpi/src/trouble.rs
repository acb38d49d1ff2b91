//! What makes a call on the cards an error.

use fpga_driver::Error;

use crate::engine::with_causes;
use crate::foreign::Code;
use crate::mpi;

/// Why a call did not succeed on the card.
#[derive(Debug)]
pub(crate) enum Trouble {
    Card(Error),
    Mpi(Code),
    /// Another rank has not joined an exchange in time.
    Late,
    /// An earlier call has failed, and this rank uses its card no more.
    Earlier(String),
    /// That of the rank whose card this rank uses.
    OfLeader(u32),
    /// What this rank sends in an allgatherv has other bytes than its receive counts say, which all ranks go by.
    Counts {
        sent: u64,
        counted: u64,
    },
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Card(error)
    }
}

impl From<Code> for Trouble {
    fn from(code: Code) -> Self {
        if code == mpi::LATE { Trouble::Late } else { Trouble::Mpi(code) }
    }
}

impl Trouble {
    /// What a line says of it.
    pub(crate) fn text(&self) -> String {
        match self {
            Trouble::Card(error) => with_causes(error),
            Trouble::Mpi(code) => mpi::text(*code),
            Trouble::Late => mpi::text(mpi::LATE),
            Trouble::Earlier(cause) => format!("an earlier call has failed: {cause}"),
            Trouble::Counts { sent, counted } => format!(
                "an allgatherv sends {sent} B from this rank, and its receive counts say {counted} B: expected the same"
            ),
            Trouble::OfLeader(rank) => format!("the card of rank {rank} of the communicator has failed"),
        }
    }
}

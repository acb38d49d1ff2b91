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
    /// The card has failed in an earlier call.
    Earlier(String),
    /// That of the rank whose card this rank uses.
    OfLeader(u32),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Card(error)
    }
}

impl From<Code> for Trouble {
    fn from(code: Code) -> Self {
        Trouble::Mpi(code)
    }
}

impl Trouble {
    /// What a line says of it.
    pub(crate) fn text(&self) -> String {
        match self {
            Trouble::Card(error) => with_causes(error),
            Trouble::Mpi(code) => mpi::text(*code),
            Trouble::Earlier(cause) => format!("the card has failed before: {cause}"),
            Trouble::OfLeader(rank) => format!("the card of rank {rank} of the communicator has failed"),
        }
    }
}

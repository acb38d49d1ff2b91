//! The members of a cluster or communicator, and what connects their processes.

use crate::communicators::roster::Member;
use crate::peers::{Alone, Peers};

/// Members, and the ranks that hold their cards.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) peers: Box<dyn Peers>,
    pub(crate) roster: Vec<Member>,
}

impl Group {
    /// Of members whose cards this process holds.
    pub(crate) fn alone(roster: Vec<Member>) -> Self {
        Group { peers: Box::new(Alone), roster }
    }
}

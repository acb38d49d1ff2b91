//! The communicators of one card: the table of MPI-FPGA's switch, and the members of each communicator.
//!
//! An entry of the table is all that trees, doubling and halving need in a switch that runs them by itself, as the switches of
//! MPI-FPGA do. The other instructions name any member as root or peer, and the one-step collectives of OPTWEB all of them, each
//! over a link of its own; for these the card keeps the whole list, which is no longer than its links reach. Of the entry they
//! use the id and the own rank.
//!
//! The card keeps no record of freed ids. The host must not use a freed id again.

use std::sync::Arc;

use cmdseq::communicator::ContextId;
use cmdseq::completion::Status;

use crate::proto::communicator_table::{Entry, Format, Table};
use crate::proto::refusal::Refusal;

/// Capacity of the table.
const FORMAT: Format = Format::PUBLISHED;
/// Entries of the communicator table.
pub(crate) const COMMUNICATORS: u32 = FORMAT.entries;

/// The members of a communicator: nodes by rank.
pub(crate) type Members = Arc<[u32]>;

/// A communicator as an instruction uses it.
#[derive(Debug, Clone)]
pub(crate) struct Membership {
    pub(crate) members: Members,
    pub(crate) own_rank: u32,
}

#[derive(Debug)]
pub(crate) struct Communicators {
    /// A switch that computes reads the same entries.
    table: Arc<Table>,
    /// By index; a free entry has no members.
    members: Vec<Members>,
}

impl Communicators {
    /// Returns the state after a reset: only the world, in which the card at node `node` has rank `node`.
    pub(crate) fn new(world: &Members, node: u32) -> Self {
        let mut communicators = Communicators {
            table: Arc::new(Table::new(FORMAT)),
            members: vec![Members::default(); COMMUNICATORS as usize],
        };
        let defined = communicators.insert(ContextId::WORLD, world, node);
        debug_assert!(defined.is_ok(), "no fabric has more nodes than the table's ranks");
        communicators
    }

    /// Returns the table.
    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Returns all communicators with their members.
    pub(crate) fn all(&self) -> Vec<(ContextId, Members)> {
        let of = |index: u32| Some((self.table.occupant(index)?.id(), Arc::clone(&self.members[index as usize])));
        (0..COMMUNICATORS).filter_map(of).collect()
    }

    /// Returns the communicator with exactly this id.
    pub(crate) fn get(&self, id: u16) -> Result<Membership, Refusal> {
        let entry = ContextId::from_raw(id).and_then(|id| self.table.get(id)).ok_or(UNKNOWN)?;
        let members = Arc::clone(&self.members[entry.id().index() as usize]);
        Ok(Membership { members, own_rank: entry.own_rank() })
    }

    /// Checks that `id` can be defined: its entry is free or has this id, and it is not the world.
    pub(crate) fn check_free(&self, id: u16) -> Result<ContextId, Refusal> {
        let id = ContextId::from_raw(id).filter(|id| id.index() != 0 && id.index() < COMMUNICATORS).ok_or(UNKNOWN)?;
        match self.table.occupant(id.index()) {
            Some(occupant) if occupant.id() != id => Err(taken(occupant.id())),
            _ => Ok(id),
        }
    }

    /// Defines `id` on the card at `node`. Defining it again with the same members changes nothing.
    pub(crate) fn define(&mut self, id: u16, members: &Members, node: u32) -> Result<(), Refusal> {
        let id = self.check_free(id)?;
        let own = members.iter().position(|member| *member == node).ok_or((Status::NotMember, 0))?;
        // An entry does not tell communicators apart that differ in ranks the card does not talk to.
        if self.table.get(id).is_some() && self.members[id.index() as usize] != *members {
            return Err(taken(id));
        }
        self.insert(id, members, own as u32)
    }

    fn insert(&mut self, id: ContextId, members: &Members, own_rank: u32) -> Result<(), Refusal> {
        // Members are nodes of the fabric, and those are numbered with 16 bits.
        let node_of = |rank: u32| members[rank as usize] as u16;
        let entry = Entry::new(id, members.len() as u32, own_rank, node_of).map_err(|_| UNKNOWN)?;
        Arc::make_mut(&mut self.table).insert(&entry).map_err(|_| taken(id))?;
        self.members[id.index() as usize] = Arc::clone(members);
        Ok(())
    }

    /// Frees `id`.
    pub(crate) fn free(&mut self, id: u16) -> Result<(), Refusal> {
        let id =
            ContextId::from_raw(id).filter(|id| *id != ContextId::WORLD && Arc::make_mut(&mut self.table).remove(*id));
        self.members[id.ok_or(UNKNOWN)?.index() as usize] = Members::default();
        Ok(())
    }
}

const UNKNOWN: Refusal = (Status::BadCommunicator, 0);

/// The entry belongs to `occupant`.
fn taken(occupant: ContextId) -> Refusal {
    (Status::BadCommunicator, occupant.raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(nodes: &[u32]) -> Members {
        nodes.into()
    }

    #[test]
    fn what_is_freed_or_of_another_generation_is_unknown() {
        let mut all = Communicators::new(&(0..8).collect(), 3);
        assert_eq!(all.get(0).unwrap().own_rank, 3);
        all.define(1, &members(&[5, 3]), 3).unwrap();
        all.define(1, &members(&[5, 3]), 3).unwrap();
        assert_eq!(all.get(1).unwrap().own_rank, 1);
        // Entry 1 is that of ids 1, 33, 65 ...; from 8192 on there are none.
        for other in [33, 65, 8193, 2] {
            assert_eq!(all.get(other).unwrap_err(), UNKNOWN, "{other}");
            assert_eq!(all.free(other), Err(UNKNOWN), "{other}");
        }
        assert_eq!(all.define(33, &members(&[5, 3]), 3), Err(taken(ContextId::new(1, 0).unwrap())));
        all.free(1).unwrap();
        assert_eq!(all.get(1).unwrap_err(), UNKNOWN);
        assert_eq!(all.free(1), Err(UNKNOWN));
        all.define(33, &members(&[5, 3]), 3).unwrap();
        assert_eq!(all.get(1).unwrap_err(), UNKNOWN);
    }

    #[test]
    fn communicators_that_differ_beyond_the_peers_differ() {
        let mut all = Communicators::new(&(0..8).collect(), 0);
        // Rank 0 of 4 talks to ranks 1 and 2.
        all.define(1, &members(&[0, 1, 2, 3]), 0).unwrap();
        assert_eq!(all.define(1, &members(&[0, 1, 2, 4]), 0), Err((Status::BadCommunicator, 1)));
        assert_eq!(all.get(1).unwrap().members[3], 3);
    }

    #[test]
    fn the_world_stays() {
        let mut all = Communicators::new(&(0..8).collect(), 0);
        assert_eq!(all.free(0), Err(UNKNOWN));
        for id in [0, 32, 8192, 65_504] {
            assert_eq!(all.define(id, &members(&[0, 1]), 0), Err(UNKNOWN), "{id}");
        }
        assert_eq!(all.define(1, &members(&[1, 2]), 0), Err((Status::NotMember, 0)));
    }
}

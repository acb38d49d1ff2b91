//! The way of a call whose communicator has more ranks than cards.
//!
//! ```text
//!   give       each rank sends its contribution to the leader of its team, which folds them in the order of ranks
//!   exchange   leaders use their cards; then each tells its team whether its card has failed
//!   take       each rank gets its result from its leader
//! ```
//!
//! Data moves by the MPI library, on a communicator of the team.

use std::collections::HashMap;

use cmdseq::plan::Collective;

use crate::abi::Constants;
use crate::data::InPlace;
use crate::engine::{Ends, Engine, Finished, PLANS_MAX, Registered};
use crate::folding;
use crate::mpi::{self, Comm, Handles};
use crate::shape::{Reason, Shape};
use crate::trouble::Trouble;

/// Whether calls of ranks that share a card go to the cards.
pub(crate) fn folds(collective: Collective) -> bool {
    use Collective::{Allreduce, Barrier, Broadcast, Reduce};
    matches!(collective, Barrier | Broadcast | Reduce | Allreduce)
}

/// What a leader tells its team.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Yes,
    No,
    Failed,
}

/// The team of this rank on one communicator.
#[derive(Debug)]
pub(crate) struct Team {
    comm: Comm,
    /// The communicator of all leaders, on a leader.
    leaders: Option<Comm>,
    /// The leader of each rank of the communicator, by rank.
    leader_of: Vec<u32>,
    /// Ranks on the communicator, by rank on the team.
    members: Vec<u32>,
    /// This rank and the leader, on the team.
    rank: u32,
    leader: u32,
    are_ranges: bool,
    /// Whether the cards take calls of a shape, or why not.
    verdicts: HashMap<Shape, Result<(), Reason>>,
    /// The data of a leader: contributions, then the result.
    data: Vec<u8>,
    other: Vec<u8>,
}

/// A call: its shape, and the datatype and operation of a reduction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) handles: Handles,
    pub(crate) constants: &'a Constants,
}

impl Team {
    /// Makes the team of rank `rank` of `comm`. Collective over `comm`.
    pub(crate) fn new(comm: Comm, rank: u32, leader_of: Vec<u32>) -> mpi::Result<Self> {
        let leader = leader_of[rank as usize];
        let team = comm.split(leader, rank)?;
        // The others make one, too, which they do not need.
        let leaders = comm.split(u32::from(leader == rank), rank)?;
        let leaders = if leader == rank { Some(leaders) } else { leaders.free().map(|()| None)? };
        let members: Vec<u32> =
            (0..).zip(&leader_of).filter(|(_, one)| **one == leader).map(|(rank, _)| rank).collect();
        let position = |of: u32| members.iter().position(|one| *one == of).unwrap_or_default() as u32;
        Ok(Team {
            comm: team,
            leaders,
            rank: position(rank),
            leader: position(leader),
            members,
            are_ranges: folding::are_ranges(&leader_of),
            leader_of,
            verdicts: HashMap::new(),
            data: Vec::new(),
            other: Vec::new(),
        })
    }

    /// The communicator of the leaders, if this rank is one.
    pub(crate) fn leaders(&self) -> Option<Comm> {
        self.leaders
    }

    /// Frees its communicators. Collective over those.
    pub(crate) fn free(self) -> mpi::Result<()> {
        self.leaders.map_or(Ok(()), Comm::free)?;
        self.comm.free()
    }

    /// Whether a fold by teams has the contributions in the order of ranks, or nobody can see the order.
    pub(crate) fn keeps_order(&self, shape: &Shape) -> bool {
        self.are_ranges || !shape.combine.is_some_and(cmdseq::Combine::depends_on_order)
    }

    /// The shape of the leaders' call.
    pub(crate) fn of_leaders(&self, shape: &Shape) -> Shape {
        let leader = self.leader_of[shape.root as usize];
        let root = folding::of_teams(&self.leader_of).take_while(|one| *one != leader).count() as u32;
        Shape { root, ..shape.clone() }
    }

    /// Whether the cards take calls of `shape`, if that is known.
    pub(crate) fn verdict(&self, shape: &Shape) -> Option<Result<(), Reason>> {
        self.verdicts.get(shape).copied()
    }

    /// Makes room for one more verdict, on all ranks at the same call. If there are too many, all of them go, and with them the plans of
    /// a leader, `registered`: a plan that is made anew may find no room, and then the verdict is another one.
    pub(crate) fn make_room(&mut self, registered: Option<&mut Registered>) {
        if self.verdicts.len() < PLANS_MAX {
            return;
        }
        self.verdicts.clear();
        if let Some(registered) = registered {
            registered.forget_plans();
        }
    }

    pub(crate) fn keep_verdict(&mut self, shape: &Shape, verdict: Result<(), Reason>) {
        self.verdicts.insert(shape.clone(), verdict);
    }

    /// Sends `own` of the leader to its team; others get what their leader says. Collective over the team.
    pub(crate) fn tell(&self, own: Told, constants: &Constants) -> mpi::Result<Told> {
        let mut told = [own as i64];
        self.comm.broadcast_numbers(&mut told, self.leader, constants)?;
        Ok([Told::Yes, Told::No].into_iter().find(|one| *one as i64 == told[0]).unwrap_or(Told::Failed))
    }

    /// What this rank says when its leader's card has failed.
    pub(crate) fn trouble(&self) -> Trouble {
        Trouble::OfLeader(self.members[self.leader as usize])
    }

    /// Whether a rank of the communicator contributes.
    fn gives(shape: &Shape, rank: u32) -> bool {
        shape.collective != Collective::Broadcast || rank == shape.root
    }

    /// Hands `input` to the leader.
    pub(crate) fn give(&mut self, call: &Call<'_>, input: &[u8]) -> mpi::Result<()> {
        let shape = call.shape;
        if self.rank != self.leader {
            let own = self.members[self.rank as usize];
            return if Self::gives(shape, own) { self.comm.send(input, self.leader, call.constants) } else { Ok(()) };
        }
        let bytes = shape.bytes as usize;
        self.data.resize(bytes, 0);
        self.other.resize(bytes, 0);
        let givers = (0..).zip(&self.members).filter(|(_, rank)| Self::gives(shape, **rank));
        for (index, (member, _)) in givers.enumerate() {
            if member == self.rank {
                self.other.copy_from_slice(input);
            } else {
                self.comm.receive(&mut self.other, member, call.constants)?;
            }
            if let (Some(combine), true) = (shape.combine, index > 0) {
                let count = shape.bytes / combine.element.bytes();
                mpi::reduce(&self.data, &mut self.other, count, call.handles)?;
            }
            std::mem::swap(&mut self.data, &mut self.other);
        }
        Ok(())
    }

    /// Has the leader use its card, if `usable` is one; the others wait for it.
    pub(crate) fn exchange(
        &mut self,
        usable: Result<(&mut Engine, &Registered), Trouble>,
        call: &Call<'_>,
        progress: &dyn Fn(),
    ) -> Result<Finished, Trouble> {
        if self.rank != self.leader {
            return match self.tell(Told::Failed, call.constants)? {
                Told::Yes => Ok(Finished::default()),
                _ => Err(self.trouble()),
            };
        }
        let shape = self.of_leaders(call.shape);
        let outcome = usable.and_then(|(engine, registered)| {
            let ends = Ends::default();
            Ok(engine.call(registered, &shape, &ends, &mut InPlace(&mut self.data), progress)?)
        });
        let told = if outcome.is_ok() { Told::Yes } else { Told::Failed };
        self.tell(told, call.constants)?;
        outcome
    }

    /// Takes the result from the leader: to `output` if this rank gets one.
    pub(crate) fn take(&mut self, call: &Call<'_>, output: Option<&mut [u8]>) -> mpi::Result<()> {
        let is_leader = self.rank == self.leader;
        match call.shape.collective {
            Collective::Barrier => Ok(()),
            Collective::Reduce => {
                let Some(root) = self.members.iter().position(|rank| *rank == call.shape.root) else { return Ok(()) };
                match output {
                    Some(output) if is_leader => output.copy_from_slice(&self.data),
                    Some(output) => self.comm.receive(output, self.leader, call.constants)?,
                    None if is_leader => self.comm.send(&self.data, root as u32, call.constants)?,
                    None => {}
                }
                Ok(())
            }
            _ => {
                self.other.resize(call.shape.bytes as usize, 0);
                match output {
                    Some(output) if is_leader => {
                        output.copy_from_slice(&self.data);
                        self.comm.broadcast(&mut self.data, self.leader, call.constants)
                    }
                    Some(output) => self.comm.broadcast(output, self.leader, call.constants),
                    None if is_leader => self.comm.broadcast(&mut self.data, self.leader, call.constants),
                    // The root has what the others get.
                    None => self.comm.broadcast(&mut self.other, self.leader, call.constants),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::counted::{Accesses, RANKS, ranks, shape};

    /// The team of a leader of four ranks that share two cards, whose communicators are never used.
    fn team(rank: u32) -> Team {
        Team {
            comm: Comm(0),
            leaders: None,
            leader_of: vec![0, 1, 0, 1],
            members: vec![rank, rank + 2],
            rank: 0,
            leader: 0,
            are_ranges: false,
            verdicts: HashMap::new(),
            data: Vec::new(),
            other: Vec::new(),
        }
    }

    /// The roots of a team have one plan, so that there are more verdicts than plans, and too many of them at another call.
    #[test]
    fn plans_go_with_the_verdicts() {
        let half = PLANS_MAX as u64 / 2;
        let broadcast = |bytes, root| Shape { root, ..shape(Collective::Broadcast, bytes) };
        let shared = (1..=half).flat_map(|bytes| [broadcast(bytes, 0), broadcast(bytes, 2)]);
        let calls: Vec<Shape> = shared.chain((half + 1..=2 * half + 1).map(|bytes| broadcast(bytes, 0))).collect();
        let accesses: Vec<Arc<Accesses>> = (0..RANKS).map(|_| Arc::default()).collect();
        let kept = ranks(&accesses, false, |rank, engine, registered| {
            let mut team = team(rank as u32);
            for shape in &calls {
                assert_eq!(team.verdict(shape), None);
                team.make_room(Some(&mut *registered));
                assert!(engine.plan(registered, &team.of_leaders(shape)).unwrap());
                team.keep_verdict(shape, Ok(()));
            }
            let known = calls.iter().filter(|shape| team.verdict(shape).is_some());
            known.map(|shape| registered.bytes(&team.of_leaders(shape)) != (0, 0)).collect::<Vec<_>>()
        });
        for has_plan in kept {
            assert_eq!(has_plan, vec![true; half as usize + 1]);
        }
    }
}

//! A communicator, and what an entry of a card's table holds.

pub(crate) mod contexts;
pub(crate) mod group;
pub(crate) mod offer;
pub(crate) mod registry;
pub(crate) mod roster;

use cmdseq::communicator::ContextId;

use crate::card::communicator_table::Members;

/// A communicator of a [`Cluster`](crate::Cluster). It stays on the cards until it is [freed](crate::Cluster::free); clones
/// are the same one.
///
/// ```no_run
/// # fn example(cluster: &mut fpga_driver::Cluster) -> fpga_driver::Result<()> {
/// use fpga_driver::Choice;
///
/// // Rows of four cards each, in the order of their nodes; all have one id.
/// let world = cluster.world();
/// let choices: Vec<_> = (0..world.size()).map(|rank| Some(Choice { colour: rank / 4, key: 0 })).collect();
/// let rows = cluster.split(&world, &choices)?;
/// // What instructions name, and what a request's group is.
/// let first = rows[0].as_ref().expect("rank 0 has chosen a row");
/// println!("communicator {} of nodes {:?}", first.id(), first.members());
/// cluster.free(first)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Communicator {
    pub(crate) key: u64,
    pub(crate) id: ContextId,
    pub(crate) members: Members,
}

impl Communicator {
    /// Its id in instructions, the same on all its cards.
    pub fn id(&self) -> u16 {
        self.id.raw()
    }

    /// Its nodes by rank, such as the group of a request is.
    pub fn members(&self) -> &[u32] {
        &self.members
    }

    /// Its ranks.
    pub fn size(&self) -> u32 {
        self.members.len() as u32
    }
}

/// A rank's argument of [`Cluster::split`](crate::Cluster::split): ranks of equal colour come together, in the order of their
/// keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Choice {
    /// Which of the new communicators.
    pub colour: u32,
    /// Where in it; of equal keys, the lower rank comes first.
    pub key: i32,
}

//! Clusters and communicators whose members are held by several processes: what the ranks state, and compare, when one is made.

use std::ops::{Deref, DerefMut};

use cmdseq::communicator::ContextId;

use crate::card::Card;
use crate::cluster::Cluster;
use crate::cluster::agreement::exchange;
use crate::communicators::Communicator;
use crate::communicators::group::Group;
use crate::communicators::registry::Owner;
use crate::communicators::roster::{NONCE_BYTES, Statement, alike, members};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::peers::Peers;

/// A cluster whose collective calls are made with the ranks of one communicator only: see [`Cluster::among`].
#[derive(Debug)]
pub struct Among<'a> {
    cluster: &'a mut Cluster,
    key: u64,
    /// Whom the cluster's calls are made with otherwise.
    before: Option<Group>,
}

impl Deref for Among<'_> {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.cluster
    }
}

impl DerefMut for Among<'_> {
    fn deref_mut(&mut self) -> &mut Cluster {
        self.cluster
    }
}

impl Drop for Among<'_> {
    fn drop(&mut self) {
        let Some(before) = self.before.take() else { return };
        let group = std::mem::replace(&mut self.cluster.group, before);
        // It may have been freed meanwhile.
        if let Some(held) = self.cluster.registry.find_mut(self.key) {
            held.group = Some(group);
        }
    }
}

impl Cluster {
    /// Makes a cluster of the cards of all ranks, of which this process holds `cards`. Collective over `peers`; so are the cluster's
    /// collective calls then. All ranks learn of a rank that has no cards because opening them failed. `terms`, names and values, must be
    /// the same on all ranks, as must be the version of this driver and what the cards can do. At the end, the cards exchange random
    /// numbers, so that cards of another fabric are found out. This takes at most 3 s if all cards reach each other, else up to
    /// 350 ms more for each member.
    ///
    /// Every card is open before the first runs. [`close`](Cluster::close) closes them when all ranks are done.
    ///
    /// # Errors
    /// Those of [`of`](Cluster::of); [`Error::Differs`] naming the rank that differs, or whose card is another rank's or of another
    /// fabric; [`Error::Peer`] if another rank failed; [`Error::Peers`].
    pub fn join(cards: Result<Vec<Card>>, mut peers: Box<dyn Peers>, terms: &[(&str, String)]) -> Result<Cluster> {
        let cluster = cards.and_then(Cluster::of);
        let deadline = cluster.as_ref().map_or_else(|_| Deadline::after(crate::card::TIMEOUT), Cluster::deadline);
        let stated = state(cluster, terms);
        let ((mut cluster, _), all) = exchange(&mut *peers, stated, |(_, stated)| stated.clone(), deadline.left())?;
        let nonces = cluster.enrol(peers, &all)?;
        let nodes = cluster.nodes();
        cluster.prove(ContextId::WORLD, &nodes, &nodes, &nonces)?;
        Ok(cluster)
    }

    /// Makes a communicator of the cards of the ranks of `peers`, in their order: the counterpart of a communicator of MPI. All cards
    /// held here are members. Collective over `peers` only. Other ranks of the cluster need not know of it, and the cluster need not have
    /// been [joined](Cluster::join) by anyone. Terms and checks are those of `join`; its id is one that is free on all the cards.
    ///
    /// # Errors
    /// As [`join`](Cluster::join); [`Error::TableFull`], [`Error::IdsSpent`], the same on all ranks.
    pub fn register(&mut self, mut peers: Box<dyn Peers>, terms: &[(&str, String)]) -> Result<Communicator> {
        let deadline = self.deadline();
        let stated = Statement::of(&self.cards, terms);
        let (_, all) = exchange(&mut *peers, stated, Statement::clone, deadline.left())?;
        let before = std::mem::replace(&mut self.group, Group::alone(Vec::new()));
        let outcome = self.enrol(peers, &all).and_then(|nonces| self.found(&nonces, deadline));
        let group = std::mem::replace(&mut self.group, before);
        let communicator = outcome?;
        if let Some(held) = self.registry.find_mut(communicator.key) {
            held.group = Some(group);
        }
        Ok(communicator)
    }

    /// Makes the communicator of the present group, and checks it.
    fn found(&mut self, nonces: &[[u8; NONCE_BYTES]], deadline: Deadline) -> Result<Communicator> {
        let nodes = self.nodes();
        let communicator = self.allocate_one(nodes.as_slice().into(), Owner::Handle, deadline)?;
        if let Some(held) = self.registry.find_mut(communicator.key) {
            held.is_registered = true;
        }
        let ranks: Vec<u32> = (0..nodes.len() as u32).collect();
        match self.prove(communicator.id, &nodes, &ranks, nonces) {
            Ok(()) => Ok(communicator),
            Err(error) => {
                if let Err(error) = self.free(&communicator) {
                    log::warn!("a communicator that was refused is not freed on all cards: {error}");
                }
                Err(error)
            }
        }
    }

    /// Compares what all ranks have stated, and takes their members and `peers` as the present group. Returns the members' nonces.
    fn enrol(&mut self, peers: Box<dyn Peers>, stated: &[Statement]) -> Result<Vec<[u8; NONCE_BYTES]>> {
        alike(&stated.iter().map(|one| one.terms.as_slice()).collect::<Vec<_>>())?;
        let (roster, nonces) = members(stated)?;
        self.group = Group { peers, roster };
        Ok(nonces)
    }

    /// The cluster for calls with the ranks of `communicator` only, which [`register`](Cluster::register) has made: collective calls are
    /// collective over those ranks, and the roster is that of the communicator.
    ///
    /// # Errors
    /// [`Error::Stale`] if `communicator` was freed; [`Error::BadArgument`] if it was not registered.
    pub fn among(&mut self, communicator: &Communicator) -> Result<Among<'_>> {
        self.registry.opened(communicator)?;
        let held = self.registry.find_mut(communicator.key);
        let group = held
            .and_then(|held| held.group.take())
            .ok_or_else(|| Error::argument("communicator", communicator.id, "one that its ranks have registered"))?;
        let before = Some(std::mem::replace(&mut self.group, group));
        Ok(Among { cluster: self, key: communicator.key, before })
    }
}

/// Adds to the cards what this rank states of them.
fn state(cluster: Result<Cluster>, terms: &[(&str, String)]) -> Result<(Cluster, Statement)> {
    let cluster = cluster?;
    let statement = Statement::of(&cluster.cards, terms)?;
    Ok((cluster, statement))
}

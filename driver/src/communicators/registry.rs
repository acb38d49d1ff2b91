//! Which communicators a cluster has, where their entries are in the cards' tables, and which ids were given before. No I/O.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cmdseq::communicator::{ContextId, INDICES};

use crate::card::communicator_table::{Members, Spent};
use crate::communicators::Communicator;
use crate::communicators::group::Group;
use crate::communicators::offer::{FreeEntry, Offer};
use crate::error::{Error, Result};

/// One communicator.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) key: u64,
    pub(crate) id: ContextId,
    pub(crate) members: Members,
    pub(crate) owner: Owner,
    /// Whether the id was given to anyone but plans.
    pub(crate) is_told: bool,
    /// Of a communicator that its ranks registered: whom calls for it are made with, except while they are.
    pub(crate) group: Option<Group>,
    /// Whether its ranks registered it: once all have freed it, its id returns.
    pub(crate) is_registered: bool,
    /// Counts the plans that use it for longer than one execution.
    pub(crate) pin: Arc<()>,
    used: u64,
}

impl Known {
    /// Whether a plan uses it for longer than one execution.
    pub(crate) fn is_pinned(&self) -> bool {
        Arc::strong_count(&self.pin) > 1
    }

    pub(crate) fn makes_room(&self) -> bool {
        self.owner == Owner::Plan && !self.is_pinned()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Whoever has the handle.
    Handle,
    /// Whoever chose the id.
    Id,
    /// Nobody: plans share it.
    Plan,
}

/// All communicators of a cluster.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) entries: u32,
    pub(crate) generations: u32,
    pub(crate) held: Vec<Known>,
    /// Registered communicators that were freed here, and whose ids have not returned.
    pub(crate) freed: Vec<(ContextId, Members)>,
    uses: u64,
}

impl Registry {
    pub(crate) fn new(nodes: u32, entries: u32, generations: u32) -> Self {
        let mut registry = Registry {
            entries: entries.min(INDICES),
            generations: generations.max(1),
            held: Vec::new(),
            freed: Vec::new(),
            uses: 0,
        };
        registry.add(ContextId::WORLD, (0..nodes).collect(), Owner::Handle);
        registry
    }

    /// Adds a communicator and returns its key.
    pub(crate) fn add(&mut self, id: ContextId, members: Members, owner: Owner) -> u64 {
        /// No two communicators of a process have the same key, so that a handle is of one cluster.
        static KEYS: AtomicU64 = AtomicU64::new(0);
        let key = KEYS.fetch_add(1, Ordering::Relaxed);
        self.uses += 1;
        // Since it was freed, a reset has brought the id back, or a caller has chosen it.
        self.freed.retain(|(old, of)| *old != id || !of.iter().any(|node| members.contains(node)));
        let is_told = owner != Owner::Plan;
        let (group, is_registered, pin, used) = (None, false, Arc::default(), self.uses);
        self.held.push(Known { key, id, members, owner, is_told, group, is_registered, pin, used });
        key
    }

    pub(crate) fn find(&self, key: u64) -> Option<&Known> {
        self.held.iter().find(|held| held.key == key)
    }

    pub(crate) fn find_mut(&mut self, key: u64) -> Option<&mut Known> {
        self.held.iter_mut().find(|held| held.key == key)
    }

    /// The handle's communicator, unless it was freed.
    pub(crate) fn opened(&self, handle: &Communicator) -> Result<&Known> {
        let held = self.find(handle.key).filter(|held| held.owner == Owner::Handle);
        held.ok_or(Error::Stale { what: "communicator" })
    }

    /// Returns a communicator with these members for a plan, none of `taken`; a held one is preferred.
    pub(crate) fn shared(&mut self, members: &[u32], taken: &[u64]) -> Option<&Known> {
        self.uses += 1;
        let fitting = self.held.iter_mut().filter(|held| *held.members == *members && !taken.contains(&held.key));
        let found = fitting.min_by_key(|held| (held.owner == Owner::Plan, held.key))?;
        found.used = self.uses;
        Some(found)
    }

    pub(crate) fn handle(&self, key: u64) -> Option<Communicator> {
        let Known { id, members, .. } = self.find(key)?;
        Some(Communicator { key, id: *id, members: Arc::clone(members) })
    }

    /// What this process offers for a new communicator on `nodes`, to each of whose cards the ids of `spent` were given: of each
    /// entry, whether it is free, or only holds what plans have left.
    pub(crate) fn offer<'s>(&self, nodes: &[u32], spent: impl Fn(usize) -> &'s Spent) -> Offer {
        let mut entries = vec![Some(FreeEntry { used: 0, spent: 0 }); self.entries as usize];
        entries.first_mut().into_iter().for_each(|world| *world = None);
        for held in self.on(nodes) {
            let Some(entry) = entries.get_mut(held.id.index() as usize) else { continue };
            if !held.makes_room() {
                *entry = None;
            } else if let Some(FreeEntry { used, .. }) = entry {
                *used = held.used.max(*used);
            }
        }
        let (mut before, mut after) = (Spent::default(), Spent::default());
        for (place, node) in nodes.iter().enumerate() {
            let spent = spent(place);
            before.add_all(spent);
            // What only plans were told comes back on this card when it makes room.
            let mut left = spent.clone();
            let evictable = self.on(&[*node]).filter(|held| held.makes_room() && !held.is_told);
            evictable.for_each(|held| left.remove(held.id));
            after.add_all(&left);
        }
        for (index, entry) in (0..).zip(&mut entries) {
            entry.iter_mut().for_each(|entry| entry.spent = before.count(index));
        }
        Offer { entries, spent: after }
    }

    /// Keys of what has to make room for a new communicator on `nodes` with this entry.
    pub(crate) fn in_the_way(&self, entry: u32, nodes: &[u32]) -> Vec<u64> {
        self.on(nodes).filter(|held| held.id.index() == entry).map(|held| held.key).collect()
    }

    /// Drops what plans have left in this entry of the cards of `nodes`, none of which is here.
    pub(crate) fn drop_left(&mut self, entry: u32, nodes: &[u32]) {
        let keys = self.in_the_way(entry, nodes);
        self.held.retain(|held| !held.makes_room() || !keys.contains(&held.key));
    }

    /// Communicators with a member among `nodes`.
    fn on<'s>(&'s self, nodes: &[u32]) -> impl Iterator<Item = &'s Known> + use<'s> {
        let mut is_among = vec![false; nodes.iter().max().map_or(0, |node| *node as usize + 1)];
        nodes.iter().for_each(|node| is_among[*node as usize] = true);
        let is_on = move |held: &&'s Known| held.members.iter().any(|node| is_among.get(*node as usize) == Some(&true));
        self.held.iter().filter(is_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::communicators::offer::NoEntry;

    fn registry() -> Registry {
        Registry::new(8, 4, 256)
    }

    fn add(registry: &mut Registry, entry: u32, members: &[u32], owner: Owner) -> u64 {
        registry.add(ContextId::new(entry, 0).unwrap(), members.into(), owner)
    }

    #[derive(Debug, PartialEq, Eq)]
    struct Free {
        entry: u32,
        evicted: Vec<u64>,
    }

    fn free_entry_of(registry: &Registry, nodes: &[u32], spent: &Spent) -> std::result::Result<Free, NoEntry> {
        let entry = registry.offer(nodes, |_| spent).choose(registry.generations)?.index();
        Ok(Free { entry, evicted: registry.in_the_way(entry, nodes) })
    }

    fn free_entry(registry: &Registry, nodes: &[u32]) -> std::result::Result<Free, NoEntry> {
        free_entry_of(registry, nodes, &Spent::default())
    }

    #[test]
    fn the_first_entry_free_on_all_cards_is_taken() {
        let mut registry = registry();
        assert_eq!(free_entry(&registry, &[0, 1]), Ok(Free { entry: 1, evicted: Vec::new() }));
        add(&mut registry, 1, &[0, 1], Owner::Handle);
        assert_eq!(free_entry(&registry, &[2, 3]).unwrap().entry, 1);
        assert_eq!(free_entry(&registry, &[1, 2]).unwrap().entry, 2);
        add(&mut registry, 2, &[2, 3], Owner::Id);
        assert_eq!(free_entry(&registry, &[1, 2]).unwrap().entry, 3);
        add(&mut registry, 3, &[3], Owner::Handle);
        assert_eq!(free_entry(&registry, &[1, 2, 3]), Err(NoEntry::Full), "no entry is free on all three");
    }

    #[test]
    fn what_plans_have_left_makes_room_the_oldest_first() {
        let mut registry = registry();
        let first = add(&mut registry, 1, &[0, 1], Owner::Plan);
        let second = add(&mut registry, 2, &[1, 2], Owner::Plan);
        assert_eq!(free_entry(&registry, &[1]), Ok(Free { entry: 3, evicted: Vec::new() }));
        add(&mut registry, 3, &[1], Owner::Handle);
        assert_eq!(free_entry(&registry, &[1]), Ok(Free { entry: 1, evicted: vec![first] }));
        for (members, key) in [([1, 2], second), ([0, 1], first)] {
            assert_eq!(registry.shared(&members, &[]).unwrap().key, key);
        }
        assert_eq!(free_entry(&registry, &[1]), Ok(Free { entry: 2, evicted: vec![second] }));
        let pin = Arc::clone(&registry.find(second).unwrap().pin);
        assert_eq!(free_entry(&registry, &[1]), Ok(Free { entry: 1, evicted: vec![first] }));
        drop(pin);
        assert_eq!(free_entry(&registry, &[1]).unwrap().entry, 2);
    }

    #[test]
    fn a_plan_shares_rather_what_is_held_than_what_another_has_left() {
        let mut registry = registry();
        let left = add(&mut registry, 1, &[0, 1], Owner::Plan);
        let held = add(&mut registry, 2, &[0, 1], Owner::Handle);
        let chosen = add(&mut registry, 3, &[0, 1], Owner::Id);
        add(&mut registry, 1, &[1, 0], Owner::Handle);
        let mut taken = Vec::new();
        for expected in [held, chosen, left] {
            assert_eq!(registry.shared(&[0, 1], &taken).unwrap().key, expected);
            taken.push(expected);
        }
        assert!(registry.shared(&[0, 1], &taken).is_none());
    }

    #[test]
    fn the_entry_with_most_generations_left_is_taken_and_one_without_never() {
        let mut registry = registry();
        let mut spent = Spent::default();
        let mut seen = Vec::new();
        while let Ok(Free { entry, evicted }) = free_entry_of(&registry, &[0, 1], &spent) {
            assert!(evicted.is_empty());
            let id = spent.first_left(entry, 256).unwrap();
            spent.add(id);
            seen.push(id.raw());
        }
        assert_eq!(seen[..4], [1, 2, 3, 33]);
        assert_eq!(seen.len(), 3 * 256);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 3 * 256, "each id once");
        assert_eq!(free_entry_of(&registry, &[0, 1], &spent), Err(NoEntry::Spent));
        // What only plans were told comes back with its entry.
        let left = add(&mut registry, 2, &[0, 1], Owner::Plan);
        assert_eq!(free_entry_of(&registry, &[0, 1], &spent), Ok(Free { entry: 2, evicted: vec![left] }));
        let id = ContextId::new(2, 0).unwrap();
        spent.remove(id);
        assert_eq!(spent.first_left(2, 256), Some(id));
        // One id of each entry is all there is.
        assert_eq!(spent.first_left(3, 1), ContextId::new(3, 0));
    }
}

//! Communicators of a cluster: who holds which entries of the cards' tables.
//!
//! An id is the same on all members. An instruction that still names one that was freed is refused by the card, because no
//! card is given an id twice between two resets: of the entries that are free on all members, the one with most
//! [generations](cmdseq::communicator::GENERATIONS) left is taken, and where none is left a communicator is refused
//! ([`Error::IdsSpent`]). That is after 7936 communicators on the cards of this version. There are three exceptions. An id that
//! only plans have had may serve a plan again, for no one else was told it. A card that tells no generations apart has
//! only one id for each entry. And the id of a communicator that its ranks have [registered](Cluster::register) returns when no
//! other is left, if all its members have freed it.
//!
//! Communicators of plans share the table with those that are held: they are found by their members, stay defined for the
//! next plan, and make room when there is no other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cmdseq::communicator::ContextId;
use cmdseq::{Completion, Instruction, Operation, Status, plan};

use crate::card::Card;
use crate::card::communicator_table::{Defined, Members};
use crate::cluster::Cluster;
use crate::communicators::contexts::Contexts;
use crate::communicators::offer::{NoEntry, Offer};
use crate::communicators::registry::{Known, Owner};
use crate::communicators::{Choice, Communicator};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::ledger::token::Token;
use crate::queue::check;

/// What defining a communicator by its own id changes.
struct Definition {
    id: ContextId,
    /// The communicator, if it is there.
    known: Option<u64>,
    /// Those that make room for it.
    replaced: Vec<u64>,
}

impl Cluster {
    /// The communicator of all cards of the fabric, by node. It is always there.
    pub fn world(&self) -> Communicator {
        let world = self.registry.handle(self.registry.held[0].key);
        world.unwrap_or_else(|| unreachable!("the world is never removed"))
    }

    /// A communicator of ranks `ranks` of `parent`, in this order, as `MPI_Comm_create_group` makes them. Collective.
    ///
    /// # Errors
    /// [`Error::BadArgument`] if there are none, one of them is not a rank or there twice, or a card is not held;
    /// [`Error::TableFull`]; [`Error::IdsSpent`]; [`Error::Stale`] if `parent` was freed; and if a card refuses, those of [`Card::wait`].
    pub fn create(&mut self, parent: &Communicator, ranks: &[u32]) -> Result<Communicator> {
        let of = Arc::clone(&self.registry.opened(parent)?.members);
        let mut is_taken = vec![false; of.len()];
        let mut members = Vec::with_capacity(ranks.len());
        for rank in ranks {
            let node = of.get(*rank as usize).filter(|_| !std::mem::replace(&mut is_taken[*rank as usize], true));
            let expected = || format!("different ranks of a communicator of {}", of.len());
            members.push(*node.ok_or_else(|| Error::argument("rank", rank, expected()))?);
        }
        if members.is_empty() {
            return Err(Error::argument("ranks", "none", "at least one rank"));
        }
        let deadline = self.deadline();
        self.allocate_one(members.into(), Owner::Handle, deadline)
    }

    /// Splits `parent` as `MPI_Comm_split` does: `choices` has one for each of its ranks, none for a rank that is to be in no new
    /// communicator. Returns the communicator of each rank. All of them have one id. Collective.
    ///
    /// # Errors
    /// As [`create`](Cluster::create).
    pub fn split(&mut self, parent: &Communicator, choices: &[Option<Choice>]) -> Result<Vec<Option<Communicator>>> {
        let of = Arc::clone(&self.registry.opened(parent)?.members);
        if choices.len() != of.len() {
            return Err(Error::argument("choices", choices.len(), format!("one for each of {} ranks", of.len())));
        }
        let mut colours: BTreeMap<u32, Vec<(i32, usize)>> = BTreeMap::new();
        for (rank, choice) in choices.iter().enumerate() {
            if let Some(Choice { colour, key }) = choice {
                colours.entry(*colour).or_default().push((*key, rank));
            }
        }
        let groups = colours.values_mut().map(|ranks| {
            ranks.sort_unstable();
            ranks.iter().map(|(_, rank)| of[*rank]).collect()
        });
        let (groups, deadline) = (groups.collect(), self.deadline());
        let made = self.allocate(groups, Owner::Handle, deadline)?;
        let by_colour: BTreeMap<u32, Communicator> = colours.into_keys().zip(made).collect();
        let of_rank = |choice: &Option<Choice>| by_colour.get(&choice.as_ref()?.colour).cloned();
        Ok(choices.iter().map(of_rank).collect())
    }

    /// Another communicator of the same ranks. Collective.
    ///
    /// # Errors
    /// As [`create`](Cluster::create).
    pub fn duplicate(&mut self, of: &Communicator) -> Result<Communicator> {
        let members = Arc::clone(&self.registry.opened(of)?.members);
        let deadline = self.deadline();
        self.allocate_one(members, Owner::Handle, deadline)
    }

    /// Frees `communicator`, on the cards held here after the instructions already in their queues. Asks no other rank. If a stored plan
    /// uses it too, it stays on the cards while that plan lives, and after that until its entry is needed. The id of one that its ranks
    /// [registered](Cluster::register) returns once all of them have freed it.
    ///
    /// # Errors
    /// [`Error::Stale`] if it was freed before, [`Error::BadArgument`] for the one of all cards. If a card fails, those of
    /// [`Card::wait`]; it is freed then all the same, and that card is told again before its entry is used.
    pub fn free(&mut self, communicator: &Communicator) -> Result<()> {
        if self.registry.opened(communicator)?.id == ContextId::WORLD {
            return Err(Error::argument("communicator", ContextId::WORLD, "the one of all cards is always there"));
        }
        let held = self.registry.find_mut(communicator.key);
        if let Some(held) = held.filter(|held| held.is_pinned()) {
            held.owner = Owner::Plan;
            return Ok(());
        }
        self.release(communicator.key, self.deadline())
    }

    /// Defines `communicator` again on those of its cards that were reset since.
    ///
    /// # Errors
    /// [`Error::Stale`] if it was freed; if a card refuses, those of [`Card::wait`].
    pub fn restore(&mut self, communicator: &Communicator) -> Result<()> {
        self.registry.opened(communicator)?;
        self.ensure(communicator.key, self.deadline())
    }

    /// Defines `communicator` on all its members by its own id, for programs that name ids themselves. It replaces a
    /// communicator that was so defined with the same entry on one of the members, but none that a handle or a stored plan holds.
    /// Collective.
    ///
    /// # Errors
    /// [`Error::BadArgument`] if a member is not among the cards or is there twice, if the id is invalid, or if a handle or a stored
    /// plan holds its entry: then nothing changes, on all ranks. [`Error::Failed`] if a card refuses: then it is defined on none,
    /// unless it was defined before, and what it would have replaced is gone.
    pub fn define(&mut self, communicator: &plan::Communicator) -> Result<()> {
        let deadline = self.deadline();
        let checked = self.check_definition(communicator);
        // Before anything is replaced, all ranks know that none refuses.
        let Definition { id, known, replaced } = self.agree_until(checked, deadline)?;
        let freed = replaced.into_iter().try_for_each(|key| self.release(key, deadline));
        let members = || communicator.members.as_slice().into();
        let added = freed.map(|()| known.unwrap_or_else(|| self.registry.add(id, members(), Owner::Id)));
        let key = added.as_ref().ok().copied();
        let new = key.filter(|_| known.is_none());
        let defined = added.and_then(|key| self.ensure(key, deadline));
        self.agree_or_release(new.as_slice(), defined, deadline)?;
        // If it was a plan's, it makes no room from now on, and its id is no other's.
        if let Some(held) = key.and_then(|key| self.registry.find_mut(key)) {
            (held.owner, held.is_told) = (Owner::Id, true);
        }
        Ok(())
    }

    /// Finds out what defining `communicator` by its own id changes.
    fn check_definition(&self, communicator: &plan::Communicator) -> Result<Definition> {
        let plan::Communicator { id: raw, members } = communicator;
        let expected = || format!("1 to {}, or a later generation of one", self.registry.entries.saturating_sub(1));
        let entries = self.registry.entries;
        let id = ContextId::from_raw(*raw)
            .filter(|id| (1..entries).contains(&id.index()) && id.generation() < self.registry.generations)
            .ok_or_else(|| Error::argument("communicator", raw, expected()))?;
        self.check_members(members)?;
        let same = |held: &&Known| held.id == id && *held.members == **members && held.owner != Owner::Handle;
        if let Some(held) = self.registry.held.iter().find(same) {
            return Ok(Definition { id, known: Some(held.key), replaced: Vec::new() });
        }
        let in_the_way = self
            .registry
            .held
            .iter()
            .filter(|held| held.id.index() == id.index() && held.members.iter().any(|node| members.contains(node)));
        let mut replaced = Vec::new();
        for held in in_the_way {
            if held.owner == Owner::Handle || held.is_pinned() {
                let whose = if held.owner == Owner::Handle { "" } else { ", which a stored plan or its contexts use" };
                let expected = format!("its entry of the table is held by communicator {}{whose}", held.id);
                return Err(Error::argument("communicator", raw, expected));
            }
            replaced.push(held.key);
        }
        Ok(Definition { id, known: None, replaced })
    }

    /// Defines those communicators of a plan that are not defined, and returns the ids of all. A held communicator with the
    /// same members is shared; but two ids of the plan are two communicators. Collective.
    ///
    /// # Errors
    /// As [`create`](Cluster::create).
    pub fn contexts<'c>(
        &mut self,
        communicators: impl IntoIterator<Item = &'c plan::Communicator>,
    ) -> Result<Contexts> {
        let deadline = self.deadline();
        self.contexts_apart(communicators, &BTreeSet::new(), deadline)
    }

    /// As [`contexts`](Cluster::contexts); those of `apart` are shared with nobody.
    pub(crate) fn contexts_apart<'c>(
        &mut self,
        communicators: impl IntoIterator<Item = &'c plan::Communicator>,
        apart: &BTreeSet<u16>,
        deadline: Deadline,
    ) -> Result<Contexts> {
        let mut contexts = Contexts::default();
        let mut taken = Vec::new();
        let mut outcome = Ok(());
        for plan::Communicator { id, members } in communicators {
            if contexts.has(*id, members) {
                continue;
            }
            let shared = match apart.contains(id) {
                true => None,
                false => self.registry.shared(members, &taken).map(|held| (held.key, held.id)),
            };
            let key = match self.shared_by_all(std::mem::replace(&mut outcome, Ok(())), shared, members, deadline)? {
                Some(key) => key,
                None => self.allocate_one(members.as_slice().into(), Owner::Plan, deadline)?.key,
            };
            let held = self.registry.find(key).ok_or(Error::Stale { what: "communicator" })?;
            contexts.add(*id, held.id, Arc::clone(&held.members), Arc::clone(&held.pin));
            taken.push(key);
            outcome = self.ensure(key, deadline);
        }
        if taken.is_empty() { Ok(contexts) } else { self.agree_until(outcome, deadline).map(|()| contexts) }
    }

    /// The key of a communicator with these members, if all ranks that hold one of them share the same id. The others learn it: of what
    /// its ranks alone have registered or freed, they know nothing.
    fn shared_by_all(
        &mut self,
        outcome: Result<()>,
        shared: Option<(u64, ContextId)>,
        members: &[u32],
        deadline: Deadline,
    ) -> Result<Option<u64>> {
        let is_member = members.iter().any(|node| self.holds(*node));
        let own = (is_member, shared.map(|(_, id)| id.raw()));
        let ((), all) = self.exchange(outcome, |()| own, deadline)?;
        let ids: BTreeSet<Option<u16>> =
            all.into_iter().filter(|(is_member, _)| *is_member).map(|(_, id)| id).collect();
        let agreed = ids.first().copied().flatten().filter(|_| ids.len() == 1);
        let Some(agreed) = agreed.and_then(ContextId::from_raw) else { return Ok(None) };
        if let Some((key, _)) = shared.filter(|(_, id)| *id == agreed) {
            return Ok(Some(key));
        }
        let held = self.registry.held.iter().find(|held| held.id == agreed && *held.members == *members);
        if let Some(held) = held {
            return Ok(Some(held.key));
        }
        // What it replaces on the cards is replaced here too.
        self.registry.drop_left(agreed.index(), members);
        Ok(Some(self.registry.add(agreed, members.into(), Owner::Plan)))
    }

    /// Notes what a program on the card at `index` may have defined and freed: the next use of each entry defines it again.
    pub(crate) fn unsettle(&mut self, index: usize, changed: impl Iterator<Item = (Operation, u16)>) {
        let card = self.card_mut(index);
        for (operation, id) in changed {
            // Others the card has refused.
            let Some(id) = ContextId::from_raw(id) else { continue };
            let entry = &mut card.entries[id.index() as usize];
            match entry {
                Some(entry) if operation == Operation::Free => entry.is_certain = false,
                None if operation == Operation::Free => {}
                _ => {
                    *entry = Some(Defined { id, members: [].into(), is_certain: false });
                    card.spent.add(id);
                }
            }
        }
    }

    pub(crate) fn allocate_one(&mut self, members: Members, owner: Owner, deadline: Deadline) -> Result<Communicator> {
        let made = self.allocate(vec![members], owner, deadline)?;
        made.into_iter().next().ok_or(Error::Stale { what: "communicator" })
    }

    /// Makes communicators that have no card in common, all with one id, which is free on all cards.
    fn allocate(&mut self, groups: Vec<Members>, owner: Owner, deadline: Deadline) -> Result<Vec<Communicator>> {
        let nodes = groups.concat();
        if nodes.is_empty() {
            return Ok(Vec::new());
        }
        groups.iter().try_for_each(|members| self.check_members(members))?;
        let id = self.free_id(&nodes, deadline)?;
        for key in self.registry.in_the_way(id.index(), &nodes) {
            // A card that does not free it may be none of the new ones; if it is, it is told again.
            if let Err(error) = self.release(key, deadline) {
                log::debug!("a communicator that made room is not freed on all cards: {error}");
            }
        }
        let keys: Vec<u64> = groups.into_iter().map(|members| self.registry.add(id, members, owner)).collect();
        let defined = keys.iter().try_for_each(|key| self.ensure(*key, deadline));
        self.agree_or_release(&keys, defined, deadline)?;
        Ok(keys.into_iter().filter_map(|key| self.registry.handle(key)).collect())
    }

    /// An id that is free on the cards of `nodes`.
    fn free_id(&mut self, nodes: &[u32], deadline: Deadline) -> Result<ContextId> {
        let generations = self.registry.generations;
        let mut chosen = self.offer_of_all(nodes, deadline)?.choose(generations);
        if chosen == Err(NoEntry::Spent) && self.return_freed(deadline)? {
            chosen = self.offer_of_all(nodes, deadline)?.choose(generations);
        }
        let (cards, limit) = (nodes.len(), self.registry.entries);
        chosen.map_err(|none| match none {
            NoEntry::Full => Error::TableFull { cards, limit },
            NoEntry::Spent => Error::IdsSpent { cards },
        })
    }

    /// What the cards of `nodes` can all take, whoever holds them.
    fn offer_of_all(&mut self, nodes: &[u32], deadline: Deadline) -> Result<Offer> {
        let held = self.held(nodes)?;
        let nodes: Vec<u32> = held.iter().map(|(place, _)| nodes[*place]).collect();
        let mut offer = self.registry.offer(&nodes, |place| &self.cards[held[place].1].spent);
        let ((), all) = self.exchange(Ok(()), |()| offer.clone(), deadline)?;
        all.iter().for_each(|other| offer.and(other));
        Ok(offer)
    }

    /// Takes back the ids of registered communicators that all their members, all of which are here, have freed. Returns whether
    /// asking again may find one.
    fn return_freed(&mut self, deadline: Deadline) -> Result<bool> {
        let own = std::mem::take(&mut self.registry.freed);
        let said: BTreeSet<(u16, Vec<u32>)> = own.iter().map(|(id, members)| (id.raw(), members.to_vec())).collect();
        let all = match self.exchange(Ok(()), |()| said, deadline) {
            Ok(((), all)) => all,
            Err(error) => {
                self.registry.freed = own;
                return Err(error);
            }
        };
        // The other ranks come to the same result: all members of a communicator are among them.
        let is_freed = |(id, members): &(ContextId, Members)| {
            let one = (id.raw(), members.to_vec());
            members.iter().all(|node| {
                let peer = self.peer_of(*node).ok().and_then(|peer| all.get(peer as usize));
                peer.is_some_and(|freed| freed.contains(&one))
            })
        };
        let (returned, kept): (Vec<_>, Vec<_>) = own.into_iter().partition(is_freed);
        self.registry.freed = kept;
        for (id, members) in &returned {
            for index in self.here(members)? {
                self.card_mut(index).spent.remove(*id);
            }
        }
        // Also if only others took some back.
        Ok(all.iter().any(|freed| !freed.is_empty()))
    }

    /// Refuses members that cannot form a communicator.
    fn check_members(&self, members: &[u32]) -> Result<()> {
        let most = self.capabilities().communicator_ranks;
        if members.is_empty() || members.len() as u64 > u64::from(most) {
            return Err(Error::argument("members", members.len(), format!("a communicator has 1 to {most} ranks")));
        }
        let mut is_taken = BTreeSet::new();
        for node in members {
            u16::try_from(*node).map_err(|_| Error::argument("node", node, "a node number of 16 bits"))?;
            if !is_taken.insert(*node) {
                return Err(Error::argument("node", node, "each node is a member once"));
            }
        }
        self.held(members).map(drop)
    }

    /// Agrees on whether communicators were `defined`; if one was not, none of the `new` ones stays.
    fn agree_or_release(&mut self, new: &[u64], defined: Result<()>, deadline: Deadline) -> Result<()> {
        let defined = self.agree_until(defined, deadline);
        if defined.is_err() {
            for key in new {
                if let Err(error) = self.release(*key, deadline) {
                    log::warn!("a communicator that could not be made is not freed on all cards: {error}");
                }
            }
        }
        defined
    }

    /// Defines communicator `key` on those of its cards where it is not defined.
    fn ensure(&mut self, key: u64, deadline: Deadline) -> Result<()> {
        let Some(Known { id, members, .. }) = self.registry.find(key) else { return Ok(()) };
        let (id, members) = (*id, Arc::clone(members));
        if id == ContextId::WORLD {
            return Ok(());
        }
        let (mut before, mut missing) = (Vec::new(), Vec::new());
        for index in self.here(&members)? {
            match &self.cards()[index].entries[id.index() as usize] {
                Some(one) if one.is_certain && one.id == id && one.members == members => continue,
                // It may be there, or it could not be freed.
                Some(one) => before.push((index, one.id)),
                None => {}
            }
            missing.push(index);
        }
        self.free_ids(before, deadline)?;
        let table: Vec<u8> = members.iter().flat_map(|node| (*node as u16).to_le_bytes()).collect();
        let mut outcome = Ok(());
        let mut tokens = Vec::with_capacity(missing.len());
        for index in missing {
            let card = self.card_mut(index);
            card.spent.add(id);
            card.entries[id.index() as usize] = Some(Defined { id, members: Arc::clone(&members), is_certain: false });
            match card.push_group(id, &table, deadline) {
                Ok(token) => tokens.push((index, token)),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        for (index, token) in tokens {
            let card = self.card_mut(index);
            let node = card.node();
            let waited = card.completion(&token, deadline);
            let entry = &mut card.entries[id.index() as usize];
            let defined = waited.and_then(|completion| {
                // The card did not change the entry.
                if is_refused(&completion) {
                    *entry = None;
                }
                check(completion, node, 0, Operation::Group)
            });
            if let (Ok(_), Some(entry)) = (&defined, entry) {
                entry.is_certain = true;
            }
            outcome = outcome.and(defined.map(drop));
        }
        outcome
    }

    /// Removes communicator `key` here and on its cards.
    fn release(&mut self, key: u64, deadline: Deadline) -> Result<()> {
        let Some(index) = self.registry.held.iter().position(|held| held.key == key) else { return Ok(()) };
        let Known { id, members, is_told, is_registered, .. } = self.registry.held.remove(index);
        let indices = self.here(&members)?;
        if is_registered {
            self.registry.freed.push((id, members));
        }
        // A program may have put another id there.
        let there = |index: &usize| Some((*index, self.cards()[*index].entries[id.index() as usize].as_ref()?.id));
        self.free_ids(indices.iter().filter_map(there).collect(), deadline)?;
        if !is_told {
            indices.into_iter().for_each(|index| self.card_mut(index).spent.remove(id));
        }
        Ok(())
    }

    /// Frees ids on cards. A card without the id is no error.
    fn free_ids(&mut self, defined: Vec<(usize, ContextId)>, deadline: Deadline) -> Result<()> {
        let mut outcome = Ok(());
        let mut tokens = Vec::with_capacity(defined.len());
        for (index, id) in defined {
            let card = self.card_mut(index);
            if !card.capabilities().runs(Operation::Free) {
                // Such a card overwrites the entry when it is defined again.
                card.entries[id.index() as usize] = None;
                continue;
            }
            match card.queue_mut().push_when_room(Instruction::free(id.raw()), deadline) {
                Ok(token) => tokens.push((index, id, token)),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        // All cards begin before the first is waited for.
        for (index, ..) in &tokens {
            outcome = outcome.and(self.card_mut(*index).queue_mut().ring());
        }
        for (index, id, token) in tokens {
            let card = self.card_mut(index);
            let node = card.node();
            let freed = card.completion(&token, deadline).and_then(|completion| match completion.status {
                Status::BadCommunicator => Ok(completion),
                _ => check(completion, node, 0, Operation::Free),
            });
            match freed {
                Ok(_) => card.entries[id.index() as usize] = None,
                Err(error) => {
                    card.entries[id.index() as usize].iter_mut().for_each(|entry| entry.is_certain = false);
                    outcome = outcome.and(Err(error));
                }
            }
        }
        outcome
    }
}

/// The ids of communicators that `instructions` define or free themselves.
pub(crate) fn changed_ids<'i>(
    instructions: impl IntoIterator<Item = &'i Instruction>,
) -> impl Iterator<Item = (Operation, u16)> {
    let changes = |one: &&Instruction| matches!(one.operation, Operation::Group | Operation::Free);
    instructions.into_iter().filter(changes).map(|one| (one.operation, one.communicator))
}

/// Whether an instruction has failed without doing anything.
fn is_refused(completion: &Completion) -> bool {
    !matches!(completion.status, Status::Done | Status::Aborted | Status::Unknown(_))
}

impl Card {
    /// Submits the definition of `id` as `table`.
    fn push_group(&mut self, id: ContextId, table: &[u8], deadline: Deadline) -> Result<Token> {
        let ranks = (table.len() / 2) as u64;
        let group = self.hand_over(table, deadline, |address| Instruction::group(id.raw(), address, ranks))?;
        let token = self.queue_mut().push_when_room(group, deadline)?;
        self.queue_mut().ring()?;
        Ok(token)
    }
}

//! What the cards of a fabric do with a network: each gives and takes its own data, at times of its own.
//!
//! Calls on a communicator are numbered by each card. The upper half of a number is its era: the generation of the communicator
//! (its low bits), how often its calls were ended, and its lowest node. Packets of another era are dropped. Leaves and spines tell
//! communicators apart by entry and lowest node, so that those without a common card may have one entry, as on cards.

use std::sync::Arc;

use cmdseq::communicator::ContextId;
use cmdseq::switch::Call;

use crate::engine::Time;
use crate::proto::communicator_table::Table;
use crate::proto::mpi_fpga::header::{ended_of, era_of, first_number, leader_of};
use crate::proto::mpi_fpga::message::Message;
use crate::proto::mpi_fpga::network::Network;
use crate::proto::mpi_fpga::switch::{Members, Node};

/// A rank begins so many calls on a communicator before another rank has begun the first of them, and no more. A collective may
/// wait for all ranks, so no program relies on more; and what waits at switches and cards for a late rank has an end.
const CALLS_AHEAD: u16 = 16;

/// What a call gave on one card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    /// When its data had left.
    pub(crate) sent: Time,
    pub(crate) output: Vec<u8>,
}

impl Network {
    /// Returns the number of the next call of `node` on a communicator, and counts it.
    pub(super) fn next_number(&mut self, node: u32, id: ContextId) -> u32 {
        let number = self.numbers.entry((node, id.index() as u8)).or_insert_with(|| first_number(id, 0, 0));
        let this = *number;
        // Only the count goes on.
        *number = this & !0xffff | this.wrapping_add(1) & 0xffff;
        this
    }

    /// Returns the number of calls that `node` has begun on a communicator in its present era, modulo 2^16.
    fn begun(&self, node: u32, id: ContextId) -> u16 {
        self.numbers.get(&(node, id.index() as u8)).map_or(0, |number| *number as u16)
    }

    /// Returns how many more calls on a communicator `node` has begun than `other`; 0 if it has not begun more.
    fn ahead(&self, node: u32, other: u32, id: ContextId) -> u16 {
        self.begun(node, id).wrapping_sub(self.begun(other, id)).cast_signed().max(0).cast_unsigned()
    }

    /// Returns whether `other` has not begun a call on a communicator that `node` has begun.
    pub(crate) fn is_behind(&self, other: u32, node: u32, id: ContextId) -> bool {
        self.ahead(node, other, id) > 0
    }

    /// Returns whether the next call of `node` on a communicator of `members` has to wait for the calls of another one.
    pub(crate) fn is_far_ahead(&self, node: u32, id: ContextId, members: &[u32]) -> bool {
        members.iter().any(|other| self.ahead(node, *other, id) >= CALLS_AHEAD)
    }

    /// Gives the switch of a card its communicator table.
    pub(crate) fn set_table(&mut self, node: u32, table: &Arc<Table>) {
        if let Some(number) = self.switches.get(node as usize).map(|_| node as usize)
            && let Members::Card { table: own, .. } = &mut self.switch_mut(number).members
        {
            *own = Arc::clone(table);
        }
    }

    /// Begins to count the calls of `node` on a communicator, and enters it in the tables of leaves and spines.
    pub(crate) fn define(&mut self, id: ContextId, members: &[u32], node: u32) {
        let entry = id.index() as u8;
        let leader = members.iter().copied().min().unwrap_or(node);
        // Without how often calls were ended.
        let is_same = |number: &&u32| first_number(id, leader, ended_of(**number)) == **number & !0xffff;
        if self.numbers.get(&(node, entry)).filter(is_same).is_some() {
            return;
        }
        // Calls of other members may have been ended before.
        let others = members.iter().filter_map(|node| self.numbers.get(&(*node, entry))).filter(is_same);
        let number = others.max().map_or(first_number(id, leader, 0), |number| number & !0xffff);
        self.numbers.insert((node, entry), number);
        let of_group: Vec<u16> = members.iter().map(|node| *node as u16).collect();
        for switch in self.switches_of(&[node]) {
            let switch = self.switch_mut(switch);
            switch.eras.insert((entry, leader as u16), era_of(number));
            if let Members::Tree { groups, .. } = &mut switch.members {
                groups.insert((entry, leader as u16), of_group.clone());
            }
        }
    }

    /// Forgets a communicator of `node`; leaves and spines forget it with its last member.
    pub(crate) fn forget(&mut self, id: ContextId, node: u32) {
        let entry = id.index() as u8;
        let Some(number) = self.numbers.remove(&(node, entry)) else { return };
        let leader = leader_of(number);
        if let Node::Host(host) = self.world.get_mut(self.hosts[node as usize]) {
            host.forget(entry, leader);
        }
        if self.numbers.iter().any(|((_, used), number)| *used == entry && leader_of(*number) == leader) {
            return;
        }
        for switch in 0..self.switches.len() {
            if let Members::Tree { groups, .. } = &mut self.switch_mut(switch).members {
                groups.remove(&(entry, leader));
            }
        }
    }

    /// Switches that know the communicators of `nodes`: their own, or all leaves and spines.
    fn switches_of(&self, nodes: &[u32]) -> Vec<usize> {
        match self.shape.is_direct() {
            true => nodes.iter().map(|node| *node as usize).collect(),
            false => (0..self.switches.len()).collect(),
        }
    }

    /// Ends all calls on a communicator of `members`: an aborted one leaves packets that a later one must not take.
    pub(crate) fn end_calls(&mut self, now: Time, id: ContextId, members: &[u32]) {
        let entry = id.index() as u8;
        let leader = members.iter().copied().min().unwrap_or(0);
        let is_its = |number: &&u32| u32::from(leader_of(**number)) == leader;
        let known = members.iter().filter_map(|node| self.numbers.get(&(*node, entry))).filter(is_its);
        let Some(last) = known.copied().max() else { return };
        let number = first_number(id, leader, ended_of(last) + 1);
        for node in members {
            if let Some(next) = self.numbers.get_mut(&(*node, entry)).filter(|next| is_its(&&**next)) {
                *next = number;
            }
        }
        for switch in self.switches_of(members) {
            let to = self.switches[switch];
            self.world.post(to, now, Message::EndCalls { entry, era: era_of(number) });
        }
    }

    /// Begins a call of `node`, which is rank `rank` of `size`.
    pub(crate) fn begin(&mut self, now: Time, call: Call, node: u32, (rank, size): (u32, u32), input: &[u8]) {
        let number = self.next_number(node, call.context);
        let id = self.hosts[node as usize];
        if let Node::Host(host) = self.world.get_mut(id) {
            host.begin((call, number), (rank, size), input);
        }
        self.world.post(id, now, Message::Start);
    }

    /// Ends what `node` does, without a result.
    pub(crate) fn cancel(&mut self, node: u32) {
        if let Node::Host(host) = self.world.get_mut(self.hosts[node as usize]) {
            host.cancel();
        }
    }

    /// Returns when the next message arrives.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.world.next_at()
    }

    /// Lets time pass until `now`.
    pub(crate) fn run_until(&mut self, now: Time) {
        self.world.run_until(now);
    }

    /// Returns what the call of `node` gave, if it has ended.
    pub(crate) fn take_ended(&mut self, node: u32) -> Option<Ended> {
        let Node::Host(host) = self.world.get_mut(self.hosts[node as usize]) else { return None };
        host.ended?;
        let sent = host.sent?;
        Some(Ended { sent, output: host.take()? })
    }
}

#[cfg(test)]
mod tests {
    use cmdseq::reduction::{Combine, Element, Reduction};
    use cmdseq::switch::{Collective, Form};

    use super::*;
    use crate::profile::mpi_fpga::Profile;
    use crate::proto::communicator_table::{Entry, Format};

    const CARDS: u32 = 4;
    const BYTES: usize = 100 << 10;
    /// Time in which the first phits of a message reach the switch, and time for everything.
    const FIRST: Time = 50_000;
    const ALL: Time = 1_000_000_000;

    fn network() -> Network {
        Network::new(&Profile::on_cards(), "2x2x1".parse().unwrap()).unwrap()
    }

    /// Has node 0 begin to give more bytes than the FIFO of its switch has room for.
    fn begin(network: &mut Network) {
        let combine = Some(Combine::new(Reduction::Sum, Element::U8));
        let (collective, form) = (Collective::Allreduce, Form::Doubling);
        let call = Call { context: ContextId::WORLD, collective, form, combine, root: 0, bytes: BYTES as u32 };
        network.begin(0, call, 0, (0, CARDS), &[1; BYTES]);
    }

    fn has_sent(network: &Network) -> bool {
        matches!(network.world.get(network.hosts[0]), Node::Host(host) if host.sent.is_some())
    }

    #[test]
    fn a_card_is_behind_another_at_any_count_of_calls() {
        let (mut network, id) = (network(), ContextId::WORLD);
        for count in 0..1 << 17 {
            assert!(!network.is_behind(0, 1, id) && !network.is_behind(1, 0, id), "{count}");
            network.next_number(0, id);
            assert!(!network.is_behind(0, 1, id) && network.is_behind(1, 0, id), "{count}");
            network.next_number(1, id);
        }
    }

    #[test]
    fn messages_of_an_unknown_communicator_leave_the_fifo_of_a_switch() {
        let mut network = network();
        begin(&mut network);
        network.run_until(ALL);
        assert!(has_sent(&network));
    }

    #[test]
    fn a_message_whose_communicator_is_freed_leaves_the_fifo_of_a_switch() {
        let mut network = network();
        let mut table = Table::new(Format::PUBLISHED);
        table.insert(&Entry::new(ContextId::WORLD, CARDS, 0, |rank| rank as u16).unwrap()).unwrap();
        network.set_table(0, &Arc::new(table));
        begin(&mut network);
        network.run_until(FIRST);
        assert!(!has_sent(&network));
        network.set_table(0, &Arc::new(Table::new(Format::PUBLISHED)));
        network.run_until(ALL);
        assert!(has_sent(&network));
    }
}

//! Resets of cards, and planted faults.

use crate::card::host_jobs::Misanswer;
use crate::card::lane::Lane;
use crate::card::running::Work;
use crate::fault::{Fault, When};
use crate::world::{Core, Event};

impl Core {
    /// Resets one card. Its links retrain: what is on them is lost, and so is what its peers had received and not used.
    pub(crate) fn reset(&mut self, index: usize) {
        self.stop_all_streams(index);
        let node = self.cards[index].node;
        for port in 0..self.cards[index].links.len() {
            let peer = self.ports.peer(node, port);
            self.cards[index].links[port].begin_session();
            if let Some(back) = self.ports.toward(peer, node) {
                let link = &mut self.cards[peer as usize].links[back];
                link.begin_session();
                link.inbound.clear();
            }
        }
        let peer = |lane: &Lane| match &lane.running.as_ref()?.work {
            Work::Rdma(rdma) => Some(rdma.peer),
            _ => None,
        };
        let peers: Vec<usize> = self.cards[index].lanes.iter().filter_map(peer).collect();
        let contents = self.cards[index].reset(self.profile.receive_buffer_bytes, &self.world);
        self.discarded.push(Box::new(contents));
        peers.into_iter().for_each(|peer| self.transfer_ended(peer));
    }

    pub(crate) fn plant(&mut self, fault: Fault) {
        match fault.when() {
            When::Now | When::After(0) => self.strike(fault),
            When::After(ps) => self.schedule_in(ps, Event::Strike(fault)),
            When::Moved(_) => self.watches.push(fault),
        }
    }

    pub(crate) fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Freeze { node, .. } | Fault::Vanish { node } => {
                let index = node as usize;
                if index < self.cards.len() {
                    self.stop_all_streams(index);
                    let card = &mut self.cards[index];
                    card.freeze();
                    card.is_gone |= matches!(fault, Fault::Vanish { .. });
                }
            }
            Fault::Reset { node, .. } if (node as usize) < self.cards.len() => self.reset(node as usize),
            Fault::Reset { .. } => {}
            Fault::Unanswered { node, after } => self.host.misanswers.push((node as usize, after, Misanswer::Never)),
            Fault::Poisoned { node, after } => self.host.misanswers.push((node as usize, after, Misanswer::Poisoned)),
            Fault::Garble { from, to, after } => {
                if let Some(port) = self.ports.toward(from, to) {
                    self.cards[from as usize].links[port].garbles.push(after);
                }
            }
            Fault::FlipBits { node, address, bits } => {
                if let Some(card) = self.cards.get_mut(node as usize) {
                    card.memory.flip_bits(address, bits);
                }
            }
            Fault::Slow { mbps } => {
                for link in self.cards.iter_mut().flat_map(|card| &mut card.links) {
                    link.mbps = mbps.into();
                    if link.is_up {
                        self.rates.set_rate(link.out, link.mbps);
                    }
                }
            }
            Fault::Cut { a, b, .. } => self.link_down(a, b, true),
            Fault::Flap { a, b, when, down_ps, count } => {
                self.link_down(a, b, false);
                self.schedule_in(down_ps, Event::LinkUp { a, b });
                let again = Fault::Flap { a, b, when, down_ps, count: count.saturating_sub(1) };
                if count > 1 && !matches!(when, When::Now | When::After(0)) {
                    self.plant(again);
                }
            }
        }
    }

    /// Takes a link down, in both directions: what is on it is lost.
    fn link_down(&mut self, a: u32, b: u32, is_cut: bool) {
        for (from, to) in [(a, b), (b, a)] {
            let Some(port) = self.ports.toward(from, to) else { continue };
            let link = &mut self.cards[from as usize].links[port];
            link.is_up = false;
            link.is_cut |= is_cut;
            link.begin_session();
            self.rates.set_rate(link.out, 0);
            self.lost_link(from as usize, port);
        }
    }

    /// Brings a link up again, unless it is cut. It is trained: what its ends have received and not used is of exchanges that have
    /// failed.
    pub(crate) fn link_up(&mut self, a: u32, b: u32) {
        for (from, to) in [(a, b), (b, a)] {
            let Some(port) = self.ports.toward(from, to) else { continue };
            let link = &mut self.cards[from as usize].links[port];
            if !link.is_cut && !link.is_up {
                link.is_up = true;
                link.begin_session();
                link.inbound.clear();
                self.rates.set_rate(link.out, link.mbps);
            }
        }
    }
}

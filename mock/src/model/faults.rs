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
            Fault::Slow { mbps } => {
                let links = self.cards.iter().flat_map(|card| &card.links).filter(|link| link.is_up);
                links.for_each(|link| self.rates.set_rate(link.out, mbps.into()));
            }
            Fault::Cut { a, b, .. } => {
                for (from, to) in [(a, b), (b, a)] {
                    let Some(port) = self.ports.toward(from, to) else { continue };
                    let link = &mut self.cards[from as usize].links[port];
                    link.is_up = false;
                    link.begin_session();
                    self.rates.set_rate(link.out, 0);
                    self.lost_link(from as usize, port);
                }
            }
        }
    }
}

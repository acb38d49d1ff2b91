//! Planted faults.

use std::collections::BTreeSet;

use crate::card::host_jobs::Misanswer;
use crate::engine::streams::ResourceId;
use crate::event::Event;
use crate::fault::{Fault, When};
use crate::profile::version;
use crate::proto::novog::Garbled;
use crate::proto::optweb::stream::Watched;
use crate::world::Core;

impl Core {
    pub(crate) fn plant(&mut self, fault: Fault) {
        match fault.when() {
            When::Now | When::After(0) => {
                let card = fault.undone_by_reset().and_then(|node| self.cards.get(node as usize));
                if card.is_some_and(|card| !card.has_rung) {
                    self.env.outlasting.push(fault);
                }
                self.strike(fault);
            }
            When::After(ps) => self.env.schedule_in(ps, Event::Strike(fault)),
            When::Moved(_) => self.env.watches.push(fault),
        }
    }

    pub(crate) fn strike(&mut self, fault: Fault) {
        if fault.needs_bit_errors() && self.env.profile.version < version::BIT_ERRORS {
            return;
        }
        match fault {
            Fault::Freeze { node, .. } | Fault::Vanish { node } => {
                let index = node as usize;
                if index < self.cards.len() {
                    self.env.stop_streams_of(index);
                    let card = &mut self.cards[index];
                    card.freeze();
                    card.is_gone |= matches!(fault, Fault::Vanish { .. });
                }
            }
            Fault::Reset { node, .. } if (node as usize) < self.cards.len() => self.reset(node as usize),
            Fault::Reset { .. } => {}
            Fault::Unanswered { node, after } => {
                self.env.host.misanswers.push((node as usize, after, Misanswer::Never))
            }
            Fault::Poisoned { node, after } => {
                self.env.host.misanswers.push((node as usize, after, Misanswer::Poisoned))
            }
            Fault::Garble { from, to, after } => {
                if let Some(port) = self.env.ports.toward(from, to) {
                    self.cards[from as usize].links[port].garbles.push(after);
                }
            }
            Fault::Drop { from, to, after } => {
                if let Some(routed) = &mut self.routed {
                    routed.garbled = Some(Garbled { from, to, after });
                }
            }
            Fault::FlipBits { node, address, bits } => {
                if let Some(card) = self.cards.get_mut(node as usize) {
                    card.memory.flip_bits(address, bits);
                }
            }
            Fault::Slow { mbps } => {
                for card in 0..self.cards.len() {
                    (0..self.cards[card].links.len()).for_each(|port| self.set_link_rate(card, port, mbps.into()));
                }
            }
            Fault::Cut { a, b, .. } => self.link_down(a, b, true),
            Fault::Flap { a, b, when, down_ps, count } => {
                self.link_down(a, b, false);
                self.env.schedule_in(down_ps, Event::LinkUp { a, b });
                let again = Fault::Flap { a, b, when, down_ps, count: count.saturating_sub(1) };
                if count > 1 && !matches!(when, When::Now | When::After(0)) {
                    self.plant(again);
                }
            }
        }
    }

    /// The first part of a stream is over: strikes, and goes on with the stream unless its instruction has ended by that.
    pub(crate) fn watched_point(&mut self, rest: Watched) {
        self.strike(rest.fault);
        let at = rest.purpose.at();
        let on = self.on(at.card);
        let goes_on = match rest.purpose.served() {
            Some(id) => on.is_served(id) && !on.card.is_frozen,
            None => on.lane(at).epoch == rest.epoch,
        };
        if goes_on {
            self.env.rates.start(self.env.now, rest.bytes, rest.passes, rest.purpose);
        }
    }

    /// Sets the rate of the links on the way out of a port, once they are up.
    pub(crate) fn set_link_rate(&mut self, card: usize, port: usize, mbps: u64) {
        let link = &mut self.cards[card].links[port];
        link.mbps = mbps;
        if link.is_up {
            link.out.iter().for_each(|wire| self.env.rates.set_rate(*wire, mbps));
        }
    }

    /// Takes the link between two cards down, in both directions, and with it all ways over it: what is on them is lost.
    fn link_down(&mut self, a: u32, b: u32, is_cut: bool) {
        for (from, to) in [(a, b), (b, a)] {
            let Some((card, port, wire)) = self.wire(from, to) else { continue };
            self.cards[card].links[port].is_cut |= is_cut;
            self.env.rates.set_rate(wire, 0);
            self.down.push(wire);
            for (card, port) in self.ways_over(wire) {
                let link = &mut self.cards[card].links[port];
                link.is_up = false;
                link.begin_session();
                self.on(card).lost_link(port);
            }
        }
    }

    /// Ends one outage of a link. After the last one, unless the link is cut, brings it up again, and all ways over it that have
    /// no other link down. They are trained: what their ends have received and not used is of exchanges that have failed.
    pub(crate) fn link_up(&mut self, a: u32, b: u32) {
        for (from, to) in [(a, b), (b, a)] {
            let Some((card, port, wire)) = self.wire(from, to) else { continue };
            let link = &self.cards[card].links[port];
            let (is_cut, mbps) = (link.is_cut, link.mbps);
            let Some(place) = self.down.iter().position(|down| *down == wire).filter(|_| !is_cut) else { continue };
            self.down.swap_remove(place);
            if self.down.contains(&wire) {
                continue;
            }
            self.env.rates.set_rate(wire, mbps);
            for (card, port) in self.ways_over(wire) {
                let back = self.env.back(card, port).filter(|_| self.env.profile.topology.has_routers());
                let is_down = |(card, port): (usize, usize)| {
                    self.cards[card].links[port].out.iter().any(|wire| self.down.contains(wire))
                };
                if !is_down((card, port)) && !back.is_some_and(is_down) {
                    let link = &mut self.cards[card].links[port];
                    link.is_up = true;
                    link.begin_session();
                    link.inbound.clear();
                }
            }
        }
    }

    /// Card, port and resource of the link from one card to another; `None` if they have none.
    fn wire(&self, from: u32, to: u32) -> Option<(usize, usize, ResourceId)> {
        let port = self.env.ports.toward(from, to)?;
        match *self.cards[from as usize].links[port].out {
            [wire] => Some((from as usize, port, wire)),
            _ => None,
        }
    }

    /// Cards and ports whose way leads over a link. Over routers, an exchange needs the way back too, which may be another.
    fn ways_over(&self, wire: ResourceId) -> BTreeSet<(usize, usize)> {
        let mut ways = BTreeSet::new();
        for (card, of) in self.cards.iter().enumerate() {
            for (port, _) in of.links.iter().enumerate().filter(|(_, link)| link.out.contains(&wire)) {
                ways.insert((card, port));
                ways.extend(self.env.back(card, port).filter(|_| self.env.profile.topology.has_routers()));
            }
        }
        ways
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cmdseq::{Instruction, Operand};
    use proptest::prelude::*;

    use super::*;
    use crate::environment::Pace;
    use crate::fault::Moved;
    use crate::profile::{Hardware, Profile, version};
    use crate::testing::Host;

    #[test]
    fn a_link_is_down_until_its_last_outage_ends() {
        let mut core = Core::new(Profile::optweb(2));
        let mut up_after = |outage: &dyn Fn(&mut Core)| {
            outage(&mut core);
            [0, 1].map(|card| core.cards[card].links[0].is_up)
        };
        assert_eq!(up_after(&|core| core.link_down(0, 1, false)), [false; 2]);
        assert_eq!(up_after(&|core| core.link_down(0, 1, false)), [false; 2]);
        assert_eq!(up_after(&|core| core.link_up(0, 1)), [false; 2]);
        assert_eq!(up_after(&|core| core.link_up(0, 1)), [true; 2]);
    }

    #[test]
    fn a_card_that_tells_no_bit_error_has_none() {
        for version in [version::BIT_ERRORS - 1, version::BIT_ERRORS] {
            let hardware = Hardware { bits_per_error: Some(1 << 60), ..Hardware::default() };
            let profile = Profile { version, ..Profile::optweb(2) };
            let is_told = version == version::BIT_ERRORS;
            assert_eq!(Profile { hardware, ..profile.clone() }.check().is_ok(), is_told);
            let mut core = Core::new(profile);
            core.plant(Fault::Garble { from: 0, to: 1, after: 0 });
            core.plant(Fault::FlipBits { node: 0, address: 0, bits: 2 });
            core.plant(Fault::Unanswered { node: 0, after: 0 });
            core.plant(Fault::Poisoned { node: 0, after: 0 });
            assert_eq!(core.cards[0].links[0].garbles.len(), usize::from(is_told));
            assert_eq!(core.cards[0].memory.read(0, 1).is_err(), is_told);
            assert_eq!(core.env.host.misanswers.len(), 2 * usize::from(is_told));
        }
    }

    #[test]
    fn a_card_that_stops_in_the_middle_of_a_reply_does_not_complete_it() {
        const BYTES: u64 = 1 << 20;
        let middle = Moved { node: 0, tag: None, transfer: 0, bytes: BYTES / 2 };
        for when in [When::Moved(middle), When::After(20_000_000)] {
            let mut core = Core::new(Profile { version: 4, ..Profile::optweb(2) });
            core.env.pace = Pace::Due;
            let host = Arc::new(Host::default());
            host.attach(&mut core, 0);
            core.plant(Fault::Freeze { node: 1, when });
            core.begin_alone(0, Instruction::rdma_read(1, Operand::card(0), Operand::card(0), BYTES));
            while core.run_some(1) {
                core.env.hold_bytes = 0;
            }
            assert!(core.cards[1].is_frozen && core.cards[0].is_busy(), "{when:?}");
            assert_eq!(host.statuses(), [], "{when:?}");
        }
    }

    /// A way is trained and lost at both ends: what is on it is known to be from before by what its sender knows.
    fn assert_both_ends_know_the_session(core: &Core) -> Result<(), TestCaseError> {
        for card in 0..core.cards.len() {
            for port in 0..core.cards[card].links.len() {
                let session = |(card, port): (usize, usize)| core.cards[card].links[port].session;
                let Some(back) = core.env.back(card, port) else { continue };
                prop_assert_eq!(session((card, port)), session(back), "card {}, port {}", card, port);
            }
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn both_ends_of_a_link_know_its_session(
            fabric in 0..3_usize,
            happened in prop::collection::vec((0..4_u8, 0..6_u32, 0..6_u32), 1..20),
        ) {
            let profiles = [Profile::optweb(6), Profile::optweb_dragonfly(2, 3), Profile::circus(2, 3)];
            let mut core = Core::new(profiles[fabric].clone());
            for (what, a, b) in happened {
                match what {
                    0 => core.reset(a as usize),
                    1 => core.link_down(a, b, false),
                    2 => core.link_up(a, b),
                    _ => core.strike(Fault::Cut { a, b, when: When::Now }),
                }
                assert_both_ends_know_the_session(&core)?;
            }
        }
    }
}

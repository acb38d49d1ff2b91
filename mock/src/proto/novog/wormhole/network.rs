//! A torus of wormhole routers.

use std::num::NonZeroU64;

use cmdseq::routing::Torus3;

use super::fabric::{Fabric, Routers};
use super::outcome::{Configuration, WormholeError, WormholeOutcome};
use super::routing::{Routing, Rules};
use super::traffic::Traffic;
use crate::engine::{Clock, Region};
use crate::profile::wormhole::{CHANNELS_MAX, CHANNELS_MIN, WormholeProfile};

/// Cards with wormhole routers in a torus.
#[derive(Debug, Clone)]
pub struct WormholeNetwork {
    profile: WormholeProfile,
    torus: Torus3,
    /// `None` for those of [`Rules::safe`].
    rules: Option<Rules>,
}

impl WormholeNetwork {
    /// Returns a network with rules against deadlocks that depend on the routing function: [`Rules::safe`].
    ///
    /// # Errors
    /// [`WormholeError::Channels`] and [`WormholeError::Profile`].
    pub fn new(profile: WormholeProfile, torus: Torus3) -> Result<Self, WormholeError> {
        if !(CHANNELS_MIN..=CHANNELS_MAX).contains(&profile.channels) {
            return Err(WormholeError::Channels { channels: profile.channels, least: CHANNELS_MIN });
        }
        let hop_cycles = profile.hop_cycles();
        let needed = (2 * hop_cycles + 1).max(profile.link_cycles() + profile.credit_cycles);
        let what = if profile.hertz == 0 {
            "its clock stands still"
        } else if hop_cycles >= profile.credit_cycles {
            "the next credit flit is sent before the last one arrives"
        } else if u64::from(profile.channel_flits) < needed {
            "a buffer holds fewer flits than the threshold of its credits"
        } else if profile.channel_flits > u32::from(u16::MAX) || profile.waiting_packets == 0 {
            "a buffer is out of range (65535 flits, at least one packet)"
        } else {
            return Ok(WormholeNetwork { profile, torus, rules: None });
        };
        Err(WormholeError::Profile { what })
    }

    /// Replaces the rules against deadlocks.
    pub fn with_rules(self, rules: Rules) -> Self {
        WormholeNetwork { rules: Some(rules), ..self }
    }

    /// Returns the classes of the rules against deadlocks for a routing function: a router needs a virtual channel for each.
    pub fn classes(&self, routing: Routing) -> usize {
        self.rules_for(routing).count(self.torus)
    }

    fn rules_for(&self, routing: Routing) -> Rules {
        self.rules.clone().unwrap_or_else(|| Rules::safe(routing))
    }

    /// Sends all packets of the traffic, and runs until the last one has arrived.
    ///
    /// # Errors
    /// [`WormholeError`]: fewer channels than the rules have classes, a wrong packet, a deadlock, or packets still under way in cycle
    /// `limit`, counted from 0 as those of the packets are.
    pub fn run(
        &self,
        configuration: Configuration,
        traffic: &mut impl Traffic,
        limit: u64,
    ) -> Result<WormholeOutcome, WormholeError> {
        let rules = self.rules_for(configuration.routing);
        let (channels, least) = (self.profile.channels, rules.count(self.torus));
        if channels < least {
            return Err(WormholeError::Channels { channels, least });
        }
        let hertz = NonZeroU64::new(self.profile.hertz).unwrap_or(NonZeroU64::MIN);
        let mut fabric = Fabric::new(self.profile, self.torus, configuration, rules, traffic, limit);
        let mut region = Region::new(Clock::new(hertz, 0), [Routers]);
        let mut next = region.wake(0);
        while let Some(at) = next {
            next = region.run(at, &mut fabric);
        }
        match fabric.failure {
            Some(failure) => Err(failure),
            None => Ok(fabric.outcome),
        }
    }
}

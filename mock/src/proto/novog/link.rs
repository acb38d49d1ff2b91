//! When packets arrive: links with the measured distribution of latencies, between cards with clocks of their own.

use std::f64::consts::TAU;

use crate::net::noise::Dice;
use crate::profile::novog::{Profile, Sampling};

/// Latencies of the links of a network.
#[derive(Debug, Clone)]
pub struct LinkTimes {
    profile: Profile,
    dice: Dice,
    /// Mean latency of each link, in picoseconds.
    means: Vec<f64>,
    /// Period of each node's clock, in picoseconds.
    periods: Vec<f64>,
}

impl LinkTimes {
    /// Draws means of `links` links and clocks of `nodes` nodes.
    pub fn new(profile: &Profile, nodes: usize, links: usize) -> Self {
        let mut dice = Dice::new(profile.seed);
        let period = 1e12 / profile.router_hertz as f64;
        let is_fixed = profile.sampling == Sampling::Fixed;
        let clock = |dice: &mut Dice| {
            let part = if is_fixed { 0.0 } else { 2.0 * dice.fraction() - 1.0 };
            period * (1.0 + part * profile.clock_ppm as f64 * 1e-6)
        };
        let periods = (0..nodes).map(|_| clock(&mut dice)).collect();
        let mut times = LinkTimes { profile: *profile, dice, means: Vec::with_capacity(links), periods };
        for _ in 0..links {
            let mut mean = profile.link_ps as f64;
            if !is_fixed {
                mean += profile.lane_sd_ps as f64 * times.normal();
            }
            if profile.sampling == Sampling::PerLinkUp {
                mean = times.jittered(mean);
            }
            times.means.push(mean);
        }
        times
    }

    /// Returns a latency of a link, in picoseconds.
    pub fn latency(&mut self, link: usize) -> f64 {
        let mean = self.means[link];
        if self.profile.sampling == Sampling::PerPacket { self.jittered(mean) } else { mean }
    }

    /// Returns the cycle of the node `to` in which it sees what the node `from` sent in its cycle `cycle`.
    pub(super) fn arrival(&mut self, link: usize, from: usize, to: usize, cycle: u64) -> u64 {
        let at = cycle as f64 * self.periods[from] + self.latency(link);
        (at / self.periods[to]).ceil() as u64
    }

    fn jittered(&mut self, mean: f64) -> f64 {
        let Profile { link_sd_ps, link_min_ps, link_max_ps, .. } = self.profile;
        (mean + link_sd_ps as f64 * self.normal()).clamp(link_min_ps as f64, link_max_ps as f64)
    }

    /// Returns a normally distributed number (Box and Muller 1958).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.dice.fraction().ln()).sqrt();
        radius * (TAU * self.dice.fraction()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_have_the_published_distribution() {
        let profile = Profile { lane_sd_ps: 0, ..Profile::published() };
        let mut times = LinkTimes::new(&profile, 2, 1);
        let drawn: Vec<f64> = (0..100_000).map(|_| times.latency(0)).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let deviation = (drawn.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / drawn.len() as f64).sqrt();
        // Five standard errors of the mean, and of the deviation.
        assert!((mean - 175_700.0).abs() < 5.0 * 12_340.0 / 316.0, "{mean}");
        assert!((deviation - 12_340.0).abs() < 5.0 * 12_340.0 / 447.0, "{deviation}");
        assert!(drawn.iter().all(|one| (112_000.0..=224_000.0).contains(one)));
    }

    #[test]
    fn a_link_that_came_up_keeps_its_latency() {
        let profile = Profile { sampling: Sampling::PerLinkUp, ..Profile::published() };
        let mut times = LinkTimes::new(&profile, 2, 2);
        let [one, other] = [0, 1].map(|link| times.latency(link));
        assert_ne!(one, other);
        assert!((0..100).all(|_| times.latency(0) == one));
        let mut fixed = LinkTimes::new(&Profile::serial_lite(), 2, 2);
        assert_eq!([0, 1].map(|link| fixed.latency(link)), [307_000.0; 2]);
    }
}

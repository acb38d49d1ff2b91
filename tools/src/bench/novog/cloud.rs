//! The cost model of section 7.3: 3-D FFTs on Catapult cards behind a data centre's switches (the cloud), and on a torus of
//! Novo-G# cards (the cluster); and how many of the cards should take part.

use fpga_select::novog::FftCores;

/// A system of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum System {
    /// One link of 40 Gb/s for each card.
    Cloud,
    /// Six links of 40 Gb/s for each card.
    Cluster,
}

/// Bits of a point with its address (section 7.3.1).
const DATUM_BITS: f64 = 85.0;
/// Clock of the interface to the network: 256 bits a cycle are 40 Gb/s. The clock of the cores is not published; they give
/// the network a point a cycle, and three saturate a link.
const HERTZ: f64 = 156.25e6;
/// Bits of a flit: not published; the width of the interface.
pub(super) const FLIT_BITS: f64 = 256.0;
/// Time of one hop of the cluster (section 7.3.2).
pub(super) const HOP_US: f64 = 0.2;
/// Most nodes of table 7.2.
const NODES_MAX: u32 = 8192;

impl System {
    pub(super) const ALL: [System; 2] = [System::Cloud, System::Cluster];

    pub(super) const fn name(self) -> &'static str {
        match self {
            System::Cloud => "cloud",
            System::Cluster => "cluster",
        }
    }

    /// Gb/s of a card.
    pub(super) const fn gbps(self) -> f64 {
        match self {
            System::Cloud => 40.0,
            System::Cluster => 240.0,
        }
    }

    /// Cores of a card: four on Catapult (section 7.3.1), all that fit on Novo-G# (table 6.3), and no more than lines.
    fn cores(self, side: u32, nodes: u32) -> f64 {
        let most = match self {
            System::Cloud => 4,
            // Of 8 points nothing is published; they are no larger than cores of 16.
            System::Cluster => FftCores::most(side.max(16)),
        };
        f64::from(most.min((side * side).div_ceil(nodes)))
    }

    /// What the cores of a card give the network, in Gb/s.
    fn effective_gbps(self, side: u32, nodes: u32) -> f64 {
        self.gbps().min(self.cores(side, nodes) * DATUM_BITS * HERTZ / 1e9)
    }

    /// Returns the time of flight of a card's data, which on the cloud is by flits and on the cluster by hops.
    fn flight_us(self, side: u32, nodes: u32) -> f64 {
        match self {
            System::Cloud => {
                let bits = f64::from(side).powi(3) * DATUM_BITS;
                flit_us(nodes) * bits / (f64::from(nodes).powi(2) * FLIT_BITS)
            }
            System::Cluster => 3.0 * HOP_US * 2_f64.powi(nodes.ilog2() as i32 / 3 - 1),
        }
    }

    /// Returns the microseconds of a 3-D FFT on `nodes` cards (equations 7.1 and 7.2); on one card those of its cores.
    pub(super) fn fft_us(self, side: u32, nodes: u32) -> f64 {
        let (points, cards) = (f64::from(side).powi(3), f64::from(nodes));
        if nodes == 1 {
            let cycles = 3.0 * f64::from(side) + 3.0 * points / self.cores(side, 1);
            return cycles / HERTZ * 1e6;
        }
        let bits = points * DATUM_BITS / cards * (cards - 1.0) / cards;
        3.0 * (bits / self.effective_gbps(side, nodes) / 1e3 + self.flight_us(side, nodes))
    }

    /// Returns the microseconds that it takes to gather the points on `nodes` cards, and as long to expand the result
    /// (equations 7.3 and 7.4).
    fn gather_us(self, side: u32, nodes: u32) -> f64 {
        let bits = f64::from(side).powi(3) * DATUM_BITS / f64::from(nodes);
        bits / self.gbps() / 1e3 + self.flight_us(side, nodes)
    }

    /// Returns on how many cards an FFT is best, with what it takes to gather and to expand.
    pub(super) fn best_nodes(self, side: u32) -> u32 {
        let total = |nodes: &u32| self.fft_us(side, *nodes) + 2.0 * self.gather_us(side, *nodes);
        let all = (0..=NODES_MAX.ilog2()).map(|power| 1 << power);
        all.min_by(|one, other| total(one).total_cmp(&total(other))).unwrap_or(1)
    }
}

/// The time of one flit on the cloud, by the number of nodes (table 7.1).
pub(super) const fn flit_us(nodes: u32) -> f64 {
    match nodes {
        0..24 => 2.0,
        24..1000 => 5.0,
        _ => 10.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One card of Catapult with four cores: 3 N + 3 N^3 / 4 cycles; and two cards that exchange half of their points.
    #[test]
    fn equations_are_those_of_the_source() {
        let cycles = 3.0 * 16.0 + 3.0 * 4096.0 / 4.0;
        assert!((System::Cloud.fft_us(16, 1) - cycles / 156.25).abs() < 1e-9);
        let bits = 2048.0 * 85.0;
        let turn = bits / 2.0 / 40.0 / 1e3 + 2.0 * bits * 2.0 / (4.0 * 256.0);
        assert!((System::Cloud.fft_us(16, 2) - 3.0 * turn).abs() < 1e-6);
        // 64 cards: two hops in each dimension; 4 lines a card.
        let turn = 64.0 * 85.0 * 63.0 / 64.0 / (4.0 * 85.0 * 0.15625) / 1e3 + 3.0 * 0.2 * 2.0;
        assert!((System::Cluster.fft_us(16, 64) - 3.0 * turn).abs() < 1e-9);
    }

    /// The cluster's time of flight grows with cards. The cloud's falls, as equation 7.1 is printed.
    #[test]
    fn more_cards_are_not_always_better_on_the_cluster() {
        let best = |system: System| [16, 64, 256].map(|side| system.best_nodes(side));
        let cluster = best(System::Cluster);
        assert!(cluster.is_sorted() && cluster[0] < cluster[2] && cluster[2] < NODES_MAX, "{cluster:?}");
        assert_eq!(best(System::Cloud), [NODES_MAX; 3]);
    }
}

//! The LogGP model in closed form, for numbers of nodes that no simulation has: a message of 8 B, on as many nodes as a power of two.
//!
//! A direct network is a torus with sides as equal as can be. An indirect network has as many levels of switches as its radix needs,
//! three ports down for one up, and at the top all ports down; the paper has two levels.

use cmdseq::reduction::{Combine, Element, Reduction};
use cmdseq::switch::{Parameters, unit_cycles};
use fpga_select::mpi_fpga::{Collective, Profile, Shape};

use super::measure::{Kind, sides};

/// The most nodes of an estimate: a million.
pub(super) const NODES_MAX: u32 = 1 << 20;
/// The most nodes that are simulated.
pub(super) const SIMULATED_MAX: u32 = 512;
/// The fewest nodes of both.
pub(super) const NODES_MIN: u32 = 8;

/// Returns the powers of two from [`NODES_MIN`] to `most`.
pub(super) fn nodes(most: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(NODES_MIN), |nodes| nodes.checked_mul(2)).take_while(move |nodes| *nodes <= most)
}

/// A network of the published parts.
struct Network {
    kind: Kind,
    nodes: u32,
    parameters: Parameters,
    overhead_ps: u64,
    /// From a processor to the last stage of its switch's input, and back from a switch's units.
    entry_ps: u64,
    exit_ps: u64,
}

impl Network {
    fn new(kind: Kind, nodes: u32) -> Self {
        let profile = Profile::published();
        // The times of the parts are those of any network of the kind.
        let any = match kind {
            Kind::Direct => Shape::Torus { sides: [2, 1, 1] },
            Kind::Indirect(radix) => Shape::Fat { processors: 2, radix },
        };
        let parameters = profile.parameters(any);
        Network {
            kind,
            nodes,
            parameters,
            overhead_ps: profile.overhead_ps,
            entry_ps: parameters.entry_ps.next_multiple_of(parameters.cycle_ps),
            exit_ps: parameters.router_ps + parameters.entry_ps,
        }
    }

    /// Picoseconds of a step of the units, whether it combines or not.
    fn unit_ps(&self, combines: bool) -> u64 {
        let Parameters { cycle_ps, control_cycles, float_cycles, .. } = self.parameters;
        let radix = match self.kind {
            Kind::Direct => 6,
            Kind::Indirect(radix) => radix as usize,
        };
        let combine = combines.then_some(Combine::new(Reduction::Sum, Element::F64));
        unit_cycles(radix, combine, control_cycles, float_cycles) * cycle_ps
    }

    /// Links between two nodes whose ranks differ in one bit, in a torus.
    fn hops(&self, bit: u32) -> u64 {
        let mut below = 0;
        for side in sides(self.nodes) {
            let own = side.ilog2();
            if bit < below + own {
                let places = 1_u64 << (bit - below);
                return places.min(u64::from(side) - places);
            }
            below += own;
        }
        0
    }

    /// Levels of switches.
    fn levels(&self, radix: u32) -> u32 {
        let down = u64::from(radix * 3 / 4);
        let holds = |levels: &u32| match levels {
            1 => down >= self.nodes.into(),
            _ => down.saturating_pow(levels - 1).saturating_mul(radix.into()) >= self.nodes.into(),
        };
        (1..u32::BITS).find(holds).unwrap_or(u32::BITS)
    }

    /// The level of the switch that a node shares with the node whose rank differs in this bit.
    fn shared_level(&self, radix: u32, bit: u32) -> u32 {
        let down = u64::from(radix * 3 / 4);
        let levels = self.levels(radix);
        (1..levels).find(|level| down.saturating_pow(*level) > 1 << bit).unwrap_or(levels)
    }

    /// Up to a level of switches and down again: `combining` of the steps combine.
    fn up_and_down(&self, level: u32, combining: u32) -> u64 {
        let (level, combining) = (u64::from(level), u64::from(combining));
        let steps = 2 * level - 1;
        let units = combining * self.unit_ps(true) + (steps - combining) * self.unit_ps(false);
        2 * (level - 1) * self.parameters.hop_ps + units
    }

    /// From the last processor's data at its switch to the last result at the switch of its processor.
    fn in_switches(&self, collective: Collective) -> u64 {
        let combines = collective.combines();
        match self.kind {
            // Doubling and the tree both cross each bit once, one after another.
            Kind::Direct => {
                let bit = |bit| self.hops(bit) * self.parameters.hop_ps + self.unit_ps(combines);
                self.unit_ps(false) + (0..self.nodes.ilog2()).map(bit).sum::<u64>()
            }
            Kind::Indirect(radix) => {
                let levels = self.levels(radix);
                self.up_and_down(levels, if combines { levels } else { 0 })
            }
        }
    }

    /// A message to the node whose rank differs in a bit, which no switch computes.
    fn message(&self, bit: u32) -> u64 {
        let way = match self.kind {
            Kind::Direct => 2 * self.unit_ps(false) + self.hops(bit) * self.parameters.hop_ps,
            Kind::Indirect(radix) => self.up_and_down(self.shared_level(radix, bit), 0),
        };
        self.around(way)
    }

    /// Adds what is between the processors and their switches: Os and Or.
    fn around(&self, way: u64) -> u64 {
        self.overhead_ps + self.entry_ps + way + self.exit_ps + self.overhead_ps
    }
}

/// Returns the microseconds of a collective that the switches compute: `Os + L + Or`.
pub(super) fn with_units_us(kind: Kind, nodes: u32, collective: Collective) -> f64 {
    let network = Network::new(kind, nodes);
    network.around(network.in_switches(collective)) as f64 / 1e6
}

/// Returns the microseconds without units, from processor to processor: `log P (Os + L + Or)`.
pub(super) fn without_units_us(kind: Kind, nodes: u32) -> f64 {
    let network = Network::new(kind, nodes);
    (0..nodes.ilog2()).map(|bit| network.message(bit)).sum::<u64>() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_nodes_have_as_many_links_and_levels_as_they_need() {
        let direct = Network::new(Kind::Direct, NODES_MAX);
        // 128 x 128 x 64: half a ring across the highest bit of each side.
        assert_eq!((0..20).map(|bit| direct.hops(bit)).sum::<u64>(), 127 + 127 + 63);
        assert_eq!((direct.hops(6), direct.hops(7), direct.hops(19)), (64, 1, 32));
        let levels = |radix, nodes| Network::new(Kind::Indirect(radix), nodes).levels(radix);
        assert_eq!([6, 7, 48, 49, 288, 289].map(|nodes| levels(8, nodes)), [1, 2, 2, 3, 3, 4]);
        assert_eq!([21, 22, 588, 589].map(|nodes| levels(28, nodes)), [1, 2, 2, 3]);
        let indirect = Network::new(Kind::Indirect(8), 64);
        assert_eq!([0, 2, 3, 5].map(|bit| indirect.shared_level(8, bit)), [1, 1, 2, 2]);
    }

    /// The simulation is not needed to see that the estimate grows with nodes, and that units save time.
    #[test]
    fn units_save_time_on_any_number_of_nodes() {
        for kind in [Kind::Direct, Kind::Indirect(8), Kind::Indirect(28)] {
            for collective in [Collective::Allreduce, Collective::Broadcast] {
                let with: Vec<f64> = nodes(NODES_MAX).map(|nodes| with_units_us(kind, nodes, collective)).collect();
                let without: Vec<f64> = nodes(NODES_MAX).map(|nodes| without_units_us(kind, nodes)).collect();
                assert!(with.is_sorted() && without.is_sorted() && with.len() == 18, "{kind:?} {with:?}");
                assert!(with.iter().zip(&without).all(|(with, without)| with < without), "{kind:?} {collective:?}");
            }
        }
    }
}

//! The model of molecular dynamics of section 7.5: microseconds simulated in a day.

use std::f64::consts::PI;

use super::cloud::{FLIT_BITS, HOP_US, System, flit_us};

/// Assumed, as not published: atoms in a cubic angstrom (proteins in water), the cut-off of 9 to 12 angstrom, the clock, and the
/// time that a step advances (section 7.2.2 names 2 fs as the standard).
const ATOMS_PER_CUBIC_ANGSTROM: f64 = 0.1;
const CUT_OFF_ANGSTROM: f64 = 9.0;
const HERTZ: f64 = 150e6;
const STEP_FS: f64 = 2.0;
/// Bits of a position.
const POSITION_BITS: f64 = 128.0;
/// Particles whose charges are mapped to the grid in a cycle, on all of a card's pipelines.
const MAPPED_PER_CYCLE: f64 = 450.0;
const DAY_US: f64 = 86_400e6;

/// A simulation on `nodes` cards of a system. Lengths are in units of the cut-off.
#[derive(Debug, Clone, Copy)]
pub(super) struct Simulation {
    pub(super) system: System,
    pub(super) particles: f64,
    pub(super) nodes: u32,
    /// Points of a side of the grid.
    pub(super) side: u32,
}

impl Simulation {
    /// Particles in a cube of the cut-off.
    fn density() -> f64 {
        ATOMS_PER_CUBIC_ANGSTROM * CUT_OFF_ANGSTROM.powi(3)
    }

    /// The side of a card's box.
    fn cube(&self) -> f64 {
        (self.particles / (f64::from(self.nodes) * Simulation::density())).cbrt()
    }

    /// Pipelines for forces of a card.
    const fn pipelines(&self) -> f64 {
        match self.system {
            System::Cloud => 8.0,
            System::Cluster => 20.0,
        }
    }

    /// Equation 7.9.
    fn forces_us(&self) -> f64 {
        let pairs = 2.0 / 3.0 * PI * Simulation::density().powi(2) * self.cube().powi(3);
        (pairs / self.pipelines() + 100.0) / HERTZ * 1e6
    }

    /// The volume within half of the cut-off around the box (equation 7.12).
    fn shell(&self) -> f64 {
        let (half, cube) = (0.5_f64, self.cube());
        8.0 * PI / 6.0 * half.powi(3) + 12.0 * cube * PI / 4.0 * half.powi(2) + 6.0 * cube.powi(2) * half
    }

    /// Equations 7.10 to 7.15, with this share of a card's bandwidth.
    fn multicast_us(&self, share: f64) -> f64 {
        let (cube, density) = (self.cube(), Simulation::density());
        let bits = POSITION_BITS * density * self.shell();
        let (gbps, flight) = match self.system {
            System::Cloud => {
                let near = if cube >= 0.5 { cube.powi(2) / 2.0 } else { cube.powi(3) };
                let flits = (POSITION_BITS * near * density / FLIT_BITS).floor();
                (self.system.gbps() * share, flit_us(self.nodes) * flits)
            }
            // The bandwidth is shared by all cards that a multicast reaches.
            System::Cluster => {
                let reached = (self.shell() / cube.powi(3)).max(1.0);
                let hops = 3.0 * (1.0 / (2.0 * 3_f64.sqrt() * cube)).ceil();
                (self.system.gbps() * share / reached, HOP_US * hops)
            }
        };
        bits / gbps / 1e3 + flight
    }

    /// Returns the microseconds that a day of computing advances the simulation: the best share of bandwidth for both parts, and
    /// the long-range part on as many cards as are best for it.
    pub(super) fn us_per_day(&self) -> f64 {
        let mapping = self.particles / f64::from(self.nodes) / MAPPED_PER_CYCLE / HERTZ * 1e6;
        let step = |percent: u32| {
            let share = f64::from(percent) / 100.0;
            let transform = (0..=self.nodes.ilog2()).map(|power| self.system.fft_us(self.side, 1 << power));
            // What is left of the bandwidth is the FFT's.
            let long = mapping + transform.fold(f64::INFINITY, f64::min) / (1.0 - share);
            let short = self.forces_us().max(2.0 * self.multicast_us(share));
            (long / 2.0).max(short)
        };
        let least = (1..20).map(|twentieth| step(5 * twentieth)).fold(f64::INFINITY, f64::min);
        DAY_US / least * STEP_FS * 1e-9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulation_of_few_particles_stops_gaining_from_cards() {
        let of = |nodes| Simulation { system: System::Cluster, particles: 1e5, nodes, side: 64 }.us_per_day();
        assert!(of(512) > 4.0 * of(64), "{} {}", of(64), of(512));
        assert!(of(8192) < 2.0 * of(2048), "{} {}", of(2048), of(8192));
    }

    /// A box of one cut-off: 729 / 10 particles, and a shell of its six sides, twelve edges and eight corners.
    #[test]
    fn shells_and_forces_are_those_of_the_source() {
        let one = Simulation { system: System::Cluster, particles: 72.9 * 8.0, nodes: 8, side: 16 };
        assert!((one.cube() - 1.0).abs() < 1e-12);
        assert!((one.shell() - (PI / 6.0 + 3.0 * PI / 4.0 + 3.0)).abs() < 1e-12);
        let pairs = 2.0 / 3.0 * PI * 72.9 * 72.9;
        assert!((one.forces_us() - (pairs / 20.0 + 100.0) / 150.0).abs() < 1e-9);
    }
}

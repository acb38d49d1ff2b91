//! The best configuration of the wormhole router against the mean of all 15 (tables 5.3 and 5.4 of the dissertation).

use std::collections::BTreeMap;

use cmdseq::routing::Torus3;
use fpga_select::novog::wormhole::{Pattern, Rules, WormholeNetwork, WormholeProfile};

use crate::exit::{Exit, Failure, Result};
use crate::tune::Metric;
use crate::tune::measure::{all, failure};

/// A network of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Size {
    /// 4 x 4 x 4.
    Small,
    /// 8 x 8 x 8.
    Large,
}

/// Packets of a node in a batch, at least: the dissertation states them for other batches only (section 5.2.2).
const PACKETS: usize = 64;
/// Flits of packets of 0.25, 1 and 4 kb. The figures have 0.25, 0.5, 1, 2 and 4 kb.
const FLITS: [u16; 3] = [2, 8, 32];

impl Size {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Size::Small => "4x4x4",
            Size::Large => "8x8x8",
        }
    }

    /// Patterns of its table.
    fn patterns(self) -> &'static [Pattern] {
        use Pattern::{AllToAll, Complement, Cube, Diagonals, Tornado, Transpose};
        match self {
            Size::Small => &[Diagonals, Cube, Complement, Transpose, Tornado, AllToAll],
            Size::Large => &[Diagonals, Cube, Complement, Transpose],
        }
    }

    /// Offered loads in flits a node and cycle, of the range that the figures show.
    fn loads(self) -> &'static [f64] {
        match self {
            Size::Small => &[1.0, 2.0, 4.0, 6.0],
            Size::Large => &[2.0, 6.0],
        }
    }

    fn side(self) -> u32 {
        match self {
            Size::Small => 4,
            Size::Large => 8,
        }
    }
}

/// Improvements in percent, by size and metric, of the sizes that were simulated.
#[derive(Debug, Default)]
pub(super) struct Improvements(BTreeMap<Size, [f64; 5]>);

impl Improvements {
    /// Returns the improvement of a metric, the mean over the patterns.
    pub(super) fn of(&mut self, size: Size, metric: Metric) -> Result<f64> {
        let found = match self.0.get(&size) {
            Some(found) => *found,
            None => {
                let measured = measure(size)?;
                self.0.insert(size, measured);
                measured
            }
        };
        Ok(Metric::ALL.iter().zip(found).find(|(one, _)| **one == metric).map_or(0.0, |(_, value)| value))
    }
}

/// Measures with the published rules against deadlocks, as the tables do. None of these batches runs into one.
fn measure(size: Size) -> Result<[f64; 5]> {
    let failed = |error: &dyn std::error::Error| Failure::chain(Exit::Failed, error);
    let torus = Torus3::new([size.side(); 3]).map_err(|error| failed(&error))?;
    let network =
        WormholeNetwork::new(WormholeProfile::published(), torus).map_err(failure)?.with_rules(Rules::published());
    let mut means = [0.0; 5];
    for pattern in size.patterns() {
        let rounds = PACKETS.div_ceil(pattern.destinations(torus, 0).len().max(1)) as u32;
        let points: Vec<(u16, f64)> =
            FLITS.into_iter().flat_map(|flits| size.loads().iter().map(move |load| (flits, *load))).collect();
        let mut logarithms = [0.0; 5];
        for (flits, load) in &points {
            let trace = pattern.batch(torus, rounds, *flits, *load, 1).map_err(|error| failed(&error))?;
            let runs = all(&network, &trace, |_| {})?;
            for (sum, metric) in logarithms.iter_mut().zip(Metric::ALL) {
                let difference = metric.best(&runs).map_or(0.0, |(_, difference)| difference) / 100.0;
                // More is better for the throughput only.
                *sum += if metric == Metric::Throughput { difference.ln_1p() } else { (-difference).ln_1p() };
            }
        }
        for (mean, sum) in means.iter_mut().zip(logarithms) {
            let percent = 100.0 * ((sum / points.len() as f64).exp() - 1.0).abs();
            *mean += percent / size.patterns().len() as f64;
        }
    }
    Ok(means)
}

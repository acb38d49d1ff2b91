//! Measured parameters of a fabric, which replace those that its cards report.

use std::collections::BTreeMap;

use crate::Topology;
use crate::capability::{Capabilities, Timing, TimingField};
use crate::cost::CostModel;
use crate::switch::Shape;

/// One parameter of a cost model, measured.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// The parameter.
    pub field: &'static TimingField,
    /// The reported value.
    pub stated: u32,
    /// The measured value.
    pub measured: u32,
    /// Number of fitted measurements.
    pub points: usize,
    /// Largest deviation of a measurement from the fit, in percent of the measurement.
    pub residual_percent: f64,
}

/// A parameter that was not measured: the reported value stays.
#[derive(Debug, Clone)]
pub struct Unmeasured {
    /// The parameter.
    pub field: &'static TimingField,
    /// The reason.
    pub why: String,
}

/// The measurements of one fabric.
#[derive(Debug, Clone)]
pub struct Calibration {
    /// The fabric, by its [`facts`].
    pub fabric: BTreeMap<String, u64>,
    /// In the order of [`Timing::FIELDS`].
    pub parameters: Vec<Parameter>,
    /// In the same order.
    pub unmeasured: Vec<Unmeasured>,
    /// Links that differ from the others, by source and destination node, Mb/s.
    pub links: BTreeMap<(u32, u32), u32>,
}

/// The calibration is of another fabric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("calibration of another fabric: {name} is {there} there, {here} here")]
pub struct OtherFabric {
    /// The first thing that differs.
    pub name: String,
    /// Its value in the calibration, or `none`.
    pub there: String,
    /// Its value on these cards, or `none`.
    pub here: String,
}

impl Calibration {
    /// Returns the cost model of the fabric with `capabilities`, with all measured parameters.
    ///
    /// # Errors
    /// If it is another fabric, or the cards report other values now.
    pub fn model(&self, capabilities: &Capabilities) -> Result<CostModel, OtherFabric> {
        let facts = facts(capabilities);
        let show = |value: Option<&u64>| value.map_or("none".to_owned(), u64::to_string);
        for name in facts.keys().chain(self.fabric.keys()) {
            let (there, here) = (self.fabric.get(name), facts.get(name));
            if there != here {
                return Err(OtherFabric { name: name.clone(), there: show(there), here: show(here) });
            }
        }
        let mut model = CostModel { links: self.links.clone(), ..CostModel::stated(capabilities) };
        for parameter in &self.parameters {
            parameter.field.set(&mut model.timing, parameter.measured);
        }
        Ok(model)
    }
}

/// Returns what identifies a fabric for a calibration: its shape and all reported times, without settings of the host such as
/// the eager limit.
pub fn facts(capabilities: &Capabilities) -> BTreeMap<String, u64> {
    let (groups, rows) = match capabilities.topology {
        Topology::FullyConnected => (0, 0),
        Topology::Dragonfly { groups } => (groups, 0),
        Topology::Torus { rows } => (0, rows),
        Topology::Switched(_) => (0, 0),
    };
    let fixed = [
        ("clock_khz", u64::from(capabilities.clock_khz)),
        ("nodes", capabilities.nodes.into()),
        ("dragonfly_groups", groups.into()),
        ("torus_rows", rows.into()),
        ("ports", capabilities.ports.into()),
        ("memory_bytes", capabilities.memory_bytes),
        ("memory_channels", capabilities.memory_channels.into()),
        ("stripe_half_bytes", capabilities.stripe_half_bytes),
        ("eager_bytes", capabilities.eager_bytes),
    ];
    let switched = match capabilities.topology {
        Topology::Switched(Shape::Torus { sides: [x, y, z] }) => vec![("torus_x", x), ("torus_y", y), ("torus_z", z)],
        Topology::Switched(Shape::Fat { radix, .. }) => vec![("switch_radix", radix)],
        _ => Vec::new(),
    };
    let fixed = fixed.into_iter().chain(switched.into_iter().map(|(name, value)| (name, value.into())));
    let stated = Timing::FIELDS.iter().map(|field| (field.name, u64::from(field.of(&capabilities.timing))));
    fixed.chain(stated).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A straight line fitted to measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinearFit {
    /// Its value at 0.
    pub start: f64,
    /// Its increase for each unit.
    pub slope: f64,
    /// Largest deviation of a measurement, in percent of the measurement.
    pub residual_percent: f64,
}

impl LinearFit {
    /// Returns the least-squares fit of `points`; `None` without two different places.
    pub fn of(points: &[(f64, f64)]) -> Option<LinearFit> {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        if points.len() < 2 || spread <= 0.0 {
            return None;
        }
        let slope = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread;
        let start = y - slope * x;
        let deviation = |point: &(f64, f64)| 100.0 * ((start + slope * point.0 - point.1) / point.1).abs();
        let residual_percent = points.iter().map(deviation).fold(0.0, f64::max);
        Some(LinearFit { start, slope, residual_percent })
    }
}

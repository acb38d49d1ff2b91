//! What a fabric was measured to take, in place of what its cards say.

use std::collections::BTreeMap;

use crate::capability::{Capabilities, Timing, TimingField, Topology};
use crate::cost::CostModel;

/// One parameter of a cost model, measured.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// Which.
    pub field: &'static TimingField,
    /// What the cards say.
    pub stated: u32,
    /// What was measured.
    pub measured: u32,
    /// How many measurements it was fitted to.
    pub points: usize,
    /// The most by which one of these is off what was fitted to them, in percent of the measurement.
    pub residual_percent: f64,
}

/// A parameter that was not measured, and why: it stays as the cards say.
#[derive(Debug, Clone)]
pub struct Unmeasured {
    /// Which.
    pub field: &'static TimingField,
    /// Why.
    pub why: String,
}

/// What was measured on one fabric.
#[derive(Debug, Clone)]
pub struct Calibration {
    /// The fabric, as [`facts`] tells it.
    pub fabric: BTreeMap<String, u64>,
    /// In the order of [`Timing::FIELDS`].
    pub parameters: Vec<Parameter>,
    /// In the same order.
    pub unmeasured: Vec<Unmeasured>,
    /// Links that differ from the others, by the nodes they lead from and to, Mb/s.
    pub links: BTreeMap<(u32, u32), u32>,
}

/// A calibration that is not of this fabric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it was measured on another fabric: {name} was {there} there and is {here} here")]
pub struct OtherFabric {
    /// The first thing that differs.
    pub name: String,
    /// What it is in the calibration; `none` if it is not in it.
    pub there: String,
    /// What it is on these cards.
    pub here: String,
}

impl Calibration {
    /// The cost model of the fabric with `capabilities`: measured where it was.
    ///
    /// # Errors
    /// If it is another fabric than the one that was measured, or the cards say something else of themselves now.
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

/// What a calibration holds for: the fabric, and all that the cards say of their times. What a host may set, such as the
/// eager limit, is not in it.
pub fn facts(capabilities: &Capabilities) -> BTreeMap<String, u64> {
    let groups = match capabilities.topology {
        Topology::FullyConnected => 0,
        Topology::Dragonfly { groups } => groups,
    };
    let fixed = [
        ("clock_khz", u64::from(capabilities.clock_khz)),
        ("nodes", capabilities.nodes.into()),
        ("dragonfly_groups", groups.into()),
        ("ports", capabilities.ports.into()),
        ("memory_bytes", capabilities.memory_bytes),
        ("memory_channels", capabilities.memory_channels.into()),
        ("stripe_half_bytes", capabilities.stripe_half_bytes),
        ("eager_bytes", capabilities.eager_bytes),
    ];
    let stated = Timing::FIELDS.iter().map(|field| (field.name, u64::from(field.of(&capabilities.timing))));
    fixed.into_iter().chain(stated).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A straight line through measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Where it begins.
    pub start: f64,
    /// How much it rises for each unit.
    pub slope: f64,
    /// The most by which a measurement is off the line, in percent of the measurement.
    pub residual_percent: f64,
}

impl Line {
    /// The line with the least squares of distances from `points`; `None` if these are not at two places at least.
    pub fn through(points: &[(f64, f64)]) -> Option<Line> {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        if points.len() < 2 || spread <= 0.0 {
            return None;
        }
        let slope = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread;
        let start = y - slope * x;
        let off = |point: &(f64, f64)| 100.0 * ((start + slope * point.0 - point.1) / point.1).abs();
        let residual_percent = points.iter().map(off).fold(0.0, f64::max);
        Some(Line { start, slope, residual_percent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_points_on_it_and_says_how_far_others_are_off() {
        let line = Line::through(&[(0.0, 10.0), (1.0, 12.0), (2.0, 14.0)]).unwrap();
        assert!((line.start - 10.0).abs() < 1e-9 && (line.slope - 2.0).abs() < 1e-9 && line.residual_percent < 1e-9);
        let bent = Line::through(&[(0.0, 10.0), (1.0, 13.0), (2.0, 10.0)]).unwrap();
        assert!((bent.residual_percent - 100.0 * 2.0 / 13.0).abs() < 1e-9, "{bent:?}");
        assert_eq!(Line::through(&[(1.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(Line::through(&[]), None);
    }

    #[test]
    fn every_field_of_a_timing_has_a_name_of_its_own() {
        let mut timing = Timing {
            dispatch_cycles: 0,
            memory_read_cycles: 0,
            handover_cycles: 0,
            switch_cycles: 0,
            control_ps: 0,
            data_ps: 0,
            acknowledge_ps: 0,
            link_mbps: 0,
            channel_mbps: 0,
            host_mbps: 0,
            beat_bytes: 0,
            reduce_beat_cycles: 0,
            reduce_unit_cycles: 0,
        };
        for (value, field) in (1..).zip(Timing::FIELDS) {
            field.set(&mut timing, value);
        }
        let values: Vec<u32> = Timing::FIELDS.iter().map(|field| field.of(&timing)).collect();
        assert_eq!(values, (1..=13).collect::<Vec<_>>());
        assert_eq!(timing.reduce_unit_cycles, 13);
        assert!(TimingField::named("link_mbps").is_some() && TimingField::named("links").is_none());
    }
}

//! Draws what `bench coll` measured: latency and bus bandwidth over size, beside the lower bound.

use std::path::Path;

use super::row::{Measured, Row};
use crate::bench::chart::{self, Scale, Series, SizeChart};
use crate::exit::Result;

/// Draws two panels into the file at `path`. Draws nothing if nothing was measured.
pub(super) fn draw(path: &Path, rows: &[Row]) -> Result<bool> {
    let op = rows.first().map_or("", |row| row.op);
    let latency = series(rows, |one| Some(one.p50_us), |one| one.bound_us);
    let bandwidth = series(rows, |one| one.busbw_gbps, |one| one.bound_busbw_gbps);
    if latency.is_empty() || bandwidth.is_empty() {
        return Ok(false);
    }
    let (least, most) = range(&latency);
    let upper = SizeChart {
        title: op,
        x_label: "size",
        y_label: "latency (p50), us",
        y_scale: Scale::Log,
        y_range: least / 2.0..most * 2.0,
        lines: latency,
    };
    let (_, most) = range(&bandwidth);
    let lower = SizeChart {
        title: op,
        x_label: "size",
        y_label: "bus bandwidth, Gb/s",
        y_scale: Scale::Linear,
        y_range: 0.0..most * 1.2,
        lines: bandwidth,
    };
    chart::file(path, &[&upper, &lower])?;
    Ok(true)
}

/// Returns the least and the largest value.
fn range(lines: &[Series]) -> (f64, f64) {
    let values = || lines.iter().flat_map(|line| &line.points).map(|point| point.1);
    (values().fold(f64::MAX, f64::min), values().fold(f64::MIN_POSITIVE, f64::max))
}

/// Returns a line for each group and algorithm, and a dotted one for the bound of each group.
fn series(
    rows: &[Row],
    found: impl Fn(&Measured) -> Option<f64>,
    bound: impl Fn(&Measured) -> Option<f64>,
) -> Vec<Series> {
    let mut lines: Vec<Series> = Vec::new();
    let mut add = |name: String, is_dotted: bool, bytes: u64, value: Option<f64>| {
        let Some(value) = value.filter(|value| *value > 0.0) else { return };
        let point = (bytes as f64, value);
        match lines.iter_mut().find(|line| line.name == name) {
            // Several algorithms have one bound.
            Some(line) if line.points.last() == Some(&point) => {}
            Some(line) => line.points.push(point),
            None => lines.push(Series { name, points: vec![point], is_dotted }),
        }
    };
    for row in rows {
        let Some(one) = &row.measured else { continue };
        // A line of the planner's choice may change its algorithm from size to size.
        let algorithm = row.requested.map(|algorithm| format!("{algorithm}, ")).unwrap_or_default();
        add(format!("{algorithm}{} ranks", row.ranks), false, row.bytes, found(one));
        add(format!("bound, {} ranks", row.ranks), true, row.bytes, bound(one));
    }
    lines
}

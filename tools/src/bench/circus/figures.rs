//! Draws figures 12 to 14 and 17 of the CIRCUS paper from measurements of the mock.

use std::path::Path;

use super::super::chart::{self, Bars, Scale, Series, SizeChart};
use super::measure::{LARGE, Lab, Measured, Pattern, SMALL};
use super::rows::{FARTHEST, OTHERS, SMI_GBPS};
use crate::exit::Result;

pub(super) const FIGURES: [chart::Figure<Lab>; 4] =
    [("figure-12.svg", latency), ("figure-13.svg", throughput), ("figure-14.svg", others), ("figure-17.svg", pipeline)];

/// The message sizes of the paper.
fn sizes() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(SMALL), |bytes| Some(bytes * 2)).take_while(|bytes| *bytes <= LARGE)
}

fn series(lab: &mut Lab, name: &str, pattern: Pattern, y: fn(&Measured) -> f64) -> Result<Series> {
    let points = sizes().map(|bytes| Ok((bytes as f64, y(&lab.measure(pattern, bytes)?)))).collect::<Result<_>>()?;
    Ok(Series { name: name.to_owned(), points, is_dotted: false })
}

fn over_hops(lab: &mut Lab, y: fn(&Measured) -> f64) -> Result<Vec<Series>> {
    let name = |hops| if hops == 1 { "1 hop".to_owned() } else { format!("{hops} hops") };
    (1..=FARTHEST).map(|hops| series(lab, &name(hops), Pattern::PingPong { hops }, y)).collect()
}

/// A rate that does not depend on the size.
fn constant(name: &str, gbps: f64) -> Series {
    Series { name: name.to_owned(), points: sizes().map(|bytes| (bytes as f64, gbps)).collect(), is_dotted: true }
}

fn latency(lab: &mut Lab, path: &Path) -> Result<()> {
    let chart = SizeChart {
        title: "Latency of a ping-pong (figure 12), mock",
        x_label: "message size",
        y_label: "us, (t1 - t0) / 2",
        y_scale: Scale::Linear,
        y_range: 0.0..3.6,
        lines: over_hops(lab, Measured::latency_us)?,
    };
    chart::file(path, &[&chart])
}

fn throughput(lab: &mut Lab, path: &Path) -> Result<()> {
    let chart = SizeChart {
        title: "Throughput of a ping-pong (figure 13), mock",
        x_label: "message size",
        y_label: "Gb/s",
        y_scale: Scale::Linear,
        y_range: 0.0..100.0,
        lines: over_hops(lab, Measured::gbps)?,
    };
    chart::file(path, &[&chart])
}

fn others(lab: &mut Lab, path: &Path) -> Result<()> {
    let ours = 1e3 * lab.measure(Pattern::PingPong { hops: 1 }, SMALL)?.latency_us();
    let all = || [("CIRCUS, mock", ours)].into_iter().chain(OTHERS);
    let bars = Bars {
        title: "Least latency at one hop (table 5): CIRCUS on the mock, others as published",
        x_label: "system",
        y_label: "ns",
        y_top: 1_200.0,
        categories: all().map(|(name, _)| name.to_owned()).collect(),
        parts: vec![("latency", all().map(|(_, ns)| ns).collect())],
        is_stacked: false,
    };
    let chart = SizeChart {
        title: "Throughput at one hop (figure 14): CIRCUS on the mock, SMI as published",
        x_label: "message size",
        y_label: "Gb/s",
        y_scale: Scale::Linear,
        y_range: 0.0..100.0,
        lines: vec![
            series(lab, "CIRCUS", Pattern::PingPong { hops: 1 }, Measured::gbps)?,
            constant("SMI, peak", SMI_GBPS),
        ],
    };
    chart::file(path, &[&bars, &chart])
}

fn pipeline(lab: &mut Lab, path: &Path) -> Result<()> {
    let chart = SizeChart {
        title: "Throughput of the allreduce-like pipeline (figure 17), mock",
        x_label: "message size",
        y_label: "Gb/s",
        y_scale: Scale::Linear,
        y_range: 0.0..100.0,
        lines: vec![
            series(lab, "ping-pong, 1 hop", Pattern::PingPong { hops: 1 }, Measured::gbps)?,
            series(lab, "allreduce-like pipeline", Pattern::Pipeline, Measured::gbps)?,
        ],
    };
    chart::file(path, &[&chart])
}

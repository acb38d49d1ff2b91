//! Draws figures 8 to 12 of the MPI-FPGA paper from measurements of the mock, and estimates for a million nodes beside the simulation.

use std::path::Path;

use fpga_select::mpi_fpga::Collective;

use super::super::chart::{self, Bars, OverNumbers, Scale, Series, SizeChart};
use super::estimate::{self, NODES_MAX, SIMULATED_MAX};
use super::measure::{self, Case, Kind, Lab};
use super::rows::{ESTIMATED, NODES, Quantity, RADICES};
use crate::exit::Result;

pub(super) const FIGURES: [chart::Figure<Lab>; 6] = [
    ("figure-8-9.svg", collectives),
    ("figure-10.svg", speed_ups),
    ("figure-11.svg", networks),
    ("figure-12.svg", indirect),
    ("million-allreduce.svg", million_allreduce),
    ("million-broadcast.svg", million_broadcast),
];

fn series(lab: &mut Lab, name: String, kind: Kind, nodes: u32, collective: Collective) -> Result<Series> {
    let point = |bytes: u64| {
        let case = Case { kind, nodes, collective, bytes, is_long: false };
        Ok((bytes as f64, lab.average_us(case)?))
    };
    let points = [8, 64, 256, 1024].into_iter().map(point).collect::<Result<_>>()?;
    Ok(Series { name, points, is_dotted: false })
}

fn chart(title: &'static str, y_top: f64, lines: Vec<Series>) -> SizeChart {
    let (x_label, y_label) = ("message size", "us, average of the ranks");
    SizeChart { title, x_label, y_label, y_scale: Scale::Linear, y_range: 0.0..y_top, lines }
}

fn collectives(lab: &mut Lab, path: &Path) -> Result<()> {
    let one = |collective: Collective| series(lab, collective.name().to_owned(), Kind::Direct, 64, collective);
    let lines = Collective::ALL.iter().copied().map(one).collect::<Result<_>>()?;
    let chart = chart("Collectives on 64 nodes, direct network (figures 8 and 9), mock", 16.0, lines);
    chart::file(path, &[&chart])
}

fn networks(lab: &mut Lab, path: &Path) -> Result<()> {
    let mut lines = vec![series(lab, "direct".to_owned(), Kind::Direct, 128, Collective::Allreduce)?];
    for radix in RADICES {
        lines.push(series(lab, format!("indirect-{radix}"), Kind::Indirect(radix), 128, Collective::Allreduce)?);
    }
    let chart = chart("Allreduce on 128 nodes (figure 11F), mock", 10.0, lines);
    chart::file(path, &[&chart])
}

fn bars(lab: &mut Lab, of: impl Fn(u32) -> Quantity) -> Result<Vec<f64>> {
    NODES.into_iter().map(|nodes| of(nodes).measure(lab)).collect()
}

fn categories() -> Vec<String> {
    NODES.iter().map(|nodes| format!("{nodes} nodes")).collect()
}

fn speed_ups(lab: &mut Lab, path: &Path) -> Result<()> {
    let part =
        |collective: Collective| Ok((collective.name(), bars(lab, |nodes| Quantity::SpeedUp(collective, nodes))?));
    let bars = Bars {
        title: "Speed-up over the CPU cluster of table 4, geometric mean of 1 KB and 1 MB (figure 10), mock",
        x_label: "",
        y_label: "speed-up",
        y_top: 50.0,
        categories: categories(),
        parts: Collective::ALL.iter().copied().map(part).collect::<Result<_>>()?,
        is_stacked: false,
    };
    chart::file(path, &[&bars])
}

fn indirect(lab: &mut Lab, path: &Path) -> Result<()> {
    let names = ["allreduce, radix 8", "allreduce, radix 16", "allreduce, radix 28"];
    let part = |(name, radix)| Ok((name, bars(lab, |nodes| Quantity::Indirect(Collective::Allreduce, nodes, radix))?));
    let bars = Bars {
        title: "Indirect network over direct network, short messages (figure 12), mock",
        x_label: "",
        y_label: "speed-up",
        y_top: 4.0,
        categories: categories(),
        parts: names.into_iter().zip(RADICES).map(part).collect::<Result<_>>()?,
        is_stacked: false,
    };
    chart::file(path, &[&bars])
}

fn million_allreduce(lab: &mut Lab, path: &Path) -> Result<()> {
    million(
        lab,
        path,
        Collective::Allreduce,
        "Allreduce of 8 B in the switches: simulated (marks) and estimated (dotted)",
    )
}

fn million_broadcast(lab: &mut Lab, path: &Path) -> Result<()> {
    million(
        lab,
        path,
        Collective::Broadcast,
        "Broadcast of 8 B in the switches: simulated (marks) and estimated (dotted)",
    )
}

/// Draws times over numbers of nodes, with the units of the switches above and without them below.
fn million(lab: &mut Lab, path: &Path, collective: Collective, title: &'static str) -> Result<()> {
    let simulated = |kind, nodes| lab.last_us(Case { kind, nodes, collective, bytes: 8, is_long: false });
    let with = over_nodes(simulated, |kind, nodes| estimate::with_units_us(kind, nodes, collective))?;
    let without = over_nodes(measure::rounds_us, estimate::without_units_us)?;
    let chart = |title, y_top, lines| {
        let (x_label, y_label) = ("nodes", "us, last rank");
        SizeChart { title, x_label, y_label, y_scale: Scale::Log, y_range: 1.0..y_top, lines }
    };
    let (upper, lower) =
        (chart(title, 1e4, with), chart("The same without units, from processor to processor", 1e5, without));
    chart::file(path, &[&OverNumbers(upper), &OverNumbers(lower)])
}

fn over_nodes(
    mut simulated: impl FnMut(Kind, u32) -> Result<f64>,
    estimated: impl Fn(Kind, u32) -> f64,
) -> Result<Vec<Series>> {
    let mut lines = Vec::new();
    for (name, kind) in ESTIMATED {
        let point = |nodes: u32| Ok((f64::from(nodes), simulated(kind, nodes)?));
        let points = estimate::nodes(SIMULATED_MAX).map(point).collect::<Result<_>>()?;
        lines.push(Series { name: name.to_owned(), points, is_dotted: false });
    }
    for (name, kind) in ESTIMATED {
        let points = estimate::nodes(NODES_MAX).map(|nodes| (f64::from(nodes), estimated(kind, nodes))).collect();
        lines.push(Series { name: format!("{name}, estimate"), points, is_dotted: true });
    }
    Ok(lines)
}

//! Draws figures 8 to 12 of the MPI-FPGA paper from measurements of the mock.

use std::path::Path;

use fpga_select::mpi_fpga::Collective;

use super::super::chart::{self, Bars, Scale, Series, SizeChart, one_panel};
use super::measure::{Case, Kind, Lab};
use super::rows::{NODES, Quantity, RADICES};
use crate::exit::Result;

const FIGURES: [chart::Figure<Lab>; 4] = [
    ("figure-8-9.svg", collectives),
    ("figure-10.svg", speed_ups),
    ("figure-11.svg", networks),
    ("figure-12.svg", indirect),
];

/// Draws the figures into `directory` and returns their paths.
pub(super) fn draw(lab: &mut Lab, directory: &Path) -> Result<Vec<String>> {
    chart::draw(lab, directory, &FIGURES)
}

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
    let lines = Collective::ALL.into_iter().map(one).collect::<Result<_>>()?;
    let chart = chart("Collectives on 64 nodes, direct network (figures 8 and 9), mock", 16.0, lines);
    one_panel(path, |area| chart.draw(area))
}

fn networks(lab: &mut Lab, path: &Path) -> Result<()> {
    let mut lines = vec![series(lab, "direct".to_owned(), Kind::Direct, 128, Collective::Allreduce)?];
    for radix in RADICES {
        lines.push(series(lab, format!("indirect-{radix}"), Kind::Indirect(radix), 128, Collective::Allreduce)?);
    }
    let chart = chart("Allreduce on 128 nodes (figure 11F), mock", 10.0, lines);
    one_panel(path, |area| chart.draw(area))
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
        parts: Collective::ALL.into_iter().map(part).collect::<Result<_>>()?,
        is_stacked: false,
    };
    one_panel(path, |area| bars.draw(area))
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
    one_panel(path, |area| bars.draw(area))
}

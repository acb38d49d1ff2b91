//! `fpgactl bench circus`: compares every network figure of the CIRCUS paper with the mock.

mod figures;
mod measure;
mod rows;

use std::path::Path;

use fpga_select::circus::Profile;

use super::chart;
use super::comparison::{PublishedSystem, Value};
use crate::cli::{Cli, Published};
use crate::exit::Result;
use measure::{LARGE, Lab, Pattern, SMALL};
use rows::{FARTHEST, NOT_REPRODUCED, Quantity};

pub(super) fn run(cli: &Cli, arguments: &Published) -> Result<()> {
    let system = PublishedSystem {
        names: ("circus", "CIRCUS on mock cards"),
        components: Profile::published().components(),
        not_reproduced: &NOT_REPRODUCED,
        assumed: Vec::new(),
    };
    let measure = |lab: &mut Lab, quantity: &Quantity| measure_row(lab, *quantity).map(Value::from);
    let draw = |lab: &mut Lab, directory: &Path| chart::draw(lab, directory, &figures::FIGURES);
    system.run(cli, arguments, (rows::all(), &mut Lab::default()), measure, draw)
}

fn measure_row(lab: &mut Lab, quantity: Quantity) -> Result<f64> {
    let mut latency_us = |hops| lab.measure(Pattern::PingPong { hops }, SMALL).map(|measured| measured.latency_us());
    Ok(match quantity {
        Quantity::Link(overhead) => measure::link(overhead),
        Quantity::RouterCycles => measure::router_cycles()?.0 as f64,
        Quantity::CrossbarCycles => measure::router_cycles()?.1 as f64,
        Quantity::Latency { hops } => latency_us(hops)?,
        Quantity::HopLatency => (latency_us(FARTHEST)? - latency_us(1)?) / f64::from(FARTHEST - 1),
        Quantity::Throughput { hops } => lab.measure(Pattern::PingPong { hops }, LARGE)?.gbps(),
        Quantity::PipelineLatency => 1e3 * lab.measure(Pattern::Pipeline, SMALL)?.round_trip_us,
        Quantity::PipelineThroughput => lab.measure(Pattern::Pipeline, LARGE)?.gbps(),
    })
}

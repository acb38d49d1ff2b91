//! `fpgactl bench circus`: compares every network figure of the CIRCUS paper with the mock.

mod figures;
mod measure;
mod rows;

use fpga_select::circus::Profile;

use super::comparison::{Comparison, Value, choose};
use crate::cli::{Circus, Cli};
use crate::exit::Result;
use measure::{LARGE, Lab, Pattern, SMALL};
use rows::{FARTHEST, NOT_REPRODUCED, Quantity};

pub(super) fn run(cli: &Cli, arguments: &Circus) -> Result<()> {
    let rows = choose(rows::all(), &arguments.rows)?;
    let mut lab = Lab::default();
    let components = Profile::published().components();
    let names = ("circus", "CIRCUS on mock cards");
    let measure = |quantity: &Quantity| measure_row(&mut lab, *quantity).map(Value::from);
    let mut comparison = Comparison::measure(names, &components, &NOT_REPRODUCED, rows, measure)?;
    if let Some(directory) = &arguments.svg {
        comparison.figures = figures::draw(&mut lab, directory)?;
    }
    comparison.print(cli, arguments.rows.check)
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

//! `fpgactl tune`: chooses a configuration of Novo-G#'s wormhole router for a pattern or a trace, by simulating all of them.

pub(crate) mod measure;
mod trace;

use std::path::Path;

use cmdseq::routing::Torus3;
use fpga_select::novog::wormhole::{
    Arbitration, Configuration, Pattern, Routing, Trace, WormholeNetwork, WormholeProfile,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::bench::chart::{self, Bars};
use crate::cli::{Cli, Traffic, Tune};
use crate::exit::{Failure, Result};
use crate::units::rounded;
use crate::{input_file, output, progress};
use measure::Measured;
pub(crate) use measure::Metric;

/// What `tune` prints.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed {
    schema: &'static str,
    kind: &'static str,
    /// The pattern, or the path of the trace.
    traffic: String,
    torus: [u32; 3],
    packets: usize,
    /// Virtual channels in the simulation.
    simulated_channels: usize,
    metric: &'static str,
    configurations: Vec<Row>,
    best: String,
    /// Mean of the metric over all configurations.
    mean: f64,
    /// Difference of the best configuration from the mean, in percent of the mean.
    difference_percent: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    figure: Option<String>,
}

/// A configuration, and what its run measured.
#[derive(JsonSchema, Serialize)]
struct Row {
    configuration: String,
    batch_cycles: u64,
    latency_mean_cycles: f64,
    latency_worst_cycles: u64,
    flits_per_node_and_cycle: f64,
    /// Most virtual channels of an input in use at once.
    used_channels: u8,
    /// Virtual channels that a router needs: those, and enough for its rules against deadlocks.
    channels: usize,
    alms: u32,
    area_percent: u32,
    flit_hops: u64,
}

pub(crate) fn run(cli: &Cli, arguments: &Tune) -> Result<()> {
    let (torus, trace, traffic) = traffic(arguments)?;
    let inputs: Vec<&Path> = match &arguments.traffic {
        Traffic::Trace(path) => vec![path],
        Traffic::Pattern(_) => Vec::new(),
    };
    let outputs: Vec<&Path> = arguments.svg.iter().map(AsRef::as_ref).collect();
    input_file::check_outputs(&inputs, &outputs)?;
    let channels = arguments.channels as usize;
    let profile = WormholeProfile { channels, seed: arguments.seed, ..WormholeProfile::published() };
    let network = WormholeNetwork::new(profile, torus).map_err(measure::failure)?;
    let bar = progress::count(Configuration::all().count() as u64);
    let runs = measure::all(&network, &trace, |configuration| {
        bar.set_message(configuration.name());
        bar.inc(1);
    });
    bar.finish_and_clear();
    let runs = runs?;
    let metric = arguments.metric;
    let (best, difference) = metric.best(&runs).ok_or_else(|| Failure::refused("no configuration to choose from"))?;
    if let Some(path) = &arguments.svg {
        draw(path, metric, &runs)?;
    }
    let printed = Printed {
        schema: "fpgactl.tune/1",
        kind: "mock",
        traffic,
        torus: torus.sides(),
        packets: trace.packets(),
        simulated_channels: channels,
        metric: metric.name(),
        configurations: runs.iter().map(row).collect(),
        best: best.configuration.name(),
        mean: rounded(metric.mean(&runs)),
        difference_percent: rounded(difference),
        figure: arguments.svg.as_ref().map(|path| path.display().to_string()),
    };
    output::print(cli.json, &printed, || text(&printed))
}

fn traffic(arguments: &Tune) -> Result<(Torus3, Trace, String)> {
    let refuse = |error: &dyn std::error::Error| Failure::refused(error.to_string());
    match &arguments.traffic {
        Traffic::Pattern(pattern) => {
            let torus = Torus3::new(arguments.shape).map_err(|error| refuse(&error))?;
            let Tune { packets, flits, load, seed, .. } = *arguments;
            let count = pattern.packets(torus, packets).map_err(|error| refuse(&error))?;
            if count > trace::PACKETS_MAX as u64 {
                return Err(too_many(*pattern, torus, count, count / u64::from(packets)));
            }
            let trace = pattern.batch(torus, packets, flits, load, seed).map_err(|error| refuse(&error))?;
            Ok((torus, trace, pattern.name().to_owned()))
        }
        // A word may be a mistyped pattern; a path is a file.
        Traffic::Trace(path) if path.parent() == Some(Path::new("")) && !path.exists() => {
            let patterns = Pattern::ALL.map(Pattern::name).join(", ");
            Err(Failure::usage(format!(
                "no pattern and no file {:?} (patterns: {patterns})",
                path.display().to_string()
            )))
        }
        Traffic::Trace(path) => {
            let (torus, messages) = trace::read(path)?;
            let trace = Trace::new(torus, messages).map_err(|error| refuse(&error))?;
            Ok((torus, trace, path.display().to_string()))
        }
    }
}

/// Refuses a pattern of `count` packets: `round` for each of `--packets`.
fn too_many(pattern: Pattern, torus: Torus3, count: u64, round: u64) -> Failure {
    let most = trace::PACKETS_MAX as u64;
    let instead = match most / round {
        0 => "use a smaller --shape".to_owned(),
        packets => format!("use a smaller --shape, or --packets up to {packets}"),
    };
    let ([x, y, z], name) = (torus.sides(), pattern.name());
    Failure::refused(format!(
        "{name} sends {count} packets on a torus of {x} x {y} x {z} (expected at most {most}; {instead})"
    ))
}

fn row(run: &Measured) -> Row {
    let (outcome, switch) = (&run.outcome, run.switch());
    Row {
        configuration: run.configuration.name(),
        batch_cycles: outcome.batch_cycles(),
        latency_mean_cycles: rounded(outcome.latency_mean()),
        latency_worst_cycles: outcome.latency_max,
        flits_per_node_and_cycle: rounded(outcome.throughput()),
        used_channels: outcome.channels_max,
        channels: switch.channels,
        alms: switch.alms,
        area_percent: switch.percent,
        flit_hops: outcome.flit_hops,
    }
}

fn text(printed: &Printed) -> String {
    let [x, y, z] = printed.torus;
    let heads = ["CONFIGURATION", "BATCH", "MEAN", "WORST", "THROUGHPUT", "CHANNELS", "ALMS", "AREA"];
    let rows = printed.configurations.iter().map(|row| {
        [
            row.configuration.clone(),
            row.batch_cycles.to_string(),
            format!("{:.1}", row.latency_mean_cycles),
            row.latency_worst_cycles.to_string(),
            format!("{:.3}", row.flits_per_node_and_cycle),
            row.channels.to_string(),
            row.alms.to_string(),
            format!("{} %", row.area_percent),
        ]
    });
    let mut text = format!(
        "{} on a torus of {x} x {y} x {z}: {} packets, {} virtual channels (mock; times in cycles of 142 MHz)\n",
        printed.traffic, printed.packets, printed.simulated_channels
    );
    text += &output::headed(heads, rows);
    if let Some(best) = printed.configurations.iter().find(|row| row.configuration == printed.best) {
        text += &format!(
            "\nbest configuration by {}: {}, {:.1} % from the mean of all; {} virtual channels, {} ALMs ({} % of the card)\n",
            printed.metric, best.configuration, printed.difference_percent, best.channels, best.alms, best.area_percent
        );
    }
    if let Some(figure) = &printed.figure {
        text += &format!("wrote {figure}\n");
    }
    text
}

/// Draws the metric, and the virtual channels that a router needs.
fn draw(path: &Path, metric: Metric, runs: &[Measured]) -> Result<()> {
    let (title, label) = match metric {
        Metric::Batch => ("latency of the batch", "cycles"),
        Metric::Mean => ("mean latency of a packet", "cycles"),
        Metric::Worst => ("largest latency of a packet", "cycles"),
        Metric::Throughput => ("throughput", "flits a node and cycle"),
        Metric::Area => ("area of a router with the channels that it needs", "ALMs"),
    };
    let bars = |title, y_label, value: &dyn Fn(&Measured) -> f64| {
        let of = |policy: Arbitration| {
            let runs = runs.iter().filter(move |run| run.configuration.arbitration == policy);
            (policy.name(), runs.map(value).collect::<Vec<f64>>())
        };
        let parts = Arbitration::ALL.map(of).to_vec();
        let most = parts.iter().flat_map(|part| &part.1).copied().fold(f64::MIN_POSITIVE, f64::max);
        let categories = Routing::ALL.map(|routing| routing.name().to_owned()).to_vec();
        Bars { title, x_label: "routing", y_label, y_top: most * 1.3, categories, parts, is_stacked: false }
    };
    let upper = bars(title, label, &|run| metric.of(run));
    let lower = bars("virtual channels of a router", "channels", &|run| run.switch().channels as f64);
    chart::file(path, &[&upper, &lower])
}

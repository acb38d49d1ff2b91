//! Options of `bench`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, Subcommand};
use cmdseq::plan::Algorithm;

use super::time::seconds;
use super::{Terms, cards_default, no_machine, publishes};
use crate::size;

#[derive(Debug, Subcommand)]
pub(crate) enum System {
    /// Measure a collective over sizes and groups, and check every result
    #[command(arg = publishes())]
    Coll(Sweep),
    /// Compare every network figure of the OPTWEB paper with the mock
    #[command(
        args = no_machine(),
        mut_arg("svg", draws("Draw figures 10 to 15 and the Dragonfly table of the paper into this directory"))
    )]
    Optweb(Optweb),
    /// Compare every network figure of the CIRCUS paper with the mock
    #[command(
        args = no_machine(),
        mut_arg("svg", draws("Draw latency and throughput over message size, and the latencies of other systems, \
                              into this directory"))
    )]
    Circus(Published),
    /// Compare the figures of the BlueLink paper with the mock
    #[command(
        args = no_machine(),
        mut_arg("svg", draws("Draw figures 3 and 4 of the paper into this directory, and tables I and II as published"))
    )]
    Bluelink(Published),
    /// Compare the figures of the MPI-FPGA paper with the mock
    #[command(
        args = no_machine(),
        mut_arg("svg", draws("Draw figures 8 to 12 of the paper, as far as the mock has them, and estimates for a \
                              million nodes, into this directory"))
    )]
    MpiFpga(Published),
    /// Compare figures of Novo-G# with the mock
    #[command(
        name = "novo-g",
        args = no_machine(),
        mut_arg("svg", draws("Draw the FFTs of table 6.4, and the published tables of areas, into this directory"))
    )]
    Novog(Published),
    /// Compare the planner's plans with the lower bound of each operation
    #[command(arg = cards_default("mock fabrics of 2 to 968 cards"))]
    Planner(Planner),
    /// Count register accesses of an instruction and of data, for each shell of
    /// the mock cards
    #[command(arg = cards_default("mock cards behind each shell"))]
    Accesses,
}

/// Sizes, groups and algorithms of a collective to measure.
#[derive(Debug, Args)]
pub(crate) struct Sweep {
    /// Smallest size, as --bytes of `coll` [default: 8, or an element of --dtype if
    /// that is larger]
    #[arg(long, short, value_name = "BYTES", value_parser = size::parse)]
    pub(crate) begin: Option<u64>,

    /// Largest size
    #[arg(long, short, value_name = "BYTES", value_parser = size::parse, default_value = "1MiB")]
    pub(crate) end: u64,

    /// Ratio of a size to the one before
    #[arg(long, short, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..))]
    pub(crate) factor: u64,

    /// Measure with the first N of the cards, for each N [default: all cards]
    #[arg(long, short, value_name = "N,N,..", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) groups: Vec<u32>,

    /// Algorithm, or `all`: each that can run the request [default: shortest
    /// predicted time]
    #[arg(long, value_parser = algorithms_parser())]
    pub(crate) algorithm: Option<Algorithms>,

    #[command(flatten)]
    pub(crate) terms: Terms,

    /// Repetitions of each measurement, back to back
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=REPEAT_MAX))]
    pub(crate) repeat: u32,

    /// Seed of the generated data; each measurement takes the next
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,

    /// Time limit for the cards in each measurement, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) timeout: f64,

    /// Write the measurements to this file, each as it comes
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,

    /// Draw latency and bus bandwidth over size into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

    /// Record a trace in Perfetto's format into this file (docs/traces.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}

/// Most repetitions of a measurement: the report of the driver has the times of so many.
const REPEAT_MAX: i64 = fpga_driver::REPETITIONS_KEPT as i64;

/// Which algorithms to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithms {
    /// All that can run the request.
    All,
    /// This one.
    One(Algorithm),
}

fn algorithms_parser() -> impl TypedValueParser<Value = Algorithms> {
    let names = Algorithm::ALL.iter().map(|one| one.name()).chain(["all"]);
    PossibleValuesParser::new(names.collect::<Vec<_>>()).try_map(|name| match name.as_str() {
        "all" => Ok(Algorithms::All),
        name => name.parse().map(Algorithms::One),
    })
}

#[derive(Debug, Args)]
pub(crate) struct Planner {
    /// Draw the table into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

/// A comparison with a published system.
#[derive(Debug, Args)]
pub(crate) struct Published {
    /// Draw figures into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) rows: Rows,
}

/// Returns what gives `--svg` this help.
fn draws(help: &'static str) -> impl FnOnce(Arg) -> Arg {
    move |svg| svg.help(help)
}

#[derive(Debug, Args)]
pub(crate) struct Optweb {
    #[command(flatten)]
    pub(crate) published: Published,

    /// With --svg, draw only figure N; may be repeated
    #[arg(long, value_name = "N", requires = "svg", value_parser = clap::value_parser!(u32).range(10..=15))]
    pub(crate) figure: Vec<u32>,
}

/// Rows of a comparison with published figures.
#[derive(Debug, Args)]
pub(crate) struct Rows {
    /// Measure only row ID, or all rows ID/..; may be repeated
    #[arg(long, value_name = "ID")]
    pub(crate) row: Vec<String>,

    /// Exit with code 3 if a row is outside its tolerance and not listed as
    /// outside, or within and listed
    #[arg(long)]
    pub(crate) check: bool,
}

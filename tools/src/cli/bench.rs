//! Options of `bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) system: System,
}

#[derive(Debug, Subcommand)]
pub(crate) enum System {
    /// Compare every network figure of the OPTWEB paper with the mock
    Optweb(Optweb),
    /// Compare every network figure of the CIRCUS paper with the mock
    Circus(Circus),
    /// Compare the figures of the BlueLink paper with the mock
    Bluelink(Bluelink),
    /// Compare the figures of the MPI-FPGA paper with the mock
    MpiFpga(MpiFpga),
    /// Compare the planner's plans with the lower bound of each operation
    Planner(Planner),
}

#[derive(Debug, Args)]
pub(crate) struct Planner {
    /// Draw the table into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Optweb {
    /// Draw figures 10 to 15 and the Dragonfly table of the paper into this
    /// directory
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,

    /// With --svg, draw only figure N; may be repeated
    #[arg(long, value_name = "N", requires = "svg", value_parser = clap::value_parser!(u32).range(10..=15))]
    pub(crate) figure: Vec<u32>,

    #[command(flatten)]
    pub(crate) rows: Rows,
}

#[derive(Debug, Args)]
pub(crate) struct Circus {
    /// Draw latency and throughput over message size, and the latencies of other
    /// systems, into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) rows: Rows,
}

#[derive(Debug, Args)]
pub(crate) struct Bluelink {
    /// Draw figures 3 and 4 of the paper into this directory, and tables I and II
    /// as published
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) rows: Rows,
}

#[derive(Debug, Args)]
pub(crate) struct MpiFpga {
    /// Draw figures 8 to 12 of the paper, as far as the mock has them, into this
    /// directory
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) rows: Rows,
}

/// Rows of a comparison with published figures.
#[derive(Debug, Args)]
pub(crate) struct Rows {
    /// Measure only row ID, or all rows ID/..; may be repeated
    #[arg(long, value_name = "ID")]
    pub(crate) row: Vec<String>,

    /// Exit with code 3 if a row is outside its tolerance
    #[arg(long)]
    pub(crate) check: bool,
}

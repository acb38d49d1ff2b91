//! Options of the commands that watch cards in use, and of machine-readable output.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::time::interval;

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Print one table after one interval and end; also if stdout is no terminal
    #[arg(long)]
    pub(crate) once: bool,

    /// Column to sort by
    #[arg(long, value_enum, value_name = "COLUMN", default_value = "card")]
    pub(crate) sort: Sort,

    /// Interval between readings in seconds; rates are of one interval
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub(crate) interval: f64,
}

/// What `top` sorts cards by; numbers are sorted in descending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// Selector of the card, then its node
    Card,
    /// Process id of the owner
    Pid,
    /// Instructions in flight
    Queue,
    /// Operations per second
    Ops,
    /// Bandwidth
    Gbps,
    /// Failed instructions
    Failed,
}

#[derive(Debug, Args)]
pub(crate) struct Stats {
    /// Read these files [default: all in the directory of published counters]
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Print again after each interval, with rates, until Ctrl-C; with --json
    /// NDJSON
    #[arg(long, short)]
    pub(crate) watch: bool,

    /// With --watch, the interval in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval, requires = "watch")]
    pub(crate) interval: f64,

    /// Remove the files of owners that are gone
    #[arg(long, conflicts_with_all = ["files", "watch"])]
    pub(crate) clean: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Metrics {
    /// Answer HTTP requests for /metrics at this address, such as 127.0.0.1:9990,
    /// until Ctrl-C
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = socket_address)]
    pub(crate) listen: Option<SocketAddr>,

    /// Write the metrics to this file once, complete under its name, as for the
    /// textfile collector of Prometheus' node exporter
    #[arg(long, value_name = "FILE")]
    pub(crate) textfile: Option<PathBuf>,
}

fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an IP address and a port, such as 127.0.0.1:9990 or [::1]:9990".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Schema to print, as in the key `schema` of an output, such as
    /// fpgactl.coll/1 [default: list all names]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
}

//! The command line.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use cmdseq::plan::{Algorithm, Collective};

use crate::npy::Element;
use crate::size;

/// Load, launch and measure collectives on FPGA cards, real or mock.
#[derive(Debug, Parser)]
#[command(
    name = "fpgactl",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// Print one JSON object on stdout (docs/json.md), and errors as one on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Cards to use: mock:optweb:N, or mock:optweb:GROUPSxSIZE for a Dragonfly
    #[arg(
        long,
        global = true,
        value_name = "SELECTOR",
        env = "FPGACTL_CARDS",
        hide_env_values = true,
        default_value = fpga_select::DEFAULT
    )]
    pub(crate) cards: String,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the cards
    List,
    /// Show what the cards say of themselves, and what a mock fabric is made of
    Info,
    /// Run a collective, check the result bit for bit, and print the cards' own times
    Coll(Coll),
    /// Show what would be run on each card, how long it should take, and why this way
    Plan(Plan),
    /// Measure a published system on mock cards, beside its published figures
    Bench(Bench),
    /// Show how the cards are linked
    Topo(Topo),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// What is to be done, for `coll` and `plan`.
#[derive(Debug, Args)]
pub(crate) struct Operation {
    /// The collective
    #[arg(value_name = "OP", value_parser = named_parser())]
    pub(crate) named: Named,

    /// Bytes that one pair exchanges in one direction (broadcast: the whole vector), such as 64, 64KiB or 1MiB
    /// [default: what --input holds, else 1MiB]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub(crate) bytes: Option<u64>,

    /// Type of an element [default: that of --input, else u8]
    #[arg(long, value_name = "TYPE", value_parser = element_parser())]
    pub(crate) dtype: Option<Element>,

    /// Reduction, for reduce, allreduce, reduce_scatter, scan and exscan
    #[arg(long, value_name = "REDUCTION", value_parser = ["sum", "min", "max", "xor", "and", "or"])]
    pub(crate) op: Option<String>,

    /// Rank that distributes, collects or sends
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub(crate) root: u32,

    /// Rank that receives from the root, for send and recv [default: the last rank]
    #[arg(long, value_name = "RANK")]
    pub(crate) peer: Option<u32>,

    /// The way to take [default: the fastest predicted]
    #[arg(long, value_parser = algorithm_parser())]
    pub(crate) algorithm: Option<Algorithm>,

    /// Largest piece sent eagerly; 0 forces rendezvous [default: the card's receive buffer]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub(crate) eager_limit: Option<u64>,

    /// Cards that take part, by rank [default: all]
    #[arg(long, value_name = "NODE,NODE,..", value_delimiter = ',')]
    pub(crate) group: Option<Vec<u32>>,
}

#[derive(Debug, Args)]
pub(crate) struct Coll {
    #[command(flatten)]
    pub(crate) operation: Operation,

    /// Delays of the ranks after the barriers that begin a measurement, in microseconds
    #[arg(long, value_name = "US,US,..", value_delimiter = ',', value_parser = delay)]
    pub(crate) start_delay: Vec<f64>,

    /// How often to run it, one run behind the other; the times are of the last
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,

    /// Seed of the data, without --input
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,

    /// NumPy arrays to start from: one for each rank that has input, in order of ranks
    #[arg(long, value_name = "FILE.npy,..", value_delimiter = ',')]
    pub(crate) input: Vec<PathBuf>,

    /// Where to put the result: one NumPy array for each rank that gets any (FILE-0.npy and so on if several do)
    #[arg(long, value_name = "FILE.npy")]
    pub(crate) output: Option<PathBuf>,

    /// The most that the cards may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) timeout: f64,
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) operation: Operation,

    /// Show all ways that were weighed, and why one was taken
    #[arg(long)]
    pub(crate) explain: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) system: System,
}

#[derive(Debug, Subcommand)]
pub(crate) enum System {
    /// Every network figure of the OPTWEB paper beside ours, on mock cards
    Optweb(Optweb),
}

#[derive(Debug, Args)]
pub(crate) struct Optweb {
    /// Draw figures 10 to 15 of the paper and the Dragonfly table into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,

    /// With --svg, draw only figure N; may be repeated
    #[arg(long, value_name = "N", requires = "svg", value_parser = clap::value_parser!(u32).range(10..=15))]
    pub(crate) figure: Vec<u32>,

    /// Only the row of this name, or all whose name begins with it and a slash; may be repeated
    #[arg(long, value_name = "ID")]
    pub(crate) row: Vec<String>,

    /// End with exit code 3 if a row is out of its tolerance
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Topo {
    /// Instead, print how many cards a Dragonfly of cards with LINKS links can have, by number of groups
    #[arg(long, value_name = "LINKS", value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub(crate) dragonfly: Option<u32>,
}

/// An operation that has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    /// One that can be planned.
    Collective(Collective),
    /// One that no card of this version runs.
    Reduction(&'static str),
}

const REDUCTIONS: [&str; 5] = ["reduce", "allreduce", "reduce_scatter", "scan", "exscan"];

fn named_parser() -> impl TypedValueParser<Value = Named> {
    let names = Collective::ALL.iter().map(|one| one.name()).chain(REDUCTIONS);
    PossibleValuesParser::new(names.collect::<Vec<_>>()).try_map(|name| {
        let reduction = REDUCTIONS.iter().find(|one| **one == name).map(|one| Named::Reduction(one));
        reduction.map_or_else(|| name.parse().map(Named::Collective), Ok)
    })
}

fn algorithm_parser() -> impl TypedValueParser<Value = Algorithm> {
    let names = Algorithm::ALL.iter().map(|one| one.name());
    PossibleValuesParser::new(names.collect::<Vec<_>>()).try_map(|name| name.parse::<Algorithm>())
}

fn element_parser() -> impl TypedValueParser<Value = Element> {
    PossibleValuesParser::new(Element::names().collect::<Vec<_>>())
        .try_map(|name| Element::named(&name).ok_or("not an element type"))
}

/// Microseconds that some hardware could wait: up to a day.
fn delay(text: &str) -> Result<f64, String> {
    let is_possible = |us: &f64| (0.0..=8.64e10).contains(us);
    text.parse()
        .ok()
        .filter(is_possible)
        .ok_or_else(|| format!("{text:?} is not a number of microseconds, at most a day"))
}

fn seconds(text: &str) -> Result<f64, String> {
    let is_possible = |seconds: &f64| *seconds > 0.0 && *seconds <= 86_400.0;
    text.parse().ok().filter(is_possible).ok_or_else(|| format!("{text:?} is not a number of seconds, at most a day"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn names_reach_their_operations() {
        let cli = Cli::parse_from(["fpgactl", "coll", "allgather", "--bytes", "64KiB", "--group", "0,2"]);
        let Command::Coll(coll) = cli.command else { panic!() };
        assert_eq!(coll.operation.named, Named::Collective(Collective::Allgather));
        assert_eq!(coll.operation.bytes, Some(65536));
        assert_eq!(coll.operation.group, Some(vec![0, 2]));
        assert!(Cli::try_parse_from(["fpgactl", "coll", "allgatter"]).is_err());
        assert!(Cli::try_parse_from(["fpgactl", "coll", "send", "--start-delay", "nan"]).is_err());
    }
}

//! Options of `route`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use cmdseq::routing::TreeAlgorithm;

use super::{no_machine, on_novo_g, one_of};

#[derive(Debug, Subcommand)]
pub(crate) enum Route {
    /// Compile a list of collectives to routing tables, verify and write them
    #[command(args = no_machine())]
    Compile(RouteCompile),
    /// Verify tables: who gets what, loops, sizes, depth of buffers
    #[command(args = no_machine())]
    Verify(RouteVerify),
    /// Verify tables and load them into the routers of all cards at once
    #[command(arg = on_novo_g())]
    Load(RouteLoad),
    /// Print the tables of a file or of the cards: sizes, or one node
    #[command(arg = on_novo_g())]
    Show(RouteShow),
}

#[derive(Debug, Args)]
pub(crate) struct RouteCompile {
    /// Collectives as JSON (docs/novo-g.md)
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Output file for the tables
    #[arg(long, short, value_name = "TABLES")]
    pub(crate) output: PathBuf,

    /// How trees are made: offline collective routing, or recursive partitioning
    #[arg(long, default_value = "ocr", value_parser = one_of(TreeAlgorithm::ALL, TreeAlgorithm::name))]
    pub(crate) algorithm: TreeAlgorithm,

    #[command(flatten)]
    pub(crate) room: RouteRoom,
}

#[derive(Debug, Args)]
pub(crate) struct RouteVerify {
    /// Tables written by `route compile`
    #[arg(value_name = "TABLES")]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) room: RouteRoom,
}

/// What the cards have room for.
#[derive(Debug, Args)]
pub(crate) struct RouteRoom {
    /// Entries that each table of a card holds
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) entries: u32,

    /// Packets that the buffer of an input holds
    #[arg(long, value_name = "PACKETS", default_value_t = 2048, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) depth: u64,
}

#[derive(Debug, Args)]
pub(crate) struct RouteLoad {
    /// Tables written by `route compile`
    #[arg(value_name = "TABLES")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RouteShow {
    /// Tables written by `route compile` [default: those in force on the cards]
    #[arg(value_name = "TABLES")]
    pub(crate) file: Option<PathBuf>,

    /// Print all entries of this node
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<u32>,
}

//! Options of `channel`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use fpga_channels::Part;

use super::{cards_default, no_machine, one_of};

#[derive(Debug, Subcommand)]
pub(crate) enum Channel {
    /// Check a channel definition and print its channels; uses no card
    #[command(args = no_machine())]
    Check(ChannelCheck),
    /// Generate code for the channels of a definition: OpenCL kernels, host code
    /// in C, and typed handles in Rust; uses no card
    #[command(args = no_machine())]
    Generate(ChannelGenerate),
    /// Load routing tables in order of dimensions, and print the channels' routes
    #[command(arg = cards_default("mock:circus:8x8 if no card is bound to vfio-pci"))]
    Load(ChannelLoad),
}

#[derive(Debug, Args)]
pub(crate) struct ChannelCheck {
    /// Channel definition in XML
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ChannelGenerate {
    /// Channel definition in XML; its name without .xml begins the names of the
    /// generated files
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Directory for the generated files, which replace files of their names; a
    /// missing directory is created
    #[arg(long, value_name = "DIR")]
    pub(crate) output: PathBuf,

    /// Generate only these parts [default: all]
    #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = one_of(&Part::ALL, Part::name))]
    pub(crate) only: Vec<Part>,

    /// Generate code only for these ends of channels, by their names: those that
    /// one card uses [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) ends: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ChannelLoad {
    /// Channel definition in XML
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Card of the end NAME of a channel; repeatable
    /// [default: writers on card 0, readers on card 1]
    #[arg(long, value_name = "NAME=CARD", value_parser = parse_placed_end)]
    pub(crate) place: Vec<PlacedEnd>,

    /// Load these tables instead: a file of `channel load --json`, with all cards
    #[arg(long, value_name = "TABLES")]
    pub(crate) tables: Option<PathBuf>,
}

/// An end of a channel, and the card that it is on.
#[derive(Debug, Clone)]
pub(crate) struct PlacedEnd {
    pub(crate) name: String,
    pub(crate) card: u32,
}

fn parse_placed_end(text: &str) -> Result<PlacedEnd, String> {
    let parts = text.split_once('=').and_then(|(name, card)| Some((name, card.parse().ok()?)));
    match parts {
        Some((name, card)) if !name.is_empty() => Ok(PlacedEnd { name: name.into(), card }),
        _ => Err("expected NAME=CARD, such as ping_in=1".into()),
    }
}

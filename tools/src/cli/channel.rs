//! Options of `fpgactl channel`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Channel {
    /// Check a channel definition and print its channels; uses no card
    Check(ChannelCheck),
    /// Load routing tables in order of dimensions, and print the channels' routes
    #[command(after_help = "Without --cards and without a bound card, it uses mock:circus:8x8.")]
    Load(ChannelLoad),
}

#[derive(Debug, Args)]
pub(crate) struct ChannelCheck {
    /// Channel definition in XML
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
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

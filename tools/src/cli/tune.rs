//! Options of `tune`.

use std::path::PathBuf;

use clap::{Args, value_parser};
use fpga_select::novog::wormhole::{CHANNELS_MAX, Pattern};

use super::one_of;
use crate::tune::Metric;

#[derive(Debug, Args)]
pub(crate) struct Tune {
    /// Pattern (neighbours, diagonals, cube, complement, transpose, tornado,
    /// all-to-all), or a file with a trace (docs/novo-g.md)
    #[arg(value_name = "PATTERN|TRACE", value_parser = traffic)]
    pub(crate) traffic: Traffic,

    /// Sides of the torus
    #[arg(long, value_name = "XxYxZ", default_value = "4x4x4", value_parser = shape)]
    pub(crate) shape: [u32; 3],

    /// What the best configuration is best at
    #[arg(long, default_value = "batch", value_parser = one_of(&Metric::ALL, Metric::name))]
    pub(crate) metric: Metric,

    /// Flits of 128 bits that a node offers in a cycle, up to 6
    #[arg(long, value_name = "FLITS", default_value = "3", value_parser = load)]
    pub(crate) load: f64,

    /// Flits of a packet
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = value_parser!(u16).range(1..=400))]
    pub(crate) flits: u16,

    /// Packets from each node to each of its destinations, at most 10 million in
    /// all
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u32).range(1..=100_000))]
    pub(crate) packets: u32,

    /// Virtual channels of each input in the simulation
    #[arg(long, value_name = "N", default_value_t = CHANNELS_MAX as u64, value_parser = value_parser!(u64).range(4..=CHANNELS_MAX as u64))]
    pub(crate) channels: u64,

    /// Seed of random routes and of the first cycles of nodes
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Draw the metric of all configurations, and their virtual channels, into
    /// this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

/// What the nodes send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Traffic {
    Pattern(Pattern),
    /// A file.
    Trace(PathBuf),
}

/// A pattern's name is a pattern; a file of that name is `./NAME`.
fn traffic(text: &str) -> Result<Traffic, String> {
    if text.is_empty() {
        return Err("expected a pattern or a file".to_owned());
    }
    let pattern = Pattern::ALL.into_iter().find(|pattern| pattern.name() == text);
    Ok(pattern.map_or_else(|| Traffic::Trace(text.into()), Traffic::Pattern))
}

/// Parses the sides of a torus; [`Torus3`](cmdseq::routing::Torus3) checks their lengths.
pub(crate) fn shape(text: &str) -> Result<[u32; 3], String> {
    let sides: Vec<u32> = text.split('x').map_while(|side| side.parse().ok()).collect();
    let is_whole = sides.len() == text.split('x').count();
    <[u32; 3]>::try_from(sides)
        .ok()
        .filter(|_| is_whole)
        .ok_or_else(|| "expected three sides, such as 4x4x4".to_owned())
}

fn load(text: &str) -> Result<f64, String> {
    let load = text.parse::<f64>().ok().filter(|load| (0.001..=6.0).contains(load));
    load.ok_or_else(|| "expected a number from 0.001 to 6".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_three_sides() {
        assert_eq!(shape("4x2x16"), Ok([4, 2, 16]));
        for wrong in ["", "4", "4x4", "4x4x4x4", "4x4x", "axbxc", "4x4x-1"] {
            assert!(shape(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_of_a_pattern_is_no_file() {
        assert_eq!(traffic("cube"), Ok(Traffic::Pattern(Pattern::Cube)));
        assert_eq!(traffic("./cube"), Ok(Traffic::Trace("./cube".into())));
    }
}

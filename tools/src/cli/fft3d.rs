//! Options of `fft3d`.

use std::path::PathBuf;

use clap::{Args, value_parser};

use super::seconds;

#[derive(Debug, Args)]
pub(crate) struct Fft3d {
    /// Points of a side: 16, 32, 64, 128 or 256; mock cards hold up to 64 on
    /// 2x2x2, up to 128 on 4x4x4, and 32 to 128 on 8x8x8
    #[arg(long, value_name = "POINTS", default_value_t = 64)]
    pub(crate) n: u32,

    /// Cores of a card that transform lines
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u32).range(1..=1024))]
    pub(crate) cores: u32,

    /// Seed of the input
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Time limit for the cards
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub(crate) timeout: f64,

    /// Read the array from this .npy file: complex64, n x n x n (a random one)
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,

    /// Write the transformed array into this .npy file
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

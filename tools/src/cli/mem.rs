//! The command `mem`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::no_cards;
use crate::{number, size};

#[derive(Debug, Subcommand)]
pub(crate) enum Mem {
    /// Print a range of card memory, or write it to a file
    #[command(arg = no_cards())]
    Read(MemRead),
    /// Write a file to card memory
    #[command(arg = no_cards())]
    Write(MemWrite),
    /// Fill a range of card memory with a pattern
    #[command(arg = no_cards())]
    Fill(MemFill),
    /// Write and read back a range of card memory; restores it
    #[command(arg = no_cards())]
    Test(MemTest),
}

#[derive(Debug, Args)]
pub(crate) struct MemRead {
    #[command(flatten)]
    pub(crate) range: MemRange,

    /// Write the bytes to this file [default: print them, at most 64 KiB]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct MemWrite {
    #[command(flatten)]
    pub(crate) place: MemPlace,

    /// File whose bytes are written
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct MemFill {
    #[command(flatten)]
    pub(crate) range: MemRange,

    /// 64-bit pattern, such as 0xdeadbeef, stored little-endian and repeated
    #[arg(value_name = "PATTERN", value_parser = number::pattern)]
    pub(crate) pattern: u64,
}

#[derive(Debug, Args)]
pub(crate) struct MemTest {
    #[command(flatten)]
    pub(crate) range: MemRange,

    /// Seed of the data
    #[arg(long, value_name = "N", default_value = "1", value_parser = number::seed)]
    pub(crate) seed: u64,
}

/// A place in the memory of one card.
#[derive(Debug, Args)]
pub(crate) struct MemPlace {
    /// Card, such as vfio:0000:3b:00.0 or mock:alveo-xdma:1
    #[arg(value_name = "SELECTOR[/NODE]")]
    pub(crate) card: String,

    /// Address of the first byte, such as 0x100000
    #[arg(value_name = "ADDRESS", value_parser = number::address)]
    pub(crate) address: u64,
}

/// A range of the memory of one card.
#[derive(Debug, Args)]
pub(crate) struct MemRange {
    #[command(flatten)]
    pub(crate) place: MemPlace,

    /// Number of bytes, such as 64, 0x40 or 1MiB
    #[arg(value_name = "BYTES", value_parser = bytes)]
    pub(crate) bytes: u64,
}

/// Parses a number of bytes, which may be hexadecimal as addresses are.
fn bytes(text: &str) -> Result<u64, String> {
    number::unsigned(text).map_or_else(|| size::parse(text), Ok)
}

impl Mem {
    /// Returns the place that the command is about.
    pub(crate) fn place(&self) -> &MemPlace {
        match self {
            Mem::Read(MemRead { range, .. }) | Mem::Fill(MemFill { range, .. }) | Mem::Test(MemTest { range, .. }) => {
                &range.place
            }
            Mem::Write(MemWrite { place, .. }) => place,
        }
    }
}

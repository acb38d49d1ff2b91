//! The command `mock`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use super::no_machine;
use crate::size;

#[derive(Debug, Subcommand)]
pub(crate) enum Mock {
    /// Serve mock cards on vfio-user sockets, until interrupted or for one COMMAND
    #[command(args = no_machine())]
    Serve(Serve),
    /// Write a GBS file for the cards of mock:s10-dfl, or a .bit file for those of
    /// mock:alveo-xdma
    #[command(args = no_machine())]
    Image(MockImage),
}

#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("clients").args(["socket_dir", "command"]).required(true),
    override_usage = "fpgactl mock serve [OPTIONS] [SELECTOR] <--socket-dir DIR|-- COMMAND...>"
)]
pub(crate) struct Serve {
    /// Fabric to serve, such as mock:optweb:8
    #[arg(value_name = "SELECTOR", default_value = fpga_select::DEFAULT)]
    pub(crate) fabric: String,

    /// Directory for the sockets, DIR/NODE.sock; a missing directory is created
    /// for this user only
    #[arg(long, value_name = "DIR")]
    pub(crate) socket_dir: Option<PathBuf>,

    /// Limit on the host memory of all cards together [default: half of
    /// the memory that is available to the process]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub(crate) memory: Option<u64>,

    /// Serve cards with CIRCUS channels in place of a sequencer; SELECTOR is a
    /// torus, such as mock:circus:4x4
    #[arg(long)]
    pub(crate) channels: bool,

    /// Command to serve: FPGACTL_CARDS selects the cards for it, and fpgactl ends
    /// with its exit code
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct MockImage {
    /// Output file: GBS, or .bit if its name ends so
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// GUID of the accelerator [default: the mock card with a command sequencer]
    #[arg(long, value_name = "UUID")]
    pub(crate) guid: Option<fpga_image::Uuid>,

    /// Bytes of the bitstream
    #[arg(long, value_name = "BYTES", default_value = "1MiB", value_parser = size::parse)]
    pub(crate) bytes: u64,
}

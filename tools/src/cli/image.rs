//! The command `image`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use fpga_hal::PciAddress;

use super::no_cards;
use crate::address;
use crate::exit::{Failure, Result};

#[derive(Debug, Subcommand)]
pub(crate) enum Image {
    /// Show what an image file holds, and whether it is for a card
    #[command(arg = no_cards())]
    Inspect(ImageInspect),
    /// Load an accelerator into a card by partial reconfiguration
    #[command(arg = no_cards())]
    Load(ImageLoad),
    /// Complete a load that was killed, or undo it
    #[command(arg = no_cards())]
    Recover(ImageRecover),
}

#[derive(Debug, Args)]
pub(crate) struct ImageInspect {
    /// Image: .xclbin or .bit of AMD, .gbs or .rbf of Intel
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Card to compare with, as in `image load` [default: use no card]
    #[arg(value_name = "SELECTOR")]
    pub(crate) card: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ImageLoad {
    /// Image: .gbs or .xclbin, or another file with --unchecked
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// The card, such as vfio:0000:3b:00.0 or mock:alveo-xdma:2/0; of an Intel card
    /// the control function, such as mock:s10-dfl:4/0.control. Opening it resets
    /// the accelerator
    #[arg(value_name = "SELECTOR")]
    pub(crate) card: String,

    /// Load a file that does not say which interface it is made for
    #[arg(long)]
    pub(crate) unchecked: bool,

    /// PCI address of the port above the card, whose errors are masked meanwhile
    /// [default: the port that sysfs shows above a PCI function]
    #[arg(long, value_name = "ADDRESS", value_parser = address::parse)]
    pub(crate) port: Option<PciAddress>,

    #[command(flatten)]
    pub(crate) state: StateDirectory,
}

#[derive(Debug, Args)]
pub(crate) struct ImageRecover {
    /// The card, as in `image load`
    #[arg(value_name = "SELECTOR")]
    pub(crate) card: String,

    #[command(flatten)]
    pub(crate) state: StateDirectory,
}

/// Where images are kept.
#[derive(Debug, Args)]
pub(crate) struct StateDirectory {
    /// Directory that keeps the last image of each card, to roll back to [default:
    /// $XDG_STATE_HOME/fpgactl, else ~/.local/state/fpgactl]
    #[arg(long, value_name = "DIR", env = "FPGACTL_STATE_DIR", hide_env_values = true)]
    state_dir: Option<PathBuf>,
}

impl StateDirectory {
    /// Returns the directory, which may not exist.
    pub(crate) fn path(&self) -> Result<PathBuf> {
        let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let by_default =
            || variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")));
        self.state_dir.clone().or_else(|| by_default().map(|state| state.join("fpgactl"))).ok_or_else(|| {
            Failure::usage("no directory to keep images in: neither --state-dir, nor XDG_STATE_HOME, nor HOME is set")
        })
    }
}

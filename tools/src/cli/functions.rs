//! The commands of single functions: `list`, `info`, `doctor`, `bind`, `unbind`, `reset`, `selftest` and `reg`.

use clap::Args;
use fpga_hal::PciAddress;

use crate::cli::time::seconds;
use crate::{address, number};

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Also list possible cards: functions bound to vfio-pci and all processing
    /// accelerators
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Info {
    /// PCI function, such as 0000:3b:00.0: show what the kernel reports, without
    /// opening the function [default: open --cards]
    #[arg(value_name = "ADDRESS", value_parser = address::parse)]
    pub(crate) address: Option<PciAddress>,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// PCI address or selector of the card [default: --cards, else all known
    /// cards]
    #[arg(value_name = "CARD")]
    pub(crate) card: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Bind {
    #[command(flatten)]
    pub(crate) functions: Functions,

    /// Driver to bind to
    #[arg(long, value_name = "NAME", default_value = fpga_hal::sysfs::VFIO_PCI)]
    pub(crate) driver: String,
}

/// PCI functions to bind to another driver, and how.
#[derive(Debug, Args)]
pub(crate) struct Functions {
    /// PCI functions, such as 0000:3b:00.0; either all change or none
    #[arg(value_name = "ADDRESS", required = true, value_parser = address::parse)]
    pub(crate) address: Vec<PciAddress>,

    /// Also change functions in use by a process, mounted disk, network or
    /// display
    #[arg(long)]
    pub(crate) force: bool,

    /// Time limit for each kernel operation, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) timeout: f64,
}

#[derive(Debug, Args)]
pub(crate) struct Reset {
    /// PCI address, also after vfio: (reset by the kernel), or another selector
    /// (opens and resets each card)
    #[arg(value_name = "CARD")]
    pub(crate) card: String,

    /// Reset a PCI function even if it is in use
    #[arg(long)]
    pub(crate) force: bool,

    /// Open the control function CARD, also of a PCI address, and clear its error
    /// registers
    #[arg(long)]
    pub(crate) errors: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Selftest {
    /// Card, such as vfio:0000:3b:00.0, mock:alveo-xdma:1, mock:s10-dfl:4/0 or
    /// mock:s10-dfl:4/0.control
    #[arg(value_name = "SELECTOR[/NODE]")]
    pub(crate) card: String,
}

#[derive(Debug, Args)]
pub(crate) struct Reg {
    /// Card, such as vfio:0000:3b:00.0 or mock:optweb:4/2
    #[arg(value_name = "SELECTOR[/NODE]")]
    pub(crate) card: String,

    /// Sequencer register by name, such as CLOCK_KHZ or queue1.SUBMISSION_TAIL
    /// (docs/registers.md), or offset in a BAR, such as 0x1008 or bar4:0x800
    #[arg(value_name = "REGISTER")]
    pub(crate) register: String,

    /// 32-bit value to write; without VALUE, the register is read
    #[arg(value_name = "VALUE", value_parser = number::word)]
    pub(crate) value: Option<u32>,
}

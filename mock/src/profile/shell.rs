//! Shells: what stands between the bus and the sequencer of a card.

use fpga_regs::{dfl, pci, xdma};

/// The shell of a card with a sequencer. Times of the fabric do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shell {
    /// The mock's own, which no real card has.
    #[default]
    Mock,
    /// Intel's PAC D5005 (Stratix 10) with an OFS shell: the function of the accelerator.
    S10Dfl,
    /// Intel's PAC D5005 without OFS: one function for its shell and its accelerator, [`D5005`](crate::dfl::D5005).
    S10Pac,
    /// An AMD Alveo card with the XDMA core, behind which the sequencer masters no bus: [`XdmaCards`](crate::xdma::XdmaCards).
    AlveoXdma,
    /// The same, with the memory for rings in the bypass window: behind another AXI master than the sequencer's registers.
    AlveoBar4,
    /// The same with descriptor bypass on one pair of channels, by which the sequencer masters the bus.
    AlveoBypass,
}

impl Shell {
    /// All shells.
    pub const ALL: [Shell; 6] =
        [Shell::Mock, Shell::S10Dfl, Shell::S10Pac, Shell::AlveoXdma, Shell::AlveoBar4, Shell::AlveoBypass];

    /// Returns the name in selectors, without [its option](Shell::option); `None` for the mock's own.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Shell::Mock => None,
            Shell::S10Dfl => Some("s10-dfl"),
            Shell::S10Pac => Some("s10-pac"),
            Shell::AlveoXdma | Shell::AlveoBar4 | Shell::AlveoBypass => Some("alveo-xdma"),
        }
    }

    /// Returns the option in selectors that chooses it of the shells with its name; empty for the first of them.
    pub fn option(self) -> &'static str {
        match self {
            Shell::Mock | Shell::S10Dfl | Shell::S10Pac | Shell::AlveoXdma => "",
            Shell::AlveoBar4 => "+bar4",
            Shell::AlveoBypass => "+bypass",
        }
    }

    /// Returns what the configuration space of the function says.
    pub fn function(self) -> &'static pci::Function {
        match self {
            Shell::Mock => &pci::CARD,
            Shell::S10Dfl => &dfl::ACCELERATOR,
            Shell::S10Pac => &dfl::pac::FUNCTION,
            Shell::AlveoXdma | Shell::AlveoBar4 | Shell::AlveoBypass => &xdma::FUNCTION,
        }
    }

    /// Returns whether the sequencer reads and writes host memory.
    pub fn masters_bus(self) -> bool {
        !matches!(self, Shell::AlveoXdma | Shell::AlveoBar4)
    }

    /// Returns whether AMD's DMA engine is before the card: [`XdmaCards`](crate::xdma::XdmaCards).
    pub fn has_engine(self) -> bool {
        matches!(self, Shell::AlveoXdma | Shell::AlveoBar4 | Shell::AlveoBypass)
    }
}

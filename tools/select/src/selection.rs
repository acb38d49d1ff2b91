//! Opened cards.

use fpga_hal::Function;
use fpga_mock::Fabric;

/// Kind of the selected cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// In-process mock cards.
    Mock,
    /// Functions on the kernel's VFIO.
    Vfio,
    /// Functions on vfio-user sockets.
    VfioUser,
}

impl Kind {
    /// Returns the name in output and `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Mock => "mock",
            Kind::Vfio => "vfio",
            Kind::VfioUser => "vfio-user",
        }
    }
}

/// Opened cards of one fabric, in one domain.
pub struct Selection {
    /// The selector, as given.
    pub selector: String,
    /// Kind of the cards.
    pub kind: Kind,
    /// One function for each card, in the given order; all cards of a mock fabric are ordered by node.
    pub functions: Vec<Function>,
    /// The control function of each card, in the same order, if it has one of its own; empty unless they were asked for
    /// ([`Selector::open_cards`](crate::Selector::open_cards)).
    pub controls: Vec<Option<Function>>,
    /// The fabric of mock cards; `None` for other cards.
    pub fabric: Option<Fabric>,
}

impl Selection {
    /// Takes out the functions of each card, to take the card into use: its own, and its control function, if that was asked for and
    /// there is one. Dropping both closes them.
    pub fn take_cards(&mut self) -> Vec<(Function, Option<Function>)> {
        let mut controls = std::mem::take(&mut self.controls).into_iter();
        let functions = std::mem::take(&mut self.functions).into_iter();
        functions.map(|function| (function, controls.next().flatten())).collect()
    }
}

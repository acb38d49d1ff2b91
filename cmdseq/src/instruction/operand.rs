//! Addresses of an instruction.

/// Whose memory an address is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AddressSpace {
    /// Memory of the card.
    #[default]
    Card,
    /// Memory of the host, at an IOVA.
    Host,
}

/// How the blocks of several peers lie in card memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Layout {
    /// One after another: block i at `address + i * bytes`. A single block lies at `address`.
    #[default]
    Block,
    /// One in each memory I/O: block i at `address + 2K * i` (equation 1 of the OPTWEB paper). A single block, exchanged
    /// with rank i, lies where that equation puts i.
    Striped,
}

/// One of the two addresses of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Operand {
    /// Whose memory.
    pub space: AddressSpace,
    /// How several blocks lie.
    pub layout: Layout,
    /// In a resident program: the launch argument that is added to `address`.
    pub argument: Option<u8>,
    /// Byte address.
    pub address: u64,
}

impl Operand {
    /// Card memory at `address`.
    pub const fn card(address: u64) -> Self {
        Operand { space: AddressSpace::Card, layout: Layout::Block, argument: None, address }
    }

    /// Host memory at IOVA `address`.
    pub const fn host(address: u64) -> Self {
        Operand { space: AddressSpace::Host, layout: Layout::Block, argument: None, address }
    }

    /// The same address with striped blocks.
    pub const fn striped(mut self) -> Self {
        self.layout = Layout::Striped;
        self
    }

    /// The same address plus launch argument `index` (0 to 2).
    pub const fn plus_argument(mut self, index: u8) -> Self {
        self.argument = Some(index);
        self
    }
}

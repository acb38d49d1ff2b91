//! Operands: the two addresses of an instruction.

use crate::named::named;

named! {
    /// The space of an address. Its value is the bits of the operand that name it: bit 0 is the low bit of its code, bit 3 the
    /// high one.
    #[derive(Default)]
    #[repr(u8)]
    AddressSpace {
        /// Memory of the card.
        #[default]
        Card = 0, "card";
        /// Memory of the host, by IOVA.
        Host = 1, "host";
        /// Reserved for a stream port: no operation accepts it.
        Stream0 = 8, "stream0";
        /// Reserved for another stream port: no operation accepts it.
        Stream1 = 9, "stream1";
    }
}

impl AddressSpace {
    /// Whether it is the memory of a card or of its host.
    pub const fn is_memory(self) -> bool {
        matches!(self, AddressSpace::Card | AddressSpace::Host)
    }
}

/// The placement of several blocks in card memory. Its value is the bit of the operand that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Layout {
    /// Consecutive: block i at `address + i * bytes`. A single block is at `address`.
    #[default]
    Block = 0,
    /// One in each memory I/O: block i at `address + 2K * i` (equation 1 of the OPTWEB paper). A single block, exchanged with
    /// rank i, is where block i would be.
    Striped = 2,
}

/// One of the two addresses of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Operand {
    /// The memory.
    pub space: AddressSpace,
    /// The placement of blocks.
    pub layout: Layout,
    /// In a resident program: the launch argument that is added to `address`.
    pub argument: Option<u8>,
    /// Byte address.
    pub address: u64,
}

impl Operand {
    /// Returns card memory at `address`.
    pub const fn card(address: u64) -> Self {
        Operand { space: AddressSpace::Card, layout: Layout::Block, argument: None, address }
    }

    /// Returns host memory at IOVA `address`.
    pub const fn host(address: u64) -> Self {
        Operand { space: AddressSpace::Host, layout: Layout::Block, argument: None, address }
    }

    /// Makes the blocks striped.
    pub const fn striped(mut self) -> Self {
        self.layout = Layout::Striped;
        self
    }

    /// Adds launch argument `index` (0 to 2) to the address.
    pub const fn plus_argument(mut self, index: u8) -> Self {
        self.argument = Some(index);
        self
    }
}

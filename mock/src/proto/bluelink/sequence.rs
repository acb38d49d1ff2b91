//! Sequence numbers of 4 bits.

/// Flits that may be sent and not yet acknowledged: half of the sequence numbers (BlueLink paper, section VI.A).
///
/// The link is a FIFO, so a flit that arrives is one of the `WINDOW` flits before the expected flit, or one of `WINDOW`
/// flits from the expected flit on. That makes 16 cases, and 4 bits tell them apart.
pub const WINDOW: usize = 8;

const NUMBERS: u8 = 16;

/// A sequence number, modulo 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sequence(u8);

impl Sequence {
    /// The number of the first flit after a restart of the link.
    pub const FIRST: Sequence = Sequence(0);

    /// Takes the low four bits of `bits`.
    pub const fn from_bits(bits: u8) -> Self {
        Sequence(bits % NUMBERS)
    }

    /// Returns the number, less than 16.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns the number `steps` later.
    pub const fn after(self, steps: usize) -> Self {
        Sequence((self.0 + (steps % NUMBERS as usize) as u8) % NUMBERS)
    }

    /// Returns the number before this one. Before [`Sequence::FIRST`] it acknowledges nothing.
    pub const fn before(self) -> Self {
        self.after(NUMBERS as usize - 1)
    }

    /// Returns the steps from `earlier` to this number, less than 16.
    pub const fn since(self, earlier: Sequence) -> usize {
        ((self.0 + NUMBERS - earlier.0) % NUMBERS) as usize
    }
}

impl std::fmt::Display for Sequence {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}

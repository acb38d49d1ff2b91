//! Error registers, in words.

use std::fmt;

use crate::meanings::meanings;

/// An error register that is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reported {
    /// Which part of the card.
    pub part: &'static str,
    /// The register.
    pub register: &'static str,
    /// Its bits.
    pub bits: u64,
    pub(crate) meanings: &'static [(u32, &'static str)],
}

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reported { part, register, bits, .. } = self;
        write!(f, "{part}: {register} {bits:#x}: {}", meanings(*bits, self.meanings))
    }
}

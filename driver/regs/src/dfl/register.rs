//! What the registers of a feature are made of.

/// What a write does to a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// Nothing.
    Ignored,
    /// These bits keep what was written.
    Kept(u64),
    /// Writing ones clears these bits.
    Clear(u64),
    /// The first bits keep what was written; writing ones sets the second, and the card clears them.
    Control(u64, u64),
    /// Each write counts; the register reads zero.
    Pushed,
}

/// A register of 64 bits. It is accessed whole, or in halves of 32 bits.
#[derive(Debug, Clone, Copy)]
pub struct Register {
    /// Name as in `docs/registers.md`.
    pub name: &'static str,
    /// Byte offset from the header of its feature.
    pub offset: u32,
    /// Value after power-up; `None` where the card says it.
    pub reset: Option<u64>,
    /// What a write does.
    pub writes: Writes,
    /// What it means.
    pub description: &'static str,
}

/// Declares the registers of a feature: one constant per register for its offset, and `TABLE` with all of them.
macro_rules! registers {
    ($($name:ident = $offset:literal, $writes:expr, $reset:expr, $text:literal;)*) => {
        $(#[doc = $text] pub const $name: u32 = $offset;)*
        /// The registers behind the header, by rising offset.
        pub const TABLE: &[$crate::dfl::Register] = &[$($crate::dfl::Register {
            name: stringify!($name), offset: $offset, reset: $reset, writes: $writes, description: $text,
        },)*];
    };
}
pub(super) use registers;

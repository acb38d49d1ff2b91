//! The user BAR of this project's own shell for Alveo cards: where the blocks are whose place no identifier tells.
//!
//! The shell is known by AMD's DMA engine, and by the feature list at the beginning of its user BAR.

/// Offset of [`crate::hwicap`].
pub const HWICAP: u32 = 0x1_0000;
/// Offset of [`crate::decoupler`].
pub const DECOUPLER: u32 = 0x2_0000;
/// Offset of [`crate::cms`].
pub const CMS: u32 = 0x8_0000;

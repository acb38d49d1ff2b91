//! How the driver learns that a DMA engine is done.

/// How the driver learns that a transfer is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Completion {
    /// It polls a word in host memory: least latency, one busy core.
    #[default]
    Poll,
    /// It sleeps until the engine's MSI-X.
    Interrupt,
}

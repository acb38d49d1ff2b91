//! How a sequencer is fed.

use serde::Deserialize;

/// How instructions reach a sequencer, and how its completions come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feed {
    /// Rings in host memory. An instruction costs no read of a register, and one write for the doorbell of as many as are submitted.
    HostRing,
    /// Rings on the card, filled by the host's writes; completions are copied to host memory by the shell's engine. No read of a
    /// register.
    CardRing,
    /// Rings on the card, filled by the host's writes and read by its reads.
    Registers,
}

impl Feed {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Feed::HostRing => "host ring",
            Feed::CardRing => "card ring",
            Feed::Registers => "registers",
        }
    }
}

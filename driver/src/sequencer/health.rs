//! The errors that a card reports outside of any instruction: its ERROR register, and PCIe advanced error reporting.

use std::fmt;

use fpga_hal::Function;
use fpga_hal::config::EXTENDED_AER;
use fpga_regs::bits::Errors;

/// In the AER capability: errors seen that were not corrected, and errors seen that were, a bit each (PCI Express Base
/// Specification 5.0, section 7.8.4).
const UNCORRECTABLE: u16 = 0x04;
const CORRECTABLE: u16 = 0x10;

/// The errors that a card's PCIe function has seen since it was opened or reset, a bit each (PCI Express Base Specification 5.0,
/// sections 7.8.4.2 and 7.8.4.5). No reset clears the bits, so the driver does after one. It logs those that it clears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PcieErrors {
    /// Errors that were not corrected: data was lost or is wrong.
    pub uncorrectable: u32,
    /// Errors that were corrected.
    pub correctable: u32,
}

impl PcieErrors {
    /// Offset of the function's AER capability, if it has one.
    pub(crate) fn find(function: &Function) -> Option<u16> {
        let capabilities = function.extended_capabilities();
        capabilities.into_iter().find(|(id, _)| *id == EXTENDED_AER).map(|(_, offset)| offset)
    }

    /// Reads the capability at `offset`. `None` if the function does not answer.
    pub(crate) fn read(function: &Function, offset: u16) -> Option<Self> {
        let word = |at: u16| function.config_read_u32(offset + at).ok().filter(|word| *word != u32::MAX);
        Some(PcieErrors { uncorrectable: word(UNCORRECTABLE)?, correctable: word(CORRECTABLE)? })
    }

    /// Logs and clears the errors that a function has noted.
    fn clear(function: &Function) -> fpga_hal::Result<()> {
        let Some(offset) = PcieErrors::find(function) else { return Ok(()) };
        let Some(seen) = PcieErrors::read(function, offset).filter(|seen| !seen.is_empty()) else { return Ok(()) };
        let level = if seen.uncorrectable == 0 { log::Level::Info } else { log::Level::Warn };
        log::log!(level, "{}: clearing {seen}", function.identity().name);
        // Writing ones clears.
        function.config_write_u32(offset + UNCORRECTABLE, seen.uncorrectable)?;
        function.config_write_u32(offset + CORRECTABLE, seen.correctable)
    }

    pub(crate) fn is_empty(self) -> bool {
        (self.uncorrectable, self.correctable) == (0, 0)
    }
}

/// Lets a function that was opened or reset master the bus. Errors that it noted or reported before are those of its last use, and
/// are cleared.
pub(crate) fn master_bus(function: &Function) -> fpga_hal::Result<()> {
    PcieErrors::clear(function)?;
    if function.take_error() {
        log::warn!("{}: its last use has ended with an uncorrected PCIe error", function.identity().name);
    }
    function.set_bus_master(true)
}

/// Ends DMA of a function, whatever its engine does.
pub(crate) fn stop_mastering_and_reset(function: &Function) -> fpga_hal::Result<()> {
    function.set_bus_master(false)?;
    function.reset().map(drop)
}

impl fmt::Display for PcieErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PcieErrors { uncorrectable, correctable } = self;
        write!(f, "PCIe errors: uncorrectable {uncorrectable:#010x}, correctable {correctable:#010x}")
    }
}

/// The errors that a card reports outside of any instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// The sequencer's ERROR register.
    pub errors: Errors,
    /// What came over links with a bit error since the card was reset, and was lost.
    pub link_errors: u32,
    /// The errors of the PCIe function, if it has advanced error reporting.
    pub pcie: Option<PcieErrors>,
}

impl Health {
    /// Whether nothing went wrong. PCIe errors that were corrected do no harm: every link has some.
    pub fn is_good(&self) -> bool {
        self.errors.is_empty() && self.link_errors == 0 && self.pcie.is_none_or(|pcie| pcie.uncorrectable == 0)
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "errors {:?}", self.errors)?;
        if self.link_errors != 0 {
            write!(f, "; lost on links by bit errors: {}", self.link_errors)?;
        }
        match self.pcie {
            Some(pcie) if !pcie.is_empty() => write!(f, "; {pcie}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_seen_is_told() {
        let health = |bits, pcie: Option<(u32, u32)>| Health {
            errors: Errors::from_bits_retain(bits),
            link_errors: 0,
            pcie: pcie.map(|(uncorrectable, correctable)| PcieErrors { uncorrectable, correctable }),
        };
        for (health, is_good, pcie) in [
            (health(0, None), true, None),
            (health(0, Some((0, 0))), true, None),
            (health(1, None), false, None),
            (health(0, Some((16, 0))), false, Some("uncorrectable 0x00000010, correctable 0x00000000")),
            (health(0, Some((0, 16))), true, Some("uncorrectable 0x00000000, correctable 0x00000010")),
        ] {
            let text = health.to_string();
            assert_eq!(health.is_good(), is_good, "{text}");
            assert_eq!(text.split_once("PCIe errors: ").map(|(_, rest)| rest), pcie, "{text}");
        }
    }
}

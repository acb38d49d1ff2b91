//! The interrupt block: which interrupts are asserted, enabled, and on which vectors they go out.

use fpga_regs::xdma::interrupts;

/// One kind of interrupts: of channels, or of user logic.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Bit of each line that exists.
    exists: u32,
    pub(super) enable: u32,
    /// Levels.
    pub(super) asserted: u32,
    /// Asserted and enabled, when it was looked at last.
    requested: u32,
    vectors: [u8; 16],
}

impl Lines {
    pub(super) fn new(lines: u32) -> Self {
        Lines { exists: (1 << lines) - 1, ..Lines::default() }
    }

    pub(super) fn request(&self) -> u32 {
        self.asserted & self.enable
    }

    pub(super) fn set_enable(&mut self, value: u32) {
        self.enable = value & self.exists;
    }

    /// Returns the vectors of the lines whose request has risen.
    pub(super) fn risen(&mut self) -> impl Iterator<Item = u32> {
        let risen = self.request() & !self.requested;
        self.requested = self.request();
        let vectors = self.vectors;
        (0..16).filter(move |line| risen >> line & 1 == 1).map(move |line| vectors[line].into())
    }

    /// Reads the register with the vectors of four lines.
    pub(super) fn read_vectors(&self, register: u32) -> u32 {
        let vectors = self.vectors.chunks(4).nth(register as usize).unwrap_or_default();
        vectors.iter().rev().fold(0, |word, vector| word << 8 | u32::from(*vector))
    }

    pub(super) fn write_vectors(&mut self, register: u32, value: u32) {
        let exists = self.exists;
        let lines = self.vectors.iter_mut().enumerate().skip(4 * register as usize).take(4);
        for ((line, vector), byte) in lines.zip(value.to_le_bytes()) {
            if exists >> line & 1 == 1 {
                *vector = byte & interrupts::VECTOR_MASK as u8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_out_when_level_and_enable_rise_together() {
        let mut lines = Lines::new(3);
        lines.write_vectors(0, 0x0507_3f09);
        assert_eq!(lines.read_vectors(0), 0x0007_1f09);
        lines.asserted = 0b11;
        assert_eq!(lines.risen().count(), 0);
        lines.set_enable(0xff);
        assert_eq!(lines.enable, 0b111);
        assert_eq!(lines.risen().collect::<Vec<_>>(), [9, 31]);
        assert_eq!(lines.risen().count(), 0);
        // Unmasked while high: again.
        lines.set_enable(0);
        assert_eq!(lines.risen().count(), 0);
        lines.set_enable(0b10);
        assert_eq!(lines.risen().collect::<Vec<_>>(), [31]);
    }
}

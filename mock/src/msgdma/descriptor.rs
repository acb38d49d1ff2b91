//! What the host asks for: a descriptor taken apart, and what the documents forbid.

use fpga_regs::msgdma::{
    ADDRESS_BITS, ALIGN, BURST_MAX, CARD_SPACE, DescriptorControl, HOST_SPACE, LENGTH_MAX, ROM_SPACE, SPACE,
};

/// What a host did that the documents forbid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// A descriptor was written while the queue was full. It is lost.
    QueueFull,
    /// A descriptor was written while the dispatcher was being reset. It is lost.
    DuringReset,
    /// An address or a length is not a multiple of 64 bytes.
    Misaligned,
    /// A descriptor moves no bytes.
    NoBytes,
    /// A descriptor is longer than the engine is configured for.
    TooLong,
    /// A burst at host memory is not of 1, 2 or 4 lines, or does not begin and end at multiples of its length.
    Burst,
    /// A stride is neither 0 nor 1.
    Stride,
    /// An address is in no memory, or the destination cannot be written.
    Address,
}

/// Which memory an address is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    Card,
    Rom,
    Host,
}

/// One side of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) space: Space,
    /// Address in its space.
    pub(super) address: u64,
    /// Each beat is at the same address.
    pub(super) is_fixed: bool,
}

/// A descriptor in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) source: Side,
    pub(super) destination: Side,
    pub(super) bytes: u32,
    pub(super) number: u16,
    pub(super) control: DescriptorControl,
    /// Errors that interrupt.
    pub(super) error_irqs: u32,
}

impl Descriptor {
    /// Takes the eight words of an extended descriptor apart. What is forbidden is said, and such a transfer ends with an error.
    pub(super) fn decode(words: &[u32; 8]) -> (Descriptor, Option<Violation>) {
        let [read_lo, write_lo, bytes, burst, stride, read_hi, write_hi, control] = *words;
        let (read, write) = (join(read_hi, read_lo), join(write_hi, write_lo));
        let side = |address: u64, stride: u32| Side {
            space: match address & SPACE {
                CARD_SPACE => Space::Card,
                ROM_SPACE => Space::Rom,
                _ => Space::Host,
            },
            address: address & ((1 << ADDRESS_BITS) - 1),
            is_fixed: stride == 0,
        };
        let strides = [stride & 0xffff, stride >> 16];
        let bursts = [burst >> 16 & 0xff, burst >> 24];
        let descriptor = Descriptor {
            source: side(read, strides[0]),
            destination: side(write, strides[1]),
            bytes,
            number: burst as u16,
            control: DescriptorControl::from_bits_truncate(control),
            error_irqs: control >> 16 & 0xff,
        };
        let is_host = [read, write].map(|address| address & HOST_SPACE != 0);
        let breaks_burst = (0..2).any(|side| {
            let lines = if bursts[side] == 0 { BURST_MAX.into() } else { bursts[side] };
            let unit = u64::from(lines) * ALIGN;
            is_host[side]
                && (lines > BURST_MAX.into()
                    || !lines.is_power_of_two()
                    || !([read, write][side] | u64::from(bytes)).is_multiple_of(unit))
        });
        let violation = if bytes == 0 {
            Some(Violation::NoBytes)
        } else if !(read | write | u64::from(bytes)).is_multiple_of(ALIGN) {
            Some(Violation::Misaligned)
        } else if bytes > LENGTH_MAX {
            Some(Violation::TooLong)
        } else if strides.iter().any(|stride| *stride > 1) {
            Some(Violation::Stride)
        } else if (read | write) >> (ADDRESS_BITS + 2) != 0 || descriptor.destination.space == Space::Rom {
            Some(Violation::Address)
        } else if breaks_burst {
            Some(Violation::Burst)
        } else {
            None
        };
        (descriptor, violation)
    }
}

fn join(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [u32; 8] = [0x1000, 0x2000, 0x100, 0x0404_0007, 0x1_0001, 0x2_0000, 0, 0x8000_4000];

    #[test]
    fn a_good_descriptor_is_taken_apart() {
        let (descriptor, violation) = Descriptor::decode(&GOOD);
        assert_eq!(violation, None);
        assert_eq!(descriptor.source, Side { space: Space::Host, address: 0x1000, is_fixed: false });
        assert_eq!(descriptor.destination, Side { space: Space::Card, address: 0x2000, is_fixed: false });
        assert_eq!((descriptor.bytes, descriptor.number, descriptor.error_irqs), (0x100, 7, 0));
        assert!(descriptor.control.contains(DescriptorControl::COMPLETE_IRQ));
    }

    #[test]
    fn what_is_forbidden_is_told() {
        let with = |word: usize, value: u32| {
            let mut words = GOOD;
            words[word] = value;
            Descriptor::decode(&words).1
        };
        assert_eq!(with(2, 0), Some(Violation::NoBytes));
        assert_eq!(with(2, 65), Some(Violation::Misaligned));
        assert_eq!(with(0, 0x1020), Some(Violation::Misaligned));
        assert_eq!(with(1, 0x2008), Some(Violation::Misaligned));
        assert_eq!(with(2, 1024 << 10), Some(Violation::TooLong));
        assert_eq!(with(4, 0x1_0002), Some(Violation::Stride));
        assert_eq!(with(5, 0x6_0000), Some(Violation::Address));
        assert_eq!(with(6, 0x1_0000), Some(Violation::Address));
        // Three lines, eight lines, and four lines that begin or end in the middle of four.
        assert_eq!(with(3, 0x0403_0000), Some(Violation::Burst));
        assert_eq!(with(3, 0x0408_0000), Some(Violation::Burst));
        assert_eq!(with(0, 0x1040), Some(Violation::Burst));
        assert_eq!(with(2, 0x140), Some(Violation::Burst));
        assert_eq!(with(3, 0x0501_0000), None, "bursts at card memory are the block's own business");
    }
}

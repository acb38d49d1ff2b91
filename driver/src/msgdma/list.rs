//! Lists of descriptors: how a transfer is cut, and what is written to the descriptor port.

use fpga_regs::msgdma::{
    ALIGN, BURST_MAX, DescriptorControl, ERROR_IRQS, FENCED_HOST_SPACE, HOST_SPACE, LENGTH_MAX, ROM_SPACE,
};

use crate::msgdma::direction::Direction;

/// Strides of a transfer whose both sides go on.
const STRIDES: u32 = 0x1_0001;
/// Bytes of a burst.
const BURST_BYTES: u64 = BURST_MAX as u64 * ALIGN;
/// Most bytes of one descriptor that is moved in bursts.
const BYTES_MAX: u64 = LENGTH_MAX as u64 / BURST_BYTES * BURST_BYTES;

/// What one descriptor moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) host: u64,
    pub(super) card: u64,
    pub(super) bytes: u64,
}

/// Cuts moves so that each fits a descriptor.
pub(super) fn cut(moves: &[Move]) -> Vec<Move> {
    let mut all = Vec::new();
    for one in moves {
        let mut done = 0;
        while done < one.bytes {
            let left = one.bytes - done;
            let whole = left / BURST_BYTES * BURST_BYTES;
            // The rest behind whole bursts has a descriptor of its own.
            let bytes = if whole > 0 { whole.min(BYTES_MAX) } else { left };
            all.push(Move { host: one.host + done, card: one.card + done, bytes });
            done += bytes;
        }
    }
    all
}

/// Returns the words of the descriptor of a move.
pub(super) fn descriptor(direction: Direction, one: &Move, number: u16) -> [u32; 8] {
    let host = one.host | HOST_SPACE;
    let (source, destination) = match direction {
        Direction::ToCard => (host, one.card),
        Direction::ToHost => (one.card, host),
    };
    let lines = if (one.host | one.bytes).is_multiple_of(BURST_BYTES) { BURST_MAX } else { 1 };
    words(source, destination, one.bytes as u32, (lines, number), DescriptorControl::GO.bits() | ERROR_IRQS)
}

/// Returns the words of the descriptor that ends a list: it copies the magic number to host memory, behind all data.
pub(super) fn last(word: u64, number: u16) -> [u32; 8] {
    let control = DescriptorControl::GO | DescriptorControl::COMPLETE_IRQ | DescriptorControl::WAIT_FOR_WRITES;
    words(ROM_SPACE, word | FENCED_HOST_SPACE, ALIGN as u32, (1, number), control.bits() | ERROR_IRQS)
}

fn words(source: u64, destination: u64, bytes: u32, (lines, number): (u8, u16), control: u32) -> [u32; 8] {
    let burst = u32::from(lines) << 24 | u32::from(lines) << 16 | u32::from(number);
    let [read_hi, write_hi] = [source, destination].map(|address| (address >> 32) as u32);
    // An early end interrupts too.
    let control = control | DescriptorControl::EARLY_IRQ.bits();
    [source as u32, destination as u32, bytes, burst, STRIDES, read_hi, write_hi, control]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every byte is moved once, by descriptors that the engine takes.
        #[test]
        fn nothing_is_lost_or_moved_twice(lines in prop::collection::vec((0..1_u64 << 34, 0..1_u64 << 27, 1..70_000_u64), 1..9)) {
            let moves: Vec<Move> = lines
                .into_iter()
                .map(|(host, card, lines)| Move { host: host * 64, card: card * 64, bytes: lines * 64 })
                .collect();
            let cut = cut(&moves);
            let mut rest = cut.iter();
            for one in &moves {
                let mut done = 0;
                while done < one.bytes {
                    let part = rest.next().unwrap();
                    prop_assert_eq!((part.host, part.card), (one.host + done, one.card + done));
                    prop_assert!(part.bytes > 0 && part.bytes <= 1023 << 10 && part.bytes % 64 == 0);
                    let words = descriptor(Direction::ToCard, part, 9);
                    let burst = u64::from(words[3] >> 16 & 0xff);
                    prop_assert!(burst == 1 || burst == 4);
                    prop_assert_eq!((part.host | part.bytes) % (64 * burst), 0);
                    done += part.bytes;
                }
                prop_assert_eq!(done, one.bytes);
            }
            prop_assert_eq!(rest.next(), None);
        }
    }

    /// Typed by hand from the format of extended descriptors.
    #[test]
    fn words_are_where_the_format_has_them() {
        let one = Move { host: 0x12_3456_7800, card: 0x2_0000_0040, bytes: 0x100 };
        let to_card = descriptor(Direction::ToCard, &one, 7);
        assert_eq!(to_card, [0x3456_7800, 0x40, 0x100, 0x0404_0007, 0x1_0001, 0x2_0012, 0x2, 0x80ff_8000]);
        let to_host = descriptor(Direction::ToHost, &Move { host: one.host + 64, ..one }, 8);
        assert_eq!(to_host, [0x40, 0x3456_7840, 0x100, 0x0101_0008, 0x1_0001, 0x2, 0x2_0012, 0x80ff_8000]);
        assert_eq!(last(0x1000, 9), [0, 0x1000, 64, 0x0101_0009, 0x1_0001, 0x1_0000, 0x3_0000, 0x82ff_c000]);
    }
}

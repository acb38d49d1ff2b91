//! Instructions that are encoded once and sent repeatedly with different tags.

use crate::instruction::{BYTES, Instruction, offset};

/// Polynomial of CRC-32C, lowest bit first.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Changes of the checksum, by byte of the tag and its value. CRCs are linear: the checksum of a word is that with tag 0,
/// exclusive or the changes of both bytes.
static CHANGES: [[u32; 256]; 2] = [changes(offset::TAG), changes(offset::TAG + 1)];

const fn changes(at: usize) -> [u32; 256] {
    let mut table = [0; 256];
    let mut bit = 0;
    while bit < 8 {
        // The bit, then the bits that follow its byte up to the checksum.
        let mut sum = 1 << bit;
        let mut step = 0;
        while step < 8 * (offset::CHECKSUM - at) {
            sum = if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
            step += 1;
        }
        let mut value = 0;
        while value < 256 {
            if value >> bit & 1 == 1 {
                table[value] ^= sum;
            }
            value += 1;
        }
        bit += 1;
    }
    table
}

/// The word of an instruction, for any tag.
#[derive(Debug, Clone, Copy)]
pub struct Encoded {
    /// With tag 0.
    word: [u8; BYTES],
}

impl Encoded {
    /// Encodes `instruction`; its tag is ignored.
    pub fn new(instruction: &Instruction) -> Self {
        Encoded { word: instruction.with_tag(0).encode() }
    }

    /// Returns the word with `tag`, equal to that of [`Instruction::encode`], without a full checksum.
    #[inline]
    pub fn with_tag(&self, tag: u16) -> [u8; BYTES] {
        let mut word = self.word;
        let [low, high] = tag.to_le_bytes();
        (word[offset::TAG], word[offset::TAG + 1]) = (low, high);
        let change = (CHANGES[0][usize::from(low)] ^ CHANGES[1][usize::from(high)]).to_le_bytes();
        for (byte, change) in word[offset::CHECKSUM..].iter_mut().zip(change) {
            *byte ^= change;
        }
        word
    }
}

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

/// An instruction and its word, for any tag.
#[derive(Debug, Clone, Copy)]
pub struct Encoded {
    /// With tag 0, in parts of eight bytes.
    parts: [u64; BYTES / 8],
    instruction: Instruction,
}

impl Encoded {
    /// Encodes `instruction`; its tag is ignored.
    pub fn new(instruction: &Instruction) -> Self {
        let word = instruction.with_tag(0).encode();
        let mut parts = [0; BYTES / 8];
        for (part, bytes) in parts.iter_mut().zip(word.as_chunks::<8>().0) {
            *part = u64::from_le_bytes(*bytes);
        }
        Encoded { parts, instruction: *instruction }
    }

    /// Returns the instruction that was encoded.
    #[inline]
    pub fn instruction(&self) -> &Instruction {
        &self.instruction
    }

    /// Returns the word with `tag`, equal to that of [`Instruction::encode`], without a full checksum.
    #[inline]
    pub fn with_tag(&self, tag: u16) -> [u8; BYTES] {
        let [low, high] = tag.to_le_bytes();
        let change = CHANGES[0][usize::from(low)] ^ CHANGES[1][usize::from(high)];
        let mut parts = self.parts;
        parts[offset::TAG / 8] |= u64::from(tag) << (offset::TAG % 8 * 8);
        parts[offset::CHECKSUM / 8] ^= u64::from(change) << (offset::CHECKSUM % 8 * 8);
        let mut word = [0; BYTES];
        for (bytes, part) in word.as_chunks_mut::<8>().0.iter_mut().zip(parts) {
            *bytes = part.to_le_bytes();
        }
        word
    }
}

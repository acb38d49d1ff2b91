//! The link layer: flits as words of 32 bits, as a transceiver takes them (BlueLink paper, section VI).
//!
//! For an end on its own: a fabric carries whole flits.

use super::flit::Payload;

/// Bytes of a word.
const BYTES: usize = 4;
/// The first byte is a control symbol: a flit begins.
const BEGIN: u8 = 0b0001;
/// All bytes are control symbols.
const ALL: u8 = 0b1111;

/// A word of a transceiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// Four bytes; the lowest is the first on the wire.
    pub data: u32,
    /// Which bytes are control symbols (k): bit 0 is the lowest byte.
    pub control: u8,
}

impl Word {
    /// What a transceiver sends when there is no flit: four K28.3.
    pub const IDLE: Word = Word { data: 0x7c7c_7c7c, control: ALL };
}

/// Returns the words of a flit.
pub fn serialize<P: Payload>(wire: &P::Wire) -> impl Iterator<Item = Word> + '_ {
    wire.as_ref().chunks_exact(BYTES).enumerate().map(|(number, bytes)| Word {
        data: bytes.iter().rev().fold(0, |data, byte| data << 8 | u32::from(*byte)),
        control: if number == 0 { BEGIN } else { 0 },
    })
}

/// Makes flits of the words that a transceiver has received.
///
/// A flit begins with a control symbol, so after any loss the next flit is whole again.
#[derive(Debug, Clone)]
pub struct Aligner<P: Payload> {
    wire: P::Wire,
    /// Bytes received of the flit; 0 before it begins.
    received: usize,
    discarded: u64,
}

impl<P: Payload> Default for Aligner<P> {
    fn default() -> Self {
        Aligner { wire: P::BLANK, received: 0, discarded: 0 }
    }
}

impl<P: Payload> Aligner<P> {
    /// Takes a word, and returns the flit that it completes.
    pub fn push(&mut self, word: Word) -> Option<P::Wire> {
        match word.control {
            BEGIN => {
                self.discard();
                self.received = 0;
            }
            0 if self.received > 0 => {}
            _ => {
                // An idle word between flits is nothing to report.
                self.discarded += u64::from(word != Word::IDLE);
                self.discard();
                return None;
            }
        }
        let bytes = self.wire.as_mut();
        bytes[self.received..self.received + BYTES].copy_from_slice(&word.data.to_le_bytes());
        self.received += BYTES;
        (self.received == bytes.len()).then(|| {
            self.received = 0;
            self.wire
        })
    }

    /// Returns the words that belonged to no whole flit.
    pub fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Discards the begin of a flit that does not go on.
    fn discard(&mut self) {
        self.discarded += (self.received / BYTES) as u64;
        self.received = 0;
    }
}

//! The window on card memory (address span extender): for bytes before and behind whole lines.

use fpga_regs::msgdma::{SPAN, WINDOW, WINDOW_BYTES, span};

use crate::error::Result;
use crate::msgdma::registers::Registers;

/// Bytes of an access.
const WORD: u64 = 4;

/// Writes a few bytes of card memory. Bytes of a word that are not written keep what they hold.
pub(super) fn write(registers: &Registers, address: u64, data: &[u8]) -> Result<()> {
    if data.is_empty() {
        return Ok(());
    }
    let mut at = address;
    let mut rest = data;
    while !rest.is_empty() {
        let skip = (at % WORD) as usize;
        let (now, later) = rest.split_at(rest.len().min(WORD as usize - skip));
        let place = place(registers, at - skip as u64)?;
        let mut word = [0; WORD as usize];
        if now.len() < word.len() {
            word = registers.read_word(place)?.to_le_bytes();
        }
        word[skip..skip + now.len()].copy_from_slice(now);
        registers.write_word(place, u32::from_le_bytes(word))?;
        at += now.len() as u64;
        rest = later;
    }
    // A read behind the writes: they have arrived, and the function is there.
    registers.check_alive()
}

/// Has the window show `address`, and returns the offset of its word from the header.
fn place(registers: &Registers, address: u64) -> Result<u32> {
    let inside = address % u64::from(WINDOW_BYTES);
    let page = address - inside;
    registers.write_word(SPAN + span::PAGE_LO, page as u32)?;
    registers.write_word(SPAN + span::PAGE_HI, (page >> 32) as u32)?;
    Ok(WINDOW + inside as u32)
}

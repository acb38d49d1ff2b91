//! Cards of older versions of the registers, and cards without windows: what they do not have.

use cmdseq::instruction::{BYTES, offset};
use cmdseq::{DecodeError, Instruction, Operation};
use fpga_regs::sequencer;

use crate::profile::Profile;

/// The oldest minor version that a mock card can have.
pub(crate) const OLDEST: u32 = 3;
/// The minor version of the registers in `fpga-regs`.
pub(crate) const CURRENT: u32 = sequencer::VERSION_VALUE & 0xffff;
/// The first minor version with lanes.
pub(crate) const LANES: u32 = 4;
/// The first minor version with windows.
pub(crate) const WINDOWS: u32 = 5;

/// Whether cards of minor version `minor` have the register at `offset` of the sequencer's block. Others read as zero.
pub(crate) const fn has_register(minor: u32, offset: u32) -> bool {
    match offset {
        sequencer::LANES => minor >= LANES,
        sequencer::WINDOWS => minor >= WINDOWS,
        _ => true,
    }
}

/// Whether cards of `profile` run `operation`.
pub(crate) const fn runs(profile: &Profile, operation: Operation) -> bool {
    match operation {
        Operation::Fold => profile.version >= 5,
        Operation::Open | Operation::Close => profile.windows() > 0,
        _ => true,
    }
}

/// Decodes `word` as a card of `profile` does: an operation that it does not have is unknown, whatever its fields.
pub(crate) fn decode(profile: &Profile, word: &[u8; BYTES]) -> Result<Instruction, DecodeError> {
    let decoded = Instruction::decode(word);
    match &decoded {
        Ok(instruction) if runs(profile, instruction.operation) => return decoded,
        Err(DecodeError::Checksum { .. } | DecodeError::Version(_)) => return decoded,
        _ => {}
    }
    let code = word[offset::OPERATION];
    match Operation::from_code(code) {
        Some(operation) if !runs(profile, operation) => Err(DecodeError::Operation(code)),
        _ => decoded,
    }
}

//! Cards of older versions of the registers: what they do not have.

use cmdseq::instruction::{BYTES, offset};
use cmdseq::{DecodeError, Instruction, Operation};
use fpga_regs::sequencer;

/// The oldest minor version that a mock card can have.
pub(crate) const OLDEST: u32 = 3;
/// The minor version of the registers in `fpga-regs`.
pub(crate) const CURRENT: u32 = sequencer::VERSION_VALUE & 0xffff;
/// The first minor version with lanes.
pub(crate) const LANES: u32 = 4;

/// Whether cards of minor version `minor` have the register at `offset` of the sequencer's block. Others read as zero.
pub(crate) const fn has_register(minor: u32, offset: u32) -> bool {
    match offset {
        sequencer::LANES => minor >= LANES,
        _ => true,
    }
}

/// Whether cards of minor version `minor` run `operation`.
pub(crate) const fn runs(minor: u32, operation: Operation) -> bool {
    match operation {
        Operation::Fold => minor >= 5,
        _ => true,
    }
}

/// Decodes `word` as a card of minor version `minor` does: an operation that it does not have is unknown, whatever its fields.
pub(crate) fn decode(minor: u32, word: &[u8; BYTES]) -> Result<Instruction, DecodeError> {
    let decoded = Instruction::decode(word);
    let code = word[offset::OPERATION];
    let is_unknown = Operation::from_code(code).is_some_and(|operation| !runs(minor, operation));
    match decoded {
        Err(DecodeError::Checksum { .. } | DecodeError::Version(_)) => decoded,
        _ if is_unknown => Err(DecodeError::Operation(code)),
        _ => decoded,
    }
}

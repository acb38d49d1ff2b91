//! Cards of older versions of the registers, and cards without windows: which operations they do not have.

use cmdseq::instruction::{BYTES, offset};
use cmdseq::{DecodeError, Instruction, Operation};

use crate::profile::Profile;

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

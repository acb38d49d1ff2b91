//! Why an instruction is refused.

use cmdseq::completion::Status;

/// Refusal of an instruction: status and detail of its completion.
pub(crate) type Refusal = (Status, u16);

pub(crate) fn bad_field(offset: usize) -> Refusal {
    (Status::BadField, offset as u16)
}

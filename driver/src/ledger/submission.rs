//! What a queue takes.

use cmdseq::{Encoded, Instruction, instruction};

use crate::ledger::bound::Bound;

/// What a queue takes: an [`Instruction`], by value or by reference; one with buffers, [`Bound`]; or one whose word was made
/// before, [`Encoded`], which costs a quarter of an instruction's encoding.
///
/// Nothing else can be submitted: the queue relies on what an implementation says of host memory.
pub trait Submission: Sized + sealed::Sealed {
    /// The instruction. Its tag is ignored.
    fn instruction(&self) -> &Instruction;

    /// Its word, with the tag `tag`.
    fn word(&self, tag: u16) -> [u8; instruction::BYTES];

    /// The instruction with its buffers.
    fn into_bound(self) -> Bound;

    /// Whether it neither names nor holds host memory.
    #[inline]
    fn is_plain(&self) -> bool {
        !self.instruction().names_host()
    }
}

mod sealed {
    use super::{Bound, Encoded, Instruction};

    pub trait Sealed {}
    impl Sealed for Instruction {}
    impl Sealed for Encoded {}
    impl Sealed for Bound {}
    impl<S: Sealed> Sealed for &S {}
}

impl Submission for Instruction {
    #[inline]
    fn instruction(&self) -> &Instruction {
        self
    }

    #[inline(always)]
    fn word(&self, tag: u16) -> [u8; instruction::BYTES] {
        self.encode_with_tag(tag)
    }

    #[inline]
    fn into_bound(self) -> Bound {
        self.into()
    }
}

impl Submission for Encoded {
    #[inline]
    fn instruction(&self) -> &Instruction {
        Encoded::instruction(self)
    }

    #[inline(always)]
    fn word(&self, tag: u16) -> [u8; instruction::BYTES] {
        self.with_tag(tag)
    }

    #[inline]
    fn into_bound(self) -> Bound {
        Encoded::instruction(&self).into()
    }
}

impl Submission for Bound {
    #[inline]
    fn instruction(&self) -> &Instruction {
        Bound::instruction(self)
    }

    #[inline(always)]
    fn word(&self, tag: u16) -> [u8; instruction::BYTES] {
        Bound::instruction(self).word(tag)
    }

    #[inline]
    fn into_bound(self) -> Bound {
        self
    }

    #[inline]
    fn is_plain(&self) -> bool {
        self.buffers().is_empty() && Bound::instruction(self).is_plain()
    }
}

impl<S: Submission + Clone> Submission for &S {
    #[inline]
    fn instruction(&self) -> &Instruction {
        (**self).instruction()
    }

    #[inline(always)]
    fn word(&self, tag: u16) -> [u8; instruction::BYTES] {
        (**self).word(tag)
    }

    #[inline]
    fn into_bound(self) -> Bound {
        self.clone().into_bound()
    }

    #[inline]
    fn is_plain(&self) -> bool {
        (**self).is_plain()
    }
}

//! The data of a rank during a call. The host copies from the input and to the output in turn.

/// Input and output of a rank, which may be the same memory.
pub(crate) trait Data {
    /// Whether the rank wants the output: the root of a broadcast has it.
    fn wants_output(&self) -> bool {
        true
    }

    /// `bytes` bytes of the input after `offset`.
    fn input(&self, offset: usize, bytes: usize) -> &[u8];

    /// Room for `bytes` bytes of the output after `offset`.
    fn output(&mut self, offset: usize, bytes: usize) -> &mut [u8];
}

/// Memory of their own for both.
#[derive(Debug)]
pub(crate) struct Apart<'a> {
    pub(crate) input: &'a [u8],
    pub(crate) output: &'a mut [u8],
}

impl Data for Apart<'_> {
    fn input(&self, offset: usize, bytes: usize) -> &[u8] {
        &self.input[offset..][..bytes]
    }

    fn output(&mut self, offset: usize, bytes: usize) -> &mut [u8] {
        &mut self.output[offset..][..bytes]
    }
}

/// The output takes the place of the input.
#[derive(Debug)]
pub(crate) struct InPlace<'a>(pub(crate) &'a mut [u8]);

impl Data for InPlace<'_> {
    fn input(&self, offset: usize, bytes: usize) -> &[u8] {
        &self.0[offset..][..bytes]
    }

    fn output(&mut self, offset: usize, bytes: usize) -> &mut [u8] {
        &mut self.0[offset..][..bytes]
    }
}

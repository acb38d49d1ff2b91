//! The bits of registers that are sets of flags.

use bitflags::bitflags;

bitflags! {
    /// Bits of [`crate::sequencer::FEATURES`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Features: u32 {
        /// The sequencer fetches instructions from a ring in host memory and writes completions there.
        const HOST_RING = 1 << 0;
        /// Instructions are put into card memory for it; it masters nothing.
        const CARD_RING = 1 << 1;
        /// Instructions and completions go through registers.
        const REGISTERS = 1 << 2;
        /// Programs can be stored on the card and launched again.
        const RESIDENT = 1 << 8;
        /// User logic sits behind a changeover switch.
        const USER_LOGIC = 1 << 9;
        /// The fabric is larger than the published system was built: its times are an extrapolation.
        const EXTRAPOLATED = 1 << 16;
        /// The published system does not reduce: its reduction units, and the times of reductions, are an extension.
        const REDUCTIONS_EXTEND = 1 << 17;
    }

    /// Bits of [`crate::sequencer::STATUS`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Status: u32 {
        /// The sequencer takes commands.
        const READY = 1 << 0;
        /// An instruction is being run.
        const BUSY = 1 << 1;
        /// It stopped by itself because of what [`crate::sequencer::ERROR`] says.
        const HALTED = 1 << 2;
    }

    /// Bits of [`crate::sequencer::ERROR`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Errors: u32 {
        /// A doorbell said more entries than the ring has, or went backwards.
        const BAD_DOORBELL = 1 << 0;
        /// An instruction could not be fetched: the bus refused the read of the submission ring.
        const FETCH_FAULT = 1 << 1;
        /// A completion could not be written: the bus refused the write to the completion ring.
        const COMPLETION_FAULT = 1 << 2;
        /// Data came on a link while its receive buffer was full, and was lost.
        const RECEIVE_OVERRUN = 1 << 3;
        /// Data came that no instruction expected, and was dropped.
        const UNEXPECTED_DATA = 1 << 4;
    }
}
